"""What one script of a checkout reaches: which functions it may call, and which modules of others it imports on the way.

Names decide, and too much counts rather than too little: a function is reached where code that is reached has its name, as an
expression, an attribute or a text, in whatever way it got it. What is imported by a computed name reaches everything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.core.reading import is_regular_file
from splatfix.core.source_pattern import NamePattern
from splatfix.facts.source.program import files_of_module, holds_module, read_program, relative_files
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

Function = ast.FunctionDef | ast.AsyncFunctionDef


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


class _File(Struct):
    """What is known of one file that is reached."""

    name: str
    top: list[ast.stmt]
    """What runs when it is imported, or started."""
    waiting: list[tuple[str, str, Function]] = field(default_factory=list)
    """(name, its class or "", node) of functions that nothing was seen to call yet."""


def reach_of(root: Path, scripts: Sequence[Path], reader: FolderReader) -> Reach:
    """What scripts reach of the folder they lie in.

    Args:
        root: nothing outside of it is read.
        scripts: those that are started.
    """
    reading = _Reading(root, reader)
    reading.search += dict.fromkeys((*(script.parent for script in scripts), root))
    for script in scripts:
        reading.open(script, is_started=True)
    reading.follow()
    return Reach(frozenset(reading.functions), frozenset(reading.modules), reading.everything)


def as_reached(
    checkout: Checkout, scripts: Sequence[str], patterns: Iterable[NamePattern]
) -> tuple[Checkout, Reach]:
    """A checkout with the calls and imports that these scripts reach, and no others.

    Args:
        scripts: files below the checkout.
        patterns: what to look for in the scripts, as for :func:`read_checkout`.
    """
    root, reader = Path(checkout.folder), FolderReader()
    files = [root / script for script in scripts]
    reach = reach_of(root, files, reader)
    program = read_program(files, root, patterns, reader)
    reached = replace(
        _within(checkout, reach),
        needs=tuple(item for item in program.imports if not is_splat_module(item.name)),
        python_matches=program.matches,
    )
    return reached, reach


def as_started(checkout: Checkout) -> Checkout:
    """Narrow a checkout to the calls and imports that are reached from what people start in it: its trainers, what renders and
    measures, and what its README starts; all of them where nothing is started."""
    root, reader = Path(checkout.folder), FolderReader()
    scripts, beside = find_scripts(root, reader)
    started = dict.fromkeys([*(root / name for name in find_trainers(root)), *scripts, *beside])
    if not started:
        return checkout
    return _within(checkout, reach_of(root, list(started), reader))


def _within(checkout: Checkout, reach: Reach) -> Checkout:
    """Keep the calls and imports that are reached, and no others."""
    guarded = checkout.guarded
    imports = checkout.imports
    if not reach.everything:
        guarded = tuple(item for item in guarded if item.module.partition(".")[0] in reach.modules)
        imports = tuple(name for name in imports if name in reach.modules)
    calls = [call for call in checkout.calls if reach.has(call.file, call.function)]
    # what is imported and never called must be there all the same: its own source says what it is, else how others call it
    called = {call.module for call in calls}
    called |= {face.module for item in checkout.sources for face in item.faces if face.settings}
    calls += [call for call in checkout.calls if call.module not in called and call.module in reach.modules]
    extension_calls = [call for call in checkout.extension_calls if reach.has(call.file, call.function)]
    return replace(
        checkout,
        calls=tuple(calls),
        extension_calls=tuple(extension_calls),
        imports=imports,
        guarded=guarded,
    )


def find_trainers(root: Path) -> tuple[str, ...]:
    """Scripts of a folder that train: ``train.py`` alone, if there; else all of them."""
    if is_regular_file(root / "train.py"):
        return ("train.py",)
    return all_trainers(root)


def all_trainers(root: Path) -> tuple[str, ...]:
    """Scripts that are started by their name and run backward passes, failing that, those that reach one. Tests are none."""
    reader = FolderReader()
    texts = {
        file: reader.text(file)
        for file in reader.files_below(root, (".py",), depth=2, skip=("submodules", "test", "tests"))
        if not file.name.startswith("test_")
    }
    started = [
        file
        for file, text in texts.items()
        if "__main__" in text and len(file.relative_to(root).parts) <= _DEEPEST
    ]
    trainers = [file for file in started if _BACKWARD in texts[file]]
    if not trainers and any(_BACKWARD in text for text in texts.values()):
        for script in started[:_MOST_STARTED]:
            files = {root / file for file, _ in reach_of(root, (script,), reader).functions}
            if any(_BACKWARD in reader.text(file) for file in files):
                trainers.append(script)
    return tuple(file.relative_to(root).as_posix() for file in trainers)


class _Reading:
    def __init__(self, root: Path, reader: FolderReader) -> None:
        self._root, self._reader = root, reader
        self.search: list[Path] = []
        self._files: dict[Path, _File] = {}
        self._names: set[str] = set()
        """Every name that code which is reached has in it."""
        self._pending: list[tuple[Path, str, Sequence[ast.stmt]]] = []
        self.functions: set[tuple[str, str]] = set()
        self.modules: set[str] = set()
        self.everything = ""

    def open(self, path: Path, *, is_started: bool = False) -> None:
        """A file that is imported, or started."""
        if path in self._files or len(self._files) == _MOST_FILES:
            return
        tree = self._reader.python(path, self._reader.text(path))
        if tree is None:
            return
        file = _File(path.relative_to(self._root).as_posix(), [])
        self._files[path] = file
        self._sort(file, tree.body, "", is_started=is_started)
        self._pending.append((path, "", file.top))

    def _sort(self, file: _File, body: Iterable[ast.stmt], owner: str, *, is_started: bool) -> None:
        """Statements that run with the file, and functions that wait to be called."""
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                file.waiting.append((statement.name, owner, statement))
                file.top += [ast.Expr(node) for node in statement.decorator_list]
            elif isinstance(statement, ast.ClassDef):
                file.top += [ast.Expr(node) for node in (*statement.bases, *statement.decorator_list)]
                self._sort(file, statement.body, statement.name, is_started=is_started)
            elif isinstance(statement, ast.If) and is_main(statement.test) and not is_started:
                self._sort(file, statement.orelse, owner, is_started=False)
            else:
                file.top.append(statement)

    def follow(self) -> None:
        """Until nothing more is reached."""
        while self._pending or self._wake():
            path, function, body = self._pending.pop()
            self.functions.add((self._files[path].name, function))
            for node in (node for statement in body for node in ast.walk(statement)):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    # a star brings every name; of others those that are used are seen where they are used
                    self._open_all(relative_files(path, node))
                    for item in imported(node):
                        self._open_module(item.deepest)
                elif isinstance(node, ast.Name):
                    self._names.add(node.id)
                elif isinstance(node, ast.Attribute):
                    self._names.add(node.attr)
                elif isinstance(node, ast.Call) and dotted_name(node.func) in _IMPORTERS:
                    module = text_constant(node.args[0]) if node.args else None
                    if module is None:
                        self.everything = self.everything or f"{self._files[path].name}:{node.lineno}"
                    else:
                        self._open_module(module)
                elif (text := text_constant(node)) is not None and len(text) < _LONGEST_NAME:
                    self._names.add(text.rpartition(".")[2])

    def _wake(self) -> bool:
        """Functions whose name was seen since; special methods wake with the name of their class."""
        for path, file in self._files.items():
            still = []
            for name, owner, node in file.waiting:
                is_special = name.startswith("__") or name in ("forward", "backward")
                if name in self._names or (is_special and owner in self._names):
                    self._pending.append((path, name, node.body))
                else:
                    still.append((name, owner, node))
            file.waiting = still
        return bool(self._pending)

    def _open_module(self, module: str) -> None:
        top = module.partition(".")[0]
        home = next((folder for folder in self.search if holds_module(folder, top)), None)
        if home is None:
            self.modules.add(top)
            return
        self._open_all(files_of_module(home, module.split(".")))

    def _open_all(self, files: Iterator[Path]) -> None:
        for file in files:
            if file.is_relative_to(self._root):
                self.open(file)
