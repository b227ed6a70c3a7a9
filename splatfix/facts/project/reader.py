"""Reads what a project declares, as text; nothing is resolved, and no index is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from splatfix.core.data import replace
from splatfix.core.toml import parse_toml
from splatfix.facts.model.source import Source
from splatfix.facts.project import conda, pyproject, requirements
from splatfix.facts.project.model import Manifest, Project
from splatfix.facts.source.extension import read_source
from splatfix.facts.source.reader import FolderReader, is_folder

_MOST_MANIFEST = 1 << 20
_MOST_LOCK = 16 << 20
_MOST_FILES = 40
_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.txt")
_CONDA = re.compile(r"(environment|conda)[\w.-]*\.ya?ml")


def read_project(folder: Path, texts: Mapping[str, str] | None = None) -> Project:
    """Every file in a folder from which an environment is made.

    Args:
        texts: of files, in the place of what they hold.
    """
    reader = FolderReader()
    asked: list[str] = []

    def text_if_there(name: str) -> str | None:
        asked.append(name)
        if texts and name in texts:
            return texts[name]
        most = _MOST_LOCK if name.endswith(".lock") else _MOST_MANIFEST
        text = reader.text_or_reason(folder / name, most)
        return text if isinstance(text, str) else None

    manifests: list[Manifest] = []
    names = list(_names(folder, reader))
    for name in names[:_MOST_FILES]:
        asked.clear()
        read = list(_read(name, text_if_there))
        left_out = {item.path: item.reason for item in reader.left_out}
        paths = [(file, str(folder / file)) for file in dict.fromkeys(asked)]
        unread = [f"{file} was not read: {left_out[path]}" for file, path in paths if path in left_out]
        manifests += [replace(manifest, wrong=(*manifest.wrong, *unread)) for manifest in read]
    if len(names) > _MOST_FILES and manifests:
        reason = f"there are {len(names)} such files, of which at most {_MOST_FILES} are read"
        manifests[-1] = replace(manifests[-1], wrong=(*manifests[-1].wrong, reason))
    pinned = re.fullmatch(
        r"(?:cpython-?)?(3\.\d{1,3})(\.\d+)?", (text_if_there(".python-version") or "").strip()
    )
    sources = _sources(folder, manifests)
    return Project(
        str(folder),
        tuple(manifests),
        pinned[1] if pinned else "",
        sources,
        tuple(name for name in sources if _names_no_version(folder / name, FolderReader())),
    )


def _names(folder: Path, reader: FolderReader) -> Iterator[str]:
    for entry in reader.children(folder):
        if (
            entry.name in ("pyproject.toml", "pixi.toml")
            or _REQUIREMENTS.fullmatch(entry.name)
            or _CONDA.fullmatch(entry.name)
        ):
            yield entry.name


def _read(name: str, text_if_there: Callable[[str], str | None]) -> Iterator[Manifest]:
    def text_of(name: str) -> str:
        return text_if_there(name) or ""

    text = text_of(name)
    if name.endswith(".txt"):
        yield requirements.read(name, text, text_if_there)
        return
    if name.endswith((".yml", ".yaml")):
        yield conda.read_environment(name, text)
        return
    try:
        document = parse_toml(text)
    except ValueError as error:
        yield Manifest(name, pyproject.manager_of({}), wrong=(f"it is no TOML: {error}",))
        return
    if name == "pixi.toml":
        yield conda.read_pixi(name, text, document, text_of("pixi.lock"))
        return
    tool = pyproject.table(document, "tool")
    if "pixi" in tool:
        # what the project itself needs is installed by pixi then
        manifest = conda.read_pixi(name, text, pyproject.table(tool, "pixi"), text_of("pixi.lock"))
        own = pyproject.read(name, text, document, lambda _: "").dependencies
        yield replace(manifest, dependencies=(*manifest.dependencies, *own))
    elif "project" in document or "poetry" in tool:
        yield pyproject.read(name, text, document, text_of)


def _sources(folder: Path, manifests: Sequence[Manifest]) -> dict[str, Source]:
    """The sources that are there; a submodule that is empty is none."""
    folders = {item.folder for manifest in manifests for item in manifest.dependencies if item.folder}
    root, there = folder.resolve(), filter(lambda name: is_folder(folder / name), folders)
    inside = {name for name in there if (folder / name).resolve().is_relative_to(root)}
    reader = FolderReader()
    read = {name: read_source(folder / name, reader=reader) for name in sorted(inside)}
    return {name: source for name, source in read.items() if source.build_files}


def _names_no_version(folder: Path, reader: FolderReader) -> bool:
    texts = [reader.text(folder / name) for name in ("setup.py", "setup.cfg", "pyproject.toml")]
    return not any(re.search(r"\bversion\b|scm", text) for text in texts)
