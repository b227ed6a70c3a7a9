"""How Python files call rasterizers and the other splatting extensions, read as syntax trees and never executed."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, TypeVar

from splatfix.facts.model.source import ExtensionCall, RenderCall
from splatfix.facts.source.python_source import imported_names, is_splat_module

# What brings this is a rasterizer of Inria's family, whatever the module is called.
_FAMILY = "GaussianRasterizationSettings"
_SETTINGS = re.compile(r"\w+RasterizationSettings")
_RASTERIZER = re.compile(r"\w+Rasterizer")
_MOST_VALUES = 8
_DEEPEST = 50

_Block = tuple[int, ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class _Made:
    """A rasterizer that was made, with the settings that it can have been given."""

    module: str
    name: str
    settings: tuple[ast.Call, ...]
    constructor: tuple[str, ...]


class _Scope(Generic[_T]):
    """What names can hold at a place in the text: an assignment hides those before it, except in other branches."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[_Block, _T]]] = {}

    def assign(self, name: str, block: _Block, values: Sequence[_T]) -> None:
        if name and (values or name in self._held):
            earlier = [item for item in self._held.get(name, ()) if item[0][: len(block)] != block]
            self._held[name] = [*earlier, *((block, value) for value in values)][-_MOST_VALUES:]

    def holds(self) -> bool:
        return bool(self._held)

    def of(self, name: str) -> tuple[_T, ...]:
        return tuple(value for _, value in self._held.get(name, ()))


@dataclass
class _Found:
    """Calls in order of the text; what is done with a result is told after the call."""

    most: int
    calls: list[RenderCall | ExtensionCall] = field(default_factory=list)

    def add(self, calls: Iterator[RenderCall | ExtensionCall]) -> tuple[int, ...]:
        """Their numbers."""
        first = len(self.calls)
        self.calls += islice(calls, self.most - first)
        return tuple(range(first, len(self.calls)))

    def take(self, number: int, exactly: int | None, at_least: int) -> None:
        call = self.calls[number]
        before = call.unpacks
        if exactly is None:
            exactly = before
        elif before is not None and exactly != before:  # in two branches
            at_least = min(exactly, before)
            exactly = None
        self.calls[number] = replace(call, unpacks=exactly, at_least=max(call.at_least, at_least))

    def name(self, number: int, targets: Sequence[ast.expr]) -> None:
        call = self.calls[number]
        if isinstance(call, RenderCall):
            names = tuple(item.id if isinstance(item, ast.Name) else "" for item in targets)
            self.calls[number] = replace(call, results=call.results or names)


def extension_calls(
    file: str, nodes: Sequence[ast.AST], most: int
) -> tuple[tuple[RenderCall, ...], tuple[ExtensionCall, ...]]:
    """Every call of a rasterizer, with the settings it was made with, and every call of what else extensions export.

    Args:
        nodes: the file's syntax tree, as :func:`ast.walk` gives it.
        most: how many are told at most.
    """
    names = _names(nodes)
    if not names:
        return (), ()
    found = _Found(most)
    attributes = _Scope[_Made]()  # self.rasterizer, made in one method and called in another
    for function, body in _units(nodes[0]):
        inside = [inner for statement in body for inner in ast.walk(statement)]
        own = _names(inside)
        used = {node.id for node in inside if isinstance(node, ast.Name)}
        # most functions touch no extension: neither its names nor what a method before kept of it
        if own or not used.isdisjoint(names) or ("self" in used and attributes.holds()):
            _Unit(file, function, ChainMap(own, names), found, attributes).read(body)
    calls = sorted(dict.fromkeys(found.calls), key=lambda item: item.line)
    return (
        tuple(item for item in calls if isinstance(item, RenderCall)),
        tuple(item for item in calls if isinstance(item, ExtensionCall)),
    )


def _names(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Local name -> absolute dotted name of what belongs to splatting extensions, or to what brings a rasterizer."""
    imported = imported_names(nodes)
    homes = {module for module, name in imported.values() if name == _FAMILY}
    found = {
        local: f"{module}.{name}"
        for local, (module, name) in imported.items()
        if module in homes or is_splat_module(module)
    }
    for node in nodes:
        for alias in node.names if isinstance(node, ast.Import) else ():
            if is_splat_module(alias.name):
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
    return found


def _units(tree: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Functions and methods with their names, those inside another as a part of it; then what is in none, as "".

    ``__init__`` comes before the other methods of its class, whatever the order of the text.
    """
    loose: list[ast.stmt] = []
    pending: list[ast.AST] = [tree]
    while pending:
        body = list(getattr(pending.pop(0), "body", ()))
        for statement in sorted(body, key=lambda item: getattr(item, "name", "") != "__init__"):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield statement.name, statement.body
            elif isinstance(statement, ast.ClassDef):
                pending.append(statement)
        loose += [
            item
            for item in body
            if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        ]
    yield "", loose


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, _Block]]:
    """Statements in order of the text, each with the blocks it is in."""
    pending: list[tuple[ast.stmt, _Block]] = [(statement, ()) for statement in reversed(body)]
    while pending:
        statement, block = pending.pop()
        yield statement, block
        inner = [
            (one, (*block, id(part)) if len(block) < _DEEPEST else block)
            for part in _blocks_of(statement)
            for one in part
        ]
        pending += reversed(inner)


def _blocks_of(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(inner := getattr(part, name, None), list):
                yield inner


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement without those of the statements in it."""
    pending: list[ast.AST] = [statement]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                yield child
                pending.append(child)


class _Unit:
    """Reads one function."""

    def __init__(
        self, file: str, function: str, names: Mapping[str, str], found: _Found, attributes: _Scope[_Made]
    ) -> None:
        self._file, self._function, self._names, self._found = file, function, names, found
        self._settings = _Scope[ast.Call]()
        self._last: tuple[ast.Call, ...] = ()
        self._rasterizers, self._attributes = _Scope[_Made](), attributes
        self._results = _Scope[int]()

    def read(self, body: Sequence[ast.stmt]) -> None:
        for statement, block in _statements(body):
            target, value = _assignment(statement)
            nodes = list(_expressions(statement))
            calls = sorted(
                (node for node in nodes if isinstance(node, ast.Call)),
                key=lambda node: (node.lineno, node.col_offset),
            )
            numbers = {id(call): self._call(call) for call in calls}
            for node in nodes:
                if isinstance(node, ast.Subscript):
                    self._take(node.value, numbers, None, _index(node.slice))
            if target is None or value is None:
                continue
            if isinstance(target, (ast.Tuple, ast.List)):
                starred = sum(isinstance(item, ast.Starred) for item in target.elts)
                exactly = None if starred else len(target.elts)
                at_least = len(target.elts) - starred
                self._take(value, numbers, exactly, at_least)
                if not starred:
                    for number in self._numbers_of(value, numbers):
                        self._found.name(number, target.elts)
                if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                    self._take(value.value, numbers, None, at_least)
            self._assign(_dotted(target), block, value, numbers)

    def _assign(self, name: str, block: _Block, value: ast.expr, numbers: dict[int, tuple[int, ...]]) -> None:
        self._settings.assign(name, block, self._settings_in(value))
        made = self._made(value)
        (self._attributes if name.startswith("self.") else self._rasterizers).assign(name, block, made)
        tuples = [one for one in numbers.get(id(value), ()) if isinstance(self._found.calls[one], RenderCall)]
        self._results.assign(
            name, block, tuples
        )  # an index into what a function gives may be that of a tensor

    def _absolute(self, callee: ast.expr) -> tuple[str, str]:
        """(module, name) of what is called; ("", "") for anything but a splatting extension's."""
        first, dot, rest = _dotted(callee).partition(".")
        known = self._names.get(first, "")
        module, _, name = f"{known}{dot}{rest}".rpartition(".") if known else ("", "", "")
        return module, name

    def _settings_in(self, value: ast.expr) -> tuple[ast.Call, ...]:
        """Settings calls that an expression can stand for."""
        if isinstance(value, ast.Call):
            return (value,) if _SETTINGS.fullmatch(self._absolute(value.func)[1]) else ()
        return self._settings.of(_dotted(value))

    def _made(self, value: ast.expr) -> tuple[_Made, ...]:
        """Rasterizers that an expression can stand for."""
        if not isinstance(value, ast.Call):
            return self._rasterizers.of(_dotted(value)) or self._attributes.of(_dotted(value))
        module, name = self._absolute(value.func)
        if not _RASTERIZER.fullmatch(name):
            return ()
        given = [*value.args, *(item.value for item in value.keywords)]
        settings = tuple(one for item in given for one in self._settings_in(item))
        words = tuple(item.arg for item in value.keywords if item.arg and item.arg != "raster_settings")
        return (_Made(module, name, settings or self._last, words),)

    def _call(self, call: ast.Call) -> tuple[int, ...]:
        """Note a call of an extension's; the numbers of what was noted."""
        module, name = self._absolute(call.func)
        if _SETTINGS.fullmatch(name):
            self._last = (call,)
            return ()
        if _RASTERIZER.fullmatch(name):
            return ()
        if name:
            return self._found.add(iter([self._other(call, module, name)]))
        if made := self._made(call.func):
            return self._found.add(one for item in made for one in self._rendering(call, item))
        if isinstance(call.func, ast.Attribute):
            what = call.func.attr
            makers = self._made(call.func.value)
            return self._found.add(self._other(call, item.module, f"{item.name}.{what}") for item in makers)
        return ()

    def _rendering(self, call: ast.Call, made: _Made) -> Iterator[RenderCall]:
        keywords, positional = _arguments(call)
        for settings in made.settings or (None,):
            words, count = _arguments(settings)
            yield RenderCall(
                file=self._file,
                line=call.lineno,
                function=self._function,
                module=made.module,
                settings=words,
                settings_positional=count,
                constructor=made.constructor,
                forward=keywords,
                forward_positional=positional,
            )

    def _other(self, call: ast.Call, module: str, name: str) -> ExtensionCall:
        keywords, positional = _arguments(call)
        return ExtensionCall(self._file, call.lineno, self._function, module, name, keywords, positional)

    def _take(
        self, value: ast.expr, numbers: dict[int, tuple[int, ...]], exactly: int | None, at_least: int
    ) -> None:
        for number in self._numbers_of(value, numbers):
            self._found.take(number, exactly, at_least)

    def _numbers_of(self, value: ast.expr, numbers: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
        """Of the calls whose result an expression can stand for."""
        return numbers.get(id(value), ()) or self._results.of(_dotted(value))


def _assignment(statement: ast.stmt) -> tuple[ast.expr | None, ast.expr | None]:
    if isinstance(statement, ast.Assign):
        return statement.targets[0], statement.value
    return (statement.target, statement.value) if isinstance(statement, ast.AnnAssign) else (None, None)


def _arguments(call: ast.Call | None) -> tuple[tuple[str, ...], int]:
    """(keywords, how many come by position); a ``**mapping`` makes the call unknown: no keywords, -1."""
    if call is None:
        return (), -1
    if any(item.arg is None for item in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        return (), -1
    return tuple(item.arg for item in call.keywords if item.arg), len(call.args)


def _index(node: ast.expr) -> int:
    """How many results there are at least when this index is used; 0 where it does not tell."""
    below = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) else node
    if not isinstance(number, ast.Constant) or type(number.value) is not int:
        return 0
    return number.value + (not below)


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of a chain of names; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
