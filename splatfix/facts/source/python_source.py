"""What Python source of splatting packages and trainers says, read as syntax trees and never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from splatfix.facts.model.source import GuardedImport, PackageSource
from splatfix.facts.source.reader import parse_python

_SPLAT_MODULE = re.compile(
    r"(diff_\w*rasteriz\w+|diff_gauss\w*|\w*rasterization\w*|simple_knn|fused_ssim|gsplat)(_cuda)?(\..+)?"
)
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
    settings = next((item for item in classes if _is_settings(item)), None)
    fields = [
        node
        for node in (settings.body if settings else ())
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    forward = next(
        (
            method
            for item in classes
            if item.name.endswith("Rasterizer")
            if (method := _method(item, "forward"))
        ),
        None,
    )
    parameters = [arg.arg for arg in forward.args.args[1:]] if forward else []
    native, exports = _native_use(module, nodes)
    return PackageSource(
        module=module,
        native=native,
        settings=tuple(node.target.id for node in fields if isinstance(node.target, ast.Name))
        if settings
        else None,
        settings_defaults=sum(node.value is not None for node in fields),
        classes=(*(item.name for item in classes), *_classes_from_own_files(nodes)),
        forward=tuple(parameters) if forward else None,
        forward_required=len(parameters) - len(forward.args.defaults) if forward else 0,
        returns=_returns(classes),
        exports=exports,
    )


def imported_names(nodes: Sequence[ast.AST]) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name there) of every absolute ``from module import name`` in the tree."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = (node.module, alias.name)
    return found


def imported_modules(nodes: Sequence[ast.AST], without_lines: Collection[int] = ()) -> tuple[str, ...]:
    """Every module that the tree imports by its absolute name, in order of the text; not by the lines named."""
    found: dict[str, None] = {}
    for node in nodes:
        if getattr(node, "lineno", 0) in without_lines:
            continue
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found[node.module] = None
    return tuple(found)


def guarded_imports(file: str, nodes: Sequence[ast.AST]) -> Iterator[GuardedImport]:
    """Imports of splatting extensions whose failure is caught and not raised again."""
    tries = [(node, named) for node in nodes if isinstance(node, ast.Try) and (named := _tried(node))]
    raising = _raising(nodes) if tries else set()
    for node, imported in tries:
        handlers = [item for item in node.handlers if id(item) not in raising]
        if handlers:
            caught = _caught(handlers)
            for line, module, names in imported:
                yield GuardedImport(file, line, module, names, caught)


def _tried(node: ast.Try) -> list[tuple[int, str, tuple[str, ...]]]:
    """(line, module, names) of every splatting extension that a ``try`` imports."""
    found: list[tuple[int, str, tuple[str, ...]]] = []
    for statement in node.body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names = tuple(alias.name for alias in statement.names)
            found.append((statement.lineno, statement.module, names))
        elif isinstance(statement, ast.Import):
            found += [(statement.lineno, alias.name, ()) for alias in statement.names]
    return [item for item in found if is_splat_module(item[1])]


def _raising(nodes: Sequence[ast.AST]) -> set[int]:
    """Ids of the nodes with a ``raise`` in them; ``nodes`` are in the order of :func:`ast.walk`, the innermost last."""
    found: set[int] = set()
    for node in reversed(nodes):
        if isinstance(node, ast.Raise) or any(id(child) in found for child in ast.iter_child_nodes(node)):
            found.add(id(node))
    return found


def _caught(handlers: list[ast.ExceptHandler]) -> str:
    words = []
    for handler in handlers:
        if handler.type is None:
            return "everything"
        words += [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)]
    return "everything" if {"Exception", "BaseException"} & set(words) else ", ".join(words)


def _is_settings(node: ast.ClassDef) -> bool:
    bases = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases}
    return "NamedTuple" in bases and node.name.endswith("Settings")


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _returns(classes: list[ast.ClassDef]) -> int | None:
    """How many values the forward of the autograd function ``_Rasterize...`` returns."""
    for node in classes:
        method = _method(node, "forward") if node.name.startswith("_Rasterize") else None
        if method is None:
            continue
        counts = {
            len(item.value.elts) if isinstance(item.value, ast.Tuple) else 1
            for item in ast.walk(method)
            if isinstance(item, ast.Return)
        }
        return counts.pop() if len(counts) == 1 else None
    return None


def _classes_from_own_files(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Classes that ``__init__.py`` takes from other files of its package."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            names = (alias.asname or alias.name for alias in node.names)
            yield from (name for name in names if re.match(r"[A-Z][a-z]", name))


def _native_use(module: str, nodes: Sequence[ast.AST]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compiled modules that the source imports, and the functions it takes from them."""
    native: dict[str, None] = {}
    exports: dict[str, None] = {}
    handles: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            home = f"{module}.{node.module}".rstrip(".") if node.level and node.module else node.module or ""
            base = module if node.level and not node.module else home
            if _NATIVE_NAME.fullmatch(base.rpartition(".")[2]):
                native[base] = None
                exports.update(dict.fromkeys(alias.name for alias in node.names))
                continue
            for alias in node.names:
                if _NATIVE_NAME.fullmatch(alias.name) and base == module:
                    native[f"{base}.{alias.name}"] = None
                    handles.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _NATIVE_NAME.fullmatch(alias.name.rpartition(".")[2]):
                    native[alias.name] = None
                    handles.add(alias.asname or alias.name)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in handles:
            exports[node.attr] = None
    return tuple(native), tuple(exports)
