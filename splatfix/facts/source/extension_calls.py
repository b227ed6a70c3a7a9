"""How Python files call rasterizers and the other splatting extensions, read as syntax trees and never executed."""

import ast
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.syntax import dotted_name, imported, own_expressions, text_constant
from splatfix.model import ExtensionCall, RenderCall

# What brings this is a rasterizer of Inria's family, whatever the module is called.
_FAMILY = "GaussianRasterizationSettings"
_SETTINGS = re.compile(r"\w+RasterizationSettings")
_RASTERIZER = re.compile(r"\w+Rasterizer")
_MOST_VALUES = 8
T = TypeVar("T")


class _Rasterizer(NamedTuple):
    """A rasterizer that was made, with the settings that it can have been given."""

    module: str
    name: str
    settings: tuple[ast.Call, ...]


def extension_calls(
    file: str, nodes: Sequence[ast.AST], most: int
) -> tuple[tuple[RenderCall, ...], tuple[ExtensionCall, ...]]:
    """Return every call of a rasterizer, with the settings it was made with, and of what else extensions export, ``most`` in all,
    among the nodes of a file's syntax tree in the order of :func:`ast.walk`."""
    if not _extension_names(nodes):
        return (), ()
    functions = list(_functions(nodes[0]))
    # what one function imports is not what a name is in another
    names = _extension_names(list(chain.from_iterable(map(ast.walk, functions[-1][1]))))
    every_call = (node for node in nodes if isinstance(node, ast.Call))
    settings = [call for call in every_call if _SETTINGS.fullmatch(_absolute(call.func, names)[1])]
    reader = _Reader(file, most, settings)
    for function, body in functions:
        inside = list(chain.from_iterable(map(ast.walk, body)))
        local = _extension_names(inside)
        used = {node.id for node in inside if isinstance(node, ast.Name)}
        # most functions touch no extension: neither its names nor what a method before kept of it
        if local or not used.isdisjoint(names) or ("self" in used and reader.attributes):
            reader.read(function, body, ChainMap(local, names))
    ordered = sorted(dict.fromkeys(reader.calls), key=lambda call: call.line)
    return (
        tuple(call for call in ordered if isinstance(call, RenderCall)),
        tuple(call for call in ordered if isinstance(call, ExtensionCall)),
    )


def _extension_names(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Local name -> absolute dotted name of what belongs to splatting extensions, or to what brings a rasterizer."""
    imports = list(chain.from_iterable(map(imported, nodes)))
    rasterizers = {item.module for item in imports if item.name == _FAMILY}
    ours = (item for item in imports if item.module in rasterizers or is_splat_module(item.module))
    return {item.local: item.stands_for for item in ours}


def _functions(tree: ast.AST) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Functions and methods with their names, those inside another as a part of it; then what is in none, as "".

    ``__init__`` comes before the other methods of its class, whatever the order of the text: it makes what they call.
    """
    outside: list[ast.stmt] = []
    pending: list[ast.AST] = [tree]
    for owner in pending:  # which grows
        body = list(getattr(owner, "body", ()))
        for statement in sorted(body, key=lambda item: getattr(item, "name", "") != "__init__"):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield statement.name, statement.body
            elif isinstance(statement, ast.ClassDef):
                pending.append(statement)
            else:
                outside.append(statement)
    yield "", outside


def _statements(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement in order of the text, with whether it stands in a branch, a loop or the like."""
    pending = [(statement, False) for statement in reversed(body)]
    while pending:
        statement, is_inside = pending.pop()
        yield statement, is_inside
        parts = (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
        inner: list[ast.stmt] = []
        for part, name in product(parts, ("body", "orelse", "finalbody")):
            inner += getattr(part, name, ())
        pending += ((child, True) for child in reversed(inner))


class _Reader:
    """Follows what functions do with rasterizers, in order of the text."""

    def __init__(self, file: str, most: int, settings_of_file: Sequence[ast.Call]) -> None:
        self._file, self._most, self._settings_of_file = file, most, settings_of_file
        self.calls: list[RenderCall | ExtensionCall] = []
        """Known by their number: what is done with a result is told after the call."""
        self.attributes: dict[str, list[object]] = {}
        """By name, what one method keeps and another calls: ``self.rasterizer``."""

    def read(self, function: str, body: Sequence[ast.stmt], names: Mapping[str, str]) -> None:
        """Read one function; ``names`` says what its names of extensions stand for."""
        self._function, self._names = function, names
        self._held: dict[str, list[object]] = {}
        self._last_settings: tuple[ast.Call, ...] = ()
        for statement, is_inside in _statements(body):
            nodes = list(own_expressions(statement))
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            calls.sort(key=lambda call: (call.lineno, call.col_offset))
            # by the id of a call in this statement: the numbers of what was noted of it
            self._numbers = {id(call): self._note(call) for call in calls}
            for node in nodes:
                if isinstance(node, ast.Subscript):
                    self._unpack(node.value, None, _values_for_index(node.slice))
            if isinstance(statement, ast.Assign):
                self._assign(statement.targets[0], statement.value, is_inside=is_inside)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, statement.value, is_inside=is_inside)

    def _assign(self, target: ast.expr, value: ast.expr, *, is_inside: bool) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            is_starred = any(isinstance(item, ast.Starred) for item in target.elts)
            at_least = sum(not isinstance(item, ast.Starred) for item in target.elts)
            self._unpack(value, None if is_starred else at_least, at_least)
            # the values go to these variables; those of the first assignment are kept
            names = tuple(getattr(item, "id", "") for item in target.elts)
            for number in () if is_starred else self._numbers_of(value):
                call = self.calls[number]
                if isinstance(call, RenderCall) and not call.results:
                    self.calls[number] = replace(call, results=names)
            if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice):
                self._unpack(value.value, None, at_least)
        if isinstance(target, ast.Subscript):  # one more key, which the call may be given or not
            self._held.pop(dotted_name(target.value), None)
        name = dotted_name(target)
        values: list[object] = [*self._settings_in(value), *self._rasterizers_in(value)]
        if isinstance(value, ast.Dict):
            values.append(value)
        # only a rasterizer's: an index into what a function gives may be that of a tensor
        values += (number for number in self._numbers_of(value) if isinstance(self.calls[number], RenderCall))
        held = self.attributes if name.startswith("self.") else self._held
        # an assignment hides those before it, but for one in a branch
        if name and (values or name in held):
            before = held.get(name, []) if is_inside else []
            held[name] = [*before, *values][-_MOST_VALUES:]

    def _values(self, value: ast.expr, kind: type[T]) -> tuple[T, ...]:
        """Return what a name can hold now, of this kind."""
        name = dotted_name(value)
        held = self._held.get(name) or self.attributes.get(name, [])
        return tuple(item for item in held if isinstance(item, kind))

    def _unpack(self, value: ast.expr, exactly: int | None, at_least: int) -> None:
        """The result is taken apart, into so many values."""
        for number in self._numbers_of(value):
            call = self.calls[number]
            count, least = exactly, at_least
            if count is None:
                count = call.unpacks
            elif call.unpacks is not None and count != call.unpacks:  # in two branches
                least = min(count, call.unpacks)
                count = None
            self.calls[number] = replace(call, unpacks=count, at_least=max(call.at_least, least))

    def _numbers_of(self, value: ast.expr) -> tuple[int, ...]:
        return self._numbers.get(id(value), ()) or self._values(value, int)

    def _note(self, call: ast.Call) -> tuple[int, ...]:
        """Note a call of an extension's; the numbers of what was noted."""
        module, name = _absolute(call.func, self._names)
        if _SETTINGS.fullmatch(name):
            self._last_settings = (call,)
            return ()
        found: list[RenderCall | ExtensionCall] = []
        keywords, positional = _arguments(call)
        if not name:
            for rasterizer in self._rasterizers_in(call.func):
                found += self._renderings(call, rasterizer)
            others = []
            if isinstance(call.func, ast.Attribute) and not found:
                owners = self._rasterizers_in(call.func.value)
                others = [(owner.module, f"{owner.name}.{call.func.attr}") for owner in owners]
        elif _RASTERIZER.fullmatch(name):
            others = []
        else:
            others = [(module, name)]
        for module, name in others:
            place = (self._file, call.lineno, self._function)
            found.append(ExtensionCall(*place, module, name, keywords, positional))
        before = len(self.calls)
        self.calls += found[: self._most - before]
        return tuple(range(before, len(self.calls)))

    def _renderings(self, call: ast.Call, rasterizer: _Rasterizer) -> Iterator[RenderCall]:
        """The call once for each of the settings that the rasterizer can have been given."""
        # ``f(**arguments)`` as ``f(a=..., b=...)``, where the function made that dict of constant keys, and added none
        written: list[ast.keyword] = []
        for keyword in call.keywords:
            mappings = self._values(keyword.value, ast.Dict)
            names = [keyword.arg]
            if keyword.arg is None and len(mappings) == 1:
                names = list(map(text_constant, mappings[0].keys))
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

    def _settings_in(self, value: ast.expr) -> tuple[ast.Call, ...]:
        if not isinstance(value, ast.Call):
            return self._values(value, ast.Call)
        return (value,) if _SETTINGS.fullmatch(_absolute(value.func, self._names)[1]) else ()

    def _rasterizers_in(self, value: ast.expr) -> tuple[_Rasterizer, ...]:
        if not isinstance(value, ast.Call):
            return self._values(value, _Rasterizer)
        module, name = _absolute(value.func, self._names)
        if not _RASTERIZER.fullmatch(name):
            return ()
        given = (*value.args, *(keyword.value for keyword in value.keywords))
        settings = [item for argument in given for item in self._settings_in(argument)]
        # given in a way that is not followed: most functions make settings once, just before, others in a function beside
        of_file = [item for item in self._settings_of_file if _absolute(item.func, self._names)[0] == module]
        return (_Rasterizer(module, name, tuple(settings or self._last_settings or of_file)),)


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
    keywords = [keyword.arg for keyword in call.keywords if keyword.arg]
    if len(keywords) < len(call.keywords):
        return (), -1
    return tuple(keywords), len(call.args)


def _values_for_index(index: ast.expr) -> int:
    """How many results there are at least when this index is used; 0 where it does not tell."""
    match index:
        case ast.Constant(value=int(number)):
            return number + 1
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return number
    return 0
