"""Folders that a build reads and that hold nothing: submodules that were not fetched, libraries that were not unpacked."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from splatfix.core.source_pattern import without_comments
from splatfix.facts.model.source import Submodule
from splatfix.facts.source.folder import checkout_around, read_submodules
from splatfix.facts.source.reader import FolderReader, is_there
from splatfix.facts.source.setup_py import SetupScript

_COMPILED = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc", ".c")
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]{1,200})[>"]', re.MULTILINE)


def missing_folders(
    folder: Path, script: SetupScript, empty: tuple[Submodule, ...], reader: FolderReader
) -> Iterator[str]:
    """What the build of the extension in ``folder`` needs and does not find, relative to it.

    Its own submodules count where the build names or includes them, and of the checkout around it those that setup.py
    names; further include folders that setup.py names. Not what it names for old toolkits.
    """
    build = _Build(folder, script, reader)
    named = set(script.literals) - set(script.for_old_versions)
    wanted = [item.path for item in empty if build.reads(item.path)]
    around = checkout_around(folder)
    if around != folder and any(".." in text for text in named):
        wanted += [
            os.path.relpath(around / item.path, folder).replace("\\", "/")
            for item in read_submodules(around, reader)
            if item.empty and any(item.path in text for text in named)
        ]
    # "-I" + os.path.join(here, "third_party/glm/") is how the whole Inria family names its one include folder
    texts = [
        text for text in (*script.nvcc_flags, *script.include_dirs) if text not in script.for_old_versions
    ]
    for call in script.calls("join"):
        pieces = [item.value for item in call.args if isinstance(item, ast.Constant)]
        if any(piece in texts for piece in pieces):
            texts = [*(text for text in texts if text not in pieces), script.joined(call)]
    clean = [text.removeprefix("-I").strip() for text in texts]
    wanted += [text for text in clean if text.strip("/").startswith("third_party")]
    lost = [text for text in clean if "/" in text.strip("/") and _holds_nothing(folder / text)]
    wanted += [text for text in lost if build.includes_what_was_in(text)]
    for path in dict.fromkeys(text.strip("/") for text in wanted):
        if path and _holds_nothing(folder / path):
            yield path


class _Build:
    """What the files of a build name and include."""

    def __init__(self, folder: Path, script: SetupScript, reader: FolderReader) -> None:
        self._folder, self._script, self._reader = folder, script, reader

    def reads(self, path: str) -> bool:
        """The folder of a submodule is named by a build file, or by an include; CMake finds its way to all of them."""
        old = any(path in text for text in self._script.for_old_versions)
        literals = set(self._script.literals) - set(self._script.for_old_versions)
        if old and not any(path in text for text in literals):
            return False
        name = re.compile(rf"(?<![\w.-]){re.escape(path.rpartition('/')[2])}(?![\w.-])", re.IGNORECASE)
        cmake = is_there(self._folder / "CMakeLists.txt") and not self._script.mentions("CUDAExtension")
        texts = [
            *literals,
            *(self._reader.text(self._folder / file) for file in ("MANIFEST.in", "pyproject.toml")),
        ]
        return cmake or any(map(name.search, texts)) or any(map(name.search, self._included))

    def includes_what_was_in(self, path: str) -> bool:
        """An include begins with the name of an include folder that is not there: ``<Eigen/Dense>`` without eigen-3.4.0."""
        name = path.strip("/").rpartition("/")[2].lower()
        starts = {text.partition("/")[0].lower() for text in self._included if "/" in text}
        return not path.startswith("/") and any(
            re.match(rf"{re.escape(start)}(?![a-z])", name) for start in starts
        )

    @cached_property
    def _included(self) -> frozenset[str]:
        """What the sources of this build include, without that which lies beside them."""
        found: set[str] = set()
        for file in self._reader.files_below(self._folder, _COMPILED, depth=8):
            if is_its_own(self._folder, file):
                text = without_comments(file.name, self._reader.text(file))
                found.update(name for name in _INCLUDED.findall(text) if not is_there(file.parent / name))
        return frozenset(found)


def is_its_own(folder: Path, file: Path) -> bool:
    """No setup.py stands between a source's folder and one of its files."""
    return not any(is_there(folder / part / "setup.py") for part in file.relative_to(folder).parents[:-1])


def _holds_nothing(folder: Path) -> bool:
    try:
        with os.scandir(folder) as listing:
            return next(listing, None) is None
    except (OSError, ValueError):
        return True
