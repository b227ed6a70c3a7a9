"""Reads a setup.py as a syntax tree: what its text names. Nothing is executed.

A name stands for what the text binds it to; what only running it would tell is left out, never guessed. Which sources it
compiles with which flags is known once it is asked, in a copy, when it is built.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from splatfix.facts.source.program import files_of_module
from splatfix.facts.source.reader import FolderReader, NotPython
from splatfix.facts.source.syntax import (
    dotted_name,
    imported,
    is_main,
    keyword_value,
    last_name,
    simple_assignments,
    text_constant,
    texts_below,
    walk_once,
)

GPU_IN_SIGHT = "torch.cuda.is_available()"
_OWN_FOLDER = "the folder of setup.py"

_MOST_IMPORTED = 10
# Bounds for what a few lines that name each other could unfold without end.
_DEEPEST_VALUE = 6
_DEEPEST_PATH = 20
_MOST_PATH_LETTERS = 4096
# A file with more conditions inside each other was written by no one who builds it.
_MOST_CONDITIONS = 50

# What gives the path that it is given, in another spelling or type, or joins it with others.
_JOINS = re.compile("join|abspath|realpath|normpath|expanduser|resolve|absolute|Path|PurePath|str|fspath")
_WORKING_FOLDER = frozenset({"getcwd", "cwd"})
_LEADS_UPWARDS = re.compile(r"(?:[\w.*-]+/)*\.\.(?:/|$)")
_UNKNOWN_PART = "<unknown>"
_VERSION_NUMBER = re.compile(r"\b\d+(\.\d+)*\b")
_CXX_STANDARD = re.compile(r"[-/]+std[=:]")


class Binding(NamedTuple):
    """One name that an assignment or a loop binds, or a list that a call puts something into."""

    node: ast.AST
    name: str
    """``a`` or ``self.b``; of ``flags["nvcc"] += [...]`` it is ``flags``."""
    key: str
    """``nvcc`` of that; "" for a name alone."""
    values: Sequence[ast.expr]


class SetupScript:
    """One parsed setup.py, and the files beside it that it imports.

    What its names come to is worked out when it is asked: most folders only have to say whether they hold an extension.
    """

    def __init__(self, trees: Sequence[ast.Module] = (), *, error: str = "", source: str = "") -> None:
        self.error = error
        self.source = source
        """The text of a script with an error."""
        self._trees = trees
        self._body: Sequence[ast.stmt] = trees[0].body if trees else ()
        self.nodes = tuple(node for tree in trees for node in ast.walk(tree))
        """Every node, from the outside inwards."""
        self._paths: dict[int, str | None] = {}
        self._markers: dict[int, frozenset[str]] = {}

    # -- what its text has ------------------------------------------------------------------------------------

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Every literal text that is not a docstring."""
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        return _unique(text_constant(node) for node in self.nodes if id(node) not in docstrings)

    @cached_property
    def for_old_versions(self) -> tuple[str, ...]:
        """Return the texts that count only where some version is below a number: behind ``if int(major) < 11:``."""
        texts: list[str] = []
        visited: set[int] = set()
        for node in self.nodes:
            match node:
                case ast.If(test=ast.Compare(ops=[ast.Lt() | ast.LtE(), *_], comparators=[bound, *_])):
                    if _VERSION_NUMBER.search(ast.unparse(bound)):
                        for item in node.body:
                            texts += texts_below(item, visited)
        return _unique(texts)

    @property
    def setups(self) -> tuple[ast.Call, ...]:
        """The calls of ``setup(...)`` that every run of it comes to."""
        return tuple(_sure_setups(self._body))

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that it cannot do without, imported at its top level outside of any ``try``; of ``from pkg_resources import
        packaging`` both ``pkg_resources`` and ``pkg_resources.packaging``."""
        names: list[str] = []
        for item in chain.from_iterable(map(imported, self._body)):
            names += (item.module, item.deepest)
        return _unique(names)

    @property
    def imports_in_all(self) -> tuple[str, ...]:
        """The top-level names of these and of what its functions import, outside of any ``try``."""
        names: list[str] = []
        pending: list[ast.AST] = list(self._body)
        for node in pending:  # which grows
            names += [item.module.partition(".")[0] for item in imported(node)]
            if not isinstance(node, (ast.Try, ast.If)):
                pending += ast.iter_child_nodes(node)
        return _unique(names)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of a function of one of these names, in order of the text."""
        calls = [node for node in self.nodes if isinstance(node, ast.Call) and last_name(node.func) in names]
        yield from sorted(calls, key=lambda call: (call.lineno, call.col_offset))

    def mentions(self, *names: str) -> bool:
        """One of these names appears in the code, as a name, an attribute or a keyword argument."""
        return not self._mentioned.isdisjoint(names)

    @cached_property
    def _mentioned(self) -> set[str | None]:
        keywords = {node.arg for node in self.nodes if isinstance(node, ast.keyword)}
        return keywords.union(map(last_name, self.nodes))

    # -- values -----------------------------------------------------------------------------------------------

    @cached_property
    def _assigned(self) -> dict[str, ast.expr]:
        """Return the last simple assignment to each name; setup.py's own win over those of the files that it imports."""
        assigned: dict[str, ast.expr] = {}
        for tree in reversed(self._trees):
            assigned.update(simple_assignments(ast.walk(tree)))
        return assigned

    def _value(
        self, node: ast.expr | None, *, lists: bool, depth: int = _DEEPEST_VALUE
    ) -> str | list[str] | None:
        match node if depth else None:
            case ast.Constant(value=str(text)):
                return text
            case ast.List(elts=items) | ast.Tuple(elts=items) if lists:
                return [text for text in map(self.text, items) if text is not None]
            case ast.Name(id=name):
                return self._value(self._assigned.get(name), lists=lists, depth=depth - 1)
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                first, second = (self._value(part, lists=lists, depth=depth - 1) for part in (left, right))
                if isinstance(first, str) and isinstance(second, str):
                    return first + second
                if isinstance(first, list) and isinstance(second, list):
                    return first + second
        return None

    def text(self, node: ast.expr | None) -> str | None:
        """Return the text that a constant, a sum of texts, or a name bound to one is; None for anything else."""
        value = self._value(node, lists=False)
        return value if isinstance(value, str) else None

    def texts(self, node: ast.expr | None) -> list[str] | None:
        """Return the literal texts of a list, a sum of lists, or a name bound to one; None for anything else."""
        value = self._value(node, lists=True)
        return value if isinstance(value, list) else None

    def argument(self, call: ast.Call, keyword: str, position: int | None = None) -> str | None:
        """Return the text of an argument; None when only running would tell."""
        return self.text(given(call, keyword, position))

    def setup_text(self, keyword: str) -> str | None:
        """Return a text argument of ``setup(...)``."""
        texts = (self.argument(call, keyword) for call in self.calls("setup"))
        return next((text for text in texts if text is not None), None)

    def setup_texts(self, keyword: str) -> tuple[str, ...]:
        """Return a list-of-texts argument of ``setup(...)``, as far as it is literal."""
        lists = (self.texts(keyword_value(call, keyword)) for call in self.calls("setup"))
        return tuple(next((texts for texts in lists if texts is not None), ()))

    # -- what its compilers are given -------------------------------------------------------------------------

    @cached_property
    def _by_compiler(self) -> list[ast.Dict]:
        """Return every dict with a list of nvcc's: ``{"cxx": [...], "nvcc": [...]}``."""
        dicts = (node for node in self.nodes if isinstance(node, ast.Dict))
        return [node for node in dicts if "nvcc" in map(text_constant, node.keys)]

    @cached_property
    def nvcc_flags(self) -> tuple[str, ...]:
        """Return the literal texts that end in the ``"nvcc"`` list of ``extra_compile_args``, also through named lists."""
        pending: list[ast.AST] = []
        for flags in self._by_compiler:
            items = zip(flags.keys, flags.values, strict=True)
            pending += (value for key, value in items if text_constant(key) == "nvcc")
        put_into: dict[str, list[ast.expr]] = {}
        for binding in self.bindings:
            # what ``flags["nvcc"] += [...]`` and ``flags["nvcc"].append(...)`` put there; not what else ``flags`` holds
            if binding.key == "nvcc":
                pending += binding.values
            elif not binding.key:
                put_into.setdefault(binding.name, []).extend(binding.values)
        texts: list[str | None] = []
        visited: set[int] = set()
        while pending:
            for node in walk_once(pending.pop(), visited):
                texts.append(text_constant(node))
                pending += put_into.pop(dotted_name(node), ())
        # --offload-arch is the compiler's for AMD's GPUs, behind a branch for ROCm
        return tuple(
            text for text in _unique(texts) if text != "nvcc" and not text.startswith("--offload-arch")
        )

    @property
    def standard_flags(self) -> tuple[str, ...]:
        """Return the flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
        texts: list[str] = []
        for flags in self._by_compiler:
            for value in flags.values:
                texts += self.texts(value) or ()
        for call in self.calls("CUDAExtension", "CppExtension"):
            texts += self.texts(keyword_value(call, "extra_compile_args")) or ()
        return _unique(text for text in (*texts, *self.nvcc_flags) if _CXX_STANDARD.match(text))

    @property
    def own_path_in_flags(self) -> bool:
        """Tell whether a flag joins "-I" and the folder of setup.py, as the Inria family does for glm."""
        own_folder = self.holding(_OWN_FOLDER)
        for node in self.nodes:
            match node:
                case (
                    ast.BinOp(left=ast.Constant(value=str(flag)))
                    | ast.JoinedStr(values=[ast.Constant(value=str(flag)), *_])
                ):
                    if flag.startswith("-I") and own_folder & self.markers(node):
                        return True
        return False

    @cached_property
    def include_dirs(self) -> tuple[str, ...]:
        """Return the literal texts of ``include_dirs=[...]``."""
        return self._texts_given("include_dirs")

    @property
    def knows_include_dirs(self) -> bool:
        """Tell whether every folder of ``include_dirs`` stands in it, and none is worked out as it runs."""
        for value in self._keyword_values("include_dirs"):
            if not isinstance(value, (ast.List, ast.Tuple)):
                return False
            if any(text_constant(item) is None and self.path(item) is None for item in value.elts):
                return False
        return True

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return what ``libraries=[...]`` and ``-l`` flags name, also through one named list."""
        flags = (flag for flag in self._texts_given("extra_link_args") if flag.startswith("-l"))
        return _unique((*self._texts_given("libraries"), *(flag.removeprefix("-l") for flag in flags)))

    def _texts_given(self, keyword: str) -> tuple[str, ...]:
        texts: list[str] = []
        visited: set[int] = set()
        for value in self._keyword_values(keyword):
            texts += texts_below(value, visited)
        return _unique(texts)

    def _keyword_values(self, keyword: str) -> Iterator[ast.expr]:
        """Yield what a keyword is given in any call; of a plain name what it was last assigned."""
        for node in self.nodes:
            if isinstance(node, ast.keyword) and node.arg == keyword:
                yield self._assigned.get(dotted_name(node.value), node.value)

    # -- flow -------------------------------------------------------------------------------------------------

    @cached_property
    def bindings(self) -> tuple[Binding, ...]:
        """Return every name that is bound, but for the items of the environment."""
        bindings = []
        for node in self.nodes:
            targets, values = _targets_and_values(node)
            for target in targets:  # which grows
                key = ""
                while isinstance(target, ast.Subscript):
                    key, target = text_constant(target.slice) or "?", target.value
                if isinstance(target, (ast.Tuple, ast.List)):
                    targets += target.elts
                elif isinstance(target, ast.Starred):
                    targets.append(target.value)
                elif last_name(target) != "environ" and (name := dotted_name(target)):
                    bindings.append(Binding(node, name, key, values))
        return tuple(bindings)

    def markers(self, expression: ast.AST) -> frozenset[str]:
        """Return everything by which a name can come to hold something of this: names, and texts in quotes."""
        if id(expression) not in self._markers:
            markers = set[str]()
            for node in ast.walk(expression):
                name, text = dotted_name(node), text_constant(node)
                markers.add(name)
                if text is not None:
                    markers.add(quoted(text))
                if name == "is_available" or name.endswith("cuda.is_available"):
                    markers.add(GPU_IN_SIGHT)
                if name == "__file__" or last_name(node) in _WORKING_FOLDER:
                    markers.add(_OWN_FOLDER)
            self._markers[id(expression)] = frozenset(markers - {""})
        return self._markers[id(expression)]

    def holding(self, marker: str, *, on_condition: bool = False) -> set[str]:
        """Return a marker and every name that holds something made of it, or, ``on_condition``, is bound only under a condition
        that is made of it.

        A name stands for all that it is ever bound to, in whatever order: functions run in an order that the text does not tell.
        """
        holding, pending = {marker}, [marker]
        for name in pending:  # which grows
            new = self._made_of[on_condition].get(name, set()) - holding
            holding |= new
            pending += new
        return holding

    @cached_property
    def _made_of(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Return by marker the names that are bound to something with it, and those that are so under such a condition too."""
        names: tuple[dict[str, set[str]], dict[str, set[str]]] = {}, {}
        for binding in self.bindings:
            by_condition = (*binding.values, *self.conditions(binding.node))
            for made_of, expressions in zip(names, (binding.values, by_condition), strict=True):
                for marker in frozenset[str]().union(*map(self.markers, expressions)):
                    made_of.setdefault(marker, set()).add(binding.name)
        return names

    @cached_property
    def _conditions(self) -> dict[int, tuple[ast.expr, ...]]:
        conditions: dict[int, tuple[ast.expr, ...]] = {}
        pending: list[tuple[ast.AST, tuple[ast.expr, ...]]] = [(tree, ()) for tree in self._trees]
        while pending:
            node, outer = pending.pop()
            conditions[id(node)] = outer
            inside, test = outer, None
            if isinstance(node, (ast.If, ast.IfExp)):
                inside, test = (node.test, *outer)[:_MOST_CONDITIONS], node.test
            pending += ((child, outer if child is test else inside) for child in ast.iter_child_nodes(node))
        return conditions

    def conditions(self, node: ast.AST) -> tuple[ast.expr, ...]:
        """Return the tests of the ``if`` that a statement or expression stands in, in either branch; the innermost first."""
        return self._conditions.get(id(node), ())

    # -- paths ------------------------------------------------------------------------------------------------

    def path(self, node: ast.expr | None, depth: int = _DEEPEST_PATH) -> str | None:
        """Return a path relative to the folder of setup.py, not yet normalised; None for what is none, or starts elsewhere.

        A part that is not known, behind a beginning that is, counts as one folder.
        """
        if id(node) not in self._paths and depth:
            self._paths[id(node)] = None  # for a name that is made from itself
            path = self._path(node, depth - 1)
            self._paths[id(node)] = path if path and len(path) < _MOST_PATH_LETTERS else None
        return self._paths.get(id(node))

    def joined_path(self, call: ast.Call) -> str:
        """Return the path that ``os.path.join(...)`` makes; what is not known of it is taken for the folder of setup.py."""
        path = self.path(call)
        if path is None or _UNKNOWN_PART in path:
            texts = (self.text(argument) or "" for argument in call.args)
            path = "/".join(filter(None, (text.strip("/") for text in texts)))
        return posixpath.normpath(path) if path else ""

    def _path(self, node: ast.expr | None, depth: int) -> str | None:
        parts: Sequence[ast.expr] = ()
        above = 0
        match node:
            case ast.Constant(value=str(text)) if _LEADS_UPWARDS.match(_plain_path(text)):
                return _plain_path(text)
            case ast.Name(id="__file__"):
                return "setup.py"
            case ast.Name(id=name):
                return self.path(self._assigned.get(name), depth)
            case ast.Attribute(value=inner, attr="parent"):
                parts, above = [inner], 1
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(index))
            ):
                parts, above = [inner], index + 1
            case ast.BinOp(left=left, right=right, op=ast.Div() | ast.Add()):
                parts = [left, right]
            case ast.JoinedStr(values=values):
                parts = values
            case ast.FormattedValue(value=inner):
                parts = [inner]
            case ast.Call(func=function, args=arguments):
                owner = [function.value] if isinstance(function, ast.Attribute) else []
                name = last_name(function)
                if name in _WORKING_FOLDER:
                    return "."  # builders start setup.py in its own folder
                if name == "dirname":
                    parts, above = arguments[:1], 1
                elif name == "joinpath":
                    parts = [*owner, *arguments]
                elif _JOINS.fullmatch(name):
                    parts = arguments or owner
        path = ""
        for part in parts:
            literal = text_constant(part)
            # dirname("../x") leads upwards too
            piece = self.path(part, depth) if literal is None or above else _plain_path(literal)
            if piece is None and not path:
                return None
            if piece is None:
                piece = _UNKNOWN_PART
            path = "/".join(filter(None, (path, piece)))
        return path + "/.." * above if path and 0 <= above <= _DEEPEST_PATH else None


def given(call: ast.Call, keyword: str, position: int | None = None) -> ast.expr | None:
    """Return the expression of an argument; None where there is none."""
    argument = keyword_value(call, keyword)
    if argument is None and position is not None and len(call.args) > position:
        return call.args[position]
    return argument


def quoted(text: str) -> str:
    """Write a text as it is among the markers of an expression."""
    return f'"{text}"'


def _targets_and_values(node: ast.AST) -> tuple[list[ast.expr], Sequence[ast.expr]]:
    """Return those of an assignment, a loop, or a call that puts something into a list; nothing for any other node."""
    match node:
        case ast.Assign(targets=targets, value=value):
            return [*targets], [value]
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            return [target], [value]
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            return [target], [value]
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            return [target], [value]
        case ast.Call(func=ast.Attribute(value=target, attr="append" | "extend" | "insert"), args=values):
            return [target], values
    return [], []


def _plain_path(text: str) -> str:
    """Return a path without the flag in front that many build files write into the same text."""
    return text.removeprefix("-I").replace("\\", "/")


def read_setup_script(file: Path, reader: FolderReader) -> SetupScript:
    """Parse a setup.py; what is there and cannot be read, or is not Python, gives a script with ``error`` set."""
    text = reader.text_or_reason(file)
    if text is None:
        return SetupScript()
    if isinstance(text, str):
        return parse_setup_script(text, reader, file.parent)
    return SetupScript(error=f"{file.name} cannot be read: {text.reason}")


def parse_setup_script(text: str, reader: FolderReader, folder: Path) -> SetupScript:
    """Return the script of a setup.py with this text, and of the files in ``folder`` that it imports, and that these import:
    at most ten; one that is not Python has ``error`` set."""
    try:
        trees = [reader.parse(text)]
    except NotPython as error:
        return SetupScript(error=f"setup.py is not Python this version can read: {error}", source=text)
    files: set[Path] = set()
    for tree in trees:  # which grows
        for item in chain.from_iterable(map(imported, ast.walk(tree))):
            for file in files_of_module(folder, item.deepest.split(".")):
                if file in files or len(trees) > _MOST_IMPORTED:
                    continue
                module = reader.python(file, reader.text(file))
                # an empty __init__.py is none of the ten
                if module is not None and module.body:
                    files.add(file)
                    trees.append(module)
    return SetupScript(trees)


def _sure_setups(body: Iterable[ast.stmt], depth: int = 8) -> list[ast.Call]:
    calls: list[ast.Call] = []
    for statement in body if depth else ():
        match statement:
            case ast.With(body=inner) | ast.Try(body=inner):
                calls += _sure_setups(inner, depth - 1)
            case ast.If(test=test, body=inner) if is_main(test):
                calls += _sure_setups(inner, depth - 1)
            case ast.If(body=inner, orelse=others):
                shortest = min(_sure_setups(inner, depth - 1), _sure_setups(others, depth - 1), key=len)
                calls += shortest
            case ast.Expr(value=ast.Call() as call) if last_name(call.func) == "setup":
                calls.append(call)
    return calls


def _unique(texts: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text is not None))
