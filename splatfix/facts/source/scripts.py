"""The scripts by which people train, render and measure, and the packages of an extension: what they import, use and compile,
which options they take, and which functions of a checkout one of them reaches.

Of what is reached names decide, and too much counts rather than too little: a function is where code that is reached has its
name, as an expression, an attribute or a text, in whatever way it got it. What is imported by a computed name reaches everything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.core.reading import is_regular_file, is_there
from splatfix.core.source_pattern import NamePattern
from splatfix.core.versions import release
from splatfix.facts.source.folder import packages_in
from splatfix.facts.source.names import NAMES
from splatfix.facts.source.program import Program, files_of_module, files_of_own, read_program, relative_files
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import (
    dotted_name,
    imported,
    is_main,
    keyword_value,
    last_name,
    text_constant,
)
from splatfix.model import Checkout

_MOST_SCRIPTS = 40
_MOST_MODULES = 40
_LONGEST_NAME = 80
# Scripts in a checkout's top folder by which people train, render and measure.
_TELLING_NAME = re.compile(r"(\w*train\w*|render|metrics)\.py")
# ``python -u train.py``, ``torchrun --nproc_per_node 2 train.py``
_STARTED = re.compile(
    r"\b(?:python[\d.]{0,5}|torchrun|accelerate[ ]launch)(?:[ ]{1,4}-{1,2}[\w-]{1,40}(?:[ =]\d{1,9})?){0,6}"
    r"[ ]{1,4}(?:\./)?([\w./-]{1,200}\.py)\b"
)
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_MENTIONS_BUILDER = re.compile(r"\b(cpp_extension|charonload)\b")
_CMAKE_MINIMUM = re.compile(
    r"\bcmake_minimum_required\s*\(\s*VERSION\s+(\d{1,4}(?:\.\d{1,4}){0,2})\b", re.IGNORECASE
)
_IMPORTS_LOAD = re.compile(r"cpp_extension[ \t]+import[ \t(]+[^\n]*\bload")
# What its own charonload-config.cmake asks for.
_OF_CHARONLOAD = "3.27"
_MOST_FILES = 400
_IMPORTERS = frozenset({"importlib.import_module", "import_module", "__import__"})
_BACKWARD = ".backward("
_DEEPEST = 2  # folders below the root that scripts are started in


def read_scripts(root: Path, patterns: Iterable[NamePattern] = ()) -> tuple[Program, FolderReader]:
    """Return what the scripts of a checkout import and use, without splatting extensions, and the reader that read them; see
    :func:`find_scripts`."""
    reader = FolderReader()
    scripts, beside = find_scripts(root, reader)
    program = read_program(scripts, root, patterns, reader, beside)
    others = tuple(item for item in program.imports if not is_splat_module(item.name))
    return Program(others, program.matches), reader


def find_scripts(root: Path, reader: FolderReader) -> tuple[list[Path], list[Path]]:
    """The scripts by which a checkout trains, renders and measures, and others that its READMEs tell people to start.

    Where none in its top folder has a name that tells so, they are those that the READMEs start there; failing that, those
    with ``if __name__ == "__main__"``.
    """
    in_top_folder: list[Path] = []
    in_readmes: list[Path] = []
    for entry in reader.children(root):
        path = Path(entry.path)
        if entry.name.endswith(".py"):
            in_top_folder.append(path)
        elif entry.name.lower().startswith("readme") and is_regular_file(path):
            in_readmes += (root / name for name in _STARTED.findall(reader.text(path)))
    files = (path for path in dict.fromkeys([*in_top_folder, *in_readmes]) if is_regular_file(path))
    there = [path for path in files if path.name != "setup.py"]
    in_top_folder = [path for path in there if path in in_top_folder]
    started = [path for path in dict.fromkeys(in_readmes) if path in there]
    scripts = [script for script in in_top_folder if _TELLING_NAME.fullmatch(script.name)]
    scripts = scripts or [script for script in started if script.parent == root]
    scripts = scripts or [script for script in in_top_folder if _MAIN.search(reader.text(script))]
    beside = [script for script in started if script not in scripts]
    return scripts[:_MOST_SCRIPTS], beside[:_MOST_SCRIPTS]


def read_packages_of(
    folder: Path,
    packages: tuple[str, ...],
    modules: tuple[str, ...],
    patterns: Iterable[NamePattern] = (),
) -> Program:
    """Return what the packages of an extension import and use when they are imported themselves: those that setup.py names, else
    each beside it that could be meant."""
    entries = []
    for parent in (folder, folder / "src"):
        for name in dict.fromkeys(packages or packages_in(parent)):
            entry = parent / name / "__init__.py"
            if name.isidentifier() and name not in NAMES["not-installed"] and is_there(entry):
                entries.append(entry)
    if not entries:
        return Program()
    program = read_program(entries, folder, patterns, FolderReader())
    own = {module.partition(".")[0] for module in modules}
    return Program(tuple(item for item in program.imports if item.name not in own), program.matches)


class FirstUse(Struct, frozen=True):
    """A call of ``torch.utils.cpp_extension.load``, or of ``charonload.Config``, which has CMake compile at the import."""

    place: str
    """``render/ops.py:12 (plugin)``, with the module's name where it can be read."""
    cmake: str = ""
    """The oldest CMake that takes it; "" where torch compiles."""

    @property
    def builder(self) -> str:
        """What compiles there, for a sentence."""
        return f"CMake {self.cmake} or newer" if self.cmake else "torch, with ninja,"


def compiled_at_first_use(folder: Path) -> tuple[FirstUse, ...]:
    """Every call of ``cpp_extension.load`` and the like in a checkout's Python files, in order of name."""
    reader, calls = FolderReader(), []
    for file in reader.files_below(folder, (".py",), depth=6):
        text = reader.text(file)
        if not _MENTIONS_BUILDER.search(text) or not (tree := reader.python(file, text)):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            place, called = f"{file.relative_to(folder).as_posix()}:{node.lineno}", dotted_name(node.func)
            if called == "charonload.Config":
                lists = reader.files_below(file.parent, ("CMakeLists.txt",), depth=4)
                asked = [number for path in lists for number in _CMAKE_MINIMUM.findall(reader.text(path))]
                calls.append(FirstUse(place, max([*asked, _OF_CHARONLOAD], key=release)))
            # ``cpp_extension.load(...)``, or ``load(...)`` of a file that imports it from there
            elif re.search(r"\bcpp_extension\.load(_inline)?$", called) or (
                called in ("load", "load_inline") and _IMPORTS_LOAD.search(text)
            ):
                name = text_constant(keyword_value(node, "name") or next(iter(node.args), None))
                calls.append(FirstUse(f"{place} ({name[:_LONGEST_NAME]})" if name else place))
    return tuple(calls)


def read_arguments(root: Path, script: str) -> dict[str, str]:
    """The options of ``root/script`` as they are typed, by name: ``{"iterations": "--iterations"}``.

    Read are ``add_argument`` calls, and the attributes of parameter groups in the way of Inria's trainers: a class made from
    ``ParamGroup`` whose ``__init__`` sets ``self.iterations = 30_000`` adds ``--iterations``, and ``self._resolution`` adds
    ``--resolution`` with a short form. Looked at are the script and the own modules that it imports by name.
    Empty where the script is not there or is no Python.
    """
    reader = FolderReader()
    arguments: dict[str, str] = {}
    files = [root / script]
    for path in files:  # which grows
        tree = reader.python(path, reader.text(path))
        if tree is None:
            continue
        if len(files) == 1:  # the script itself, and every module of the checkout that it names in an import
            inner: dict[Path, None] = {}
            for item in chain.from_iterable(map(imported, ast.walk(tree))):
                inner |= dict.fromkeys(files_of_module(root, item.module.split(".")))
            files += list(inner)[: _MOST_MODULES - 1]
        for argument in _arguments(tree):
            # of two the first counts: the script's own wins over those of what it imports
            arguments.setdefault(argument.lstrip("-").replace("-", "_"), argument)
    return arguments


def _arguments(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=bases, body=body) if any(
                "ParamGroup" in ast.unparse(base) for base in bases
            ):
                made = [item for item in body if getattr(item, "name", "") == "__init__"]
                statements = [statement for method in made for statement in getattr(method, "body", ())]
                targets = [target for item in statements for target in getattr(item, "targets", ())]
                for target in targets:
                    if isinstance(target, ast.Attribute) and last_name(target.value) == "self":
                        yield f"--{target.attr.lstrip('_')}"
            case ast.Call(func=function, args=arguments) if last_name(function) == "add_argument":
                texts = filter(None, map(text_constant, arguments))
                yield from islice((text for text in texts if text.startswith("--")), 1)


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
    started, trains = list[Path](), set[Path]()
    for file in reader.files_below(root, (".py",), depth=2, skip=("submodules", "test", "tests")):
        text = "" if file.name.startswith("test_") else reader.text(file)
        if _BACKWARD in text:
            trains.add(file)
        if "__main__" in text and len(file.relative_to(root).parts) <= _DEEPEST:
            started.append(file)
    trainers = [file for file in started if file in trains]
    if not trainers and trains:
        for script in started[:_MOST_SCRIPTS]:
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
            for node in chain.from_iterable(map(ast.walk, body)):
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
