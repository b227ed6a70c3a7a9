"""What is in a folder that a person named, read with bounds (it may also hold a dataset), and what git's own files say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath

from splatfix.core.reading import Unread, read_bytes, read_text
from splatfix.core.redact import without_credentials
from splatfix.facts.model.source import PackageSource, Submodule
from splatfix.facts.source.git_index import gitlinks
from splatfix.facts.source.python_source import read_package_source
from splatfix.facts.source.reader import MOST_SOURCE, FolderReader, NotPython, is_folder, is_there

# Folders whose contents tell stacks apart; what else lies in a checkout is the user's own.
_TELLING = (
    "submodules",
    "utils",
    "gsplat",
    "bindings",
    "include",
    "examples",
    "nerfstudio",
    "nerfstudio/models",
    "rasterizer",
    "crates",
    "configs",
    "scene",
)
_SAYS_HOW_TO_BUILD = re.compile(
    r"^\s*\[\s*(?:project|build-system|tool\.(?:poetry|setuptools))\b", re.MULTILINE
)
_CLONE = (".git", ".gitmodules", "submodules")
_MOST_ABOVE = 6
_SOURCE_ENDINGS = frozenset({".h", ".hpp", ".cuh", ".cu", ".cpp", ".cc", ".py"})
_CODE_ENDINGS = frozenset({*_SOURCE_ENDINGS, ".toml", ".ipynb", ".rs", ".cmake", ".sh"})
_PHOTO_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".heic", ".tif", ".tiff", ".webp"})
_MOST_LOOKED_INTO = 100
_NOT_EDITED = frozenset({"third_party", "build", "dist", "docs", "doc", "tests", "test", "images"})
_MAX_SOURCE = 2 << 20
_MAX_GIT = 1 << 18
_MAX_INDEX = 1 << 23
_MAX_SUBMODULES = 500
_MAX_CLONES = 20
_CLONED = re.compile(r"\bgit[ ]{1,9}clone\b[^\n]{0,200}?((?:(?:https?|ssh|git)://|git@)[\w.@:/~+-]{1,300})")


def resolved_folder(text: str | Path) -> Path | None:
    """The absolute path of the folder that is named, links followed and ``~`` expanded; None for anything else."""
    folder = Path(text).expanduser()
    return folder.resolve() if folder.is_dir() else None


def is_file(text: str | Path) -> bool:
    """A file is named."""
    return Path(text).expanduser().is_file()


def holds_everything(folder: Path) -> str:
    """``the root of a disk`` or ``your home folder``, when it is one of these; "" otherwise."""
    known = {Path(folder.anchor): "the root of a disk", Path.home().resolve(): "your home folder"}
    return known.get(folder, "")


def as_typed(path: Path) -> str:
    """A folder as a person would name it from the current folder: ``./2dgs``."""
    here = Path.cwd()
    inside = path.is_relative_to(here) and path != here
    return f"./{path.relative_to(here).as_posix()}" if inside else str(path)


def has_build_file(folder: Path) -> bool:
    """It holds a setup.py, or a pyproject.toml with more than the settings of linters and the like."""
    if (folder / "setup.py").is_file():
        return True
    text = read_text(folder / "pyproject.toml", MOST_SOURCE)
    return isinstance(text, Unread) or bool(text and _SAYS_HOW_TO_BUILD.search(text))


def is_clone(folder: Path) -> bool:
    """It is a git clone, or has its extensions where stacks have them."""
    return any(is_there(folder / name) for name in _CLONE)


def checkout_around(folder: Path) -> Path:
    """The checkout that a folder is of: the nearest at or above it with a git folder or a .gitmodules; else itself."""
    for place in (folder, *islice(folder.parents, _MOST_ABOVE)):
        if holds_everything(place):
            break
        if is_there(place / ".git") or is_there(place / ".gitmodules"):
            return place
    return folder


def is_empty(folder: Path) -> bool:
    """It is missing, cannot be listed or holds nothing but ``.git``, as a submodule that was not fetched."""
    try:
        with os.scandir(folder) as listing:
            return all(item.name == ".git" for item in listing)
    except (OSError, ValueError):
        return True


def photos_alone(folder: Path, reader: FolderReader | None = None) -> int:
    """How many photos are in a folder in which no file is code, two levels down; 0 for any other folder."""
    reader, photos = reader or FolderReader(), 0
    pending = [(folder, 2)]
    for _ in range(_MOST_LOOKED_INTO):
        if not pending:
            break
        here, depth = pending.pop(0)
        for item in reader.children(here):
            ending = PurePosixPath(item.name).suffix.lower()
            if ending in _CODE_ENDINGS:
                return 0
            photos += ending in _PHOTO_ENDINGS
            if depth and item.is_dir(follow_symlinks=False):
                pending.append((here / item.name, depth - 1))
    return photos


def telling_paths(folder: Path, reader: FolderReader | None = None) -> tuple[str, ...]:
    """The relative paths by which a checkout of a stack is recognised: the upper levels, as far as they are code."""
    reader = reader or FolderReader()
    found = [item.name for item in reader.children(folder)]
    for inner in _TELLING:
        found += [f"{inner}/{item.name}" for item in reader.children(folder / inner)]
    return tuple(sorted(found))


def subfolders(folder: Path) -> list[Path]:
    """Folders directly inside, in order of name, without hidden ones and links; none when it cannot be listed."""
    return [Path(item.path) for item in FolderReader().children(folder) if item.is_dir(follow_symlinks=False)]


def read_package(folder: Path, module: str) -> PackageSource:
    """The Python package ``module`` of an extension's source folder, by its ``__init__.py``.

    Raises:
        NotPython: when it is not there, cannot be read, or is not Python that this version can read.
    """
    text = read_text(folder / module / "__init__.py", MOST_SOURCE)
    if not isinstance(text, str):
        raise NotPython(text.reason if text else "there is no such file")
    return read_package_source(module, text)


def packages_in(folder: Path) -> tuple[str, ...]:
    """Names of the Python packages directly inside a folder."""
    return tuple(
        item.name for item in FolderReader().children(folder) if is_there(f"{item.path}/__init__.py")
    )


def source_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of every source file that an edit may change; bytes that are not UTF-8 are kept as surrogates."""
    reader = FolderReader()
    pending = [folder]
    while pending:
        for item in reader.children(pending.pop()):
            path = Path(item.path)
            if item.is_dir(follow_symlinks=False):
                if item.name not in _NOT_EDITED:
                    pending.append(path)
            elif _is_source(path) and not item.is_symlink():
                content = read_bytes(path, _MAX_SOURCE)
                if isinstance(content, bytes):
                    text = content.decode("utf-8", "surrogateescape")
                    yield path.relative_to(folder).as_posix(), text


def _is_source(path: Path) -> bool:
    return path.suffix in _SOURCE_ENDINGS or path.name == "CMakeLists.txt"


def git_folder(folder: Path, reader: FolderReader | None = None) -> Path | None:
    """The folder with HEAD and config; a submodule's or worktree's ``.git`` is a file that names it."""
    place = folder / ".git"
    if is_folder(place):
        return place
    match = re.match(r"gitdir:[ \t]*(\S.*)", (reader or FolderReader()).text(place, _MAX_GIT))
    named = _inside(folder, match.group(1).strip()) if match else None
    return named if named and is_folder(named) else None


def commit_of(git: Path | None, reader: FolderReader | None = None) -> str | None:
    """The commit that is checked out, from HEAD, a loose or a packed reference; None where none of them tells."""
    if git is None:
        return None
    reader = reader or FolderReader()
    head = reader.text(git / "HEAD", _MAX_GIT).strip()
    if not head.startswith("ref:"):
        return head if re.fullmatch(r"[0-9a-f]{40,64}", head) else None
    ref = head.removeprefix("ref:").strip()
    common = _inside(git, reader.text(git / "commondir", _MAX_GIT).strip()) or git
    for place in (git, common):
        loose = reader.text(place / ref, _MAX_GIT).strip()
        if re.fullmatch(r"[0-9a-f]{40,64}", loose):
            return loose
    for line in reader.text(common / "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == ref and re.fullmatch(r"[0-9a-f]{40,64}", commit):
            return commit
    return None


def _inside(folder: Path, named: str) -> Path | None:
    """The place that a file of git names, seen from its folder; None for a name that there cannot be."""
    try:
        return Path(os.path.realpath(folder / named))
    except ValueError:  # a NUL in it
        return None


def remote_of(git: Path | None, reader: FolderReader | None = None) -> str:
    """The address of ``origin``, without credentials."""
    config = (reader or FolderReader()).text(git / "config", _MAX_GIT) if git else ""
    url = next((values.get("url", "") for name, values in sections(config) if name == 'remote "origin"'), "")
    return without_credentials(url.strip('"').partition(" ")[0])


def cloned_in_readme(root: Path, reader: FolderReader) -> Iterator[str]:
    """Addresses behind ``git clone`` in the READMEs of a folder, without credentials, in order of the text."""
    for item in reader.children(root):
        if item.name.lower().startswith("readme") and not is_folder(item.path):
            found = _CLONED.findall(reader.text(root / item.name))
            yield from (without_credentials(address) for address in found[:_MAX_CLONES])


def read_submodules(root: Path, reader: FolderReader | None = None) -> tuple[Submodule, ...]:
    """The submodules that .gitmodules names, and those that only git's index has."""
    reader = reader or FolderReader()
    listed = _gitmodules(root, reader)
    if len(listed) > _MAX_SUBMODULES:
        reader.leave_out(root / ".gitmodules", f"it names more than {_MAX_SUBMODULES} submodules")
    git = git_folder(root, reader)
    index = read_bytes(git / "index", _MAX_INDEX) if git else None
    recorded = gitlinks(index) if isinstance(index, bytes) else {}
    return tuple(
        Submodule(
            path=path,
            url=without_credentials(_entry(listed.get(path) or _entry_inside(root, path, reader), "url")),
            empty=is_empty(root / path),
            commit=commit_of(git_folder(root / path, reader), reader),
            listed=path in listed,
            branch=_entry(listed.get(path, {}), "branch"),
            recorded=recorded.get(path),
        )
        for path in list(dict.fromkeys([*listed, *recorded]))[:_MAX_SUBMODULES]
    )


def _gitmodules(folder: Path, reader: FolderReader) -> dict[str, Mapping[str, str]]:
    """What .gitmodules says of each path."""
    found: dict[str, Mapping[str, str]] = {}
    for name, values in sections(reader.text(folder / ".gitmodules", _MAX_GIT)):
        if name.startswith("submodule") and "path" in values:
            found.setdefault(_entry(values, "path").rstrip("/"), values)
    return found


def _entry(values: Mapping[str, str], name: str) -> str:
    return values.get(name, "").strip('"')


def _entry_inside(root: Path, path: str, reader: FolderReader) -> Mapping[str, str]:
    """The entry for a link that the checkout took over with a folder of another repository, which has a .gitmodules."""
    for parent in list(PurePosixPath(path).parents)[:-1]:
        inside = PurePosixPath(path).relative_to(parent).as_posix()
        if entry := _gitmodules(root / parent, reader).get(inside):
            return entry
    return {}


def sections(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The sections of an INI file (git's config, setup.cfg) with their entries, of which the first of a name counts."""
    name, values = "", dict[str, str]()
    for line in text.splitlines():
        if head := re.match(r"\s*\[([^\]]*)\]", line):
            yield name, values
            name, values = head.group(1).strip(), {}
        elif entry := re.match(r"\s*([\w.-]+)\s*[=:](.*)", line):
            values.setdefault(entry.group(1), entry.group(2).strip())
    yield name, values
