"""What is in a folder that a person named, read with bounds (it may also hold a dataset), and what git's own files say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from splatfix.core.redact import without_credentials
from splatfix.facts.model.source import Submodule
from splatfix.facts.source.python_source import PackageSource, read_package_source

_MAX_FILE = 1 << 20
_MAX_FILES = 600
# Folders of a checkout that hold no code of its own.
_NOT_CODE = re.compile(
    r"data|datasets?|outputs?|build|dist|node_modules|__pycache__|assets|SIBR_viewers|third_party|venv|env"
)
# Folders whose contents tell stacks apart; what else lies in a checkout is the user's own.
_TELLING = (
    "submodules",
    "utils",
    "gsplat",
    "examples",
    "nerfstudio",
    "nerfstudio/models",
    "rasterizer",
    "crates",
    "configs",
    "scene",
)
_BUILD_FILES = ("setup.py", "pyproject.toml")
_CLONE = (".git", ".gitmodules", "submodules")
_SOURCE_ENDINGS = frozenset({".h", ".hpp", ".cuh", ".cu", ".cpp", ".cc", ".py"})
_NOT_EDITED = frozenset({"third_party", "build", "dist", "docs", "doc", "tests", "test", "images"})
_MAX_SOURCE = 2 << 20


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
    """It holds a setup.py or a pyproject.toml."""
    return any((folder / name).is_file() for name in _BUILD_FILES)


def is_clone(folder: Path) -> bool:
    """It is a git clone, or has its extensions where stacks have them."""
    return any((folder / name).exists() for name in _CLONE)


def is_empty(folder: Path) -> bool:
    """It is missing, cannot be listed or holds nothing but ``.git``, as a submodule that was not fetched."""
    try:
        return all(item.name == ".git" for item in folder.iterdir())
    except OSError:
        return True


def telling_paths(folder: Path) -> tuple[str, ...]:
    """The relative paths by which a checkout of a stack is recognised: the upper levels, as far as they are code."""
    found = [item.name for item in children_of(folder)]
    for inner in _TELLING:
        found += [f"{inner}/{item.name}" for item in children_of(folder / inner)]
    return tuple(sorted(found))


def subfolders(folder: Path) -> list[Path]:
    """Folders directly inside, in order of name, without hidden ones and links; none when it cannot be listed."""
    try:
        with os.scandir(folder) as listing:
            names = sorted(item.name for item in listing if item.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".")]


def read_package(folder: Path, module: str) -> PackageSource:
    """The Python package ``module`` of an extension's source folder, by its ``__init__.py``.

    Raises:
        OSError, SyntaxError, ValueError: when it is not there or not Python that this version can read.
    """
    return read_package_source(module, (folder / module / "__init__.py").read_text(encoding="utf-8"))


def packages_in(folder: Path) -> tuple[str, ...]:
    """Names of the Python packages directly inside a folder."""
    return tuple(sorted(file.parent.name for file in folder.glob("*/__init__.py")))


def source_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of every source file that an edit may change; bytes that are not UTF-8 are kept as surrogates.

    Raises:
        OSError: when a folder or file in it cannot be read.
    """
    pending = [folder]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_symlink():
                continue
            if path.is_dir():
                if path.name not in _NOT_EDITED and not path.name.startswith("."):
                    pending.append(path)
            elif _is_source(path) and path.stat().st_size <= _MAX_SOURCE:
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
                yield path.relative_to(folder).as_posix(), text


def _is_source(path: Path) -> bool:
    return path.suffix in _SOURCE_ENDINGS or path.name == "CMakeLists.txt"


def files_below(
    folder: Path, endings: tuple[str, ...], *, depth: int, skip: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Files of these endings, ``depth`` levels down, in order of name; at most six hundred."""
    left = _MAX_FILES
    pending = [(folder, depth)]
    while pending and left:
        here, levels = pending.pop(0)
        for item in children_of(here):
            if item.suffix in endings and item.is_file():
                yield item
                left -= 1
                if not left:
                    return
            elif (
                levels and not (_NOT_CODE.fullmatch(item.name) or item.name in skip) and _is_own_folder(item)
            ):
                pending.append((item, levels - 1))


def _is_own_folder(path: Path) -> bool:
    return not path.is_symlink() and path.is_dir()


def children_of(folder: Path) -> list[Path]:
    """Entries of a folder in order of name, without hidden ones; none when it cannot be listed."""
    try:
        return sorted(item for item in folder.iterdir() if not item.name.startswith("."))
    except OSError:
        return []


def text_of(file: Path) -> str:
    """A small text file's content; "" when it is not there, not readable or too big to be source."""
    try:
        if file.stat().st_size > _MAX_FILE:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def git_folder(folder: Path) -> Path | None:
    """The folder with HEAD and config; a submodule's or worktree's ``.git`` is a file that names it."""
    place = folder / ".git"
    if place.is_dir():
        return place
    match = re.match(r"gitdir:\s*(.+)", text_of(place))
    if not match:
        return None
    named = (folder / match.group(1).strip()).resolve()
    return named if named.is_dir() else None


def commit_of(git: Path | None) -> str | None:
    """The commit that is checked out, from HEAD, a loose or a packed reference; None where none of them tells."""
    if git is None:
        return None
    head = text_of(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if re.fullmatch(r"[0-9a-f]{40,64}", head) else None
    ref = head.removeprefix("ref:").strip()
    common = (git / text_of(git / "commondir").strip()).resolve() if (git / "commondir").is_file() else git
    for place in (git, common):
        loose = text_of(place / ref).strip()
        if re.fullmatch(r"[0-9a-f]{40,64}", loose):
            return loose
    packed = re.search(
        rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", text_of(common / "packed-refs"), re.MULTILINE
    )
    return packed.group(1) if packed else None


def remote_of(git: Path | None) -> str:
    """The address of ``origin``, without credentials."""
    config = text_of(git / "config") if git else ""
    match = re.search(
        r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*"?([^\s"]+)', config, re.MULTILINE | re.DOTALL
    )
    return without_credentials(match.group(1)) if match else ""


def read_submodules(root: Path) -> tuple[Submodule, ...]:
    """The submodules that .gitmodules names."""
    found = []
    text = text_of(root / ".gitmodules")
    for block in re.split(r"^\s*\[submodule\b.*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r'^\s*(path|url)\s*=\s*"?(\S.*?)"?\s*$', block, re.MULTILINE))
        if "path" not in values:
            continue
        place = root / values["path"]
        found.append(
            Submodule(
                path=values["path"],
                url=without_credentials(values.get("url", "")),
                empty=is_empty(place),
                commit=commit_of(git_folder(place)),
            )
        )
    return tuple(found)
