"""Environment variables that a build's own Python files read and set, and what they decide with them."""

import ast
import re
from collections.abc import Iterator, Mapping

from splatfix.facts.source.setup_py import GPU_IN_SIGHT, SetupScript, quoted
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


def environment_reads(script: SetupScript) -> dict[str, str]:
    """Return the variables that are read, each with the text that it is taken for where it is not set; "" where there is none."""
    reads: dict[str, str] = {}
    environ = {"environ"}
    for node in script.nodes:
        if isinstance(node, ast.Assign) and last_name(node.value) == "environ":  # ``env = os.environ``
            environ.update(map(last_name, node.targets))
    # through a function of the file's own that is given its name, at which place
    position_of_name: dict[str, int] = {}
    for node in script.nodes:
        if isinstance(node, ast.FunctionDef):
            parameters = [argument.arg for argument in node.args.args]
            for inner in ast.walk(node) if parameters else ():
                key, _ = _key_and_default(inner, {"environ"})
                if isinstance(key, ast.Name) and key.id in parameters:
                    position_of_name[node.name] = parameters.index(key.id)
    plain, by_function = [], []
    for node in script.nodes:
        plain.append(_key_and_default(node, environ))
        if isinstance(node, ast.Call) and last_name(node.func) in position_of_name:
            position = position_of_name[last_name(node.func)]
            by_function.append((*node.args[position : position + 2], None, None)[:2])
    for key, default in (*plain, *by_function):
        name = text_constant(key)
        if name is not None:
            reads[name] = reads.get(name) or text_constant(default) or ""
    return reads


def environment_writes(script: SetupScript) -> dict[str, str | None]:
    """Return the variables that are set whatever they were before, with the value; "" for one that is taken away, None for a
    computed one. What is set only where it was not set before is no such variable."""
    written: dict[str, str | None] = {}
    holding: dict[str, set[str]] = {}
    for statement in script.nodes:
        for key, value in _written_items(statement):
            name = text_constant(key)
            if name is None:
                continue
            if name not in holding and len(holding) < _MOST_VARIABLES:
                holding[name] = script.holding(quoted(name))
            depends_on = [*script.conditions(statement), *([] if value is None else [value])]
            if not any(holding.get(name, set()) & script.markers(expression) for expression in depends_on):
                written[name] = "" if value is None else text_constant(value)
    return written


def arch_variables(reads: Mapping[str, str], script: SetupScript) -> tuple[ArchVariable, ...]:
    """Return the variables from which architectures are taken, each with the form that the code around it expects."""
    names = list(filter(is_arch_variable, reads))[:_MOST_VARIABLES]
    return tuple(_arch_variable(name, reads[name], script) for name in names)


def cuda_switches(reads: Mapping[str, str], script: SetupScript) -> CudaSwitches:
    """Tell what decides whether CUDA code is compiled."""
    # what is compared in conditions ``x == "True"`` behind which modules are declared, and without which none are
    compared = [
        node.test.left
        for node in script.nodes
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Compare)
        and isinstance(node.test.ops[0], (ast.Eq, ast.In))
        and any(map(_names_builder, node.body))
        and not any(map(_names_builder, node.orelse))
    ]
    on: dict[str, str] = {}
    also: dict[str, str] = {}
    for name in list(reads)[:_MOST_VARIABLES]:
        if switches_on(name):
            on[name] = _value_for_on(name, script)
        elif _OWN_BUILD.fullmatch(name):
            also[name] = _value_for_on(name, script)
        elif compared and not (name in _NO_SWITCHES or is_arch_variable(name) or switches_off(name)):
            # a variable decides, too, whose value is compared in one of these, as BASICSR_EXT's is
            holding = script.holding(quoted(name))
            if any(holding & script.markers(left) for left in compared):
                also[name] = _value_for_on(name, script)
    asks_gpu = any(
        # or computes on it, as SparseConvNet's setup.py does
        last_name(node) in _ASKS_THE_GPU or (isinstance(node, ast.Call) and last_name(node.func) == "cuda")
        for node in script.nodes
    )
    off = tuple(filter(switches_off, reads))
    return CudaSwitches(by_gpu=_gpu_decides(script), asks_gpu=asks_gpu, on=on, also=also, off=off)


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


def _arch_variable(name: str, default: str, script: SetupScript) -> ArchVariable:
    """Tell its form from its default where that has numbers; else from what is done to the value, and from its name."""
    holding = script.holding(quoted(name))
    separator, dotted, is_number = ";", name.endswith("ARCH_LIST"), False
    for call in script.calls("split", "int", "float"):
        converted = call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), call)
        if not holding & script.markers(converted):
            continue
        function = last_name(call.func)
        split_at = (script.text(call.args[0]) if call.args else " ") if function == "split" else ""
        if function == "float" or split_at == ".":
            dotted = True
        elif function == "int":
            is_number = True
        elif split_at:
            separator = split_at
    if re.search(r"\d", default):
        dotted = re.search(r"\d\.\d", default) is not None
        separator = next((sign for sign in _SEPARATORS if sign in default), separator)
    if separator not in _SEPARATORS:
        separator = ";"
    return ArchVariable(name, dotted, separator, plain=is_number and not dotted)


def _value_for_on(name: str, script: SetupScript) -> str:
    """Return what it is compared with: ``1`` of ``os.getenv("FORCE_CUDA", "0") == "1"``; 1 where nothing else is said."""
    holding = script.holding(quoted(name))
    for node in script.nodes:
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], (ast.Eq, ast.In)):
            continue
        if not holding & script.markers(node.left):
            continue
        texts = [text_constant(inner) for inner in ast.walk(node.comparators[0])]
        values = [text for text in texts if text is not None]
        if values:
            return "1" if "1" in values else values[0]
    return "1"


def _names_builder(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        if last_name(node) in _BUILDERS or (isinstance(node, ast.alias) and node.name in _BUILDERS):
            return True
    return False


def _gpu_decides(script: SetupScript) -> bool:
    """``torch.cuda.is_available()`` decides between CUDAExtension and less, or ends the build."""
    decided = script.holding(GPU_IN_SIGHT, on_condition=True)
    for node in script.nodes:
        if last_name(node) in ("CUDAExtension", "CppExtension"):
            if any(decided & script.markers(test) for test in script.conditions(node)):
                return True
        elif isinstance(node, ast.If) and any(isinstance(item, ast.Raise) for item in node.body):
            denials = [part for part in ast.walk(node.test) if isinstance(part, ast.UnaryOp)]
            if not any(
                isinstance(part.op, ast.Not) and decided & script.markers(part.operand) for part in denials
            ):
                continue
            # for AMD's GPUs a build may well need to see one, to learn which it is
            around = script.conditions(node)[:5]
            return not any(re.search(r"rocm|hip", ast.unparse(test), re.IGNORECASE) for test in around)
    # what runs while setup.py and its imports are executed: their top levels, and the functions that are called from there
    functions = {node.name: node for node in script.nodes if isinstance(node, ast.FunctionDef)}
    pending: list[ast.AST] = [node for node in script.nodes if isinstance(node, ast.Module)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assert) and decided & script.markers(node.test):
            return True
        if isinstance(node, ast.Call) and (name := last_name(node.func)) in functions:
            pending += functions.pop(name).body
        pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef))
    return False
