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
from pathlib import Path

from msgspec import Struct

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
# How often the text is gone through for names that are bound before what they are made of.
_MOST_PASSES = 20

# What gives the path that it is given, in another spelling or type.
_SAME_PATH = re.compile("abspath|realpath|normpath|expanduser|resolve|absolute|Path|PurePath|str|fspath")
_WORKING_FOLDER = frozenset({"getcwd", "cwd"})
_LEADS_UPWARDS = re.compile(r"(?:[\w.*-]+/)*\.\.(?:/|$)")
_UNKNOWN_PART = "<unknown>"
_VERSION_NUMBER = re.compile(r"\b\d+(\.\d+)*\b")
_ARCHIVE = re.compile(r"https?://\S+\.(zip|tgz|tar(\.\w+)?)")
_CXX_STANDARD = re.compile(r"[-/]+std[=:]")


class Binding(Struct, frozen=True):
    """One name that an assignment or a loop binds, or a list that a call puts something into."""

    node: ast.AST
    name: str
    """``a`` or ``self.b``; of ``flags["nvcc"] += [...]`` it is ``flags``."""
    key: str
    """``nvcc`` of that; "" for a name alone."""
    values: tuple[ast.expr, ...]


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
        self._path_depth = 0
        self._markers: dict[int, frozenset[str]] = {}

    # -- what its text has ------------------------------------------------------------------------------------

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Every literal text that is not a docstring."""
        docstrings = {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}
        texts = (text_constant(node) for node in self.nodes if id(node) not in docstrings)
        return _unique(text for text in texts if text is not None)

    @property
    def downloads(self) -> tuple[str, ...]:
        """Addresses of the archives that it fetches as it runs."""
        if not any(self.calls("urlopen", "urlretrieve", "download_url_to_file")):
            return ()
        return tuple(text for text in self.literals if _ARCHIVE.fullmatch(text))

    @cached_property
    def for_old_versions(self) -> tuple[str, ...]:
        """Return the texts that count only where some version is below a number: behind ``if int(major) < 11:``."""
        texts: list[str] = []
        visited: set[int] = set()
        for node in self.nodes:
            if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
                continue
            is_upper_bound = isinstance(node.test.ops[0], (ast.Lt, ast.LtE))
            if is_upper_bound and _VERSION_NUMBER.search(ast.unparse(node.test.comparators[0])):
                for statement in node.body:
                    texts += texts_below(statement, visited)
        return _unique(texts)

    @property
    def setups(self) -> tuple[ast.Call, ...]:
        """The calls of ``setup(...)`` that every run of it comes to."""
        return tuple(_sure_setups(self._body))

    @property
    def imports(self) -> tuple[str, ...]:
        """Modules that it cannot do without: imported at its top level, outside of any ``try``.

        Of ``from pkg_resources import packaging`` both ``pkg_resources`` and ``pkg_resources.packaging``.
        """
        items = [item for statement in self._body for item in imported(statement)]
        return _unique(name for item in items for name in (item.module, item.deepest))

    @property
    def imports_in_all(self) -> tuple[str, ...]:
        """The top-level names of these and of what its functions import, outside of any ``try``."""
        names: list[str] = []
        pending: list[ast.AST] = list(self._body)
        while pending:
            node = pending.pop(0)
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
        for node in self.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in names:
                return True
            if isinstance(node, ast.keyword) and node.arg in names:
                return True
        return False

    # -- values -----------------------------------------------------------------------------------------------

    @cached_property
    def _assigned(self) -> dict[str, ast.expr]:
        """Return the last simple assignment to each name; setup.py's own win over those of the files that it imports."""
        assigned: dict[str, ast.expr] = {}
        for tree in reversed(self._trees):
            assigned.update(simple_assignments(ast.walk(tree)))
        return assigned

    def text(self, node: ast.expr | None, depth: int = _DEEPEST_VALUE) -> str | None:
        """Return the text that a constant, a sum of texts, or a name bound to one is; None for anything else."""
        if isinstance(node, ast.Name) and depth:
            return self.text(self._assigned.get(node.id), depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth:
            left, right = self.text(node.left, depth - 1), self.text(node.right, depth - 1)
            return None if left is None or right is None else left + right
        return text_constant(node)

    def texts(self, node: ast.expr | None, depth: int = _DEEPEST_VALUE) -> list[str] | None:
        """Return the literal texts of a list, a sum of lists, or a name bound to one; None for anything else."""
        if isinstance(node, (ast.List, ast.Tuple)):
            return [text for text in map(self.text, node.elts) if text is not None]
        if isinstance(node, ast.Name) and depth:
            return self.texts(self._assigned.get(node.id), depth - 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and depth:
            left, right = self.texts(node.left, depth - 1), self.texts(node.right, depth - 1)
            return None if left is None or right is None else left + right
        return None

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
    def _by_compiler(self) -> tuple[tuple[tuple[str | None, ast.expr], ...], ...]:
        """Return the items of every dict with a list of nvcc's: ``{"cxx": [...], "nvcc": [...]}``."""
        dicts = (node for node in self.nodes if isinstance(node, ast.Dict))
        items = (tuple(zip(map(text_constant, node.keys), node.values, strict=True)) for node in dicts)
        return tuple(item for item in items if "nvcc" in dict(item))

    @cached_property
    def nvcc_flags(self) -> tuple[str, ...]:
        """Return the literal texts that end in the ``"nvcc"`` list of ``extra_compile_args``, also through named lists."""
        lists: list[ast.expr] = []
        for flags in self._by_compiler:
            lists += [value for key, value in flags if key == "nvcc"]
        # and what ``flags["nvcc"] += [...]`` and ``flags["nvcc"].append(...)`` put there; not what else ``flags`` holds
        for binding in self.bindings:
            if binding.key == "nvcc":
                lists += binding.values
        # --offload-arch is the compiler's for AMD's GPUs, behind a branch for ROCm
        texts = (text for text in self._texts_that_reach(lists) if text != "nvcc")
        return _unique(text for text in texts if not text.startswith("--offload-arch"))

    @property
    def standard_flags(self) -> tuple[str, ...]:
        """Return the flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
        lists: list[ast.expr] = []
        for flags in self._by_compiler:
            lists += [value for _, value in flags]
        for call in self.calls("CUDAExtension", "CppExtension"):
            if (flags_of_call := keyword_value(call, "extra_compile_args")) is not None:
                lists.append(flags_of_call)
        texts = [text for node in lists for text in self.texts(node) or ()]
        return _unique(text for text in (*texts, *self.nvcc_flags) if _CXX_STANDARD.match(text))

    @property
    def own_path_in_flags(self) -> bool:
        """Tell whether a flag joins "-I" and the folder of setup.py, as the Inria family does for glm."""
        own_folder = self.holding(_OWN_FOLDER)
        for node in self.nodes:
            start: ast.AST | None = None
            if isinstance(node, ast.BinOp):
                start = node.left
            elif isinstance(node, ast.JoinedStr) and node.values:
                start = node.values[0]
            flag = text_constant(start) or ""
            if flag.startswith("-I") and own_folder & self.markers(node):
                return True
        return False

    @cached_property
    def include_dirs(self) -> tuple[str, ...]:
        """Return the literal texts of ``include_dirs=[...]``."""
        visited: set[int] = set()
        return _unique(
            text for value in self._keyword_values("include_dirs") for text in texts_below(value, visited)
        )

    @cached_property
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
        visited: set[int] = set()
        names = [text for value in self._keyword_values("libraries") for text in texts_below(value, visited)]
        visited = set()  # one list may be handed to both
        for value in self._keyword_values("extra_link_args"):
            flags = texts_below(value, visited)
            names += [flag.removeprefix("-l") for flag in flags if flag.startswith("-l")]
        return _unique(names)

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
            pending = list(targets)
            for target in pending:  # which grows
                key = ""
                while isinstance(target, ast.Subscript):
                    key, target = text_constant(target.slice) or "?", target.value
                if isinstance(target, (ast.Tuple, ast.List)):
                    pending += target.elts
                elif isinstance(target, ast.Starred):
                    pending.append(target.value)
                elif last_name(target) != "environ" and (name := dotted_name(target)):
                    bindings.append(Binding(node, name, key, values))
        return tuple(bindings)

    def markers(self, expression: ast.AST) -> frozenset[str]:
        """Return everything by which a name can come to hold something of this: names, and texts in quotes."""
        if id(expression) not in self._markers:
            markers = set[str]()
            for node in ast.walk(expression):
                name, text = dotted_name(node), text_constant(node)
                markers.add(name if text is None else quoted(text))
                if name == "is_available" or name.endswith("cuda.is_available"):
                    markers.add(GPU_IN_SIGHT)
                if name == "__file__" or last_name(node) in _WORKING_FOLDER:
                    markers.add(_OWN_FOLDER)
            self._markers[id(expression)] = frozenset(markers - {""})
        return self._markers[id(expression)]

    def holding(self, marker: str, *, on_condition: bool = False) -> set[str]:
        """Return a marker and every name that holds something made of it.

        A name stands for all that it is ever bound to, in whatever order: functions run in an order that the text does not tell.

        Args:
            on_condition: also what is bound only where a condition holds that is made of it.
        """
        holding = {marker}
        for number in range(_MOST_PASSES):
            before = len(holding)
            for binding in self.bindings[:: (1, -1)[number % 2]]:  # there and back
                made_of = binding.values
                if on_condition:
                    made_of += self.conditions(binding.node)
                if binding.name in holding or all(holding.isdisjoint(self.markers(item)) for item in made_of):
                    continue
                holding.add(binding.name)
            if len(holding) == before:
                break
        return holding

    def _texts_that_reach(self, roots: Iterable[ast.AST]) -> Iterator[str]:
        """Yield the literal texts in these expressions, and in all that is put into the lists they name: the other direction."""
        put_into: dict[str, list[ast.AST]] = {}
        for binding in self.bindings:
            if not binding.key:
                put_into.setdefault(binding.name, []).extend(binding.values)
        visited: set[int] = set()
        pending = list(roots)
        while pending:
            for node in walk_once(pending.pop(), visited):
                text = text_constant(node)
                if text is not None:
                    yield text
                pending += put_into.pop(dotted_name(node), ())

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

    def path(self, node: ast.expr) -> str | None:
        """Return a path relative to the folder of setup.py, not yet normalised; None for what is none, or starts elsewhere.

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
        """Return the path that ``os.path.join(...)`` makes; what is not known of it is taken for the folder of setup.py."""
        path = self.path(call)
        if path is None or _UNKNOWN_PART in path:
            texts = (self.text(argument) or "" for argument in call.args)
            path = "/".join(filter(None, (text.strip("/") for text in texts)))
        return posixpath.normpath(path) if path else ""

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
                return self._above(inner)
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(index))
            ):
                return self._above(inner, index + 1)
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
        owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        if function in _WORKING_FOLDER:
            return "."  # builders start setup.py in its own folder
        if function == "dirname" and call.args:
            return self._above(call.args[0])
        if function == "joinpath":
            return self._joined([*owner, *call.args])
        if function == "join" or _SAME_PATH.fullmatch(function):
            return self._joined(call.args or owner)
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

    def _above(self, node: ast.expr, levels: int = 1) -> str | None:
        path = self.path(node)
        if path is None or not 0 <= levels <= _DEEPEST_PATH:
            return None
        return path + "/.." * levels


def given(call: ast.Call, keyword: str, position: int | None = None) -> ast.expr | None:
    """Return the expression of an argument; None where there is none."""
    argument = keyword_value(call, keyword)
    if argument is None and position is not None and len(call.args) > position:
        return call.args[position]
    return argument


def quoted(text: str) -> str:
    """Write a text as it is among the markers of an expression."""
    return f'"{text}"'


def _targets_and_values(node: ast.AST) -> tuple[Sequence[ast.expr], tuple[ast.expr, ...]]:
    """Return those of an assignment, a loop, or a call that puts something into a list; nothing for any other node."""
    if isinstance(node, ast.Assign):
        return node.targets, (node.value,)
    if isinstance(node, (ast.AugAssign, ast.NamedExpr)) or (isinstance(node, ast.AnnAssign) and node.value):
        return [node.target], (node.value,)  # type: ignore[return-value]
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.target], (node.iter,)
    if isinstance(node, ast.Call) and last_name(node.func) in ("append", "extend", "insert"):
        return [node.func.value] if isinstance(node.func, ast.Attribute) else [], tuple(node.args)
    return [], ()


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


def parse_setup_script(text: str, reader: FolderReader, folder: Path | None = None) -> SetupScript:
    """The script of a setup.py with this text, and of the files in ``folder`` that it imports; one that is not Python has
    ``error`` set."""
    try:
        tree = reader.parse(text)
    except NotPython as error:
        return SetupScript(error=f"setup.py is not Python this version can read: {error}", source=text)
    # the files in its folder that it imports, and those that these import; at most ten
    modules: dict[Path, ast.Module] = {}
    pending = [tree]
    while folder is not None and pending:
        items = [item for node in ast.walk(pending.pop(0)) for item in imported(node)]
        for file in (file for item in items for file in files_of_module(folder, item.deepest.split("."))):
            if file in modules or len(modules) == _MOST_IMPORTED:
                continue
            module = reader.python(file, reader.text(file))
            # an empty __init__.py is none of the ten
            if module is not None and module.body:
                modules[file] = module
                pending.append(module)
    return SetupScript([tree, *modules.values()])


def _sure_setups(body: Iterable[ast.stmt], depth: int = 8) -> list[ast.Call]:
    calls: list[ast.Call] = []
    for statement in body if depth else ():
        if isinstance(statement, (ast.With, ast.Try)):
            calls += _sure_setups(statement.body, depth - 1)
        elif isinstance(statement, ast.If):
            branches = [_sure_setups(inner, depth - 1) for inner in (statement.body, statement.orelse)]
            sure = min(branches[: 1 if is_main(statement.test) else 2], key=len)
            calls += sure
        elif isinstance(statement, ast.Expr):
            call = statement.value
            if isinstance(call, ast.Call) and last_name(call.func) == "setup":
                calls.append(call)
    return calls


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
