"""Every data file has its shape, its date and its sources; a user's file lies over ours and is told when it is wrong."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splatfix.knowledge import (
    KnowledgeError,
    cpp_extension,
    drivers,
    failures,
    fatbin,
    host_compilers,
    load_overrides,
    nvml,
    parse_target,
    provenance,
    stacks,
    table_names,
    toolkits,
    torch_releases,
    using,
)
from splatfix.knowledge._schema import SECTIONS, SETTINGS, problems
from splatfix.knowledge._tables import DATA, compare, parse_version, table
from splatfix.knowledge.archs import (
    Arch,
    arch_info,
    arch_of_product,
    cubin_runs_on,
    known_archs,
    newest_toolkit,
    nvcc_default_arch,
    toolkit_supports,
)
from splatfix.knowledge.drivers import cuda_level_of_driver
from splatfix.knowledge.torch_releases import build
from splatfix.knowledge.uv_torch_backend import uv_backends

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
def test_every_row_can_say_its_source_and_date(name: str, tmp_path: Path) -> None:
    for section, wanted in SECTIONS[name].items():
        for key in [""] if wanted.single else table(name)[section]:
            found = provenance(name, section, key)
            assert found is not None and len(found.source) > 3
            assert datetime.date.fromisoformat(found.date) >= datetime.date(2026, 11, 20)
    assert provenance(name, section, "no such row") is None or wanted.single
    mine = (
        {"source": "seen here"}
        if wanted.single
        else {next(iter(table(name)[section])): {"source": "seen here"}}
    )
    path = tmp_path / "mine.json"
    key = "" if wanted.single else next(iter(mine))
    path.write_text(json.dumps({name: {section: mine}}))
    with using(path):
        found = provenance(name, section, key)
        assert found is not None and (found.source, found.date) == ("seen here", "")


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


WRONG: tuple[Any, ...] = (None, {}, "", -1, "(", 3.5, [[]], ["x"])


def read_everything() -> None:
    """Asks every table for what it holds, as the rest of splatfix does."""
    known_archs(), newest_toolkit(), arch_of_product("RTX 5080"), nvcc_default_arch(13)
    cubin_runs_on(Arch(8, 6), Arch(8, 9)), toolkit_supports((13, 0), Arch(12, 0))
    cuda_level_of_driver("580.1"), drivers.runtime_floor(13), drivers.native_driver("12.8")
    drivers.ptx_jit_ok((8, 0), (12, 4)), drivers.error_code(35), drivers.gpu_driver_floor(Arch(12, 0))
    drivers.gpu_last_branch(Arch(6, 1)), drivers.open_modules(Arch(12, 0)), drivers.forward_compat()
    cpp_extension.expand_arch_list("8.6", "2.9"), cpp_extension.first_release_for_arch(Arch(12, 0))
    torch_releases.builds_for_arch(Arch(12, 0)), torch_releases.index_url("cu128")
    for row in torch_releases.releases():
        [torch_releases.wheel_obstacle(item, python=(3, 11), glibc=(2, 35)) for item in row.builds]
    toolkits.provision(13), toolkits.recipe("13.0"), toolkits.wheel_contents(), toolkits.cuda_of_torch("2.11")
    stacks.recognise_checkout(["train.py"]), stacks.identify("simple_knn"), stacks.breakages()
    stacks.lookalike("simple-knn"), stacks.pure_torch_substitute("fused_ssim"), failures.failure_classes()
    fatbin.kinds(), fatbin.flags(), fatbin.magics(), fatbin.sections("elf")
    nvml.nvml_error(18), nvml.generation(10), nvml.library_names("linux"), uv_backends((580,))
    host_compilers.limits((12, 8)), host_compilers.library_unreadable((11, 5), 11)
    host_compilers.oldest_gcc_of_torch("2.9"), host_compilers.msvc_product(1940)


def damaged(name: str) -> Iterator[dict[str, Any]]:
    """Override files for one table, each with one thing wrong: a key that is none, or a value of another type."""
    for section, wanted in SECTIONS[name].items():
        found = table(name)[section]
        if not wanted.single:
            key, row = next(iter(found.items()))
            yield from ({section: {bad: row}} for bad in ("nonsense", "", "1.2.3.x", "-1", "12.8.x"))
            yield from ({section: {key: {field: bad}}} for field in row for bad in WRONG)
            yield from ({section: {key: bad}} for bad in WRONG)
        else:
            yield from ({section: {field: bad}} for field in found for bad in WRONG)
    yield from ({setting: bad} for setting in SETTINGS.get(name, {}) for bad in WRONG)


@NAMES
def test_a_damaged_override_is_told_when_it_is_read_and_never_later(name: str, tmp_path: Path) -> None:
    """Whatever is wrong in a user's file, for every table, section and field: either words at once, or no harm at all."""
    path, told, harmless = tmp_path / "mine.json", 0, 0
    for document in damaged(name):
        path.write_text(json.dumps({name: document}))
        try:
            overrides = load_overrides(path)
        except KnowledgeError as error:
            told += 1
            assert str(path) in str(error)
            continue
        harmless += 1
        with using(overrides):
            read_everything()
    assert told > 20 and told > 3 * harmless, (told, harmless)


@NAMES
def test_every_section_of_every_table_takes_a_row_of_ones_own_and_a_changed_field(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    new_keys = {
        "archs": "130",
        "releases": "9.9",
        "limits": "99.1",
        "ptx_isa": "99.1",
        "torch_headers": "9.9",
    }
    for section, wanted in SECTIONS[name].items():
        found = table(name)[section]
        if wanted.single:
            changed = {section: {"source": "seen here"}}
        else:
            key, row = next(iter(found.items()))
            new = new_keys.get(section) or next(
                text for text in ("seen-here", "990") if wanted.key.holds(text)
            )
            changed = {section: {new: {**row, "source": "seen here"}, key: {"source": "seen here"}}}
        path.write_text(json.dumps({name: changed}))
        with using(path):
            read_everything()
            mine = table(name)[section]
            rows = [mine] if wanted.single else [mine[new], mine[key]]
            assert [row["source"] for row in rows] == ["seen here"] * len(rows)
            assert len(mine) == len(found) + (not wanted.single)
        assert table(name)[section] == found


def test_a_mirror_of_the_wheel_index_and_the_reach_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[torch_releases]\nindex_url = "https://mirror.example/whl/{tag}"\n[drivers]\n'
        "driver_levels_known_through = 700\n[archs]\nnewest_toolkit = [14, 2]\n"
    )
    with using(path):
        assert torch_releases.pip_words("2.9.1", "cu128").endswith("https://mirror.example/whl/cu128")
        assert cuda_level_of_driver("699.1") is not None
        assert newest_toolkit() == (14, 2)
    assert cuda_level_of_driver("699.1") is None
    path.write_text('[torch_releases]\nindex_url = "https://mirror.example/whl"\n')
    with pytest.raises(KnowledgeError, match=r"an address with \{tag\} in it"):
        load_overrides(path)
