"""How Python files call rasterizers and the other splatting extensions, read as syntax trees and never executed."""

import ast
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.syntax import dotted_name, imported, own_expressions, text_constant
from splatfix.model import ExtensionCall, RenderCall

# What brings this is a rasterizer of Inria's family, whatever the module is called.
_FAMILY = "GaussianRasterizationSettings"
_SETTINGS = re.compile(r"\w+RasterizationSettings")
_RASTERIZER = re.compile(r"\w+Rasterizer")
_MOST_VALUES = 8
_DEEPEST_BLOCK = 50

Block = tuple[int, ...]
"""The ids of the statement lists that a statement is in, from the outside inwards."""
T = TypeVar("T")


class _Rasterizer(Struct, frozen=True):
    """A rasterizer that was made, with the settings that it can have been given."""

    module: str
    name: str
    settings: tuple[ast.Call, ...]


class _Scope(Generic[T]):
    """What names can hold at a line of the text: an assignment hides those before it, except in other branches."""

    def __init__(self) -> None:
        self.held: dict[str, list[tuple[Block, T]]] = {}
        """By name: what it can hold, and the blocks in which that was assigned."""

    def assign(self, name: str, block: Block, values: Sequence[T]) -> None:
        """``name`` holds one of ``values`` from here on."""
        if not name or (not values and name not in self.held):
            return
        held = [item for item in self.held.get(name, ()) if item[0][: len(block)] != block]
        held += [(block, value) for value in values]
        self.held[name] = held[-_MOST_VALUES:]

    def values_of(self, name: str) -> tuple[T, ...]:
        """What ``name`` can hold now."""
        return tuple(value for _, value in self.held.get(name, ()))


class _Calls(Struct):
    """Calls in order of the text, known by their number; what is done with a result is told after the call."""

    most: int
    items: list[RenderCall | ExtensionCall] = field(default_factory=list)

    def add(self, calls: Iterable[RenderCall | ExtensionCall]) -> tuple[int, ...]:
        """Note calls; their numbers."""
        numbers = []
        for call in calls:
            if len(self.items) == self.most:
                break
            numbers.append(len(self.items))
            self.items.append(call)
        return tuple(numbers)


def extension_calls(
    file: str, nodes: Sequence[ast.AST], most: int
) -> tuple[tuple[RenderCall, ...], tuple[ExtensionCall, ...]]:
    """Every call of a rasterizer, with the settings it was made with, and every call of what else extensions export.

    Args:
        nodes: the file's syntax tree, as :func:`ast.walk` gives it.
        most: how many are told at most.
    """
    if not _extension_names(nodes):
        return (), ()
    functions = list(_functions(nodes[0]))
    # what one function imports is not what a name is in another
    names = _extension_names([node for statement in functions[-1][1] for node in ast.walk(statement)])
    every_call = (node for node in nodes if isinstance(node, ast.Call))
    settings = [call for call in every_call if _SETTINGS.fullmatch(_absolute(call.func, names)[1])]
    calls = _Calls(most)
    attributes = _Scope[_Rasterizer]()  # self.rasterizer, made in one method and called in another
    for function, body in functions:
        inside = [node for statement in body for node in ast.walk(statement)]
        local = _extension_names(inside)
        used = {node.id for node in inside if isinstance(node, ast.Name)}
        # most functions touch no extension: neither its names nor what a method before kept of it
        keeps = "self" in used and attributes.held
        if local or keeps or not used.isdisjoint(names):
            known = ChainMap(local, names)
            _FunctionReader(file, function, known, calls, attributes, settings).read(body)
    ordered = sorted(dict.fromkeys(calls.items), key=lambda call: call.line)
    return (
        tuple(call for call in ordered if isinstance(call, RenderCall)),
        tuple(call for call in ordered if isinstance(call, ExtensionCall)),
    )


def _extension_names(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Local name -> absolute dotted name of what belongs to splatting extensions, or to what brings a rasterizer."""
    imports = [item for node in nodes for item in imported(node)]
    rasterizers = {item.module for item in imports if item.name == _FAMILY}
    names = {}
    for item in imports:
        if item.module in rasterizers or is_splat_module(item.module):
            names[item.local] = item.stands_for
    return names


def _functions(tree: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Functions and methods with their names, those inside another as a part of it; then what is in none, as "".

    ``__init__`` comes before the other methods of its class, whatever the order of the text: it makes what they call.
    """
    outside: list[ast.stmt] = []
    pending: list[ast.AST] = [tree]
    while pending:
        body = list(getattr(pending.pop(0), "body", ()))
        for statement in sorted(body, key=lambda item: getattr(item, "name", "") != "__init__"):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield statement.name, statement.body
            elif isinstance(statement, ast.ClassDef):
                pending.append(statement)
        for statement in body:
            if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                outside.append(statement)
    yield "", outside


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, Block]]:
    pending: list[tuple[ast.stmt, Block]] = [(statement, ()) for statement in reversed(body)]
    while pending:
        statement, block = pending.pop()
        yield statement, block
        inner = []
        parts = (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
        bodies = (getattr(part, name, None) for part in parts for name in ("body", "orelse", "finalbody"))
        for part in bodies:
            if not isinstance(part, list):
                continue
            # deeper ones count as one: what is compared is a prefix, whose length would grow with the square
            inside = (*block, id(part))[:_DEEPEST_BLOCK]
            inner += [(child, inside) for child in part]
        pending += reversed(inner)


class _FunctionReader:
    """Follows what one function does with rasterizers, in order of the text."""

    def __init__(
        self,
        file: str,
        function: str,
        names: Mapping[str, str],
        calls: _Calls,
        attributes: _Scope[_Rasterizer],
        settings_of_file: Sequence[ast.Call],
    ) -> None:
        self._file, self._function, self._names, self._calls = file, function, names, calls
        self._settings = _Scope[ast.Call]()
        self._last_settings: tuple[ast.Call, ...] = ()
        self._settings_of_file = settings_of_file
        self._mappings = _Scope[ast.Dict]()
        self._rasterizers, self._attributes = _Scope[_Rasterizer](), attributes
        self._results = _Scope[int]()
        self._numbers: dict[int, tuple[int, ...]] = {}
        """By the id of a call in this statement: the numbers of what was noted of it."""

    def read(self, body: Sequence[ast.stmt]) -> None:
        for statement, block in _statements(body):
            nodes = list(own_expressions(statement))
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            calls.sort(key=lambda call: (call.lineno, call.col_offset))
            self._numbers = {}
            for call in calls:
                self._numbers[id(call)] = self._note(call)
            for node in nodes:
                if isinstance(node, ast.Subscript):
                    self._unpack(node.value, None, _values_for_index(node.slice))
            if isinstance(statement, ast.Assign):
                self._assign(statement.targets[0], statement.value, block)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, statement.value, block)

    def _assign(self, target: ast.expr, value: ast.expr, block: Block) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            is_starred = any(isinstance(item, ast.Starred) for item in target.elts)
            at_least = sum(not isinstance(item, ast.Starred) for item in target.elts)
            self._unpack(value, None if is_starred else at_least, at_least)
            # the values go to these variables; those of the first assignment are kept
            names = tuple(item.id if isinstance(item, ast.Name) else "" for item in target.elts)
            for number in () if is_starred else self._numbers_of(value):
                call = self._calls.items[number]
                if isinstance(call, RenderCall) and not call.results:
                    self._calls.items[number] = replace(call, results=names)
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                self._unpack(value.value, None, at_least)
        if isinstance(target, ast.Subscript):  # one more key, which the call may be given or not
            self._mappings.assign(dotted_name(target.value), (), ())
        name = dotted_name(target)
        self._mappings.assign(name, block, [value] if isinstance(value, ast.Dict) else [])
        self._settings.assign(name, block, self._settings_in(value))
        scope = self._attributes if name.startswith("self.") else self._rasterizers
        scope.assign(name, block, self._rasterizers_in(value))
        # only a rasterizer's: an index into what a function gives may be that of a tensor
        numbers = self._numbers.get(id(value), ())
        renderings = [number for number in numbers if isinstance(self._calls.items[number], RenderCall)]
        self._results.assign(name, block, renderings)

    def _unpack(self, value: ast.expr, exactly: int | None, at_least: int) -> None:
        """The result is taken apart, into so many values."""
        for number in self._numbers_of(value):
            call = self._calls.items[number]
            count, least = exactly, at_least
            if count is None:
                count = call.unpacks
            elif call.unpacks is not None and count != call.unpacks:  # in two branches
                least = min(count, call.unpacks)
                count = None
            self._calls.items[number] = replace(call, unpacks=count, at_least=max(call.at_least, least))

    def _numbers_of(self, value: ast.expr) -> tuple[int, ...]:
        return self._numbers.get(id(value), ()) or self._results.values_of(dotted_name(value))

    def _note(self, call: ast.Call) -> tuple[int, ...]:
        """Note a call of an extension's; the numbers of what was noted."""
        module, name = _absolute(call.func, self._names)
        if _SETTINGS.fullmatch(name):
            self._last_settings = (call,)
            return ()
        if _RASTERIZER.fullmatch(name):
            return ()
        if name:
            return self._calls.add([self._other_call(call, module, name)])
        rasterizers = self._rasterizers_in(call.func)
        if rasterizers:
            return self._calls.add(chain.from_iterable(self._renderings(call, item) for item in rasterizers))
        if isinstance(call.func, ast.Attribute):
            method = call.func.attr
            owners = self._rasterizers_in(call.func.value)
            return self._calls.add(
                self._other_call(call, owner.module, f"{owner.name}.{method}") for owner in owners
            )
        return ()

    def _renderings(self, call: ast.Call, rasterizer: _Rasterizer) -> Iterator[RenderCall]:
        """The call once for each of the settings that the rasterizer can have been given."""
        # ``f(**arguments)`` as ``f(a=..., b=...)``, where the function made that dict of constant keys, and added none
        written: list[ast.keyword] = []
        for keyword in call.keywords:
            mappings = self._mappings.values_of(dotted_name(keyword.value)) if keyword.arg is None else ()
            names = [text_constant(key) for key in mappings[0].keys] if len(mappings) == 1 else [keyword.arg]
            written += [ast.keyword(name, keyword.value) for name in names]
        keywords, positional = _arguments(ast.Call(call.func, call.args, written))
        for settings in rasterizer.settings or (None,):
            settings_keywords, settings_positional = _arguments(settings)
            yield RenderCall(
                file=self._file,
                line=call.lineno,
                function=self._function,
                module=rasterizer.module,
                settings=settings_keywords,
                settings_positional=settings_positional,
                forward=keywords,
                forward_positional=positional,
            )

    def _other_call(self, call: ast.Call, module: str, name: str) -> ExtensionCall:
        keywords, positional = _arguments(call)
        return ExtensionCall(self._file, call.lineno, self._function, module, name, keywords, positional)

    def _settings_in(self, value: ast.expr) -> tuple[ast.Call, ...]:
        if not isinstance(value, ast.Call):
            return self._settings.values_of(dotted_name(value))
        _, name = _absolute(value.func, self._names)
        return (value,) if _SETTINGS.fullmatch(name) else ()

    def _rasterizers_in(self, value: ast.expr) -> tuple[_Rasterizer, ...]:
        if not isinstance(value, ast.Call):
            name = dotted_name(value)
            return self._rasterizers.values_of(name) or self._attributes.values_of(name)
        module, name = _absolute(value.func, self._names)
        if not _RASTERIZER.fullmatch(name):
            return ()
        settings: list[ast.Call] = []
        for argument in (*value.args, *(keyword.value for keyword in value.keywords)):
            settings += self._settings_in(argument)
        # given in a way that is not followed: most functions make settings once, just before, others in a function beside
        made = tuple(settings) or self._last_settings
        if not made:
            of_file = self._settings_of_file
            made = tuple(item for item in of_file if _absolute(item.func, self._names)[0] == module)
        return (_Rasterizer(module, name, made),)


def _absolute(callee: ast.expr, names: Mapping[str, str]) -> tuple[str, str]:
    """(module, name) of what is called; ("", "") for anything but a splatting extension's."""
    first, dot, rest = dotted_name(callee).partition(".")
    if first not in names:
        return "", ""
    module, _, name = f"{names[first]}{dot}{rest}".rpartition(".")
    return module, name


def _arguments(call: ast.Call | None) -> tuple[tuple[str, ...], int]:
    """(keywords, how many come by position); a ``**mapping`` makes the call unknown: no keywords, -1."""
    if call is None or any(isinstance(argument, ast.Starred) for argument in call.args):
        return (), -1
    keywords = [keyword.arg for keyword in call.keywords]
    if None in keywords:
        return (), -1
    return tuple(keyword for keyword in keywords if keyword), len(call.args)


def _values_for_index(index: ast.expr) -> int:
    """How many results there are at least when this index is used; 0 where it does not tell."""
    from_the_end = isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub)
    number = index.operand if isinstance(index, ast.UnaryOp) else index
    if not isinstance(number, ast.Constant) or type(number.value) is not int:
        return 0
    return number.value if from_the_end else number.value + 1
