"""Environment variables that a build's own Python files read and set, and what they decide with them."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from splatfix.facts.source.setup_py import GPU_IN_SIGHT, SetupScript, quoted
from splatfix.facts.source.syntax import last_name, text_constant, texts_below
from splatfix.facts.source.variable_names import OFF, ON, is_arch_variable
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

Read = tuple[ast.expr | None, ast.expr | None]
"""The name of a variable, and what it is taken for where it is not set."""


def environment_reads(script: SetupScript) -> dict[str, str]:
    """Return the variables that are read, each with the text that it is taken for where it is not set; "" where there is none."""
    environ = {"environ"}
    # functions of the file's own that are given a variable's name, and at which place
    position_of_name: dict[str, int] = {}
    for node in script.nodes:
        if isinstance(node, ast.Assign) and last_name(node.value) == "environ":  # ``env = os.environ``
            environ.update(map(last_name, node.targets))
        elif isinstance(node, ast.FunctionDef) and (parameters := [item.arg for item in node.args.args]):
            for inner in ast.walk(node):
                key, _ = _read(inner, {"environ"})
                if isinstance(key, ast.Name) and key.id in parameters:
                    position_of_name[node.name] = parameters.index(key.id)
    found = [_read(node, environ) for node in script.nodes]
    for call in script.calls(*position_of_name):
        position = position_of_name[last_name(call.func)]
        key, default, *_ = (*call.args[position : position + 2], None, None)
        found.append((key, default))
    reads: dict[str, str] = {}
    for key, default in found:
        name = text_constant(key)
        if name is not None:
            reads[name] = reads.get(name) or text_constant(default) or ""
    return reads


def _read(node: ast.AST, environ: set[str]) -> Read:
    """Read ``os.environ.get(KEY, default)``, ``os.getenv(KEY)``, ``os.environ[KEY]`` and ``KEY in os.environ``."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="get" | "pop" | "setdefault"), args=[key, *rest]):
            if last_name(owner) in environ:
                return key, next(iter(rest), None)
        case ast.Call(func=function, args=[key, *rest]) if last_name(function) == "getenv":
            return key, next(iter(rest), None)
        case ast.Subscript(value=owner, slice=key, ctx=ast.Load()) if last_name(owner) in environ:
            return key, None
        case ast.Compare(left=key, comparators=others) if any(last_name(item) in environ for item in others):
            return key, None
    return None, None


def environment_writes(script: SetupScript) -> dict[str, str | None]:
    """Return the variables that are set whatever they were before, with the value; "" for one that is taken away, None for a
    computed one. What is set only where it was not set before is no such variable."""
    written: dict[str, str | None] = {}
    holding: dict[str, set[str]] = {}
    for node in script.nodes:
        for key, value in _written(node):
            name = text_constant(key)
            if name is None:
                continue
            if name not in holding and len(holding) < _MOST_VARIABLES:
                holding[name] = script.holding(quoted(name))
            depends_on = [*script.conditions(node), *filter(None, [value])]
            if all(holding.get(name, set()).isdisjoint(script.markers(item)) for item in depends_on):
                written[name] = "" if value is None else text_constant(value)
    return written


def _written(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """(key, value) of every item of ``os.environ`` that a statement or call sets or removes."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            for target in targets:
                if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                    yield target.slice, getattr(node, "value", None)
        case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[first, *_]):
            if last_name(owner) == "environ" and method == "pop":
                yield first, None
            elif last_name(owner) == "environ" and method == "update" and isinstance(first, ast.Dict):
                yield from zip(first.keys, first.values, strict=True)


def arch_variables(reads: Mapping[str, str], script: SetupScript) -> Iterator[ArchVariable]:
    """Yield the variables from which architectures are taken, each with the form that the code around it expects.

    Its default tells it where that has numbers; else what is done to the value, and its name.
    """
    for name in list(filter(is_arch_variable, reads))[:_MOST_VARIABLES]:
        holding = script.holding(quoted(name))
        separator, dotted, is_number = ";", name.endswith("ARCH_LIST"), False
        for call in script.calls("split", "int", "float"):
            converted: ast.AST = getattr(call.func, "value", None) or next(iter(call.args), call)
            if holding.isdisjoint(script.markers(converted)):
                continue
            function = last_name(call.func)
            split_at = script.text(call.args[0]) if call.args else " "
            if function == "int":
                is_number = True
            elif function == "float" or split_at == ".":
                dotted = True
            elif split_at:
                separator = split_at
        default = reads[name]
        if re.search(r"\d", default):
            dotted = re.search(r"\d\.\d", default) is not None
            separator = next((sign for sign in _SEPARATORS if sign in default), separator)
        if separator not in _SEPARATORS:
            separator = ";"
        yield ArchVariable(name, dotted, separator, plain=is_number and not dotted)


def cuda_switches(reads: Mapping[str, str], script: SetupScript) -> CudaSwitches:
    """Tell what decides whether CUDA code is compiled."""
    # what is compared in conditions ``x == "True"`` behind which modules are declared, and without which none are
    compared: list[ast.expr] = []
    for node in script.nodes:
        match node:
            case ast.If(test=ast.Compare(left=left, ops=[ast.Eq() | ast.In(), *_]), body=body, orelse=others):
                if any(map(_names_builder, body)) and not any(map(_names_builder, others)):
                    compared.append(left)
    on: dict[str, str] = {}
    also: dict[str, str] = {}
    for name in list(reads)[:_MOST_VARIABLES]:
        if ON.fullmatch(name):
            on[name] = _value_for_on(name, script)
        elif _OWN_BUILD.fullmatch(name):
            also[name] = _value_for_on(name, script)
        elif compared and not (name in _NO_SWITCHES or is_arch_variable(name) or OFF.fullmatch(name)):
            # a variable decides, too, whose value is compared in one of these, as BASICSR_EXT's is
            holding = script.holding(quoted(name))
            if any(holding & script.markers(left) for left in compared):
                also[name] = _value_for_on(name, script)
    asks_gpu = any(
        # or computes on it, as SparseConvNet's setup.py does
        last_name(node) in _ASKS_THE_GPU or (isinstance(node, ast.Call) and last_name(node.func) == "cuda")
        for node in script.nodes
    )
    off = tuple(filter(OFF.fullmatch, reads))
    return CudaSwitches(by_gpu=_gpu_decides(script), asks_gpu=asks_gpu, on=on, also=also, off=off)


def _value_for_on(name: str, script: SetupScript) -> str:
    """Return what it is compared with: ``1`` of ``os.getenv("FORCE_CUDA", "0") == "1"``; 1 where nothing else is said."""
    holding = script.holding(quoted(name))
    for node in script.nodes:
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.In(), *_], comparators=[other, *_]):
                values = list(texts_below(other, set()))
                if values and holding & script.markers(left):
                    return "1" if "1" in values else values[0]
    return "1"


def _names_builder(statement: ast.stmt) -> bool:
    return any(
        last_name(node) in _BUILDERS or (isinstance(node, ast.alias) and node.name in _BUILDERS)
        for node in ast.walk(statement)
    )


def _gpu_decides(script: SetupScript) -> bool:
    """``torch.cuda.is_available()`` decides between CUDAExtension and less, or ends the build."""
    decided = script.holding(GPU_IN_SIGHT, on_condition=True)

    def asked(tests: Iterable[ast.AST]) -> bool:
        return any(decided & script.markers(test) for test in tests)

    for node in script.nodes:
        if last_name(node) in ("CUDAExtension", "CppExtension") and asked(script.conditions(node)):
            return True
        if isinstance(node, ast.If) and any(isinstance(item, ast.Raise) for item in node.body):
            parts = [part for part in ast.walk(node.test) if isinstance(part, ast.UnaryOp)]
            if asked(part.operand for part in parts if isinstance(part.op, ast.Not)):
                # for AMD's GPUs a build may well need to see one, to learn which it is
                around = script.conditions(node)[:5]
                return not any(re.search(r"rocm|hip", ast.unparse(test), re.IGNORECASE) for test in around)
    # what runs while setup.py and its imports are executed: their top levels, and the functions that are called from there
    functions = {node.name: node for node in script.nodes if isinstance(node, ast.FunctionDef)}
    pending: list[ast.AST] = [node for node in script.nodes if isinstance(node, ast.Module)]
    for node in pending:  # which grows
        if isinstance(node, ast.Assert) and asked([node.test]):
            return True
        if isinstance(node, ast.Call) and (name := last_name(node.func)) in functions:
            pending += functions.pop(name).body
        pending += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef))
    return False
