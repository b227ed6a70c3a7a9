"""How far above its own folder an extension's build reaches, read from its build files and its includes; nothing is executed."""

import ast
import posixpath
import re
import tempfile
from pathlib import Path

from splatfix.core.reading import is_there
from splatfix.facts.source.folder import holds_everything, source_texts
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.setup_py import read_setup_script

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
    if holds_everything(folder):
        return True
    return any(
        Path(inside).resolve().is_relative_to(folder) for inside in (Path.home(), tempfile.gettempdir())
    )
