"""Every data file has its shape, its date and its sources; a user's file lies over ours and is told when it is wrong."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splatfix.knowledge import KnowledgeError, load_overrides, table_names, using
from splatfix.knowledge._schema import SECTIONS, problems
from splatfix.knowledge._tables import DATA, compare, parse_version, table
from splatfix.knowledge.archs import (
    Arch,
    arch_info,
    cubin_runs_on,
    newest_toolkit,
    parse_target,
    toolkit_supports,
)
from splatfix.knowledge.drivers import cuda_level_of_driver
from splatfix.knowledge.torch_releases import build

NAMES = pytest.mark.parametrize("name", table_names())


def rows_with_source(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("source"), str):
            yield value
        for item in value.values():
            yield from rows_with_source(item)
    elif isinstance(value, list):
        for item in value:
            yield from rows_with_source(item)


def test_every_file_has_a_shape_and_every_shape_a_file() -> None:
    assert set(table_names()) == set(SECTIONS)
    assert len(table_names()) == 11


@NAMES
def test_shape(name: str) -> None:
    document = table(name)
    assert list(problems(name, document)) == []
    assert document["schema"] == 1
    assert document["table"] == name
    assert datetime.date.fromisoformat(document["date"]) >= datetime.date(2026, 11, 20)


@NAMES
def test_every_row_names_a_source_that_the_file_describes(name: str) -> None:
    document = table(name)
    rows = list(rows_with_source(document))
    assert rows
    used = {row["source"] for row in rows}
    assert used <= set(document["source"])
    assert all(text.strip() for text in document["source"].values())


@NAMES
def test_uncertainty_is_a_field_and_not_a_word_in_a_value(name: str) -> None:
    sections = {key: value for key, value in table(name).items() if key in SECTIONS[name]}
    for word in ("UNV", "UNVERIFIED"):
        values = [
            row
            for row in rows_with_source(sections)
            if word in json.dumps({**row, "evidence": "", "builds": {}})
        ]
        assert values == []


@NAMES
def test_no_traces_of_one_machine(name: str) -> None:
    text = (DATA / f"{name}.json").read_text()
    assert not re.search(r"/(root|home|Users|tmp)/", text)


def test_the_shape_check_finds_faults() -> None:
    document = json.loads(json.dumps(table("archs")))
    del document["archs"]["120"]["tegra"]
    document["archs"]["90"]["cc"] = "9.0"
    document["archs"]["75"]["colour"] = "green"
    found = list(problems("archs", document))
    assert len(found) == 3
    assert any("archs.archs.120 lacks 'tegra'" in text for text in found)
    assert any("archs.archs.90.cc is '9.0'" in text for text in found)
    assert any("'colour' that means nothing" in text for text in found)


OVERRIDE = """
[archs.archs.130]
cc = [13, 0]
name = "Example"
gpus = ["RTX 6090"]
first_toolkit = [14, 0]
last_toolkit = false
tegra = false
variants = {}
verified = true
source = "release notes of CUDA 14.0"

[archs.products.sm_130]
pattern = "RTX 60[5-9]0"
sm = 130
verified = true
source = "its box"

[drivers.driver_levels.640]
cuda = [14, 0]
verified = true
source = "nvidia-smi here"

[torch_releases.releases."2.15".builds.cu126]
index_verified = true
"""


class TestOverrides:
    def test_new_rows_and_changed_fields(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        path.write_text(OVERRIDE)
        arch = Arch(13, 0)
        assert arch_info(arch) is None
        with using(path):
            info = arch_info(arch)
            assert info is not None and info.name == "Example" and info.source == "release notes of CUDA 14.0"
            assert info.last_toolkit is None
            assert newest_toolkit() == (14, 0)
            assert toolkit_supports((13, 5), arch) is False
            assert toolkit_supports((14, 0), arch) is True
            assert cubin_runs_on(arch, Arch(13, 1))
            assert parse_target("GeForce RTX 6090") == arch
            assert cuda_level_of_driver("640.10") == (14, 0)
            found = build("2.15.0", "cu126")
            assert (
                found is not None and found.index_verified and Arch(6, 0) in found.code["linux-x86_64"].cubins
            )
        assert arch_info(arch) is None
        assert cuda_level_of_driver("640.10") is None
        found = build("2.15.0", "cu126")
        assert found is not None and not found.index_verified

    def test_json_says_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        row = {"cuda": [14, 0], "verified": True, "source": "seen"}
        path.write_text(json.dumps({"drivers": {"driver_levels": {"640": row}}}))
        with using(load_overrides(path)):
            assert cuda_level_of_driver("640.1") == (14, 0)
        with using(None):
            assert cuda_level_of_driver("640.1") is None

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("[nothing.here]\nx = 1", "names the table 'nothing', which does not exist. Tables: archs"),
            ("[archs.colours.1]\nx = 1", "Sections of archs: archs, families"),
            ("archs = 3", "Sections of archs"),
            ("[archs.archs.130]\nname = 'X'", "archs.archs.130 lacks 'cc'"),
            ("[archs.archs.120]\ncc = '12.0'", "must be a version of two numbers"),
            ("[archs.archs.120]\ntypo = true", "a field 'typo' that means nothing"),
            ("= broken", "is not valid TOML"),
        ],
    )
    def test_faults_are_told_in_words(self, tmp_path: Path, text: str, words: str) -> None:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        with pytest.raises(KnowledgeError) as caught:
            load_overrides(path)
        assert words in str(caught.value)
        assert str(path) in str(caught.value)

    def test_missing_file_and_broken_json(self, tmp_path: Path) -> None:
        with pytest.raises(KnowledgeError, match="cannot be read"):
            load_overrides(tmp_path / "none.toml")
        (tmp_path / "x.json").write_text("[1]")
        with pytest.raises(KnowledgeError, match="must hold tables by name"):
            load_overrides(tmp_path / "x.json")
        (tmp_path / "y.json").write_text("{")
        with pytest.raises(KnowledgeError, match="is not valid JSON"):
            load_overrides(tmp_path / "y.json")


def test_versions() -> None:
    assert parse_version("2.13.0+cpu") == (2, 13, 0)
    assert parse_version("2.16.0.dev20261101") == (2, 16, 0)
    assert parse_version("13.0rc1") == (13, 0)
    assert compare((13,), (13, 0)) == 0
    assert compare((12, 9), (13,)) == -1
    assert compare((13, 0, 1), (13, 0)) == 1
    with pytest.raises(KnowledgeError, match="not a version"):
        parse_version("newest")
