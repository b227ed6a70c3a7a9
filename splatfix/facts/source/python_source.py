"""What Python source of splatting packages and trainers says, read as syntax trees and never executed."""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from splatfix.facts.source.reader import parse_python
from splatfix.facts.source.syntax import imported, last_name
from splatfix.model import GuardedImport, PackageSource

_SPLAT_MODULE = re.compile(
    r"(diff_\w*rasteriz\w+|diff_gauss\w*|\w*(rasterization|gaussian_rasterizer)\w*|simple_knn|fused_ssim|gsplat)(_cuda)?(\..+)?"
)
# The pattern above takes time with the square of a name's length.
_LONGEST_NAME = 200
_NATIVE_NAME = re.compile(r"_C|\w+_cuda")


def is_splat_module(name: str) -> bool:
    """It is what splatting extensions are called: ``simple_knn``, ``diff_gaussian_rasterization._C``."""
    return len(name) < _LONGEST_NAME and _SPLAT_MODULE.fullmatch(name) is not None


def read_package_source(
    module: str, text: str, parse: Callable[[str], ast.Module] = parse_python
) -> PackageSource:
    """Read a package's ``__init__.py``.

    Args:
        parse: ``parse_python``, or that of a reader with a budget.

    Raises:
        NotPython: when it is not Python that this version can read.
    """
    nodes = tuple(ast.walk(parse(text)))
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    names = [node.name for node in classes]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:  # of its own files
            local_names = (alias.asname or alias.name for alias in node.names)
            names += [name for name in local_names if re.match(r"[A-Z][a-z]", name)]
    settings, settings_defaults = _settings(classes)
    forward: tuple[str, ...] | None = None
    forward_required = 0
    for method in islice(_methods(classes, r"\w*Rasterizer", "forward"), 1):
        forward = tuple(argument.arg for argument in method.args.args[1:])
        forward_required = len(forward) - len(method.args.defaults)
    native, exports = _native_use(module, nodes)
    returns, values, gradients_ignored = _results(classes)
    return PackageSource(
        module=module,
        native=native,
        settings=settings,
        settings_defaults=settings_defaults,
        classes=tuple(names),
        forward=forward,
        forward_required=forward_required,
        returns=returns,
        exports=exports,
        values=values,
        gradients_ignored=gradients_ignored,
    )


def guarded_imports(file: str, nodes: Sequence[ast.AST]) -> Iterator[GuardedImport]:
    """Imports of splatting extensions whose failure is caught and not raised again.

    Args:
        nodes: the file's syntax tree, as :func:`ast.walk` gives it.
    """
    for node in nodes:
        if not isinstance(node, ast.Try):
            continue
        names_by_module: dict[tuple[int, str], list[str]] = {}
        for statement in node.body:
            for item in imported(statement):
                if is_splat_module(item.module):
                    names_by_module.setdefault((item.line, item.module), []).extend(filter(None, [item.name]))
        if not names_by_module:
            continue
        handlers = [
            handler
            for handler in node.handlers
            if not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))
        ]
        for (line, module), names in names_by_module.items() if handlers else ():
            yield GuardedImport(file, line, module, tuple(names), _caught(handlers))


def _caught(handlers: list[ast.ExceptHandler]) -> str:
    names: list[str] = []
    for handler in handlers:
        if handler.type is None:
            return "everything"
        names += [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    if "Exception" in names or "BaseException" in names:
        return "everything"
    return ", ".join(names)


def _settings(classes: list[ast.ClassDef]) -> tuple[tuple[str, ...] | None, int]:
    """(fields, how many have a default) of the NamedTuple that a rasterizer takes; (None, 0) where there is none."""
    for node in classes:
        if node.name.endswith("Settings") and "NamedTuple" in map(last_name, node.bases):
            names, defaults = [], 0
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    names.append(item.target.id)
                    defaults += item.value is not None
            return tuple(names), defaults
    return None, 0


def _methods(classes: list[ast.ClassDef], pattern: str, name: str) -> Iterator[ast.FunctionDef]:
    """The method of this name of every class of such a name that has one."""
    for node in classes:
        if re.fullmatch(pattern, node.name):
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name)
            yield from islice(methods, 1)


def _results(classes: list[ast.ClassDef]) -> tuple[int | None, tuple[str, ...], tuple[int, ...]]:
    """(how many values the forward of the autograd function ``_Rasterize...`` returns, their names, positions whose gradient
    its backward leaves unused)."""
    for method in _methods(classes, r"_Rasterize\w*", "forward"):
        returned = [item.value for item in ast.walk(method) if isinstance(item, ast.Return)]
        tuples = [item.elts for item in returned if isinstance(item, ast.Tuple)]
        counts = {len(item.elts) if isinstance(item, ast.Tuple) else 1 for item in returned}
        count = counts.pop() if len(counts) == 1 else None
        each = {tuple(map(last_name, items)) for items in tuples}
        if len(tuples) != len(returned) or len(each) != 1:
            return count, (), ()
        names = each.pop()
        for backward in _methods(classes, r"_Rasterize\w*", "backward"):
            gradients = [argument.arg for argument in backward.args.args[1:]]
            used = {node.id for node in ast.walk(backward) if isinstance(node, ast.Name)}
            if len(gradients) == len(names):
                ignored = [number for number, name in enumerate(gradients) if name not in used]
                return count, names, tuple(ignored)
        return count, names, ()
    return None, (), ()


def _native_use(module: str, nodes: Sequence[ast.AST]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compiled modules that the source imports, and the functions it takes from them."""
    native: dict[str, None] = {}
    exports: dict[str, None] = {}
    local_names: set[str] = set()
    for node in nodes:
        origin = ""
        if isinstance(node, ast.ImportFrom):
            parts = [module if node.level else "", node.module or ""]
            origin = ".".join(filter(None, parts))
            if _NATIVE_NAME.fullmatch(origin.rpartition(".")[2]):
                native[origin] = None
                exports.update(dict.fromkeys(alias.name for alias in node.names))
                continue
        for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
            is_native = _NATIVE_NAME.fullmatch(alias.name.rpartition(".")[2]) is not None
            if is_native and origin in ("", module):
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
