"""Environment variables that a build's own Python files read and set, and what they decide with them."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from splatfix.facts.source.evaluator import GPU_IN_SIGHT, Marker, StaticEvaluator, markers
from splatfix.facts.source.syntax import last_name, text_constant
from splatfix.facts.source.variable_names import is_arch_variable, switches_off, switches_on
from splatfix.model import ArchVariable, CudaSwitches

# Without it a wheel that others built is downloaded (flash-attn, mamba).
_OWN_BUILD = re.compile(r"(?:\w+_)?FORCE_BUILD")
# Read by nearly every setup.py, to find tools: none of them says whether modules are declared.
_NO_SWITCHES = {"TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "CUDA_PATH", "MAX_JOBS", "CC", "CXX", "PATH"}
# What torch answers only for a GPU that it sees.
_ASKS_THE_GPU = ("get_device_capability", "get_device_properties", "get_device_name", "current_device")
_BUILDERS = ("CUDAExtension", "CppExtension", "BuildExtension")
_SEPARATORS = (";", ",", " ")
# A forged file can name thousands, and each is followed through the whole script.
_MOST_VARIABLES = 50


class VariableRead(Struct, frozen=True):
    """One expression that reads a variable."""

    name: str
    node: ast.AST
    default: ast.expr | None = None


def environment_reads(evaluator: StaticEvaluator) -> tuple[VariableRead, ...]:
    """Every expression that reads a variable."""
    reads: list[VariableRead] = []
    environ = {"environ"}
    for node in evaluator.nodes:
        if isinstance(node, ast.Assign) and last_name(node.value) == "environ":  # ``env = os.environ``
            environ.update(map(last_name, node.targets))
    for node in evaluator.nodes:
        key, default = _key_and_default(node, environ)
        name = text_constant(key)
        if name is not None:
            reads.append(VariableRead(name, node, default))
    # and through a function of the file's own that is given its name
    name_position: dict[str, int] = {}
    for node in evaluator.nodes:
        if isinstance(node, ast.FunctionDef):
            parameters = [argument.arg for argument in node.args.args]
            for inner in ast.walk(node) if parameters else ():
                key, _ = _key_and_default(inner, {"environ"})
                if isinstance(key, ast.Name) and key.id in parameters:
                    name_position[node.name] = parameters.index(key.id)
    for node in evaluator.nodes:
        if isinstance(node, ast.Call) and last_name(node.func) in name_position:
            position = name_position[last_name(node.func)]
            name_and_default = node.args[position : position + 2]
            name = text_constant(name_and_default[0]) if name_and_default else None
            if name is not None:
                reads.append(VariableRead(name, node, *name_and_default[1:]))
    return tuple(reads)


def environment_writes(evaluator: StaticEvaluator) -> dict[str, str | None]:
    """Variables that are set whatever they were before, with the value; "" for one that is taken away, None for a
    computed one. What is set only where it was not set before is no such variable."""
    written: dict[str, str | None] = {}
    holding: dict[str, set[Marker]] = {}
    for statement in evaluator.nodes:
        for key, value in _written_items(statement):
            name = text_constant(key)
            if name is None:
                continue
            if name not in holding and len(holding) < _MOST_VARIABLES:
                holding[name] = evaluator.holding(("text", name))
            depends_on = [*evaluator.conditions(statement), *([] if value is None else [value])]
            if not any(holding.get(name, set()) & markers(expression) for expression in depends_on):
                written[name] = "" if value is None else text_constant(value)
    return written


def arch_variables(reads: Sequence[VariableRead], evaluator: StaticEvaluator) -> tuple[ArchVariable, ...]:
    """The variables from which architectures are taken, each with the form that the code around it expects."""
    by_name = _by_name(read for read in reads if is_arch_variable(read.name))
    return tuple(_arch_variable(name, evaluator, of_name) for name, of_name in by_name.items())


def cuda_switches(reads: Sequence[VariableRead], evaluator: StaticEvaluator) -> CudaSwitches:
    """What decides whether CUDA code is compiled."""
    # conditions ``x == "True"`` behind which modules are declared, and without which none are
    conditions = [
        node.test
        for node in evaluator.nodes
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], (ast.Eq, ast.In))
        and any(map(_names_builder, node.body))
        and not any(map(_names_builder, node.orelse))
    ]
    on, also = [], []
    for read in reads:
        # a variable decides, too, whose value is compared in one of these, as BASICSR_EXT's is
        is_other = read.name in _NO_SWITCHES or is_arch_variable(read.name) or switches_off(read.name)
        if switches_on(read.name):
            on.append(read)
        elif _OWN_BUILD.fullmatch(read.name):
            also.append(read)
        elif conditions and not is_other:
            holding = evaluator.holding(id(read.node))
            if any(holding & markers(test.left) for test in conditions):
                also.append(read)
    off = (read.name for read in reads if switches_off(read.name))
    asks_gpu = any(
        # or computes on it, as SparseConvNet's setup.py does
        last_name(node) in _ASKS_THE_GPU or (isinstance(node, ast.Call) and last_name(node.func) == "cuda")
        for node in evaluator.nodes
    )
    return CudaSwitches(
        by_gpu=_gpu_decides(evaluator),
        asks_gpu=asks_gpu,
        on={name: _value_for_on(of_name, evaluator) for name, of_name in _by_name(on).items()},
        also={name: _value_for_on(of_name, evaluator) for name, of_name in _by_name(also).items()},
        off=tuple(dict.fromkeys(off)),
    )


def _key_and_default(node: ast.AST, environ: set[str]) -> tuple[ast.expr | None, ast.expr | None]:
    """The key of ``os.environ.get(KEY, default)``, ``os.getenv(KEY)``, ``os.environ[KEY]`` and ``KEY in os.environ``."""
    if isinstance(node, ast.Call) and node.args:
        reads = last_name(node.func) == "getenv"
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault"):
            reads = last_name(node.func.value) in environ
        if reads:
            return node.args[0], node.args[1] if len(node.args) > 1 else None
    elif isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Load) and last_name(node.value) in environ:
            return node.slice, None
    elif isinstance(node, ast.Compare) and any(last_name(item) in environ for item in node.comparators):
        return node.left, None
    return None, None


def _written_items(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """(key, value) of every item of ``os.environ`` that a statement or call sets or removes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        value = node.value if isinstance(node, ast.Assign) else None
        for target in node.targets:
            if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                yield target.slice, value
        return
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return
    if last_name(node.func.value) != "environ":
        return
    if node.func.attr == "pop":
        yield node.args[0], None
    elif node.func.attr == "update" and isinstance(node.args[0], ast.Dict):
        yield from zip(node.args[0].keys, node.args[0].values, strict=True)


def _by_name(reads: Iterable[VariableRead]) -> dict[str, list[VariableRead]]:
    """The reads of each variable, for the first fifty variables."""
    by_name: dict[str, list[VariableRead]] = {}
    for read in reads:
        by_name.setdefault(read.name, []).append(read)
    return dict(islice(by_name.items(), _MOST_VARIABLES))


def _arch_variable(name: str, evaluator: StaticEvaluator, reads: Sequence[VariableRead]) -> ArchVariable:
    """From its default where that has numbers; else from what is done to the value, and from its name."""
    holding = evaluator.holding(*(id(read.node) for read in reads))
    separator, dotted, is_number = ";", name.endswith("ARCH_LIST"), False
    for node in evaluator.nodes:
        function = last_name(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or function not in ("split", "int", "float"):
            continue
        converted: ast.AST = node
        if isinstance(node.func, ast.Attribute):
            converted = node.func.value
        elif node.args:
            converted = node.args[0]
        if not holding & markers(converted):
            continue
        if function == "float":
            dotted = True
        elif function == "int":
            is_number = True
        else:
            split_at = evaluator.text(node.args[0]) if node.args else " "
            if split_at == ".":
                dotted = True
            elif split_at:
                separator = split_at
    texts = (text_constant(read.default) for read in reads)
    default = next((text for text in texts if text is not None and re.search(r"\d", text)), None)
    if default is not None:
        dotted = re.search(r"\d\.\d", default) is not None
        separator = next((sign for sign in _SEPARATORS if sign in default), separator)
    if separator not in _SEPARATORS:
        separator = ";"
    return ArchVariable(name, dotted, separator, plain=is_number and not dotted)


def _value_for_on(reads: Sequence[VariableRead], evaluator: StaticEvaluator) -> str:
    """What it is compared with: ``1`` of ``os.getenv("FORCE_CUDA", "0") == "1"``; 1 where nothing else is said."""
    holding = evaluator.holding(*(id(read.node) for read in reads))
    for node in evaluator.nodes:
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Eq, ast.In)):
            continue
        if not holding & markers(node.left):
            continue
        texts = [text_constant(inner) for inner in ast.walk(node.comparators[0])]
        values = [text for text in texts if text is not None]
        if "1" in values:
            return "1"
        if values:
            return values[0]
    return "1"


def _names_builder(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        if last_name(node) in _BUILDERS or (isinstance(node, ast.alias) and node.name in _BUILDERS):
            return True
    return False


def _gpu_decides(evaluator: StaticEvaluator) -> bool:
    """``torch.cuda.is_available()`` decides between CUDAExtension and less, or ends the build."""
    decided = evaluator.holding(GPU_IN_SIGHT, on_condition=True)
    for node in evaluator.nodes:
        if last_name(node) in ("CUDAExtension", "CppExtension"):
            if any(decided & markers(test) for test in evaluator.conditions(node)):
                return True
        elif isinstance(node, ast.If) and any(isinstance(item, ast.Raise) for item in node.body):
            denials = [part for part in ast.walk(node.test) if isinstance(part, ast.UnaryOp)]
            if not any(isinstance(part.op, ast.Not) and decided & markers(part.operand) for part in denials):
                continue
            # for AMD's GPUs a build may well need to see one, to learn which it is
            around = evaluator.conditions(node)[:5]
            return not any(re.search(r"rocm|hip", ast.unparse(test), re.IGNORECASE) for test in around)
    # what runs while setup.py and its imports are executed: their top levels, and the functions that are called from there
    functions = {node.name: node for node in evaluator.nodes if isinstance(node, ast.FunctionDef)}
    pending: list[ast.AST] = [node for node in evaluator.nodes if isinstance(node, ast.Module)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assert) and decided & markers(node.test):
            return True
        if isinstance(node, ast.Call) and (name := last_name(node.func)) in functions:
            pending += functions.pop(name).body
        pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef))
    return False
