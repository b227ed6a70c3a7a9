"""What Python source of splatting packages and trainers says, read as syntax trees and never executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from splatfix.facts.model.source import GuardedImport, PackageSource
from splatfix.facts.source.reader import parse_python
from splatfix.facts.source.syntax import last_name

_SPLAT_MODULE = re.compile(
    r"(diff_\w*rasteriz\w+|diff_gauss\w*|\w*rasterization\w*|simple_knn|fused_ssim|gsplat)(_cuda)?(\..+)?"
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
    settings, settings_defaults = _settings(classes)
    forward, forward_required = _forward(classes)
    native, exports = _native_use(module, nodes)
    return PackageSource(
        module=module,
        native=native,
        settings=settings,
        settings_defaults=settings_defaults,
        classes=(*(node.name for node in classes), *_classes_from_own_files(nodes)),
        forward=forward,
        forward_required=forward_required,
        returns=_returns(classes),
        exports=exports,
    )


def imported_names(nodes: Sequence[ast.AST]) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name there) of every absolute ``from module import name`` in the tree."""
    names = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = (node.module, alias.name)
    return names


def imported_modules(nodes: Sequence[ast.AST], without_lines: Collection[int] = ()) -> tuple[str, ...]:
    """Every module that the tree imports by its absolute name, in order of the text; not by the lines named."""
    modules: dict[str, None] = {}
    for node in nodes:
        if getattr(node, "lineno", 0) in without_lines:
            continue
        if isinstance(node, ast.Import):
            modules.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules[node.module] = None
    return tuple(modules)


def guarded_imports(file: str, nodes: Sequence[ast.AST]) -> Iterator[GuardedImport]:
    """Imports of splatting extensions whose failure is caught and not raised again.

    Args:
        nodes: the file's syntax tree, as :func:`ast.walk` gives it.
    """
    raising: set[int] | None = None  # few files have such a try, and the walk takes longest
    for node in nodes:
        imports = list(_splat_imports(node.body)) if isinstance(node, ast.Try) else []
        if not isinstance(node, ast.Try) or not imports:
            continue
        if raising is None:
            raising = _nodes_that_raise(nodes)
        handlers = [handler for handler in node.handlers if id(handler) not in raising]
        if handlers:
            catches = _caught(handlers)
            for line, module, names in imports:
                yield GuardedImport(file, line, module, names, catches)


def _splat_imports(body: Sequence[ast.stmt]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """(line, module, names) of every splatting extension that the statements import."""
    for statement in body:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            if is_splat_module(statement.module):
                names = tuple(alias.name for alias in statement.names)
                yield statement.lineno, statement.module, names
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                if is_splat_module(alias.name):
                    yield statement.lineno, alias.name, ()


def _nodes_that_raise(nodes: Sequence[ast.AST]) -> set[int]:
    """Ids of the nodes with a ``raise`` in them. In the order of :func:`ast.walk` the innermost come last."""
    raising: set[int] = set()
    for node in reversed(nodes):
        if isinstance(node, ast.Raise) or any(id(child) in raising for child in ast.iter_child_nodes(node)):
            raising.add(id(node))
    return raising


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


def _forward(classes: list[ast.ClassDef]) -> tuple[tuple[str, ...] | None, int]:
    """(parameters, how many must be given) of the rasterizer's forward, without self; (None, 0) where there is none."""
    for node in classes:
        method = _method(node, "forward") if node.name.endswith("Rasterizer") else None
        if method is not None:
            parameters = tuple(argument.arg for argument in method.args.args[1:])
            return parameters, len(parameters) - len(method.args.defaults)
    return None, 0


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return item
    return None


def _returns(classes: list[ast.ClassDef]) -> int | None:
    """How many values the forward of the autograd function ``_Rasterize...`` returns."""
    for node in classes:
        method = _method(node, "forward") if node.name.startswith("_Rasterize") else None
        if method is None:
            continue
        counts = set()
        for statement in ast.walk(method):
            if isinstance(statement, ast.Return):
                value = statement.value
                counts.add(len(value.elts) if isinstance(value, ast.Tuple) else 1)
        return counts.pop() if len(counts) == 1 else None
    return None


def _classes_from_own_files(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Classes that ``__init__.py`` takes from other files of its package."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                name = alias.asname or alias.name
                if re.match(r"[A-Z][a-z]", name):
                    yield name


def _native_use(module: str, nodes: Sequence[ast.AST]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compiled modules that the source imports, and the functions it takes from them."""
    native: dict[str, None] = {}
    exports: dict[str, None] = {}
    local_names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            if _is_native(origin):
                native[origin] = None
                exports.update(dict.fromkeys(alias.name for alias in node.names))
                continue
            for alias in node.names:
                if origin == module and _NATIVE_NAME.fullmatch(alias.name):
                    native[f"{origin}.{alias.name}"] = None
                    local_names.add(alias.asname or alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_native(alias.name):
                    native[alias.name] = None
                    local_names.add(alias.asname or alias.name)
    for node in nodes:
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and isinstance(owner, ast.Name) and owner.id in local_names:
            exports[node.attr] = None
    return tuple(native), tuple(exports)


def _origin(module: str, node: ast.ImportFrom) -> str:
    """The absolute module of a ``from`` import in the package ``module``."""
    if not node.level:
        return node.module or ""
    return f"{module}.{node.module}" if node.module else module


def _is_native(module: str) -> bool:
    return _NATIVE_NAME.fullmatch(module.rpartition(".")[2]) is not None
