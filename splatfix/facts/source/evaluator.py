"""The one static evaluator of setup.py: what its names stand for, which paths it makes, what flows where. Nothing is executed.

Running a stranger's setup.py would run their code and need their torch. So a name stands for what the text binds it to, and
what only running it would tell is None: never guessed.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct

from splatfix.facts.source.syntax import dotted_name, last_name, simple_assignments, text_constant, walk_once

Marker = tuple[str, str] | int
"""What a value can be made of: a name, a text, one of the two below, or one place in the syntax tree (by its ``id``)."""
GPU_IN_SIGHT: Marker = ("call", "torch.cuda.is_available")
OWN_FOLDER: Marker = ("path", "the folder of setup.py")

# Bounds for values, which a few lines that name each other can unfold without end.
_MOST_ITEMS = 10_000
_MOST_LETTERS = 1 << 20
_DEEPEST_VALUE = 20
# Bounds for paths; Linux takes none that are longer.
_MOST_PATH_LETTERS = 4096
_DEEPEST_PATH = 20
# A file with more conditions inside each other was written by no one who builds it.
_MOST_CONDITIONS = 50

# What gives the path that it is given, in another spelling or type.
_SAME_PATH = frozenset({"abspath", "realpath", "normpath", "expanduser", "resolve", "absolute"})
_PATH_CLASSES = frozenset({"Path", "PurePath", "str", "fspath"})
_WORKING_FOLDER = frozenset({"getcwd", "cwd"})
_LEADS_UPWARDS = re.compile(r"(?:[\w.*-]+/)*\.\.(?:/|$)")
_UNKNOWN_PART = "<unknown>"


class _Budget(Struct):
    """How much more one value may unfold to."""

    items: int = _MOST_ITEMS
    letters: int = _MOST_LETTERS

    @property
    def exceeded(self) -> bool:
        return self.items < 0 or self.letters < 0


class StaticEvaluator:
    """Works on the syntax tree of a setup.py (first) and those of the files beside it that it imports."""

    def __init__(self, trees: Sequence[ast.AST] = ()) -> None:
        self._trees = trees
        self.nodes = tuple(node for tree in trees for node in ast.walk(tree))
        """Every node, from the outside inwards."""
        self.exceeded: list[str] = []
        """What was too much to be worked out."""
        self._paths: dict[int, str | None] = {}
        self._path_depth = 0

    @cached_property
    def _assigned(self) -> dict[str, ast.expr]:
        """The last simple assignment to each name; setup.py's own win over those of the files that it imports."""
        assigned: dict[str, ast.expr] = {}
        for tree in reversed(self._trees):
            assigned.update(simple_assignments(ast.walk(tree)))
        return assigned

    # -- values -----------------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        """A str, or a list of these, for constants, their sums, and names bound to them; None inside for the rest.

        What unfolds to more than ten thousand items or a million letters is None too, and noted in ``exceeded``.
        """
        budget = _Budget()
        value = self._value(node, 0, budget)
        if budget.exceeded:
            self.exceeded.append(
                f"its values unfold to more than {_MOST_ITEMS} items or {_MOST_LETTERS} letters"
            )
        return value

    def text(self, node: ast.expr) -> str:
        """The same for a text alone; "" for anything else."""
        value = self.value(node)
        return value if isinstance(value, str) else ""

    def _value(self, node: ast.expr, depth: int, budget: _Budget) -> Any:
        budget.items -= 1
        if depth > _DEEPEST_VALUE or budget.items < 0:
            return None
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(item, depth + 1, budget) for item in node.elts if budget.items >= 0]
        if isinstance(node, ast.Name) and node.id in self._assigned:
            return self._value(self._assigned[node.id], depth + 1, budget)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left = self._value(node.left, depth + 1, budget)
            right = self._value(node.right, depth + 1, budget)
            if isinstance(left, list) and isinstance(right, list):
                return left + right
            if isinstance(left, str) and isinstance(right, str):
                budget.letters -= len(left) + len(right)
                if not budget.exceeded:
                    return left + right
            return None
        return text_constant(node)

    def named_list(self, node: ast.expr) -> ast.expr:
        """What a plain name was last assigned; any other expression as it stands."""
        if isinstance(node, ast.Name):
            return self._assigned.get(node.id, node)
        return node

    # -- paths ------------------------------------------------------------------------------------------------

    def path(self, node: ast.expr) -> str | None:
        """A path relative to the folder of setup.py, not yet normalised; None for what is none, or starts elsewhere.

        A part that is not known, behind a beginning that is, counts as one folder.
        """
        if id(node) not in self._paths and self._path_depth < _DEEPEST_PATH:
            self._paths[id(node)] = None  # for a name that is made from itself
            self._path_depth += 1
            path = self._path(node)
            self._path_depth -= 1
            if path and len(path) < _MOST_PATH_LETTERS:
                self._paths[id(node)] = path
        return self._paths.get(id(node))

    def joined_path(self, call: ast.Call) -> str:
        """The path that ``os.path.join(...)`` makes; what is not known of it is taken for the folder of setup.py."""
        path = self.path(call)
        if path is None or _UNKNOWN_PART in path:
            path = "/".join(filter(None, (self.text(argument).strip("/") for argument in call.args)))
        if not path:
            return ""
        return posixpath.normpath(path)

    def _path(self, node: ast.expr) -> str | None:
        match node:
            case ast.Constant(value=str(text)):
                text = _plain_path(text)
                return text if _LEADS_UPWARDS.match(text) else None
            case ast.Name(id="__file__"):
                return "setup.py"
            case ast.Name(id=name) if name in self._assigned:
                return self.path(self._assigned[name])
            case ast.Attribute(value=inner, attr="parent"):
                return _parent(self.path(inner))
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(index))
            ):
                return _parent(self.path(inner), index + 1)
            case ast.BinOp(left=left, right=right, op=ast.Div() | ast.Add()):
                return self._joined([left, right])
            case ast.JoinedStr(values=parts):
                return self._joined(
                    [part.value if isinstance(part, ast.FormattedValue) else part for part in parts]
                )
            case ast.Call():
                return self._path_of_call(node)
        return None

    def _path_of_call(self, call: ast.Call) -> str | None:
        function = last_name(call.func)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if function in _WORKING_FOLDER:
            return "."  # builders start setup.py in its own folder
        if function == "dirname" and call.args:
            return _parent(self.path(call.args[0]))
        if function == "joinpath" and owner is not None:
            return self._joined([owner, *call.args])
        if function == "join" or function in _SAME_PATH | _PATH_CLASSES:
            if call.args:
                return self._joined(call.args)
            return self.path(owner) if owner is not None else None
        return None

    def _joined(self, parts: Sequence[ast.expr]) -> str | None:
        path = ""
        for part in parts:
            text = text_constant(part)
            piece = self.path(part) if text is None else _plain_path(text)
            if piece is None and path:
                piece = _UNKNOWN_PART
            if piece is None:
                return None
            path = f"{path}/{piece}" if path else piece
        return path or None

    # -- conditions -------------------------------------------------------------------------------------------

    @cached_property
    def _conditions(self) -> dict[int, tuple[ast.expr, ...]]:
        conditions: dict[int, tuple[ast.expr, ...]] = {}
        pending: list[tuple[ast.AST, tuple[ast.expr, ...]]] = [(tree, ()) for tree in self._trees]
        while pending:
            node, outer = pending.pop()
            conditions[id(node)] = inside = outer
            if isinstance(node, (ast.If, ast.IfExp)):
                inside = (node.test, *outer)[:_MOST_CONDITIONS]
            for child in ast.iter_child_nodes(node):
                is_test = isinstance(node, (ast.If, ast.IfExp)) and child is node.test
                pending.append((child, outer if is_test else inside))
        return conditions

    def conditions(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """The tests of the ``if`` that a statement or expression stands in, in either branch; the innermost first."""
        return self._conditions.get(id(node), ())

    # -- flow -------------------------------------------------------------------------------------------------

    @cached_property
    def _bindings(self) -> tuple[tuple[ast.AST, tuple[str, ...], ast.expr], ...]:
        bindings = []
        for node in self.nodes:
            targets, value = _binding(node)
            names = tuple(name for target in targets for name in _bound_names(target))
            if value is not None and names:
                bindings.append((node, names, value))
        return tuple(bindings)

    @cached_property
    def _made_of(self) -> dict[Marker, list[tuple[str, ...]]]:
        """The names that are bound to something made of each marker."""
        made: dict[Marker, list[tuple[str, ...]]] = {}
        for _, names, value in self._bindings:
            for marker in markers(value):
                made.setdefault(marker, []).append(names)
        return made

    @cached_property
    def _bound_on_condition(self) -> dict[Marker, list[tuple[str, ...]]]:
        """The names that are bound under a condition made of each marker."""
        bound: dict[Marker, list[tuple[str, ...]]] = {}
        for node, names, _ in self._bindings:
            tested = {marker for test in self.conditions(node) for marker in markers(test)}
            for marker in tested:
                bound.setdefault(marker, []).append(names)
        return bound

    def holding(self, *start: Marker, on_condition: bool = False) -> set[Marker]:
        """``start`` and every name that holds something made of one of it.

        A name stands for all that it is ever bound to, in whatever order: functions run in an order that the text does not tell.

        Args:
            on_condition: also what is bound only where a condition holds that is made of it.
        """
        holding, pending = set(start), list(start)
        while pending:
            marker = pending.pop()
            bound = list(self._made_of.get(marker, ()))
            if on_condition:
                bound += self._bound_on_condition.get(marker, ())
            for names in bound:
                new = [("name", name) for name in names if ("name", name) not in holding]
                holding.update(new)
                pending += new
        return holding

    def texts_that_reach(self, roots: Iterable[ast.AST]) -> Iterator[str]:
        """Literal texts in these expressions, and in all that is put into the lists they name: the other direction."""
        pending = list(roots)
        if not pending:
            return
        put_into: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            # right-hand sides and arguments through which lists get their items
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend", "insert"):
                    put_into.setdefault(last_name(node.func.value), []).extend(node.args)
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.For, ast.comprehension)):
                targets, filling = _binding(node)
                assert filling is not None  # only an annotation alone has no value
                for target in targets:
                    put_into.setdefault(last_name(target), []).append(filling)
        visited: set[int] = set()
        while pending:
            for node in walk_once(pending.pop(), visited):
                text = text_constant(node)
                if text is not None:
                    yield text
                elif isinstance(node, ast.Name):
                    pending.extend(put_into.pop(node.id, ()))


def markers(expression: ast.AST) -> frozenset[Marker]:
    """Everything by which a name can come to hold something of this."""
    found_markers = set[Marker]()
    for node in ast.walk(expression):
        found_markers.add(id(node))
        name, text = dotted_name(node), text_constant(node)
        if text is not None:
            found_markers.add(("text", text))
        if not name:
            continue
        found_markers.add(("name", name))
        if name == "is_available" or name.endswith("cuda.is_available"):
            found_markers.add(GPU_IN_SIGHT)
        if name == "__file__" or last_name(node) in _WORKING_FOLDER:
            found_markers.add(OWN_FOLDER)
    return frozenset(found_markers)


def _binding(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    """Targets and value of an assignment or a loop."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return [node.target], node.value
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.target], node.iter
    return [], None


def _bound_names(target: ast.expr) -> Iterator[str]:
    """``a`` and ``self.b`` of ``a, self.b``; ``flags`` of ``flags["nvcc"]``, but not the environment itself."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _bound_names(item)
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield from _bound_names(target.value)
    elif last_name(target) != "environ":
        name = dotted_name(target)
        if name:
            yield name


def _plain_path(text: str) -> str:
    """Without the flag in front that many build files write into the same text."""
    return text.removeprefix("-I").replace("\\", "/")


def _parent(path: str | None, levels: int = 1) -> str | None:
    if path is None or not 0 <= levels <= _DEEPEST_PATH:
        return None
    return path + "/.." * levels
