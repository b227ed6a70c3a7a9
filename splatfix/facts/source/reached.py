"""What one script of a checkout reaches: which functions it may call, and which modules of others it imports on the way.

Names decide, and too much counts rather than too little: a function is reached where code that is reached has its name, as an
expression, an attribute or a text, in whatever way it got it. What is imported by a computed name reaches everything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.reading import is_regular_file
from splatfix.core.source_pattern import NamePattern
from splatfix.facts.source.program import files_of_own, read_program, relative_files
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.scripts import find_scripts
from splatfix.facts.source.syntax import dotted_name, imported, is_main, text_constant
from splatfix.model import Checkout

_MOST_FILES = 400
_IMPORTERS = frozenset({"importlib.import_module", "import_module", "__import__"})
_LONGEST_NAME = 80
_BACKWARD = ".backward("
_MOST_STARTED = 40
_DEEPEST = 2  # folders below the root that scripts are started in


class Reach(Struct, frozen=True):
    """What a script reaches."""

    functions: frozenset[tuple[str, str]]
    """(file below the root, name) of functions and methods; "" for what is in none."""
    modules: frozenset[str]
    """Top-level names of what it imports and the root does not hold."""
    everything: str = ""
    """Where something is imported by a computed name, so that all of the root may be reached; "" for nowhere."""

    def has(self, file: str, function: str) -> bool:
        """This code may run."""
        return bool(self.everything) or (file, function) in self.functions


def reach_of(root: Path, scripts: Sequence[Path], reader: FolderReader) -> Reach:
    """Return what scripts reach, as they are started, of the folder they lie in; nothing outside of ``root`` is read."""
    reading = _Reading(root, dict.fromkeys((*(script.parent for script in scripts), root)), reader)
    for script in scripts:
        reading.open(script, is_started=True)
    reading.follow()
    return Reach(frozenset(reading.functions), frozenset(reading.modules), reading.everything)


def as_reached(
    checkout: Checkout, scripts: Sequence[str], patterns: Iterable[NamePattern]
) -> tuple[Checkout, Reach]:
    """Return a checkout with the calls and imports that these scripts below it reach, and no others."""
    root, reader = Path(checkout.folder), FolderReader()
    files = [root / script for script in scripts]
    reach = reach_of(root, files, reader)
    program = read_program(files, root, patterns, reader)
    needs = tuple(item for item in program.imports if not is_splat_module(item.name))
    return replace(_within(checkout, reach), needs=needs, python_matches=program.matches), reach


def as_started(checkout: Checkout) -> Checkout:
    """Narrow a checkout to the calls and imports that are reached from what people start in it: its trainers, what renders and
    measures, and what its README starts; all of them where nothing is started."""
    root, reader = Path(checkout.folder), FolderReader()
    scripts, beside = find_scripts(root, reader)
    started = dict.fromkeys([*(root / name for name in find_trainers(root)), *scripts, *beside])
    return _within(checkout, reach_of(root, list(started), reader)) if started else checkout


def _within(checkout: Checkout, reach: Reach) -> Checkout:
    """Keep the calls and imports that are reached, and no others."""
    calls = [call for call in checkout.calls if reach.has(call.file, call.function)]
    # what is imported and never called must be there all the same: its own source says what it is, else how others call it
    called = {call.module for call in calls}
    called |= {face.module for item in checkout.sources for face in item.faces if face.settings}
    calls += [call for call in checkout.calls if call.module not in called and call.module in reach.modules]

    def is_imported(module: str) -> bool:
        return bool(reach.everything) or module.partition(".")[0] in reach.modules

    return replace(
        checkout,
        calls=tuple(calls),
        extension_calls=tuple(
            call for call in checkout.extension_calls if reach.has(call.file, call.function)
        ),
        imports=tuple(filter(is_imported, checkout.imports)),
        guarded=tuple(item for item in checkout.guarded if is_imported(item.module)),
    )


def find_trainers(root: Path) -> tuple[str, ...]:
    """Scripts of a folder that train: ``train.py`` alone, if there; else all of them."""
    return ("train.py",) if is_regular_file(root / "train.py") else all_trainers(root)


def all_trainers(root: Path) -> tuple[str, ...]:
    """Scripts that are started by their name and run backward passes, failing that, those that reach one. Tests are none."""
    reader = FolderReader()
    files = reader.files_below(root, (".py",), depth=2, skip=("submodules", "test", "tests"))
    texts = {file: reader.text(file) for file in files if not file.name.startswith("test_")}
    trains = {file for file, text in texts.items() if _BACKWARD in text}
    started = [
        file
        for file, text in texts.items()
        if "__main__" in text and len(file.relative_to(root).parts) <= _DEEPEST
    ]
    trainers = [file for file in started if file in trains]
    if not trainers and trains:
        for script in started[:_MOST_STARTED]:
            files_reached = {root / file for file, _ in reach_of(root, (script,), reader).functions}
            if any(_BACKWARD in reader.text(file) for file in files_reached):
                trainers.append(script)
    return tuple(file.relative_to(root).as_posix() for file in trainers)


class _Reading:
    def __init__(self, root: Path, search: Iterable[Path], reader: FolderReader) -> None:
        self._root, self._search, self._reader = root, search, reader
        self._opened: set[Path] = set()
        self._waiting: list[tuple[Path, str, str, list[ast.stmt]]] = []
        """(file, name, its class or "", body) of functions that nothing was seen to call yet."""
        self._names: set[str] = set()
        """Every name that code which is reached has in it."""
        self._pending: list[tuple[Path, str, list[ast.stmt]]] = []
        self.functions: set[tuple[str, str]] = set()
        self.modules: set[str] = set()
        self.everything = ""

    def open(self, path: Path, *, is_started: bool = False) -> None:
        """A file that is imported, or started."""
        if path in self._opened or len(self._opened) == _MOST_FILES or not path.is_relative_to(self._root):
            return
        tree = self._reader.python(path, self._reader.text(path))
        if tree is None:
            return
        self._opened.add(path)
        top: list[ast.stmt] = []  # what runs when it is imported, or started
        statements: list[tuple[str, ast.stmt]] = [("", statement) for statement in tree.body]
        for owner, statement in statements:  # which grows
            match statement:
                case ast.FunctionDef(name=name, body=body) | ast.AsyncFunctionDef(name=name, body=body):
                    self._waiting.append((path, name, owner, body))
                    top += map(ast.Expr, statement.decorator_list)
                case ast.ClassDef(name=name, body=body):
                    top += map(ast.Expr, (*statement.bases, *statement.decorator_list))
                    statements += ((name, inner) for inner in body)
                case ast.If(test=test, orelse=others) if is_main(test) and not is_started:
                    statements += ((owner, inner) for inner in others)
                case _:
                    top.append(statement)
        self._pending.append((path, "", top))

    def follow(self) -> None:
        """Until nothing more is reached."""
        while self._pending or self._wake():
            path, function, body = self._pending.pop()
            file = path.relative_to(self._root).as_posix()
            self.functions.add((file, function))
            for node in (node for statement in body for node in ast.walk(statement)):
                # of what a star brings, as of others, those that are used are seen where they are used
                for inside in relative_files(path, node):
                    self.open(inside)
                for item in imported(node):
                    self._open_module(item.deepest)
                if isinstance(node, ast.Name):
                    self._names.add(node.id)
                elif isinstance(node, ast.Attribute):
                    self._names.add(node.attr)
                elif isinstance(node, ast.Call) and dotted_name(node.func) in _IMPORTERS:
                    module = text_constant(node.args[0]) if node.args else None
                    if module is None:
                        self.everything = self.everything or f"{file}:{node.lineno}"
                    else:
                        self._open_module(module)
                elif (text := text_constant(node)) is not None and len(text) < _LONGEST_NAME:
                    self._names.add(text.rpartition(".")[2])

    def _wake(self) -> bool:
        """Functions whose name was seen since; special methods wake with the name of their class."""
        still = []
        for path, name, owner, body in self._waiting:
            is_special = name.startswith("__") or name in ("forward", "backward")
            if name in self._names or (is_special and owner in self._names):
                self._pending.append((path, name, body))
            else:
                still.append((path, name, owner, body))
        self._waiting = still
        return bool(self._pending)

    def _open_module(self, module: str) -> None:
        files = files_of_own(module, self._search)
        if files is None:
            self.modules.add(module.partition(".")[0])
        for file in files or ():
            self.open(file)
