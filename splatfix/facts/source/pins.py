"""The requirements that a checkout writes down: requirements.txt, conda's environment files, pyproject.toml."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from splatfix.core.redact import without_credentials
from splatfix.core.toml import parse_toml
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.toml_table import TomlTable
from splatfix.model import Pin

_MOST_PINS = 5000
_LONGEST_LINE = 1000
_REQUIREMENTS = re.compile(r"requirements.*\.txt")
_CONDA = re.compile(r"(environment|requirements|conda).*\.ya?ml")
# "git+https://host/owner/name.git@commit#egg=package", also behind "package @ "
_ADDRESS = re.compile(
    r"(?:-e\s+|--editable[ =])?(?:([A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s*@\s*)?(git\+https?://\S+)"
)
_PACKAGE_OF_ADDRESS = re.compile(
    r".*(?:#|&)egg=([\w.-]+).*|.*?//[^#]*?([\w.-]+?)(?:\.git)?/*(?:@[^#/]*)?(?:#.*)?$"
)
# pip's: the "#" of an address begins its fragment
_COMMENT = re.compile(r"(?:^|\s)#")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
# A colon alone is that of a key, as in "- pip:"; two are behind a channel's name.
_KEY_COLON = re.compile(r"(?<!:):(?!:)")


def read_pins(root: Path, reader: FolderReader | None = None) -> Iterator[Pin]:
    """Every requirement in the top folder's files, in order of the files' names."""
    reader = reader or FolderReader()
    count = 0
    for entry in reader.children(root):
        if _REQUIREMENTS.fullmatch(entry.name):
            lines = _of_requirements(reader.text(Path(entry.path)))
        elif _CONDA.fullmatch(entry.name):
            lines = _of_conda(reader.text(Path(entry.path)))
        elif entry.name == "pyproject.toml":
            lines = _of_project(reader.text(Path(entry.path)))
        else:
            continue
        for pin in filter(None, (_pin(entry.name, line) for line in lines)):
            if count == _MOST_PINS:
                reader.leave_out(
                    root, f"its files name more than {_MOST_PINS} requirements; the others are not read"
                )
                return
            count += 1
            yield pin


def _of_requirements(text: str) -> Iterable[str]:
    for line in _lines(text):
        yield _COMMENT.split(line, maxsplit=1)[0]


def _of_project(text: str) -> Iterable[str]:
    """The dependencies of a project that describes itself, as nerfstudio does."""
    try:
        document = TomlTable(parse_toml(text), "pyproject.toml")
    except ValueError:
        return ()  # setup-unreadable tells of a damaged file where it matters
    return document.table("project").texts("dependencies")


def requirements_from_files(folder: Path, document: Mapping[str, Any], reader: FolderReader) -> Iterator[str]:
    """What setuptools takes from files of the project, where ``[tool.setuptools.dynamic]`` of its pyproject.toml says so."""
    table: Any = document
    for key in ("tool", "setuptools", "dynamic", "dependencies", "file"):
        table = table.get(key) if isinstance(table, Mapping) else None
    names = table if isinstance(table, list) else [table]
    for name in filter(None, names):
        path = folder / str(name)
        if ".." not in path.parts and path.is_relative_to(folder):
            stripped = (line.strip() for line in _of_requirements(reader.text(path)))
            yield from (line for line in stripped if line and not line.startswith("-"))


def _of_conda(text: str) -> Iterable[str]:
    """The list items under ``dependencies`` of a conda environment file, and those for pip inside of it."""
    inside = False
    for line in _lines(text):
        if re.match(r"\S", line):
            inside = line.startswith("dependencies:") or (inside and line.startswith("-"))
        item = re.match(r"\s*-\s+([^\s#][^#]*)", line) if inside else None
        if item and not _KEY_COLON.search(item.group(1).strip()):
            yield item.group(1).strip().strip("\"'")


def _lines(text: str) -> Iterator[str]:
    """Without those that are as long as no requirement is."""
    return (line for line in text.splitlines() if len(line) < _LONGEST_LINE)


def _pin(file: str, text: str) -> Pin | None:
    """``torch==1.12.1``, conda's ``pytorch=1.12.1=build`` or ``channel::name``, git's addresses; paths are no pins."""
    address = _ADDRESS.match(text.strip())
    if address:
        origin = without_credentials(address[2])
        package = address[1] or _PACKAGE_OF_ADDRESS.sub(r"\1\2", origin)
        return Pin(file, package, "", origin)
    text = text.strip().rpartition("::")[2]
    name = _NAME.match(text)
    if not name or "/" in text.partition(";")[0] or "@" in text:
        return None
    spec = re.sub(r"^\[[^\]]*\]", "", text[name.end() :].partition(";")[0].strip())
    conda = re.fullmatch(r"=([^=\s]+)(=\S+)?", spec)
    if conda:
        spec = f"=={conda.group(1)}"
    if spec and not re.match(r"[=<>!~]", spec):
        return None
    return Pin(file, name.group(0), spec.replace(" ", ""))
