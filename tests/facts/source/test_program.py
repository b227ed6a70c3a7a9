"""What programs and packages import and use, read through their own modules; nothing is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from splatfix.checks.checkout.code_shapes import by_shape
from splatfix.core.source_pattern import NamePattern
from splatfix.facts.checkout import read_source
from splatfix.facts.source.program import Program, read_program
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.scripts import find_scripts, read_scripts
from tests.files import put
from tests.tables import data

TABLE = data(__file__)


def program(folder: Path, text: str, *names: str, **files: str) -> Program:
    """Of a train.py with this text, beside other files."""
    others = {f"{name}.py": content for name, content in files.items()}
    put(folder, {"train.py": text, **others})
    patterns = (by_shape(NamePattern("wanted", frozenset(names))),) if names else ()
    return read_program([folder / "train.py"], folder, patterns, FolderReader())


def imported(folder: Path, text: str, **files: str) -> list[str]:
    return [item.name for item in program(folder, text, **files).imports]


@pytest.mark.parametrize("text", TABLE["may-fail"])
def test_an_import_that_may_fail(tmp_path: Path, text: str) -> None:
    assert imported(tmp_path, text) == []


@pytest.mark.parametrize("text", TABLE["must-work"])
def test_an_import_that_must_work(tmp_path: Path, text: str) -> None:
    assert imported(tmp_path, text) == ["wandb"]


@pytest.mark.parametrize(("text", "files", "missing"), TABLE["imports"])
def test_imports(tmp_path: Path, text: str, files: dict[str, str], missing: tuple[str, ...]) -> None:
    assert tuple(imported(put(tmp_path, files), text)) == missing


@pytest.mark.parametrize(("files", "programs", "beside"), TABLE["scripts"])
def test_scripts_of_a_checkout(
    tmp_path: Path, files: dict[str, str], programs: tuple[str, ...], beside: tuple[str, ...]
) -> None:
    """MonoGS's slam.py and dreamgaussian's main.py: nothing was read, and nothing was missing."""
    put(tmp_path, files)
    found = find_scripts(tmp_path, FolderReader())
    named = [tuple(path.relative_to(tmp_path).as_posix() for path in group) for group in found]
    assert named == [programs, beside]


@pytest.mark.parametrize(("files", "imports", "at_import"), TABLE["beside"])
def test_where_others_modules_are_imported(
    tmp_path: Path, files: dict[str, str], imports: tuple[object, ...], at_import: tuple[bool, ...]
) -> None:
    """Own modules are followed; what only other scripts need is marked."""
    found, _ = read_scripts(put(tmp_path, files), (NamePattern("wanted", frozenset({"numpy.float"})),))
    assert {(item.name, item.file, item.line, item.beside) for item in found.imports} == set(imports)
    assert tuple(match.at_import for match in found.matches) == at_import


def test_nothing_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    put(tmp_path, {"secret.py": "import hidden\n"})
    inside = tmp_path / "stack"
    inside.mkdir()
    (inside / "linked.py").symlink_to(tmp_path / "secret.py")
    assert imported(inside, "import linked\nfrom .. import secret\n") == []


@pytest.mark.parametrize(("text", "names", "told"), TABLE["uses"])
def test_where_names_are_used(tmp_path: Path, text: str, names: tuple[str, ...], told: object) -> None:
    matches = program(tmp_path, text, *names).matches
    assert tuple((item.line, item.at_import) for item in matches) == told
    for item in matches:
        assert (item.breakage, item.file) == ("wanted", "train.py")
        assert item.text == text.splitlines()[item.line - 1].strip()


@pytest.mark.parametrize(("field", "refused"), TABLE["defaults"])
def test_defaults_that_cannot_be_hashed(tmp_path: Path, field: str, refused: int) -> None:
    text = f"{TABLE['texts']['dataclasses']}    {field}\n"
    matches = program(tmp_path, text, "dataclass(default=unhashable)").matches
    assert [item.line for item in matches] == [text.count("\n")] * refused


def test_a_source_says_what_its_packages_import(tmp_path: Path) -> None:
    put(tmp_path, TABLE["source"])
    assert [item.name for item in read_source(tmp_path).needs] == ["torch", "dacite"]
