"""What Python code imports and uses before it does anything else, following the folder's own modules; nothing is executed."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from splatfix.core.source_pattern import NamePattern
from splatfix.facts.model.source import CodeMatch, ImportedModule, NativeModule
from splatfix.facts.source.dataclass_defaults import unhashable_defaults
from splatfix.facts.source.folder import packages_in
from splatfix.facts.source.pickled_loads import tuple_loads
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader, is_folder, is_there

UNHASHABLE_DEFAULT = "dataclass(default=unhashable)"
"""What a NamePattern asks for to be told of dataclass fields whose default cannot be hashed."""
TUPLE_LOADED = "torch.load(tuple)"
"""What a NamePattern asks for to be told of checkpoints that are loaded as tuples, see :func:`tuple_loads`."""
_MOST_FILES = 400
_MOST_FOLDERS = 1500
_MOST_PLACES = 20
_CATCHING = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"})
_LEAVING = frozenset({"exit", "quit", "_exit", "abort"})
# Scripts in a checkout's top folder by which people train, render and measure.
_PROGRAMS = re.compile(r"(\w*train\w*|render|metrics)\.py")
# ``python -u train.py``, ``torchrun --nproc_per_node 2 train.py``
_STARTED = re.compile(
    r"\b(?:python[\d.]{0,5}|torchrun|accelerate[ ]launch)(?:[ ]{1,4}-{1,2}[\w-]{1,40}(?:[ =]\d{1,9})?){0,6}"
    r"[ ]{1,4}(?:\./)?([\w./-]{1,200}\.py)\b"
)
_MOST_PROGRAMS = 40
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_NOT_INSTALLED = frozenset(
    {"tests", "test", "docs", "examples", "scripts", "benchmarks", "tools", "third_party"}
)
# Part of an installed package, but of no use without another one.
_NEEDS_ANOTHER = ("torch.utils.tensorboard",)


@dataclass(frozen=True)
class Program:
    """What was read of one program, or of one package."""

    imports: tuple[ImportedModule, ...] = ()
    """Of modules that are not the folder's own and not Python's own: each once, where it is imported first."""
    matches: tuple[CodeMatch, ...] = ()
    """Uses of names that were asked for."""


def read_program(
    entries: Sequence[Path],
    root: Path,
    patterns: Iterable[NamePattern],
    reader: FolderReader,
    beside: Sequence[Path] = (),
) -> Program:
    """Read Python files and the modules of their own folder that they import, as far as that happens unasked.

    Left out is what may fail without harm: an import in a ``try`` that catches its failure, one for type checkers,
    one behind a condition, and one inside a function.

    Args:
        entries: scripts, or the ``__init__.py`` of a package.
        root: the folder whose modules are its own; nothing outside is read.
        patterns: names to look for, also inside functions.
        beside: scripts that one can do without; what only these import and use is marked.
    """
    return _Reading(root, tuple(patterns), reader).read(entries, beside)


def read_scripts(root: Path, patterns: Iterable[NamePattern] = ()) -> tuple[Program, FolderReader]:
    """What the scripts of a checkout import and use, and the reader that read them; see :func:`find_scripts`.

    Splatting extensions are left out.
    """
    reader = FolderReader()
    programs, beside = find_scripts(root, reader)
    found = read_program(programs, root, patterns, reader, beside)
    others = tuple(item for item in found.imports if not is_splat_module(item.name))
    return Program(others, found.matches), reader


def find_scripts(root: Path, reader: FolderReader) -> tuple[list[Path], list[Path]]:
    """The scripts by which a checkout trains, renders and measures, and others that its READMEs tell people to start.

    Where none in its top folder has a name that tells so, they are those that the READMEs start there; failing that, those
    with ``if __name__ == "__main__"``.
    """
    inside = [item for item in reader.children(root) if item.is_file()]
    scripts = {item.name: Path(item.path) for item in inside if item.name.endswith(".py")}
    scripts.pop("setup.py", None)
    started = [
        root / name
        for item in inside
        if item.name.lower().startswith("readme")
        for name in _STARTED.findall(reader.text(Path(item.path)))
    ]
    named = [path for path in dict.fromkeys(started) if path.name != "setup.py" and _is_file(path)]
    programs = [path for name, path in scripts.items() if _PROGRAMS.fullmatch(name)]
    programs = programs or [path for path in named if path.parent == root]
    programs = programs or [path for path in scripts.values() if _MAIN.search(reader.text(path))]
    beside = [path for path in named if path not in programs]
    return programs[:_MOST_PROGRAMS], beside[:_MOST_PROGRAMS]


def read_packages_of(
    folder: Path,
    packages: tuple[str, ...],
    modules: tuple[NativeModule, ...],
    patterns: Iterable[NamePattern] = (),
) -> Program:
    """What the packages of an extension import and use when they are imported themselves.

    Args:
        packages: those that setup.py names; () for each beside it that could be meant.
    """
    places = (folder, folder / "src") if is_there(folder / "src") else (folder,)
    entries = [
        place / name / "__init__.py"
        for place in places
        for name in dict.fromkeys(packages or packages_in(place))
        if name.isidentifier() and name not in _NOT_INSTALLED and is_there(place / name / "__init__.py")
    ]
    own = {module.name.partition(".")[0] for module in modules}
    found = read_program(entries, folder, patterns, FolderReader()) if entries else Program()
    return Program(tuple(item for item in found.imports if item.name not in own), found.matches)


@dataclass
class _Place:
    """A statement, and what is known of when it runs."""

    node: ast.stmt
    now: bool = True
    """When the file is imported, and not in a function that somebody may call."""
    sure: bool = True
    """Nothing catches its failure, and no condition stands before it."""


@dataclass
class _Reading:
    root: Path
    patterns: tuple[NamePattern, ...]
    reader: FolderReader
    imports: dict[str, ImportedModule] = field(default_factory=dict)
    matches: list[CodeMatch] = field(default_factory=list)
    search: dict[Path, None] = field(default_factory=dict)
    """Folders in which Python would look for modules."""
    now_beside: bool = False
    """What is read is a script that one can do without."""

    def read(self, entries: Sequence[Path], beside: Sequence[Path] = ()) -> Program:
        seen: set[Path] = set()
        for self.now_beside, group in ((False, entries), (True, beside)):
            pending = [entry for entry in group if entry not in seen]
            seen.update(pending)
            for entry in pending:
                package = entry.name == "__init__.py"
                self.search[entry.parent.parent if package else entry.parent] = None
            while pending:
                file = pending.pop(0)
                for own in self._file(file, main=file in group):
                    if own not in seen and len(seen) < _MOST_FILES:
                        seen.add(own)
                        pending.append(own)
        elsewhere = self._names_elsewhere() if self.imports else frozenset()
        kept = (item for top, item in self.imports.items() if top not in elsewhere)
        return Program(tuple(kept), tuple(self.matches))

    def _file(self, file: Path, *, main: bool) -> Iterator[Path]:
        """Read one file; the own modules that it imports come out."""
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self.root)):
            return
        text = self.reader.text(file)
        tree = self.reader.python(file, text) if text else None
        if tree is None:
            return
        places = list(_places(tree, main=main))
        self._add_search_paths(file, places)
        name = file.relative_to(self.root).as_posix()
        for place in places:
            if place.now and place.sure:
                yield from self._imported(file, name, place.node)
        self.matches += self._uses(name, text, tree, places)

    def _imported(self, file: Path, name: str, node: ast.stmt) -> Iterator[Path]:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = file.parent
            for _ in range(node.level - 1):
                base = base.parent
            inner = (node.module or "").split(".") if node.module else []
            for alias in node.names:
                yield from _modules_at(base, [*inner, alias.name])
            return
        if isinstance(node, ast.Import):
            wanted = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted = [(node.module, f"{node.module}.{alias.name}") for alias in node.names]
        else:
            return
        for module, deepest in wanted:
            home = next((path for path in self.search if _is_own(path, module.partition(".")[0])), None)
            if home is not None:
                yield from _modules_at(home, deepest.split("."))
            else:
                self._foreign(module, deepest, name, node.lineno)

    def _foreign(self, module: str, deepest: str, file: str, line: int) -> None:
        another = next((known for known in _NEEDS_ANOTHER if f"{deepest}.".startswith(f"{known}.")), "")
        top = module.partition(".")[0]
        if another:
            self.imports.setdefault(another, ImportedModule(another, file, line, self.now_beside))
        if top not in sys.stdlib_module_names:
            self.imports.setdefault(top, ImportedModule(top, file, line, self.now_beside))

    def _add_search_paths(self, file: Path, places: Iterable[_Place]) -> None:
        """Folders that ``sys.path.append(os.path.join(here, "../dust3r"))`` adds, as far as the text tells."""
        for place in places:
            call = place.node.value if isinstance(place.node, ast.Expr) else None
            if not (
                isinstance(call, ast.Call) and _dotted(call.func) in ("sys.path.append", "sys.path.insert")
            ):
                continue
            words = [
                node.value
                for node in ast.walk(call)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\0" not in node.value
            ]
            for base in (file.parent, file.parent.parent, self.root):
                folder = Path(os.path.normpath(base.joinpath(*(word.lstrip("/") for word in words))))
                if folder.is_relative_to(self.root) and is_folder(folder):
                    self.search[folder] = None

    def _names_elsewhere(self) -> frozenset[str]:
        """Top-level modules anywhere in the folder: what puts them on Python's path is not always to be read.

        What lies inside a package is none: lpipsPyTorch/modules/lpips.py is not what ``import lpips`` finds; nor is the
        folder of a setup.py, whatever its name: what that builds is not there before.
        """
        found: set[str] = set()
        pending = [(self.root, 4)]
        for _ in range(_MOST_FOLDERS):
            if not pending:
                break
            folder, depth = pending.pop(0)
            inside = FolderReader().children(folder)
            names = {item.name for item in inside}
            installable = "setup.py" in names and "__init__.py" not in names
            if folder != self.root and not installable and any(name.endswith(".py") for name in names):
                found.add(folder.name)
            if "__init__.py" in names:
                continue
            found.update(name.removesuffix(".py") for name in names if name.endswith(".py"))
            if depth:
                pending += [
                    (Path(item.path), depth - 1) for item in inside if item.is_dir(follow_symlinks=False)
                ]
        return frozenset(found)

    def _uses(self, file: str, text: str, tree: ast.Module, places: Sequence[_Place]) -> Iterator[CodeMatch]:
        lines = text.splitlines()
        told: set[tuple[str, int]] = set()
        for line, now, used in sorted(self._used(text, places)):
            now = now and not self.now_beside
            for pattern in self.patterns:
                if pattern.holds(used) and (pattern.key, line) not in told and len(told) < _MOST_PLACES:
                    told.add((pattern.key, line))
                    yield _match(pattern.key, file, line, lines, at_import=now)
        for pattern in self.patterns if "dataclass" in text else ():
            if UNHASHABLE_DEFAULT in pattern.names:
                for line in unhashable_defaults(tree)[:_MOST_PLACES]:
                    yield _match(pattern.key, file, line, lines, at_import=not self.now_beside)
        for pattern in self.patterns if "torch.load" in text else ():
            if TUPLE_LOADED in pattern.names:
                for line in tuple_loads(tree)[:_MOST_PLACES]:
                    yield _match(pattern.key, file, line, lines, at_import=False)

    def _used(self, text: str, places: Sequence[_Place]) -> Iterator[tuple[int, bool, str]]:
        """(line, whether it runs at the import, whole name) of each name that the statements use."""
        local = {alias: whole for place in places for alias, whole in _aliases(place.node)}
        for place in places:
            node = place.node
            if place.sure and isinstance(node, ast.Import):
                yield from ((node.lineno, place.now, alias.name) for alias in node.names)
            elif place.sure and isinstance(node, ast.ImportFrom) and not node.level:
                yield from ((node.lineno, place.now, f"{node.module}.{alias.name}") for alias in node.names)
        asked = [
            f"{alias}{name.removeprefix(whole)}"
            for alias, whole in local.items()
            for pattern in self.patterns
            for name in pattern.names
            if name.startswith(f"{whole}.")
        ]
        methods = [name for pattern in self.patterns for name in pattern.names if name.startswith("*.")]
        words = [*asked, *(name.removeprefix("*.") for name in methods)]
        if not words or not re.search(rf"\b({'|'.join(map(re.escape, words))})\b", text):
            return  # expressions are many, and a walk through them is slow
        for place in places:
            for inner in _expressions(place.node) if place.sure else ():
                if isinstance(inner, ast.Attribute) and f"*.{inner.attr}" in methods:
                    yield inner.lineno, place.now, f"*.{inner.attr}"
                if isinstance(inner, ast.Attribute) and (name := _dotted(inner)):
                    head, dot, rest = name.partition(".")
                    if head in local:
                        yield inner.lineno, place.now, f"{local[head]}{dot}{rest}"


def _match(key: str, file: str, line: int, lines: Sequence[str], *, at_import: bool) -> CodeMatch:
    text = lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""
    return CodeMatch(key, file, line, text, at_import)


def _places(tree: ast.Module, *, main: bool) -> Iterator[_Place]:
    """Every statement that running or calling the file can reach; ``main``: it is the script that is started."""
    pending = [_Place(node) for node in reversed(tree.body)]
    while pending:
        place = pending.pop()
        yield place
        pending += _inside(place, main=main)


def _inside(place: _Place, *, main: bool) -> Iterator[_Place]:
    node, now, sure = place.node, place.now, place.sure
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from (_Place(child, False, sure) for child in node.body)
    elif isinstance(node, ast.If):
        typing = _dotted(node.test).rpartition(".")[2] == "TYPE_CHECKING"
        started = isinstance(node.test, ast.Compare) and _dotted(node.test.left) == "__name__"
        if started:
            yield from (_Place(child, now and main, sure) for child in node.body)
        elif not typing:
            yield from (_Place(child, now, False) for child in node.body)
        yield from (_Place(child, now, sure and (typing or started)) for child in node.orelse)
    elif isinstance(node, ast.Try):
        caught = any(map(_goes_on, node.handlers))
        yield from (_Place(child, now, sure and not caught) for child in (*node.body, *node.orelse))
        yield from (_Place(child, now, False) for handler in node.handlers for child in handler.body)
        yield from (_Place(child, now, sure) for child in node.finalbody)
    elif isinstance(node, ast.Match):
        yield from (_Place(child, now, False) for case in node.cases for child in case.body)
    else:
        for part in ("body", "orelse"):
            yield from (_Place(child, now, sure) for child in getattr(node, part, ()))


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """It catches a failed import, and the program goes on without what it wanted."""
    names = (
        {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(handler.type)}
        if handler.type
        else None
    )
    if names is not None and not names & _CATCHING:
        return False
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return False
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", "")) in _LEAVING
        ):
            return False
    return True


def _expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """Every node of a statement's own expressions, without those of the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from ast.walk(child)


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of a name or of an attribute of one; "" for any other expression."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(words))) if isinstance(node, ast.Name) else ""


def _aliases(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(local name, dotted name) that an import binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _is_own(folder: Path, top: str) -> bool:
    """``import top`` would find a module of this folder: a file, a package, or a folder with Python in it (or empty)."""
    if _is_file(folder / f"{top}.py"):
        return True
    place = folder / top
    if not is_folder(place) or place.is_symlink():
        return False
    inside = FolderReader().children(place)
    if not inside or any(item.name.endswith(".py") for item in inside):
        return True
    below = (item for item in inside[:100] if item.is_dir(follow_symlinks=False))
    return any(
        child.name.endswith(".py") for item in below for child in FolderReader().children(Path(item.path))
    )


def _modules_at(folder: Path, words: Sequence[str]) -> Iterator[Path]:
    """The files that importing ``a.b.c`` reads, of those that are there: every ``__init__.py`` on the way, then c.py."""
    for word in words:
        if not word.isidentifier():
            return
        if _is_file(folder / f"{word}.py") and not is_folder(folder / word):
            yield folder / f"{word}.py"
            return
        folder = folder / word
        if _is_file(folder / "__init__.py"):
            yield folder / "__init__.py"


def _is_file(path: Path) -> bool:
    """It is a file, links followed; False for any name that there cannot be."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for names that are too long
