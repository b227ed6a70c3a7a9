"""What Python code imports and uses before it does anything else, following the folder's own modules; nothing is executed."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from splatfix.core.reading import is_folder, is_regular_file
from splatfix.core.source_pattern import NamePattern
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import (
    dotted_name,
    imported,
    is_main,
    last_name,
    own_expressions,
    text_constant,
)
from splatfix.model import CodeMatch, ImportedModule

# The largest trainers have some two hundred modules of their own.
_MOST_FILES = 400
_MOST_FOLDERS = 1500
# Of one file: who reads a report looks at the first few.
_MOST_MATCHES = 20
_LONGEST_LINE = 160
# AttributeError: what is looked for is also names that a newer NumPy or torch no longer has.
_CATCHES_IMPORT_ERRORS = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}
)
_ENDS_THE_PROGRAM = frozenset({"exit", "quit", "_exit", "abort"})
# Part of an installed package, but of no use without another one: torch.utils.tensorboard needs tensorboard.
_NEEDS_ANOTHER = "torch.utils.tensorboard"


class ShapePattern(NamePattern, frozen=True):
    """Code that no name tells, but the shape of a file's syntax tree."""

    mention: str
    """A text without which a file need not be looked at."""
    at_import: bool
    """It breaks when the file is imported."""
    find: Callable[[ast.Module], Sequence[int]]
    """Gives the lines of it."""


class Program(Struct, frozen=True):
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
    one behind a condition, and one inside a function. Names of ``patterns`` are looked for inside functions too.

    Args:
        entries: scripts, or the ``__init__.py`` of a package.
        root: the folder whose modules are its own; nothing outside is read.
        beside: scripts that one can do without; what only these import and use is marked.
    """
    reading = _Reading(root, tuple(patterns), reader)
    reading.follow(entries, beside=False)
    reading.follow(beside, beside=True)
    own_modules = _own_modules(root) if reading.imports else frozenset[str]()
    imports = (item for name, item in reading.imports.items() if name not in own_modules)
    return Program(tuple(imports), tuple(reading.matches))


class _Statement(Struct):
    """A statement, and what is known of when it runs."""

    node: ast.stmt
    at_import: bool = True
    """When the file is imported, and not in a function that somebody may call."""
    certain: bool = True
    """Nothing catches its failure, and no condition stands before it."""


class _Reading:
    def __init__(self, root: Path, patterns: Sequence[NamePattern], reader: FolderReader) -> None:
        self._root, self._patterns, self._reader = root, patterns, reader
        self._names = frozenset[str]().union(*(pattern.names for pattern in patterns))
        self.imports: dict[str, ImportedModule] = {}
        self.matches: list[CodeMatch] = []
        self._search: dict[Path, None] = {}
        """Folders in which Python would look for modules."""
        self._visited: dict[Path, None] = {}

    def follow(self, scripts: Sequence[Path], *, beside: bool) -> None:
        """Read these files and all that they import of the folder's own."""
        pending = [script for script in scripts if script not in self._visited]
        self._visited |= dict.fromkeys(pending)
        for script in pending:
            self._search[script.parents[script.name == "__init__.py"]] = None
        for file in pending:  # which grows
            if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self._root)):
                continue
            text = self._reader.text(file)
            tree = self._reader.python(file, text)
            if tree is None:
                continue
            # every statement that running or calling the file can reach, in an order that is always the same
            statements: list[_Statement] = []
            below = [_Statement(node) for node in reversed(tree.body)]
            is_started = file in scripts
            while below:
                statements.append(statement := below.pop())
                below += _inner_statements(statement, is_started=is_started)
            name = file.relative_to(self._root).as_posix()
            for module in self._imported(file, name, statements, beside=beside):
                if module not in self._visited and len(self._visited) < _MOST_FILES:
                    self._visited[module] = None
                    pending.append(module)
            self._match(name, text, tree, statements, beside=beside)

    def _imported(
        self, file: Path, name: str, statements: Sequence[_Statement], *, beside: bool
    ) -> Iterator[Path]:
        """Note what is imported of others'; the folder's own modules come out."""
        for statement in statements:
            if isinstance(statement.node, ast.Expr):
                self._search |= dict.fromkeys(self._folders_added(file, statement.node.value))
        for statement in statements:
            if not (statement.at_import and statement.certain):
                continue
            yield from relative_files(file, statement.node)
            for item in imported(statement.node):
                files = files_of_own(item.deepest, self._search)
                if files is not None:
                    yield from files
                    continue
                top = item.module.partition(".")[0]
                foreign = []
                if f"{item.deepest}.".startswith(f"{_NEEDS_ANOTHER}."):
                    foreign.append(_NEEDS_ANOTHER)
                if top not in sys.stdlib_module_names:
                    foreign.append(top)
                for module in foreign:
                    self.imports.setdefault(module, ImportedModule(module, name, item.line, beside))

    def _folders_added(self, file: Path, call: ast.expr) -> Iterator[Path]:
        """Yield the folders that ``sys.path.append(os.path.join(here, "../dust3r"))`` adds, as far as the text tells."""
        if isinstance(call, ast.Call) and dotted_name(call.func) in ("sys.path.append", "sys.path.insert"):
            texts = [text_constant(node) for node in ast.walk(call)]
            parts = [text.lstrip("/") for text in texts if text is not None and "\0" not in text]
            # which folder ``here`` is takes a variable more to tell than anyone writes, so the usual ones are tried
            for base in (file.parent, file.parent.parent, self._root):
                folder = Path(os.path.normpath(base.joinpath(*parts)))
                if folder.is_relative_to(self._root) and is_folder(folder):
                    yield folder

    def _match(
        self, name: str, text: str, tree: ast.Module, statements: Sequence[_Statement], *, beside: bool
    ) -> None:
        """Note the uses of names that are looked for, and of code by its shape."""
        found: dict[tuple[str, int], bool] = {}
        for line, at_import, used in sorted(self._used_names(text, statements)):
            for pattern in self._patterns:
                if pattern.holds(used) and len(found) < _MOST_MATCHES:
                    found.setdefault((pattern.key, line), at_import)
        for pattern in self._patterns:
            if isinstance(pattern, ShapePattern) and pattern.mention in text:
                for line in pattern.find(tree)[:_MOST_MATCHES]:
                    found[pattern.key, line] = pattern.at_import
        lines = text.splitlines()
        for (key, line), at_import in found.items():
            shown = "".join(lines[line - 1 : line]).strip()[:_LONGEST_LINE]
            self.matches.append(CodeMatch(key, name, line, shown, at_import and not beside))

    def _used_names(self, text: str, statements: Sequence[_Statement]) -> Iterator[tuple[int, bool, str]]:
        """(line, whether it runs at the import, absolute name) of each name that the statements use."""
        absolute: dict[str, str] = {}
        for statement in statements:
            for item in imported(statement.node):
                absolute[item.local] = item.stands_for
                if statement.certain:
                    yield item.line, statement.at_import, item.deepest
        # the text must have one of the names somewhere: expressions are many, and a walk through them is slow
        spellings = [name.removeprefix("*.") for name in self._names if name.startswith("*.")]
        for local, module in absolute.items():
            for name in self._names:
                if name.startswith(f"{module}."):
                    spellings.append(local + name.removeprefix(module))
                elif f"{module}.".startswith(f"{name}."):
                    spellings.append(local)
        if not spellings or not re.search(rf"\b({'|'.join(map(re.escape, spellings))})\b", text):
            return
        for statement in statements:
            for node in own_expressions(statement.node) if statement.certain else ():
                if not isinstance(node, ast.Attribute):
                    continue
                if f"*.{node.attr}" in self._names:
                    yield node.lineno, statement.at_import, f"*.{node.attr}"
                head, dot, rest = dotted_name(node).partition(".")
                if head in absolute:
                    yield node.lineno, statement.at_import, f"{absolute[head]}{dot}{rest}"


def _inner_statements(outer: _Statement, *, is_started: bool) -> Iterator[_Statement]:
    at_import, certain = outer.at_import, outer.certain
    # (statements, whether they run at the import, whether they are certain to)
    bodies: list[tuple[Iterable[ast.stmt], bool, bool]] = []
    match outer.node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            bodies = [(body, False, certain)]
        case ast.If(test=test, body=body, orelse=others) if is_main(test):
            bodies = [(body, at_import and is_started, certain), (others, at_import, certain)]
        case ast.If(test=test, orelse=others) if last_name(test) == "TYPE_CHECKING":
            bodies = [(others, at_import, certain)]
        case ast.If(body=body, orelse=others):
            bodies = [(body, at_import, False), (others, at_import, False)]
        case ast.Try(body=body, orelse=others, handlers=handlers, finalbody=last):
            is_caught = any(_goes_on(handler) for handler in handlers)
            bodies = [([*body, *others], at_import, certain and not is_caught)]
            bodies += [(handler.body, at_import, False) for handler in handlers]
            bodies.append((last, at_import, certain))
        case ast.Match(cases=cases):
            bodies = [(case.body, at_import, False) for case in cases]
        case node:  # loops, ``with``, classes
            bodies = [(getattr(node, name, ()), at_import, certain) for name in ("body", "orelse")]
    for statements, runs_at_import, is_certain in bodies:
        for inner in statements:
            yield _Statement(inner, runs_at_import, is_certain)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """It catches a failed import, and the program goes on without what it wanted."""
    if handler.type and _CATCHES_IMPORT_ERRORS.isdisjoint(map(last_name, ast.walk(handler.type))):
        return False
    for node in ast.walk(handler):
        is_exit = isinstance(node, ast.Call) and last_name(node.func) in _ENDS_THE_PROGRAM
        if is_exit or isinstance(node, ast.Raise):
            return False
    return True


def files_of_own(module: str, search: Iterable[Path]) -> Iterator[Path] | None:
    """Return the files that importing a module reads, of the first of the folders that Python finds it in; None for none."""
    names = module.split(".")
    home = next((folder for folder in search if _holds_module(folder, names[0])), None)
    return files_of_module(home, names) if home else None


def _holds_module(folder: Path, module: str) -> bool:
    """``import module`` would find it in this folder: a file, a package, or a folder with Python in it, one level deep."""
    if is_regular_file(folder / f"{module}.py"):
        return True
    inside = folder / module
    if not is_folder(inside) or inside.is_symlink():
        return False
    entries = (entry for _, entries in FolderReader().folders(inside, 1) for entry in entries)
    return any(entry.name.endswith(".py") for entry in entries)


def files_of_module(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """The files that importing ``a.b.c`` reads, of those that are there: every ``__init__.py`` on the way, then c.py."""
    for name in names:
        if not name.isidentifier():
            return
        file = folder / f"{name}.py"
        folder = folder / name
        package = folder / "__init__.py"
        # a folder without __init__.py comes after a file of its name
        if is_regular_file(package):
            yield package
        elif is_regular_file(file):
            yield file
            return


def relative_files(file: Path, node: ast.AST) -> Iterator[Path]:
    """Give the files that ``from .a import b`` reads; none for anything else."""
    if isinstance(node, ast.ImportFrom) and node.level:
        base = file.parents[min(node.level, len(file.parents)) - 1]
        inner = node.module.split(".") if node.module else []
        for alias in node.names:
            yield from files_of_module(base, [*inner, alias.name])


def _own_modules(root: Path) -> frozenset[str]:
    """Top-level modules anywhere in the folder: what puts them on Python's path is not always to be read.

    What lies inside a package is none: lpipsPyTorch/modules/lpips.py is not what ``import lpips`` finds; nor is the
    folder of a setup.py, whatever its name: what that builds is not there before.
    """
    names: set[str] = set()
    pending = [(root, 4)]
    for folder, depth in islice(pending, _MOST_FOLDERS):  # which grows
        entries = FolderReader().children(folder)
        inside = {entry.name for entry in entries}
        modules = {name.removesuffix(".py") for name in inside if name.endswith(".py")}
        is_package = "__init__.py" in inside
        if modules and folder != root and (is_package or "setup.py" not in inside):
            names.add(folder.name)
        if not is_package:
            names |= modules
            below = (entry for entry in entries if depth and entry.is_dir(follow_symlinks=False))
            pending += ((Path(entry.path), depth - 1) for entry in below)
    return frozenset(names)
