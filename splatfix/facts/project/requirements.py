"""Reads requirements: single ones as PEP 508 has them, and pip's requirements files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from splatfix.core.data import replace
from splatfix.core.redact import without_credentials
from splatfix.facts.project.model import Dependency, Manager, Manifest

# pip's: the "#" of an address begins its fragment
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_OPTION = re.compile(r"(--?[a-z-]+)(?:\s+|=)(\S+)")
_ADDRESS = re.compile(r"(?:git|hg|svn|bzr)\+\S+|https?://\S+|file:\S+")
_MOST_LINES = 5000
_MOST_FILES = 50
_LONGEST_LINE = 2000


def read(
    file: str, text: str, text_of: Callable[[str], str | None], visited: set[str] | None = None
) -> Manifest:
    """A requirements file, with those that it includes and the constraints that it names, from inside of the project.

    Args:
        text_of: the text of a file of the project by its path; None for one that is not there.
        visited: those that were read before, each of which is read once.
    """
    dependencies: list[Dependency] = []
    constraints: list[Dependency] = []
    indexes: list[str] = []
    wrong: list[str] = []
    replaces = False
    visited = visited or {file}
    for number, line in _lines(text):
        if number > _MOST_LINES:
            wrong.append(f"it has more than {_MOST_LINES} lines, and the others were not read")
            break
        option = _OPTION.match(line)
        words = option[2] if option else line
        match option[1] if option else "":
            case "-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links":
                indexes.append(without_credentials(words))
                replaces = replaces or (option is not None and option[1] in ("-i", "--index-url"))
            case "-r" | "--requirement" | "-c" | "--constraint":
                path = posixpath.normpath(posixpath.join(posixpath.dirname(file), words))
                if path in visited:
                    continue
                visited.add(path)
                included = None
                if not path.startswith(("/", "..")) and len(visited) <= _MOST_FILES:
                    included = text_of(path)
                if included is None:
                    reason = "it is no file of this project, or there are too many"
                    wrong.append(f"line {number}: {words} was not read: {reason}")
                inner = read(path, included or "", text_of, visited)
                # what is included has lines of its own: it is named by the line that includes it
                rows = [replace(item, line=number) for item in inner.dependencies]
                if option and option[1] in ("-c", "--constraint"):
                    constraints += rows
                else:
                    dependencies += rows
                indexes += inner.indexes
                replaces = replaces or inner.replaces_pypi
                wrong += inner.wrong
            case "" | "-e" | "--editable":
                dependency = dependency_of(words, number)
                if dependency is None:
                    wrong.append(f"line {number} is no requirement that can be read")
                else:
                    dependencies.append(dependency)
    return Manifest(
        file,
        Manager.PIP,
        tuple(constrained(dependencies, constraints)),
        indexes=tuple(dict.fromkeys(indexes)),
        replaces_pypi=replaces,
        wrong=tuple(wrong),
    )


def constrained(
    dependencies: Iterable[Dependency], constraints: Iterable[Dependency]
) -> Iterator[Dependency]:
    """Each with the specifiers of its constraints beside its own."""
    specifiers: dict[str, list[str]] = {}
    for item in constraints:
        specifiers.setdefault(item.name, []).append(item.specifier)
    for item in dependencies:
        yield replace(
            item, specifier=",".join(filter(None, (item.specifier, *specifiers.get(item.name, ()))))
        )


def dependency_of(text: str, line: int) -> Dependency | None:
    """One requirement: ``torch>=2; marker``, ``name @ address``, an address or a folder; None for what is none of these."""
    text = re.split(r"\s--(?:hash|config-setting|global-option)", text.strip())[0].strip()
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        return _of_address(text, line)
    except RecursionError:  # of parentheses in a marker
        return None
    marker = str(parsed.marker) if parsed.marker else ""
    if parsed.url:
        folder = _folder_of(parsed.url)
        address = without_credentials(parsed.url)
        return Dependency(canonicalize_name(parsed.name), "", line, marker, address, folder)
    name = canonicalize_name(parsed.name)
    return Dependency(name, str(parsed.specifier), line, marker)


def _of_address(text: str, line: int) -> Dependency | None:
    """An address or folder without a name: it gets that of its file or folder."""
    address, _, marker = (part.strip() for part in text.partition(" ;"))
    if _ADDRESS.fullmatch(address):
        egg = re.search(r"[#&]egg=([\w.-]+)", address)
        try:
            path = re.sub(r"@[^/@]*$", "", urlsplit(address.partition("+")[2] or address).path)
        except ValueError:  # brackets around what is no IPv6 address
            return None
        name = egg[1] if egg else PurePosixPath(unquote(path)).name.removesuffix(".git")
        if name.endswith(".whl"):
            name = name.partition("-")[0]
        return Dependency(
            canonicalize_name(name), "", line, marker, without_credentials(address), _folder_of(address)
        )
    if re.fullmatch(r"\.{0,2}/?[\w.-]+(/[\w.-]+)*/?", address) and ("/" in address or address == "."):
        folder = str(PurePosixPath(address))
        return Dependency(
            canonicalize_name(PurePosixPath(folder).name or "."), "", line, marker, folder, folder
        )
    return None


def _folder_of(address: str) -> str:
    """The folder of a ``file:`` address that is relative to the project; "" for any other."""
    path = re.fullmatch(r"file:(?!/)(\S+)|(\.{1,2}/\S*)", address)
    return str(PurePosixPath(path[1] or path[2])) if path else ""


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number, those that end in a backslash joined, without comments and empty ones."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        joined += line[:_LONGEST_LINE]
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        words = _COMMENT.sub("", joined).strip()
        if words:
            yield first, words
        joined, first = "", 0
