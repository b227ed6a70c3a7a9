"""Environment variables that a build's own Python and CMake files read and set, and what they decide with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from splatfix.facts.model.source import ArchVariable, CudaSwitches

Nodes = Sequence[ast.AST]
Token = tuple[str, str] | int
"""A name, a text, or one place in the syntax tree."""

_GPU_IN_SIGHT: Token = ("call", "torch.cuda.is_available")

_ON = re.compile(
    r"(?:\w+_)?(?:FORCE|WITH|BUILD|USE|ENABLE|INSTALL|COMPILE)_(?:CUDA|GPU)(?:_(?:BUILD|KERNELS?|OPS|EXT\w*))?|\w+_CUDA_EXT"
)
_OWN_BUILD = re.compile(r"(?:\w+_)?FORCE_BUILD")
_OFF = re.compile(r"\w*(?:NO_CUDA|(?:ONLY|FORCE)_CPU|CPU_ONLY|(?:DISABLE|SKIP|WITHOUT)_CUDA)\w*")
# What torch answers only for a GPU that it sees.
_OF_THE_GPU = ("get_device_capability", "get_device_properties", "get_device_name", "current_device")
_MOST_GUARDS = 50
_MOST_VARIABLES = 50
_NO_SWITCHES = {"TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "CUDA_PATH", "MAX_JOBS", "CC", "CXX", "PATH"}
_BUILDERS = ("CUDAExtension", "CppExtension", "BuildExtension")
_FORMING = ("split", "int", "float")


def is_arch_variable(name: str) -> bool:
    """``CUDA_ARCHITECTURES``, ``TCNN_CUDA_ARCHITECTURES``, ``CUDAARCHS``, ``CUDA_ARCH``... but not torch's."""
    return (
        name != "TORCH_CUDA_ARCH_LIST"
        and re.search(r"CUDA\w*ARCH|\bSM_?ARCH|GENCODE|COMPUTE_CAPABILIT", name) is not None
    )


def is_cuda_switch(name: str) -> bool:
    """``FORCE_CUDA``, ``BUILD_NO_CUDA``...: it says whether CUDA code is compiled."""
    return bool(_ON.fullmatch(name) or _OFF.fullmatch(name))


@dataclass(frozen=True)
class Read:
    """One place that reads a variable."""

    name: str
    node: ast.AST
    default: ast.expr | None = None


class Flow:
    """Which names hold something made of what. A name stands for all that it is ever bound to, in whatever order."""

    def __init__(self, trees: Sequence[ast.AST]) -> None:
        self.nodes = tuple(node for tree in trees for node in ast.walk(tree))
        self.guards = Guards(trees)
        self._made: dict[Token, list[tuple[str, ...]]] = {}
        self._on_condition: dict[Token, list[tuple[str, ...]]] = {}
        self._texts: dict[str, str] = {}
        for node in self.nodes:
            targets, value = _binding(node)
            bound = tuple(name for target in targets for name in _bound(target))
            if value is None or not bound:
                continue
            self._texts.update((name, text) for name in bound for text in constants(value))
            for token in tokens(value):
                self._made.setdefault(token, []).append(bound)
            for token in {token for guard in self.guards.of(node) for token in tokens(guard.test)}:
                self._on_condition.setdefault(token, []).append(bound)

    def holding(self, *start: Token, on_condition: bool = False) -> set[Token]:
        """``start`` and every name that holds something made of one of it.

        Args:
            on_condition: also what is bound only where a condition holds that is made of it.
        """
        found, pending = set(start), list(start)
        while pending:
            token = pending.pop()
            more = self._on_condition.get(token, ()) if on_condition else ()
            for bound in (*self._made.get(token, ()), *more):
                new = [name for name in map(_name, bound) if name not in found]
                found.update(new)
                pending += new
        return found

    def text(self, expression: ast.expr) -> str:
        """A text that is written there, or that a name stands for; "" where only running it would tell."""
        if isinstance(expression, ast.Name):
            return self._texts.get(expression.id, "")
        return next(constants(expression), "")


class Guards:
    """Under which conditions each statement and expression of a file stands, the innermost first."""

    def __init__(self, trees: Sequence[ast.AST]) -> None:
        self._of: dict[int, _Guard | None] = {}
        pending: list[tuple[ast.AST, _Guard | None]] = [(tree, None) for tree in trees]
        while pending:
            node, guard = pending.pop()
            self._of[id(node)] = guard
            inside = _Guard(node, guard) if isinstance(node, (ast.If, ast.IfExp)) else guard
            for child in ast.iter_child_nodes(node):
                test = isinstance(node, (ast.If, ast.IfExp)) and child is node.test
                pending.append((child, guard if test else inside))

    def of(self, node: ast.AST) -> Iterator[ast.If | ast.IfExp]:
        """At most fifty; a file with more of them inside each other was written by no one who builds it."""
        guard = self._of.get(id(node))
        for _ in range(_MOST_GUARDS):
            if guard is None:
                return
            yield guard.condition
            guard = guard.outer


@dataclass(frozen=True)
class _Guard:
    condition: ast.If | ast.IfExp
    outer: _Guard | None


def environment_reads(nodes: Nodes) -> tuple[Read, ...]:
    """Every place where a variable is read, also through a function of the file's own that is given its name."""
    found = list(_direct_reads(nodes))
    helpers = {
        node.name: position
        for node in nodes
        if isinstance(node, ast.FunctionDef)
        for position in _read_by_parameter(node)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and (position := helpers.get(last_name(node.func))) is not None:
            given = node.args[position : position + 2]
            found += [Read(name, node, *given[1:]) for name in (constants(given[0]) if given else ())]
    return tuple(found)


def environment_writes(flow: Flow) -> dict[str, str | None]:
    """Variables that are set whatever they were before, with the value; "" for one that is taken away, None for a
    computed one. What is set only where it was not set before is no such variable."""
    found: dict[str, str | None] = {}
    holding: dict[str, set[Token]] = {}
    for name, value, node in _writes(flow.nodes):
        if name not in holding and len(holding) < _MOST_VARIABLES:
            holding[name] = flow.holding(("text", name))
        conditions: list[ast.AST] = [guard.test for guard in flow.guards.of(node)]
        conditions += [value] if value is not None else []
        if not any(holding.get(name, set()) & tokens(condition) for condition in conditions):
            found[name] = "" if value is None else next(constants(value), None)
    return found


def arch_variables(reads: Sequence[Read], flow: Flow) -> tuple[ArchVariable, ...]:
    """The variables from which architectures are taken, each with the form that the code around it expects."""
    calls = [node for node in flow.nodes if isinstance(node, ast.Call) and last_name(node.func) in _FORMING]
    named = islice(_by_name(read for read in reads if is_arch_variable(read.name)).items(), _MOST_VARIABLES)
    return tuple(_arch_variable(name, places, flow, calls) for name, places in named)


def cuda_switches(reads: Sequence[Read], flow: Flow) -> CudaSwitches:
    """What decides whether CUDA code is compiled."""
    asked = _asked_for_modules(flow)
    on, also = (
        {
            name: _value_for_on(places, flow)
            for name, places in islice(_by_name(chosen).items(), _MOST_VARIABLES)
        }
        for chosen in (
            (read for read in reads if _ON.fullmatch(read.name)),
            (
                read
                for read in reads
                if _OWN_BUILD.fullmatch(read.name)
                or (asked and not _ON.fullmatch(read.name) and _is_asked(read, asked, flow))
            ),
        )
    )
    return CudaSwitches(
        by_gpu=_by_gpu(flow),
        asks_gpu=any(last_name(node) in _OF_THE_GPU for node in flow.nodes),
        on=on,
        also=also,
        off=tuple(dict.fromkeys(read.name for read in reads if _OFF.fullmatch(read.name))),
    )


def _direct_reads(nodes: Nodes) -> Iterator[Read]:
    environ = {
        last_name(target)
        for node in nodes
        if isinstance(node, ast.Assign) and last_name(node.value) == "environ"
        for target in node.targets
    }
    for node in nodes:
        key, default = _key_read(node, {"environ", *environ})
        for name in constants(key) if key is not None else ():
            yield Read(name, node, default)


def _key_read(node: ast.AST, environ: set[str]) -> tuple[ast.expr | None, ast.expr | None]:
    """The key of ``os.environ.get(KEY, default)``, ``os.getenv(KEY)``, ``os.environ[KEY]`` and ``KEY in os.environ``."""
    if isinstance(node, ast.Call) and node.args:
        function = node.func
        by_get = isinstance(function, ast.Attribute) and function.attr in ("get", "pop", "setdefault")
        if (by_get and last_name(function.value) in environ) or last_name(function) == "getenv":  # type: ignore[attr-defined]
            return node.args[0], node.args[1] if len(node.args) > 1 else None
    elif (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and last_name(node.value) in environ
    ):
        return node.slice, None
    elif isinstance(node, ast.Compare) and any(last_name(item) in environ for item in node.comparators):
        return node.left, None
    return None, None


def _read_by_parameter(function: ast.FunctionDef) -> Iterator[int]:
    """Positions of the parameters that name a variable to be read."""
    names = [argument.arg for argument in function.args.args]
    for node in ast.walk(function) if names else ():
        key, _ = _key_read(node, {"environ"})
        if isinstance(key, ast.Name) and key.id in names:
            yield names.index(key.id)


def _writes(nodes: Nodes) -> Iterator[tuple[str, ast.expr | None, ast.AST]]:
    """(name, value, statement); no value for a variable that is removed."""
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.Delete)):
            value = node.value if isinstance(node, ast.Assign) else None
            for target in node.targets:
                if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                    yield from ((name, value, node) for name in constants(target.slice))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            owner = last_name(node.func.value)
            if owner == "environ" and node.func.attr == "pop":
                yield from ((name, None, node) for name in constants(node.args[0]))
            elif owner == "environ" and node.func.attr == "update" and isinstance(node.args[0], ast.Dict):
                for key, item in zip(node.args[0].keys, node.args[0].values, strict=True):
                    yield from ((name, item, node) for name in (constants(key) if key else ()))


def _by_name(reads: Iterable[Read]) -> dict[str, list[Read]]:
    found: dict[str, list[Read]] = {}
    for read in reads:
        found.setdefault(read.name, []).append(read)
    return found


def _arch_variable(name: str, reads: Sequence[Read], flow: Flow, calls: Sequence[ast.Call]) -> ArchVariable:
    """From its default where that has numbers; else from what is done to the value, and from its name."""
    holding = flow.holding(*(id(read.node) for read in reads))
    separator, dotted, whole = ";", name.endswith("ARCH_LIST"), False
    for call in calls:
        does = last_name(call.func)
        of = call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), call)
        if not holding & tokens(of):
            continue
        if does == "split":
            given = flow.text(call.args[0]) if call.args else " "
            dotted, separator = dotted or given == ".", separator if given in (".", "") else given
        else:
            dotted, whole = dotted or does == "float", whole or does == "int"
    defaults = (text for read in reads if read.default is not None for text in constants(read.default))
    if default := next((text for text in defaults if re.search(r"\d", text)), ""):
        dotted = re.search(r"\d\.\d", default) is not None
        separator = next((sign for sign in ";, " if sign in default), separator)
    separator = separator if separator in (";", ",", " ") else ";"
    return ArchVariable(name, dotted, separator, plain=whole and not dotted)


def _value_for_on(reads: Sequence[Read], flow: Flow) -> str:
    """What it is compared with: ``1`` of ``os.getenv("FORCE_CUDA", "0") == "1"``; 1 where nothing else is said."""
    holding = flow.holding(*(id(read.node) for read in reads))
    for node in flow.nodes:
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], (ast.Eq, ast.In))
            and holding & tokens(node.left)
        ):
            words = [text for inner in ast.walk(node.comparators[0]) for text in constants(inner)]
            if words:
                return "1" if "1" in words else words[0]
    return "1"


def _asked_for_modules(flow: Flow) -> tuple[ast.Compare, ...]:
    """Conditions ``x == "True"`` behind which modules are declared, and without which none are."""
    return tuple(
        node.test
        for node in flow.nodes
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], (ast.Eq, ast.In))
        and any(map(_names_builder, node.body))
        and not any(map(_names_builder, node.orelse))
    )


def _names_builder(statement: ast.stmt) -> bool:
    return any(
        last_name(node) in _BUILDERS or (isinstance(node, ast.alias) and node.name in _BUILDERS)
        for node in ast.walk(statement)
    )


def _is_asked(read: Read, conditions: Sequence[ast.Compare], flow: Flow) -> bool:
    """A variable's value is compared in one of these conditions, as BASICSR_EXT's is."""
    if read.name in _NO_SWITCHES or is_arch_variable(read.name) or _OFF.fullmatch(read.name):
        return False
    holding = flow.holding(id(read.node))
    return any(holding & tokens(condition.left) for condition in conditions)


def _by_gpu(flow: Flow) -> bool:
    """``torch.cuda.is_available()`` decides between CUDAExtension and less, or ends the build."""
    decided = flow.holding(_GPU_IN_SIGHT, on_condition=True)
    for node in flow.nodes:
        if last_name(node) in ("CUDAExtension", "CppExtension"):
            if any(decided & tokens(guard.test) for guard in flow.guards.of(node)):
                return True
        elif isinstance(node, ast.If) and any(isinstance(inner, ast.Raise) for inner in node.body):
            denied = (part for part in ast.walk(node.test) if isinstance(part, ast.UnaryOp))
            if any(isinstance(part.op, ast.Not) and decided & tokens(part.operand) for part in denied):
                amd = (ast.unparse(guard.test) for guard in islice(flow.guards.of(node), 5))
                return not any(re.search(r"rocm|hip", text, re.IGNORECASE) for text in amd)
    return False


def tokens(expression: ast.AST) -> frozenset[Token]:
    """Everything by which a name can come to hold something of this."""
    found = set[Token]()
    for node in ast.walk(expression):
        found.add(id(node))
        if name := _dotted(node):
            found.add(_name(name))
            if name == "is_available" or name.endswith("cuda.is_available"):
                found.add(_GPU_IN_SIGHT)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(("text", node.value))
    return frozenset(found)


def _name(text: str) -> Token:
    return "name", text


def _binding(node: ast.AST) -> tuple[list[ast.expr], ast.expr | None]:
    """What is bound to what, by an assignment or a loop."""
    if isinstance(node, ast.Assign):
        return node.targets, node.value
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return [node.target], node.value
    if isinstance(node, (ast.For, ast.comprehension)):
        return [node.target], node.iter
    return [], None


def _bound(target: ast.expr) -> Iterator[str]:
    """``a`` and ``b`` of ``a, self.b``; ``flags`` of ``flags["nvcc"]``, but not the environment itself."""
    if isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _bound(item)
    elif isinstance(target, (ast.Subscript, ast.Starred)):
        yield from _bound(target.value)
    elif last_name(target) != "environ" and (name := _dotted(target)):
        yield name


def _dotted(node: ast.AST) -> str:
    """``torch.version.cuda``; "" for what is not made of names alone."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``; "" for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def constants(node: ast.AST) -> Iterator[str]:
    """The text of a string, if the node is one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
