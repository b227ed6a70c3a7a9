"""What Python code imports and uses before it does anything else, following the folder's own modules; nothing is executed."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from splatfix.core.reading import is_folder, is_regular_file
from splatfix.core.source_pattern import NamePattern
from splatfix.facts.source.code_shapes import BY_SHAPE
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
_NEEDS_ANOTHER = ("torch.utils.tensorboard",)


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
    one behind a condition, and one inside a function.

    Args:
        entries: scripts, or the ``__init__.py`` of a package.
        root: the folder whose modules are its own; nothing outside is read.
        patterns: names to look for, also inside functions.
        beside: scripts that one can do without; what only these import and use is marked.
    """
    reading = _Reading(root, tuple(patterns), reader)
    reading.follow(entries)
    reading.beside = True
    reading.follow(beside)
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


class _Reading(Struct):
    root: Path
    patterns: tuple[NamePattern, ...]
    reader: FolderReader
    imports: dict[str, ImportedModule] = field(default_factory=dict)
    matches: list[CodeMatch] = field(default_factory=list)
    search: dict[Path, None] = field(default_factory=dict)
    """Folders in which Python would look for modules."""
    visited: set[Path] = field(default_factory=set)
    beside: bool = False
    """What is read is a script that one can do without."""

    def follow(self, scripts: Sequence[Path]) -> None:
        """Read these files and all that they import of the folder's own."""
        pending = [script for script in scripts if script not in self.visited]
        self.visited.update(pending)
        for script in pending:
            is_package = script.name == "__init__.py"
            self.search[script.parent.parent if is_package else script.parent] = None
        while pending:
            file = pending.pop(0)
            for module in self._read_file(file, is_started=file in scripts):
                if module not in self.visited and len(self.visited) < _MOST_FILES:
                    self.visited.add(module)
                    pending.append(module)

    def _read_file(self, file: Path, *, is_started: bool) -> Iterator[Path]:
        """Read one file; the folder's own modules that it imports come out."""
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(self.root)):
            return
        text = self.reader.text(file)
        tree = self.reader.python(file, text)
        if tree is None:
            return
        # every statement that running or calling the file can reach, in an order that is always the same
        statements: list[_Statement] = []
        pending = [_Statement(node) for node in reversed(tree.body)]
        while pending:
            statement = pending.pop()
            statements.append(statement)
            pending += _inner_statements(statement, is_started=is_started)
        self._add_search_folders(file, statements)
        name = file.relative_to(self.root).as_posix()
        for statement in statements:
            if statement.at_import and statement.certain:
                yield from self._imported(file, name, statement.node)
        lines = text.splitlines()
        matched: set[tuple[str, int]] = set()
        for line, at_import, used in sorted(self._used_names(text, statements)):
            for pattern in self.patterns:
                key = (pattern.key, line)
                if pattern.holds(used) and key not in matched and len(matched) < _MOST_MATCHES:
                    matched.add(key)
                    self._add_match(pattern.key, name, line, lines, at_import=at_import)
        for pattern in self.patterns:
            for shape in pattern.names & BY_SHAPE.keys():
                mention, at_import, find_lines = BY_SHAPE[shape]
                for line in find_lines(tree)[:_MOST_MATCHES] if mention in text else ():
                    self._add_match(pattern.key, name, line, lines, at_import=at_import)

    # -- imports ----------------------------------------------------------------------------------------------

    def _imported(self, file: Path, name: str, node: ast.stmt) -> Iterator[Path]:
        yield from relative_files(file, node)
        for item in imported(node):
            top = item.module.partition(".")[0]
            home = next((folder for folder in self.search if holds_module(folder, top)), None)
            if home is not None:
                yield from files_of_module(home, item.deepest.split("."))
                continue
            foreign = [other for other in _NEEDS_ANOTHER if f"{item.deepest}.".startswith(f"{other}.")]
            if top not in sys.stdlib_module_names:
                foreign.append(top)
            for module in foreign:
                self.imports.setdefault(module, ImportedModule(module, name, item.line, self.beside))

    def _add_search_folders(self, file: Path, statements: Iterable[_Statement]) -> None:
        """Folders that ``sys.path.append(os.path.join(here, "../dust3r"))`` adds, as far as the text tells."""
        for statement in statements:
            call = statement.node.value if isinstance(statement.node, ast.Expr) else None
            if not isinstance(call, ast.Call):
                continue
            if dotted_name(call.func) not in ("sys.path.append", "sys.path.insert"):
                continue
            texts = [text_constant(node) for node in ast.walk(call)]
            parts = [text.lstrip("/") for text in texts if text is not None and "\0" not in text]
            # which folder ``here`` is takes a variable more to tell than anyone writes, so the usual ones are tried
            for base in (file.parent, file.parent.parent, self.root):
                folder = Path(os.path.normpath(base.joinpath(*parts)))
                if folder.is_relative_to(self.root) and is_folder(folder):
                    self.search[folder] = None

    # -- uses -------------------------------------------------------------------------------------------------

    def _add_match(self, key: str, file: str, line: int, lines: Sequence[str], *, at_import: bool) -> None:
        text = "".join(lines[line - 1 : line]).strip()[:_LONGEST_LINE]
        self.matches.append(CodeMatch(key, file, line, text, at_import and not self.beside))

    def _used_names(self, text: str, statements: Sequence[_Statement]) -> Iterator[tuple[int, bool, str]]:
        """(line, whether it runs at the import, absolute name) of each name that the statements use."""
        certain = [statement for statement in statements if statement.certain]
        for statement in certain:
            for item in imported(statement.node):
                yield item.line, statement.at_import, item.deepest
        absolute: dict[str, str] = {}
        for statement in statements:
            absolute.update((item.local, item.stands_for) for item in imported(statement.node))
        methods = {name for pattern in self.patterns for name in pattern.names if name.startswith("*.")}
        # the text must have one of the names somewhere: expressions are many, and a walk through them is slow
        spellings = [method.removeprefix("*.") for method in methods]
        for local, module in absolute.items():
            for pattern in self.patterns:
                for name in pattern.names:
                    if name.startswith(f"{module}."):
                        spellings.append(local + name.removeprefix(module))
        if not spellings or not re.search(rf"\b({'|'.join(map(re.escape, spellings))})\b", text):
            return
        for statement in certain:
            for node in own_expressions(statement.node):
                if not isinstance(node, ast.Attribute):
                    continue
                if f"*.{node.attr}" in methods:
                    yield node.lineno, statement.at_import, f"*.{node.attr}"
                head, dot, rest = dotted_name(node).partition(".")
                if head in absolute:
                    yield node.lineno, statement.at_import, f"{absolute[head]}{dot}{rest}"


def _inner_statements(outer: _Statement, *, is_started: bool) -> Iterator[_Statement]:
    node, at_import, certain = outer.node, outer.at_import, outer.certain
    # (statements, whether they run at the import, whether they are certain to)
    bodies: list[tuple[Iterable[ast.stmt], bool, bool]] = []
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        bodies = [(node.body, False, certain)]
    elif isinstance(node, ast.If):
        is_typing = last_name(node.test) == "TYPE_CHECKING"
        is_started_only = is_main(node.test)
        if is_started_only:
            bodies.append((node.body, at_import and is_started, certain))
        elif not is_typing:
            bodies.append((node.body, at_import, False))
        bodies.append((node.orelse, at_import, certain and (is_typing or is_started_only)))
    elif isinstance(node, ast.Try):
        is_caught = any(_goes_on(handler) for handler in node.handlers)
        bodies.append(([*node.body, *node.orelse], at_import, certain and not is_caught))
        bodies += [(handler.body, at_import, False) for handler in node.handlers]
        bodies.append((node.finalbody, at_import, certain))
    elif isinstance(node, ast.Match):
        bodies = [(case.body, at_import, False) for case in node.cases]
    else:  # loops, ``with``, classes
        bodies = [(getattr(node, name, ()), at_import, certain) for name in ("body", "orelse")]
    for body, runs_at_import, is_certain in bodies:
        for inner in body:
            yield _Statement(inner, runs_at_import, is_certain)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """It catches a failed import, and the program goes on without what it wanted."""
    if handler.type is not None:
        exceptions = {last_name(node) for node in ast.walk(handler.type)}
        if not exceptions & _CATCHES_IMPORT_ERRORS:
            return False
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            return False
        if isinstance(node, ast.Call) and last_name(node.func) in _ENDS_THE_PROGRAM:
            return False
    return True


def holds_module(folder: Path, module: str) -> bool:
    """``import module`` would find it in this folder: a file, a package, or a folder with Python in it."""
    if is_regular_file(folder / f"{module}.py"):
        return True
    inside = folder / module
    if not is_folder(inside) or inside.is_symlink():
        return False
    entries = FolderReader().children(inside)
    if any(entry.name.endswith(".py") for entry in entries):
        return True
    for entry in entries[:100]:
        children = FolderReader().children(Path(entry.path)) if entry.is_dir(follow_symlinks=False) else []
        if any(child.name.endswith(".py") for child in children):
            return True
    return False


def files_of_module(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """The files that importing ``a.b.c`` reads, of those that are there: every ``__init__.py`` on the way, then c.py."""
    for name in names:
        if not name.isidentifier():
            return
        file = folder / f"{name}.py"
        folder = folder / name
        package = folder / "__init__.py"
        # a folder without __init__.py comes after a file of its name
        if is_regular_file(file) and not is_regular_file(package):
            yield file
            return
        if is_regular_file(package):
            yield package


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
    for _ in range(_MOST_FOLDERS):
        if not pending:
            break
        folder, depth = pending.pop(0)
        entries = FolderReader().children(folder)
        inside = {entry.name for entry in entries}
        modules = {name.removesuffix(".py") for name in inside if name.endswith(".py")}
        is_package = "__init__.py" in inside
        is_extension = "setup.py" in inside and not is_package
        if modules and folder != root and not is_extension:
            names.add(folder.name)
        if is_package:
            continue
        names |= modules
        if depth:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), depth - 1))
    return frozenset(names)
