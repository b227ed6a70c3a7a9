"""How far above its own folder an extension's build reaches, read from its build files and its includes; nothing is executed."""

from __future__ import annotations

import ast
import posixpath
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from splatfix.facts.source.folder import holds_everything, source_texts
from splatfix.facts.source.reader import FolderReader, is_there
from splatfix.facts.source.setup_py import SetupScript, read_setup_script

_MOST_DEPTH = 20
_MOST_LETTERS = 4096
_UPWARDS = re.compile(r"(?:(?<=[\s\"'/(=])|^)(?:\.\./)*\.\.(?=[/\"')\s]|$)", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"((?:\.\./)+)', re.MULTILINE)
_SAME_PLACE = frozenset(
    {
        "abspath",
        "realpath",
        "normpath",
        "expanduser",
        "fspath",
        "str",
        "Path",
        "PurePath",
        "resolve",
        "absolute",
    }
)
_HERE = frozenset({"getcwd", "cwd"})


def repository_of(folder: Path) -> Path:
    """The folder that a build of the extension in ``folder`` needs a copy of: itself, or the repository around it.

    An extension that names nothing above itself stands alone. One that does (``../../src/cpp_api.cu``, the folder above
    the folder of ``__file__``, an include or a CMake path with ``..``) gets its whole git repository, or without git (a ZIP
    download) the outermost folder it names. Never the root of a disk, the home folder or the one for temporary files.
    """
    levels = levels_above(folder)
    above = list(takewhile(lambda place: not _is_everything(place), folder.parents[:levels]))
    if not above:
        return folder
    around = (place for place in (above[-1], *above[-1].parents) if is_there(place / ".git"))
    root = next(around, None) or next((place for place in above if is_there(place / ".git")), above[-1])
    return above[-1] if _is_everything(root) else root


def levels_above(folder: Path) -> int:
    """How many folders up its build files and sources name something; 0 for one that stands alone."""
    reader = FolderReader()
    found = [0, *_levels_of_script(read_setup_script(folder / "setup.py", reader))]
    for name in ("CMakeLists.txt", "pyproject.toml", "MANIFEST.in"):
        text = re.sub(r"#[^\n]*", "", reader.text(folder / name))
        found += [match.group().count("..") for match in _UPWARDS.finditer(text)]
    for name, text in source_texts(folder):
        if not name.endswith((".py", ".txt")):
            found += [match.group(1).count("..") - name.count("/") for match in _INCLUDE.finditer(text)]
    return max(found)


def _is_everything(place: Path) -> bool:
    return bool(holds_everything(place)) or any(
        inside.is_relative_to(place)
        for inside in (Path.home().resolve(), Path(tempfile.gettempdir()).resolve())
    )


def _levels_of_script(script: SetupScript) -> Iterator[int]:
    """For every path that it works out from its own place: how many folders above that it leads."""
    paths = _Paths(script)
    inner: set[int] = set()  # parts of a path that was told as a whole
    for node in script.nodes:
        if isinstance(node, ast.expr) and id(node) not in inner and (path := paths.of(node)) is not None:
            yield posixpath.normpath(path).split("/").count("..")
            inner.update(id(part) for part in ast.walk(node) if not isinstance(node, ast.Constant))


class _Paths:
    """Works out paths relative to the folder of setup.py, each expression once."""

    def __init__(self, script: SetupScript) -> None:
        self._script = script
        self._known: dict[int, str | None] = {}
        self._depth = 0

    def of(self, node: ast.expr) -> str | None:
        """None for what is no path, or starts somewhere else."""
        if id(node) not in self._known and self._depth < _MOST_DEPTH:
            self._known[id(node)] = None  # what a name that is made from itself comes to
            self._depth += 1
            found = self._of(node)
            self._depth -= 1
            self._known[id(node)] = found if found and len(found) < _MOST_LETTERS else None
        return self._known.get(id(node))

    def _of(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                text = _cleaned(text)
                return text if re.match(r"(?:[\w.*-]+/)*\.\.(?:/|$)", text) else None
            case ast.Name(id="__file__"):
                return "setup.py"
            case ast.Name(id=name) if name in self._script.assigned:
                return self.of(self._script.assigned[name])
            case ast.Attribute(value=inner, attr="parent"):
                return _up(self.of(inner))
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(index))
            ):
                return _up(self.of(inner), index + 1)
            case ast.BinOp(left=left, right=right, op=ast.Div() | ast.Add()):
                return self._joined([left, right])
            case ast.JoinedStr(values=parts):
                return self._joined(
                    [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
                )
            case ast.Call():
                return self._called(node)
        return None

    def _called(self, call: ast.Call) -> str | None:
        name = SetupScript.callee(call)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if name in _HERE:
            return "."
        if name == "dirname" and call.args:
            return _up(self.of(call.args[0]))
        if name == "joinpath" and owner is not None:
            return self._joined([owner, *call.args])
        if name in ("join", *_SAME_PLACE):
            return self._joined(call.args) if call.args else self.of(owner) if owner is not None else None
        return None

    def _joined(self, parts: Sequence[ast.expr]) -> str | None:
        """What is not known behind a known beginning is one folder more."""
        found = ""
        for part in parts:
            text = (
                _cleaned(part.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else None
            )
            text = text if text is not None else self.of(part)
            if text is None and not found:
                return None
            found = f"{found}/{text or 'x'}" if found else text or ""
        return found or None


def _cleaned(text: str) -> str:
    return text.removeprefix("-I").replace("\\", "/")


def _up(path: str | None, levels: int = 1) -> str | None:
    return f"{path}{'/..' * levels}" if path is not None and 0 <= levels <= _MOST_DEPTH else None
