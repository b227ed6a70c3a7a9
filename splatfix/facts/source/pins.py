"""The requirements that a checkout writes down: requirements.txt, conda's environment files, pyproject.toml."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from splatfix.core.redact import without_credentials
from splatfix.core.toml import parse_toml
from splatfix.facts.source.reader import FolderReader
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


class _Project(Struct, rename="kebab"):
    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()


class _BuildSystem(Struct):
    requires: tuple[str, ...] = ()


class ProjectFile(Struct, rename="kebab"):
    """The tables of a pyproject.toml that say what is built and what it needs."""

    project: _Project = field(default_factory=_Project)
    build_system: _BuildSystem = field(default_factory=_BuildSystem)
    tool: Any = None

    def requirements(self, folder: Path, reader: FolderReader) -> Iterator[str]:
        """Yield its dependencies, and those that setuptools takes from files where ``[tool.setuptools.dynamic]`` says so."""
        yield from self.project.dependencies
        table = self.tool
        for key in ("setuptools", "dynamic", "dependencies", "file"):
            table = table.get(key) if isinstance(table, dict) else None
        for name in filter(None, table if isinstance(table, list) else [table]):
            path = folder / str(name)
            if ".." not in path.parts and path.is_relative_to(folder):
                stripped = (line.strip() for line in _of_requirements(reader.text(path)))
                yield from (line for line in stripped if line and not line.startswith("-"))


def read_project_file(path: Path, reader: FolderReader) -> tuple[ProjectFile, str]:
    """Read a pyproject.toml: nothing, and why, where it is no TOML, or its tables hold what no builder takes."""
    try:
        return msgspec.convert(parse_toml(reader.text(path)), ProjectFile), ""
    except (ValueError, msgspec.ValidationError) as error:
        return ProjectFile(), f"pyproject.toml cannot be read: {error}"


def read_pins(root: Path, reader: FolderReader | None = None) -> Iterator[Pin]:
    """Every requirement in the top folder's files, in order of the files' names."""
    reader = reader or FolderReader()
    count = 0
    for entry in reader.children(root):
        path, lines = Path(entry.path), iter(list[str]())
        if _REQUIREMENTS.fullmatch(entry.name):
            lines = _of_requirements(reader.text(path))
        elif _CONDA.fullmatch(entry.name):
            lines = _of_conda(reader.text(path))
        elif entry.name == "pyproject.toml":  # setup-unreadable tells of a damaged one where it matters
            lines = iter(read_project_file(path, reader)[0].project.dependencies)
        for pin in filter(None, (_pin(entry.name, line) for line in lines)):
            if count == _MOST_PINS:
                reader.leave_out(
                    root, f"its files name more than {_MOST_PINS} requirements; the others are not read"
                )
                return
            count += 1
            yield pin


def _of_requirements(text: str) -> Iterator[str]:
    return (_COMMENT.split(line, maxsplit=1)[0] for line in _lines(text))


def _of_conda(text: str) -> Iterator[str]:
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
