"""Reads a setup.py as a syntax tree: what it declares, which environment variables it looks at, which flags it hands on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SetupScript:
    """One parsed setup.py. Values that only running it would tell are left out, never guessed."""

    tree: ast.Module = field(default_factory=lambda: ast.Module(body=[], type_ignores=[]))
    assigned: Mapping[str, ast.expr] = field(default_factory=dict)
    """Last simple assignment to each name."""
    reads: tuple[str, ...] = ()
    sets: Mapping[str, str] = field(default_factory=dict)
    nvcc_flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    """Every literal text that is not a docstring."""
    imports: tuple[str, ...] = ()
    """Modules that it cannot do without: imported at its top level, outside of any ``try``."""
    error: str = ""

    @staticmethod
    def callee(call: ast.Call) -> str:
        """``CUDAExtension`` of ``cpp_extension.CUDAExtension(...)``."""
        return _last_name(call.func)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of a function of one of these names, in order of the text."""
        found = (
            node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and self.callee(node) in names
        )
        yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def mentions(self, *names: str) -> bool:
        """One of these names appears in the code, as a name, an attribute or a keyword argument."""
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) in names:
                return True
            if isinstance(node, ast.keyword) and node.arg in names:
                return True
        return False

    def value(self, call: ast.Call, keyword: str, position: int | None = None) -> Any:
        """The literal value of an argument, with simple names followed; None when only running would tell."""
        for argument in call.keywords:
            if argument.arg == keyword:
                return self.literal(argument.value)
        if position is not None and len(call.args) > position:
            return self.literal(call.args[position])
        return None

    def text(self, keyword: str) -> str | None:
        """A text argument of ``setup(...)``."""
        for call in self.calls("setup"):
            value = self.value(call, keyword)
            if isinstance(value, str):
                return value
        return None

    def texts(self, keyword: str) -> tuple[str, ...]:
        """A list-of-texts argument of ``setup(...)``, as far as it is literal."""
        for call in self.calls("setup"):
            value = self.value(call, keyword)
            if isinstance(value, list):
                return tuple(item for item in value if isinstance(item, str))
        return ()

    def literal(self, node: ast.expr, depth: int = 0) -> Any:
        """str, or list of these, for constants, their sums, and names bound to them; None inside for the rest."""
        if depth > 20:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self.literal(item, depth + 1) for item in node.elts]
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.literal(self.assigned[node.id], depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.literal(node.left, depth + 1), self.literal(node.right, depth + 1)
            both = isinstance(left, str) and isinstance(right, str)
            if both or (isinstance(left, list) and isinstance(right, list)):
                return left + right
        return None


def read_setup_script(file: Path, text: str | None = None) -> SetupScript:
    """Parse ``file``, or ``text`` in its place; a file that is not Python gives a script with ``error`` set."""
    try:
        tree = ast.parse(file.read_bytes() if text is None else text, filename=str(file))
    except OSError as error:
        return SetupScript(error=f"{file.name} cannot be read: {error.strerror or error}")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return SetupScript(error=f"{file.name} is not Python this version can read: {error}")
    assigned = dict(_assignments(tree))
    return SetupScript(
        tree=tree,
        assigned=assigned,
        reads=_unique(_environment_reads(tree)),
        sets=dict(_environment_writes(tree)),
        nvcc_flags=_unique(_flag_texts(tree)),
        include_dirs=_unique(_keyword_texts(tree, "include_dirs")),
        libraries=_unique(_libraries(tree, assigned)),
        literals=_unique(_literals(tree)),
        imports=_unique(_imports(tree)),
    )


def standard_flags(script: SetupScript) -> tuple[str, ...]:
    """Flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
    lists: list[ast.expr] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "nvcc" in keys:
                lists += node.values
    for call in script.calls("CUDAExtension", "CppExtension"):
        lists += [item.value for item in call.keywords if item.arg == "extra_compile_args"]
    texts = [text for item in lists if isinstance(found := script.literal(item), list) for text in found]
    texts += script.nvcc_flags
    return tuple(dict.fromkeys(text for text in texts if text and re.match(r"[-/]+std[=:]", text)))


def own_path_in_flags(script: SetupScript) -> bool:
    """A flag joins "-I" and the folder of setup.py, as the Inria family does for glm."""

    def speaks_of_itself(node: ast.AST, depth: int = 0) -> bool:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id == "__file__":
                return True
            if isinstance(inner, ast.Call) and SetupScript.callee(inner) in ("getcwd", "cwd"):
                return True
            named = script.assigned.get(inner.id) if isinstance(inner, ast.Name) and depth < 5 else None
            if named is not None and speaks_of_itself(named, depth + 1):
                return True
        return False

    for node in ast.walk(script.tree):
        first = node.left if isinstance(node, ast.BinOp) else None
        if isinstance(node, ast.JoinedStr):
            first = next(iter(node.values), None)
        if isinstance(first, ast.Constant) and str(first.value).startswith("-I") and speaks_of_itself(node):
            return True
    return False


def _imports(tree: ast.Module) -> Iterator[str]:
    """``pkg_resources`` of ``import pkg_resources``; ``pkg_resources.packaging`` of ``from pkg_resources import packaging``."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{item.name}" for item in node.names)


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _environment_reads(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            function = node.func
            by_get = isinstance(function, ast.Attribute) and function.attr in ("get", "pop", "setdefault")
            if (by_get and _is_environ(function.value)) or _last_name(function) == "getenv":  # type: ignore[attr-defined]
                yield from _constant(node.args[0])
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environ(node.value):
            yield from _constant(node.slice)
        elif isinstance(node, ast.Compare) and any(_is_environ(item) for item in node.comparators):
            yield from _constant(node.left)


def _environment_writes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_environ(target.value):
                for name in _constant(target.slice):
                    yield name, next(_constant(node.value), "")


def _flag_texts(tree: ast.Module) -> Iterator[str]:
    """Literal texts that end in the ``"nvcc"`` list of ``extra_compile_args``, also through named lists."""
    roots: list[ast.AST] = [
        value
        for node in ast.walk(tree)
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "nvcc"
    ]
    roots += [value for node in ast.walk(tree) for value in _put_under_nvcc(node)]
    names: set[str] = set()
    while roots:
        root = roots.pop()
        for node in ast.walk(root):
            yield from _constant(node) if not _is_nvcc_key(node) else ()
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                roots.extend(_statements_that_fill(tree, node.id))


def _put_under_nvcc(node: ast.AST) -> Iterator[ast.expr]:
    """What ``flags["nvcc"] += [...]`` and ``flags["nvcc"].append(...)`` put there; not what else ``flags`` holds."""
    if isinstance(node, (ast.AugAssign, ast.Assign)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        if any(isinstance(target, ast.Subscript) and _is_nvcc_key(target.slice) for target in targets):
            yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        holder = node.func.value
        if isinstance(holder, ast.Subscript) and _is_nvcc_key(holder.slice):
            yield from node.args


def _is_nvcc_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "nvcc"


def _statements_that_fill(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    """The right-hand sides and arguments through which a list of that name gets its items."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_last_name(target) == name for target in targets):
                yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            filled = node.func.attr in ("append", "extend", "insert") and _last_name(node.func.value) == name
            if filled:
                yield from node.args
        elif isinstance(node, (ast.For, ast.comprehension)) and _last_name(node.target) == name:
            yield node.iter


def _keyword_texts(tree: ast.Module, keyword: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == keyword:
            for inner in ast.walk(node.value):
                yield from _constant(inner)


def _libraries(tree: ast.Module, assigned: Mapping[str, ast.expr]) -> Iterator[str]:
    """What ``libraries=[...]`` and ``-l`` flags name, also through one named list."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.keyword) and node.arg in ("libraries", "extra_link_args")):
            continue
        value = assigned.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
        for text in (text for inner in ast.walk(value) for text in _constant(inner)):
            if node.arg == "libraries":
                yield text
            elif text.startswith("-l"):
                yield text.removeprefix("-l")


def _literals(tree: ast.Module) -> Iterator[str]:
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if id(node) not in documentation:
            yield from _constant(node)


def _is_environ(node: ast.AST) -> bool:
    return _last_name(node) == "environ"


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _constant(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
