"""Which folders a build reads: those above its own, and those that hold nothing, submodules that were not fetched and libraries
that were not unpacked. Read from its build files and its includes; nothing is executed."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from splatfix.core.reading import is_there
from splatfix.core.source_pattern import without_comments
from splatfix.facts.source.folder import checkout_around, holds_everything, source_texts
from splatfix.facts.source.git_files import is_empty, read_submodules
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.setup_py import SetupScript, read_setup_script
from splatfix.facts.source.syntax import text_constant
from splatfix.model import Submodule

COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")
_HEADERS = (".cuh", ".h", ".hpp")
_LINTERS = re.compile(
    r"^\[+tool\.(ruff|black|isort|mypy|pyright|pylint|pytest|coverage|codespell|flake8|yapf)\b.*?(?=^\[|\Z)",
    re.DOTALL | re.MULTILINE,
)
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]{1,200})[>"]', re.MULTILINE)
_UPWARDS = re.compile(r"(?:(?<=[\s\"'/(=])|^)(?:\.\./)*\.\.(?=[/\"')\s]|$)", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"((?:\.\./)+)', re.MULTILINE)


def repository_of(folder: Path) -> Path:
    """The folder that a build of the extension in ``folder`` needs a copy of: itself, or the repository around it.

    An extension that names nothing above itself stands alone. One that does (``../../src/cpp_api.cu``, the folder above
    the folder of ``__file__``, an include or a CMake path with ``..``) gets its whole git repository, or without git (a ZIP
    download) the outermost folder it names. Never the root of a disk, the home folder or the one for temporary files.
    """
    outermost = folder
    for above in folder.parents[: levels_above(folder)]:
        if _is_everything(above):
            break
        outermost = above
    if outermost == folder:
        return folder
    for repository in (outermost, *outermost.parents):
        if is_there(repository / ".git"):
            # somebody may keep the whole home folder in git
            return outermost if _is_everything(repository) else repository
    inside = folder.parents[: folder.parents.index(outermost)]
    return next((parent for parent in inside if is_there(parent / ".git")), outermost)


def levels_above(folder: Path) -> int:
    """How many folders up its build files and sources name something; 0 for one that stands alone."""
    reader = FolderReader()
    script, levels = read_setup_script(folder / "setup.py", reader), [0]
    # for every path that it works out from its own folder: how many folders above that it leads
    parts_of_paths: set[int] = set()
    for node in script.nodes:
        if not isinstance(node, ast.expr) or id(node) in parts_of_paths:
            continue
        path = script.path(node)
        if path is not None:
            levels.append(posixpath.normpath(path).split("/").count(".."))
            parts_of_paths.update(map(id, ast.walk(node)))
    for name in ("CMakeLists.txt", "pyproject.toml", "MANIFEST.in"):
        text = _COMMENT.sub("", reader.text(folder / name))
        levels += [match.group().count("..") for match in _UPWARDS.finditer(text)]
    for name, text in source_texts(folder):
        # setup.py was read above, and what is in its packages is not part of the build
        if not name.endswith((".py", ".txt")):
            levels += [match.group(1).count("..") - name.count("/") for match in _INCLUDE.finditer(text)]
    return max(levels)


def _is_everything(folder: Path) -> bool:
    """A copy of it would be one of a disk, of all that a person has, or of itself: builds are made in the temporary folder."""
    inside = (Path.home(), Path(tempfile.gettempdir()))
    return bool(holds_everything(folder)) or any(path.resolve().is_relative_to(folder) for path in inside)


def missing_folders(
    folder: Path, script: SetupScript, empty: tuple[Submodule, ...], reader: FolderReader
) -> Iterator[str]:
    """What the build of the extension in ``folder`` needs and does not find, relative to it.

    Its own submodules, and those of the checkout around it that lie inside, count where the build names or includes them, of
    the others of that checkout those that setup.py names; further include folders that setup.py names. Not what it names for
    old toolkits.
    """
    build = _Build(folder, script, reader)
    candidates = [item.path for item in empty if build.reads(item.path)]
    around = checkout_around(folder)
    for item in read_submodules(around, reader) if around != folder else ():
        path = os.path.relpath(around / item.path, folder).replace("\\", "/")
        if path.startswith(".."):
            is_needed = item.empty and build.names("..") and build.names(item.path)
        else:
            is_needed = item.empty and build.reads(path)
        if is_needed:
            candidates.append(path)
    for path in build.include_folders():
        inside = path.strip("/")
        lost = "/" in inside and is_empty(folder / path) and build.includes_what_was_in(path)
        if lost or inside.startswith("third_party"):
            candidates.append(path)
    for path in dict.fromkeys(candidate.strip("/") for candidate in candidates):
        if path and is_empty(folder / path):
            yield path


class _Build:
    """What the files of a build name and include."""

    def __init__(self, folder: Path, script: SetupScript, reader: FolderReader) -> None:
        self._folder, self._script, self._reader = folder, script, reader
        self._for_old_versions = set(script.for_old_versions)
        self._literals = set(script.literals) - self._for_old_versions

    def names(self, path: str) -> bool:
        """A text of setup.py has it, and not for old versions alone."""
        return any(path in text for text in self._literals)

    def reads(self, path: str) -> bool:
        """The folder of a submodule is named by a build file, or by an include; CMake finds its way to all of them."""
        if not self.names(path) and any(path in text for text in self._for_old_versions):
            return False
        if is_there(self._folder / "CMakeLists.txt") and not self._script.mentions("CUDAExtension"):
            return True
        name = re.compile(rf"(?<![\w.-]){re.escape(path.rpartition('/')[2])}(?![\w.-])", re.IGNORECASE)
        manifest = self._reader.text(self._folder / "MANIFEST.in")
        # what linters are told to pass over is no part of a build
        pyproject = _LINTERS.sub("", self._reader.text(self._folder / "pyproject.toml"))
        return any(map(name.search, (*self._literals, manifest, pyproject, *self._included)))

    def include_folders(self) -> Iterator[str]:
        """Texts of nvcc's flags and of ``include_dirs``, those that are parts of a path as the whole path.

        ``"-I" + os.path.join(here, "third_party/glm/")`` is how all of Inria's family names its one include folder.
        """
        named = (*self._script.nvcc_flags, *self._script.include_dirs)
        texts = [text for text in named if text not in self._for_old_versions]
        for call in self._script.calls("join"):
            parts = [text_constant(argument) for argument in call.args]
            if any(part in texts for part in parts):
                texts = [*(text for text in texts if text not in parts), self._script.joined_path(call)]
        return (text.removeprefix("-I").strip() for text in texts)

    def includes_what_was_in(self, path: str) -> bool:
        """An include begins with the name of an include folder that is not there: ``<Eigen/Dense>`` without eigen-3.4.0."""
        name = path.strip("/").rpartition("/")[2].lower()
        libraries = {text.partition("/")[0].lower() for text in self._included if "/" in text}
        return not path.startswith("/") and any(
            re.match(rf"{re.escape(library)}(?![a-z])", name) for library in libraries
        )

    @cached_property
    def _included(self) -> frozenset[str]:
        """What the sources of this build include, without that which lies beside them."""
        included: set[str] = set()
        for file in self._reader.files_below(self._folder, (*COMPILED, *_HEADERS), depth=8):
            if is_its_own(self._folder, file):
                text = without_comments(file.name, self._reader.text(file))
                included.update(name for name in _INCLUDED.findall(text) if not is_there(file.parent / name))
        return frozenset(included)


def is_its_own(folder: Path, file: Path) -> bool:
    """No setup.py stands between a source's folder and one of its files."""
    return not any(is_there(folder / part / "setup.py") for part in file.relative_to(folder).parents[:-1])
