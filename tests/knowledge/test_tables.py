"""Every data file fits its JSON Schema and names its sources; a user's file lies over ours and is told when it is wrong."""

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from splatfix.knowledge import (
    Arch,
    KnowledgeError,
    breakages,
    cpp_extension,
    drivers,
    failures,
    host_compilers,
    load_overrides,
    parse_target,
    stacks,
    table_names,
    toolkits,
    torch_releases,
    using,
)
from splatfix.knowledge.archs import arch_info, cubin_runs_on, known_archs, newest_toolkit, toolkit_supports
from splatfix.knowledge.drivers import cuda_level_of_driver
from splatfix.knowledge.tables import DATA, SCHEMA, parse_version, problem_in, table
from splatfix.knowledge.torch_releases import build
from tests.hostile.bad_files import bad_files
from tests.tables import data

FOLDERS = ("breakages", "failures", "log_lines", "log_observations")
"""Tables of many files."""
NAMES = pytest.mark.parametrize("name", table_names())
SCHEMAS = json.loads(SCHEMA.read_text())
ROWS = [
    (name, section)
    for name in table_names()
    for section, schema in SCHEMAS["properties"][name].get("properties", {}).items()
    if isinstance(schema.get("additionalProperties"), dict) and section != "source"
]


def rows_with_source(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("source"), str):
            yield value
        for item in value.values():
            yield from rows_with_source(item)
    elif isinstance(value, list):
        for item in value:
            yield from rows_with_source(item)


def test_files_of_failures_are_no_longer_than_a_screen() -> None:
    files = [path for name in FOLDERS[1:] for path in (DATA / name).glob("*.toml")]
    assert not [path.name for path in files if len(path.read_text("utf-8").splitlines()) > 60]


def test_every_table_has_a_schema() -> None:
    assert set(table_names()) == set(SCHEMAS["properties"])
    jsonschema.Draft7Validator.check_schema(SCHEMAS)


@NAMES
def test_a_table_fits_its_schema_and_its_rows_name_sources_that_it_describes(name: str) -> None:
    document = table(name)
    assert problem_in(name, document) == ""
    if name not in FOLDERS:
        assert datetime.date.fromisoformat(document["date"]) >= datetime.date(2026, 11, 20)
    rows = list(rows_with_source(document))
    if isinstance(document.get("source"), dict):
        used = {row["source"] for row in rows}
        assert used and used <= set(document["source"])
        assert all(text.strip() for text in document["source"].values())
    # uncertainty is a field and not a word in a value
    for row in rows:
        assert not re.search(r"UNV|UNVERIFIED", json.dumps({**row, "evidence": "", "builds": {}}))


@pytest.mark.parametrize(
    "path", [*(path for path in DATA.rglob("*") if path.is_file()), SCHEMA], ids=lambda path: path.name
)
def test_no_traces_of_one_machine(path: Path) -> None:
    assert not re.search(r"/(root|home|Users|tmp)/", path.read_text())


OVERRIDE: str = data(__file__)["texts"]["override"]


def test_new_rows_and_changed_fields(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OVERRIDE)
    arch = Arch(13, 0)
    assert arch_info(arch) is None
    with using(path):
        info = arch_info(arch)
        assert info.name == "Example"
        assert info.last_toolkit is None
        assert newest_toolkit() == (14, 0)
        assert toolkit_supports((13, 5), arch) is False
        assert toolkit_supports((14, 0), arch) is True
        assert cubin_runs_on(arch, Arch(13, 1))
        assert parse_target("GeForce RTX 6090") == arch
        assert cuda_level_of_driver("640.10") == (14, 0)
        found = build("2.15.0", "cu126")
        assert found.index_verified and Arch(6, 0) in found.code().cubins
    assert arch_info(arch) is None
    assert cuda_level_of_driver("640.10") is None
    found = build("2.15.0", "cu126")
    assert found is not None and not found.index_verified


@pytest.mark.parametrize(("text", "words"), data(__file__)["faults"])
def test_faults_are_told_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(KnowledgeError) as caught:
        load_overrides(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_missing_file_and_broken_json(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match="cannot be read"):
        load_overrides(tmp_path / "none.toml")
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(KnowledgeError, match="must hold tables by name"):
        load_overrides(tmp_path / "x.json")
    (tmp_path / "y.json").write_text("{")
    with pytest.raises(KnowledgeError, match="is not valid JSON"):
        load_overrides(tmp_path / "y.json")


def test_what_is_no_version() -> None:
    with pytest.raises(KnowledgeError, match="not a version"):
        parse_version("newest")


def read_everything() -> None:
    """Asks every table for what it holds, as the rest of splatfix does."""
    known_archs(), newest_toolkit(), parse_target("RTX 5080")
    cubin_runs_on(Arch(8, 6), Arch(8, 9)), toolkit_supports((13, 0), Arch(12, 0))
    cuda_level_of_driver("580.1"), drivers.runtime_floor(13)
    drivers.ptx_jit_ok((8, 0), (12, 4)), drivers.gpu_driver_floor(Arch(12, 0))
    drivers.gpu_last_branch(Arch(6, 1))
    cpp_extension.expand_arch_list("8.6", "2.9"), cpp_extension.first_release_for_arch(Arch(12, 0))
    torch_releases.builds_for_arch(Arch(12, 0)), torch_releases.index_url("cu128")
    for row in torch_releases.releases():
        [torch_releases.wheel_obstacle(item, python=(3, 11), glibc=(2, 35)) for item in row.builds]
    toolkits.provision(13), toolkits.recipe("13.0"), toolkits.cuda_of_torch("2.11")
    stacks.best_matches("simple_knn", stacks.Traits()), stacks.lookalike("simple-knn")
    host_compilers.limits((12, 8)), host_compilers.library_unreadable((11, 5), 11)
    host_compilers.oldest_gcc_of_torch("2.9"), host_compilers.compiler_check_skipped("2.9.1", None)
    breakages.breakages(), failures.failure_classes(), failures.explain_message("error", "compiler")
    failures.observations()


@pytest.mark.parametrize(("name", "section"), ROWS)
def test_every_section_takes_a_new_row_and_a_changed_field(name: str, section: str, tmp_path: Path) -> None:
    path, found = tmp_path / "mine.json", table(name)[section]
    schema = SCHEMAS["properties"][name]["properties"][section]
    keys = {"number_key": "990", "version_key": "99.1", "release_key": "9.9"}
    new = keys.get(schema.get("propertyNames", {}).get("$ref", "").rpartition("/")[2], "mine")
    key, row = next(iter(found.items()))
    rows, expected = {new: row}, {**found, new: row}
    if isinstance(row, dict):
        rows[key], expected[key] = {"note": "seen here"}, {**row, "note": "seen here"}
    path.write_text(json.dumps({name: {section: rows}}))
    with using(path):
        read_everything()
        assert table(name)[section] == expected
    assert table(name)[section] == found


def test_a_mirror_of_the_wheel_index_and_the_reach_of_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[torch_releases]\nindex_url = "https://mirror.example/whl/{tag}"\n[drivers]\n'
        "driver_levels_known_through = 700\n[archs]\nnewest_toolkit = [14, 2]\n"
    )
    with using(path):
        assert torch_releases.pip_words("2.9.1", "cu128")[-1] == "https://mirror.example/whl/cu128"
        assert cuda_level_of_driver("699.1") is not None
        assert newest_toolkit() == (14, 2)
    assert cuda_level_of_driver("699.1") is None
    path.write_text('[torch_releases]\nindex_url = "https://mirror.example/whl"\n')
    with pytest.raises(KnowledgeError, match=r"an address with \{tag\} in it"):
        load_overrides(path)


@pytest.mark.parametrize(
    "kind", ["fifo", "link-to-zeros", "sparse", "link-loop", "open-brackets", "no-utf-8"]
)
@pytest.mark.parametrize("name", ["o.json", "o.toml"])
def test_overrides_that_are_no_file(kind: str, name: str, tmp_path: Path) -> None:
    dict(bad_files())[kind](tmp_path / name)
    with pytest.raises(KnowledgeError, match=re.escape(str(tmp_path / name))):
        load_overrides(tmp_path / name)
