"""What the sources of splatting packages say of their face: Python as syntax trees, CUDA as text, never executed."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from splatfix.facts.source.reader import parse_python
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


def read_package_source(
    module: str, text: str, parse: Callable[[str], ast.Module] = parse_python
) -> PackageSource:
    """Read a package's ``__init__.py`` with ``parse_python``, or with that of a reader with a budget; raises NotPython."""
    nodes = tuple(ast.walk(parse(text)))
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
    for node in (node for node in nodes if isinstance(node, ast.Try)):
        names_by_module: dict[tuple[int, str], list[str]] = {}
        for item in (item for statement in node.body for item in imported(statement)):
            if is_splat_module(item.module):
                names_by_module.setdefault((item.line, item.module), []).extend(filter(None, [item.name]))
        hiding = [
            item
            for item in node.handlers
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(item))
        ]
        parts = (part for item in hiding if item.type for part in ast.walk(item.type))
        caught = [part.id for part in parts if isinstance(part, ast.Name)]
        catches = ", ".join(caught)
        if {"Exception", "BaseException"} & {*caught} or any(item.type is None for item in hiding):
            catches = "everything"
        for (line, module), names in names_by_module.items() if hiding else ():
            yield GuardedImport(file, line, module, tuple(names), catches)


def _settings(classes: list[ast.ClassDef]) -> tuple[tuple[str, ...] | None, int]:
    """(fields, how many have a default) of the NamedTuple that a rasterizer takes; (None, 0) where there is none."""
    for node in classes:
        if node.name.endswith("Settings") and "NamedTuple" in map(last_name, node.bases):
            fields = [
                item for item in node.body if isinstance(item, ast.AnnAssign) and last_name(item.target)
            ]
            return tuple(last_name(item.target) for item in fields), sum(
                item.value is not None for item in fields
            )
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
    returned = [item.value for item in ast.walk(forward) if isinstance(item, ast.Return)]
    each = {tuple(map(last_name, item.elts)) if isinstance(item, ast.Tuple) else None for item in returned}
    counts = {1 if names is None else len(names) for names in each}
    count = counts.pop() if len(counts) == 1 else None
    names = each.pop() if len(each) == 1 else None
    gradients = [argument.arg for argument in backward.args.args[1:]] if backward else []
    used = {node.id for node in ast.walk(backward) if isinstance(node, ast.Name)} if backward else set[str]()
    if names is None or len(gradients) != len(names):
        return count, names or (), ()
    return count, names, tuple(number for number, name in enumerate(gradients) if name not in used)


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
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in local_names
        ):
            exports[node.attr] = None
    return tuple(native), tuple(exports)


def read_projection(text: str) -> str:
    """Name the function of ``forward.cu`` that lacks the Jacobian of a perspective projection; "" for none."""
    functions = _PROJECTION.findall("".join(_COMMENT.sub("", text).split()))
    others = [name for name, body in functions if "focal_x/t.z" not in body or "(t.z*t.z)" not in body]
    return others[0] if others else ""


def read_depth(text: str) -> str:
    """Say ``sum`` where the map that ``forward.cu`` writes adds up depth times alpha T, as most forks do; where it is something
    else (the median, a mean, inverse depth) the statement that makes it; "" where no map is written."""
    start = text.find("renderCUDA(")
    text = _COMMENT.sub("", text[start:]) if start >= 0 else ""
    weights = {"alpha*T", *_WEIGHT.findall(text)}
    kinds = {}
    for match in _WRITTEN.finditer(text):
        value = match.group(1).strip()
        if not value.isidentifier():
            kinds[" ".join(match.group().split())] = False
            continue
        statements = re.findall(rf"\b{value}\s*(\+?=)\s*([^;]+);", text)
        # beside the zero it begins with nothing else is put into it
        others = [
            right
            for sign, right in statements
            if sign == "=" and right.strip(" {}") not in ("0", "0.0f", "0.f")
        ]
        # a depth times alpha T, not its inverse
        added = ["".join(right.split()) for sign, right in statements if sign == "+="]
        ends = tuple(f"*{weight}" for weight in weights)
        sums = bool(added) and all("/" not in factor and factor.endswith(ends) for factor in added)
        first = next((f"{value} = {' '.join(right.split())};" for right in others), f"{value} += ...;")
        kinds[first] = sums and not others
    return next((statement for statement, sums in kinds.items() if not sums), "sum" if kinds else "")
