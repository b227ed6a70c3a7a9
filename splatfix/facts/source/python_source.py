"""What the sources of splatting packages say of their face: Python as syntax trees, CUDA as text, never executed."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import imported, last_name
from splatfix.model import GuardedImport, PackageSource

_SPLAT_MODULE = re.compile(
    r"(diff_\w*rasteriz\w+|diff_gauss\w*|\w*(rasterization|gaussian_rasterizer)\w*|simple_knn|fused_ssim|gsplat)(_cuda)?(\..+)?"
)
# The pattern above takes time with the square of a name's length.
_LONGEST_NAME = 200
_NATIVE_NAME = re.compile(r"(?:.*\.)?(?:_C|\w+_cuda)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WRITTEN = re.compile(r"\b(?!collected)\w*depth\w*\s*\[[^\]\n]*\]\s*=\s*([^;=]+);", re.IGNORECASE)
_PROJECTION = re.compile(r"(compute\w*Cov2D\w*)\([^;{}()]*\)\{(.*?)(?=__device__|__global__|$)", re.DOTALL)
_WEIGHT = re.compile(r"\b(\w+)\s*=\s*alpha\s*\*\s*T\s*;")


def is_splat_module(name: str) -> bool:
    """It is what splatting extensions are called: ``simple_knn``, ``diff_gaussian_rasterization._C``."""
    return len(name) < _LONGEST_NAME and _SPLAT_MODULE.fullmatch(name) is not None


def read_package_source(module: str, text: str, reader: FolderReader | None = None) -> PackageSource:
    """Read a package's ``__init__.py``, on the budget of a reader; raises NotPython."""
    nodes = tuple(ast.walk((reader or FolderReader()).parse(text)))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    names = [node.name for node in classes]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:  # of its own files
            local_names = (alias.asname or alias.name for alias in node.names)
            names += (name for name in local_names if re.match(r"[A-Z][a-z]", name))
    settings, settings_defaults = _settings(classes)
    forward = _method(classes, r"\w*Rasterizer", "forward")
    parameters = tuple(item.arg for item in forward.args.args[1:]) if forward else None
    native, exports = _native_use(module, nodes)
    returns, values, gradients_ignored = _results(classes)
    return PackageSource(
        module=module,
        native=native,
        settings=settings,
        settings_defaults=settings_defaults,
        classes=tuple(names),
        forward=parameters,
        forward_required=len(parameters or ()) - len(forward.args.defaults) if forward else 0,
        returns=returns,
        exports=exports,
        values=values,
        gradients_ignored=gradients_ignored,
    )


def guarded_imports(file: str, nodes: Sequence[ast.AST]) -> Iterator[GuardedImport]:
    """Yield the imports of splatting extensions, among a file's nodes, whose failure is caught and not raised again."""
    for node in nodes:
        if not isinstance(node, ast.Try):
            continue
        names_by_module: dict[tuple[int, str], list[str]] = {}
        for item in chain.from_iterable(map(imported, node.body)):
            if is_splat_module(item.module):
                names_by_module.setdefault((item.line, item.module), []).extend(filter(None, [item.name]))
        caught: list[str] = []
        for handler in node.handlers:
            if any(isinstance(inner, ast.Raise) for inner in ast.walk(handler)):
                continue
            if handler.type is None:
                caught.append("BaseException")
            else:
                caught += (part.id for part in ast.walk(handler.type) if isinstance(part, ast.Name))
        catches = ", ".join(caught)
        if {"Exception", "BaseException"} & {*caught}:
            catches = "everything"
        for (line, module), names in names_by_module.items():
            if caught:
                yield GuardedImport(file, line, module, tuple(names), catches)


def _settings(classes: list[ast.ClassDef]) -> tuple[tuple[str, ...] | None, int]:
    """(fields, how many have a default) of the NamedTuple that a rasterizer takes; (None, 0) where there is none."""
    for node in classes:
        if node.name.endswith("Settings") and "NamedTuple" in map(last_name, node.bases):
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            defaults = sum(item.value is not None for item in fields)
            return tuple(last_name(item.target) for item in fields), defaults
    return None, 0


def _method(classes: list[ast.ClassDef], pattern: str, name: str) -> ast.FunctionDef | None:
    """The method of this name of the first class of such a name that has one."""
    items = (item for node in classes if re.fullmatch(pattern, node.name) for item in node.body)
    return next((item for item in items if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _results(classes: list[ast.ClassDef]) -> tuple[int | None, tuple[str, ...], tuple[int, ...]]:
    """(how many values the forward of the autograd function ``_Rasterize...`` returns, their names, positions whose gradient
    its backward leaves unused)."""
    forward, backward = (_method(classes, r"_Rasterize\w*", name) for name in ("forward", "backward"))
    if forward is None:
        return None, (), ()
    each, counts = set[tuple[str, ...]](), set[int]()
    for node in ast.walk(forward):
        match node:
            case ast.Return(value=ast.Tuple(elts=items)):
                each.add(tuple(map(last_name, items)))
                counts.add(len(items))
            case ast.Return():
                each.add(())
                counts.add(1)
    count = counts.pop() if len(counts) == 1 else None
    names = each.pop() if len(each) == 1 else ()
    gradients = backward.args.args[1:] if backward else []
    if backward is None or len(gradients) != len(names):
        return count, names, ()
    used = {node.id for node in ast.walk(backward) if isinstance(node, ast.Name)}
    return count, names, tuple(number for number, item in enumerate(gradients) if item.arg not in used)


def _native_use(module: str, nodes: Sequence[ast.AST]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compiled modules that the source imports, and the functions it takes from them."""
    native: dict[str, None] = {}
    exports: dict[str, None] = {}
    local_names: set[str] = set()
    for statement in (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))):
        origin = ""
        if isinstance(statement, ast.ImportFrom):
            origin = ".".join(filter(None, [module if statement.level else "", statement.module or ""]))
        if _NATIVE_NAME.fullmatch(origin):
            native[origin] = None
            exports |= dict.fromkeys(alias.name for alias in statement.names)
            continue
        for alias in statement.names if origin in ("", module) else ():
            if _NATIVE_NAME.fullmatch(alias.name):
                native[f"{origin}.{alias.name}".lstrip(".")] = None
                local_names.add(alias.asname or alias.name)
    for node in nodes:
        match node:
            case ast.Attribute(attr=name, value=ast.Name(id=owner)) if owner in local_names:
                exports[name] = None
    return tuple(native), tuple(exports)


def read_projection(text: str) -> str:
    """Name the function of ``forward.cu`` that lacks the Jacobian of a perspective projection; "" for none."""
    functions = _PROJECTION.findall("".join(_COMMENT.sub("", text).split()))
    name: str
    for name, body in functions:
        if "focal_x/t.z" not in body or "(t.z*t.z)" not in body:
            return name
    return ""


def read_depth(text: str) -> str:
    """Say ``sum`` where the map that ``forward.cu`` writes adds up depth times alpha T, as most forks do; where it is something
    else (the median, a mean, inverse depth) the statement that makes it; "" where no map is written."""
    start = text.find("renderCUDA(")
    text = _COMMENT.sub("", text[start:]) if start >= 0 else ""
    weights = {"alpha*T", *_WEIGHT.findall(text)}
    kind = ""
    for match in _WRITTEN.finditer(text):
        value = match.group(1).strip()
        if not value.isidentifier():
            return " ".join(match.group().split())
        added = []
        for sign, right in re.findall(rf"\b{value}\s*(\+?=)\s*([^;]+);", text):
            if sign == "+=":
                added.append("".join(right.split()))
            elif right.strip(" {}") not in ("0", "0.0f", "0.f"):  # the zero that a sum begins with
                return f"{value} = {' '.join(right.split())};"
        # a depth times alpha T, not its inverse
        ends = tuple(f"*{weight}" for weight in weights)
        if not added or not all("/" not in factor and factor.endswith(ends) for factor in added):
            return f"{value} += ...;"
        kind = "sum"
    return kind
