"""What is in a folder that a person named, read with bounds: it may also hold a dataset, or be the home folder."""

import contextlib
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from splatfix.binaries.model import BinaryError
from splatfix.binaries.wheel import opened_wheel
from splatfix.core.limits import MOST_SOURCE
from splatfix.core.reading import is_folder, is_regular_file, is_there, read_bytes, read_text
from splatfix.core.redact import without_credentials
from splatfix.facts.source.names import NAMES, any_of
from splatfix.facts.source.python_source import read_package_source
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.model import PackageSource

# Tables of pyproject.toml that a builder reads; [tool.ruff] and the like are none.
_BUILD_TABLE = re.compile(r"^[ \t]*\[[ \t]*(?:build-system|tool\.(?:poetry|setuptools))\b", re.MULTILINE)
_PROJECT_TABLE = re.compile(r"^[ \t]*\[[ \t]*project[ \t]*\]", re.MULTILINE)
_NO_PACKAGE = any_of("no-package")
_CLONE_MARKS = (".git", ".gitmodules", "submodules")
_CLONED = re.compile(r"\bgit[ ]{1,9}clone\b[^\n]{0,200}?((?:(?:https?|ssh|git)://|git@)[\w.@:/~+-]{1,300})")
_MOST_FOLDERS_ABOVE = 6
_MOST_FOLDERS_OF_PHOTOS = 100
_MOST_CLONES = 20


def is_file(text: str | Path) -> bool:
    """A file is named."""
    return Path(text).expanduser().is_file()


def holds_everything(folder: Path) -> str:
    """``the root of a disk`` or ``your home folder``, when it is one of these; "" otherwise."""
    if folder == Path(folder.anchor):
        return "the root of a disk"
    return "your home folder" if folder == Path.home().resolve() else ""


def as_typed(path: Path) -> str:
    """A folder as a person would name it from the current folder: ``./2dgs``."""
    here = Path.cwd()
    if path == here or not path.is_relative_to(here):
        return str(path)
    return f"./{path.relative_to(here).as_posix()}"


def has_build_file(folder: Path) -> bool:
    """It holds a setup.py, or a pyproject.toml with more than the settings of linters and the like.

    A ``[project]`` alone beside several folders is none: setuptools refuses it ("Multiple top-level packages discovered").
    """
    if is_regular_file(folder / "setup.py"):
        return True
    text = read_text(folder / "pyproject.toml", MOST_SOURCE)
    if not isinstance(text, str) or _BUILD_TABLE.search(text):
        return text is not None
    if is_there(folder / "src") or is_there(folder / "setup.cfg") or not _PROJECT_TABLE.search(text):
        return _PROJECT_TABLE.search(text) is not None
    names = [path.name for path in subfolders(folder)]
    return sum(name.isidentifier() and not _NO_PACKAGE.fullmatch(name) for name in names) < 2


def is_clone(folder: Path) -> bool:
    """It is a git clone, or has its extensions where stacks have them."""
    return any(is_there(folder / name) for name in _CLONE_MARKS)


def checkout_around(folder: Path) -> Path:
    """The checkout that a folder is of: the nearest at or above it with a git folder or a .gitmodules; else itself."""
    for parent in (folder, *islice(folder.parents, _MOST_FOLDERS_ABOVE)):
        if holds_everything(parent):
            break
        if is_there(parent / ".git") or is_there(parent / ".gitmodules"):
            return parent
    return folder


def trainer_around(folder: Path) -> Path | None:
    """The checkout that an extension lies in, also where it is a submodule with a git folder of its own; None for none."""
    around = checkout_around(folder.parent)
    return around if is_clone(around) else None


def photos_alone(folder: Path, reader: FolderReader | None = None) -> int:
    """How many photos are in a folder in which no file is code, two levels down; 0 for any other folder."""
    photos, code = 0, {*NAMES["source-endings"], *NAMES["other-code-endings"]}
    for _, entries in islice((reader or FolderReader()).folders(folder, 2), _MOST_FOLDERS_OF_PHOTOS):
        endings = [PurePosixPath(entry.name).suffix.lower() for entry in entries]
        if not code.isdisjoint(endings):
            return 0
        photos += sum(ending in NAMES["photo-endings"] for ending in endings)
    return photos


def telling_paths(folder: Path, reader: FolderReader | None = None) -> tuple[str, ...]:
    """The relative paths by which a checkout of a stack is recognised: the upper levels, as far as they are code."""
    reader = reader or FolderReader()
    paths = [entry.name for entry in reader.children(folder)]
    for inside in NAMES["telling-folders"]:
        paths += [f"{inside}/{entry.name}" for entry in reader.children(folder / inside)]
    return tuple(sorted(paths))


def subfolders(folder: Path) -> list[Path]:
    """Folders directly inside, in order of name, without hidden ones and links; none when it cannot be listed."""
    entries = FolderReader().children(folder)
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def packages_in(folder: Path) -> tuple[str, ...]:
    """Names of the Python packages directly inside a folder."""
    entries = FolderReader().children(folder)
    return tuple(entry.name for entry in entries if is_there(f"{entry.path}/__init__.py"))


def read_package(folder: Path, module: str) -> PackageSource:
    """Return the Python package ``module`` of an extension's source folder, by its ``__init__.py``; raises NotPython when that is
    not there or cannot be read."""
    text = read_text(folder / module / "__init__.py", MOST_SOURCE)
    if not isinstance(text, str):
        raise NotPython(text.reason if text else "there is no such file")
    return read_package_source(module, text)


def source_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """(relative path, text) of every source file that an edit may change; bytes that are not UTF-8 are kept as surrogates."""
    reader = FolderReader()
    pending = [folder]
    while pending:
        for entry in reader.children(pending.pop()):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NAMES["not-edited"]:
                    pending.append(path)
            elif not entry.is_symlink() and (
                path.suffix in NAMES["source-endings"] or path.name == "CMakeLists.txt"
            ):
                content = read_bytes(path, MOST_SOURCE)
                if isinstance(content, bytes):
                    yield path.relative_to(folder).as_posix(), content.decode("utf-8", "surrogateescape")


def packed_sources(folder: Path) -> Iterator[Path]:
    """ZIP archives with a setup.py inside, as HAC keeps its extensions; in the folder itself and those right below."""
    for _, entries in FolderReader().folders(folder, 1):
        for entry in entries:
            if not entry.name.endswith(".zip"):
                continue
            # damaged, or no archive at all
            with contextlib.suppress(BinaryError), opened_wheel(entry.path) as archive:
                if any(PurePosixPath(name).name == "setup.py" for name in archive.namelist()):
                    yield Path(entry.path)


def cloned_in_readme(root: Path, reader: FolderReader) -> Iterator[str]:
    """Addresses behind ``git clone`` in the READMEs of a folder, without credentials, in order of the text."""
    for entry in reader.children(root):
        if entry.name.lower().startswith("readme") and not is_folder(entry.path):
            addresses = _CLONED.findall(reader.text(root / entry.name))
            yield from map(without_credentials, addresses[:_MOST_CLONES])
