"""Reads a setup.py as a syntax tree: what it declares, which environment variables it looks at, which flags it hands on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatfix.facts.model.source import ArchVariable, CudaSwitches
from splatfix.facts.source.build_variables import (
    Flow,
    arch_variables,
    constants,
    cuda_switches,
    environment_reads,
    environment_writes,
    last_name,
)
from splatfix.facts.source.reader import FolderReader, NotPython

_MOST_ITEMS = 10_000
_MOST_LETTERS = 1 << 20
_MOST_IMPORTED = 10
_MOST_PIECES = 10


Nodes = Sequence[ast.AST]


@dataclass
class _Left:
    """How much more one value may unfold to."""

    items: int = _MOST_ITEMS
    letters: int = _MOST_LETTERS


@dataclass(frozen=True)
class SetupScript:
    """One parsed setup.py. Values that only running it would tell are left out, never guessed."""

    nodes: tuple[ast.AST, ...] = ()
    """The whole syntax tree, from the outside inwards."""
    assigned: Mapping[str, ast.expr] = field(default_factory=dict)
    """Last simple assignment to each name."""
    reads: tuple[str, ...] = ()
    sets: Mapping[str, str | None] = field(default_factory=dict)
    arch_variables: tuple[ArchVariable, ...] = ()
    switches: CudaSwitches = field(default_factory=CudaSwitches)
    nvcc_flags: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    """Every literal text that is not a docstring."""
    for_old_versions: tuple[str, ...] = ()
    """Those of them that count only where some version is below a number."""
    imports: tuple[str, ...] = ()
    """Modules that it cannot do without: imported at its top level, outside of any ``try``."""
    imports_in_all: tuple[str, ...] = ()
    """The top-level names of these and of what its functions import, outside of any ``try``."""
    error: str = ""
    source: str = ""
    """The text of a script with an error."""
    exceeded: list[str] = field(default_factory=list)
    """What was too much to be worked out."""

    @staticmethod
    def callee(call: ast.Call) -> str:
        """``CUDAExtension`` of ``cpp_extension.CUDAExtension(...)``."""
        return last_name(call.func)

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Every call of a function of one of these names, in order of the text."""
        found = (node for node in self.nodes if isinstance(node, ast.Call) and self.callee(node) in names)
        yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def mentions(self, *names: str) -> bool:
        """One of these names appears in the code, as a name, an attribute or a keyword argument."""
        for node in self.nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) in names:
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

    def joined(self, call: ast.Call, depth: int = 3) -> str:
        """The path that ``os.path.join(...)`` comes to; a part that is not known is taken for the folder of setup.py."""
        parts = []
        for item in call.args[:_MOST_PIECES]:
            value = self.assigned.get(item.id) if isinstance(item, ast.Name) else item
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                parts.append(value.value.strip("/"))
            elif isinstance(value, ast.Call) and self.callee(value) == "join" and depth:
                parts.append(self.joined(value, depth - 1))
        return "/".join(filter(None, parts))

    def literal(self, node: ast.expr) -> Any:
        """str, or list of these, for constants, their sums, and names bound to them; None inside for the rest.

        A few lines can name each other so that they unfold without end: what goes beyond ten thousand items or a million
        letters is None too, and told in ``exceeded``.
        """
        left = _Left()
        value = self._literal(node, 0, left)
        if left.items < 0 or left.letters < 0:
            self.exceeded.append(
                f"its values unfold to more than {_MOST_ITEMS} items or {_MOST_LETTERS} letters"
            )
        return value

    def _literal(self, node: ast.expr, depth: int, left: _Left) -> Any:
        left.items -= 1
        if depth > 20 or left.items < 0:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._literal(item, depth + 1, left) for item in node.elts if left.items >= 0]
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self._literal(self.assigned[node.id], depth + 1, left)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            one = self._literal(node.left, depth + 1, left)
            other = self._literal(node.right, depth + 1, left)
            if isinstance(one, str) and isinstance(other, str):
                left.letters -= len(one) + len(other)
                return one + other if left.letters >= 0 else None
            if isinstance(one, list) and isinstance(other, list):
                return one + other
        return None


def read_setup_script(file: Path, reader: FolderReader) -> SetupScript:
    """Parse a setup.py; what is there and cannot be read, or is not Python, gives a script with ``error`` set."""
    text = reader.text_or_why(file)
    if isinstance(text, str):
        return parse_setup_script(text, reader, file.parent)
    return SetupScript(error=f"{file.name} cannot be read: {text.reason}") if text else SetupScript()


def parse_setup_script(text: str, reader: FolderReader, folder: Path | None = None) -> SetupScript:
    """The script of a setup.py with this text, and of the files in ``folder`` that it imports; one that is not Python has
    ``error`` set."""
    try:
        tree = reader.parse(text)
    except NotPython as error:
        return SetupScript(error=f"setup.py is not Python this version can read: {error}", source=text)
    trees = [tree, *(_imported_files(tree, folder, reader) if folder else ())]
    flow = Flow(trees)
    nodes = flow.nodes
    assigned = {name: value for one in reversed(trees) for name, value in _assignments(tuple(ast.walk(one)))}
    reads = environment_reads(nodes)
    return SetupScript(
        nodes=nodes,
        assigned=assigned,
        reads=_unique(read.name for read in reads),
        sets=environment_writes(flow),
        arch_variables=arch_variables(reads, flow),
        switches=cuda_switches(reads, flow),
        nvcc_flags=_unique(_flag_texts(nodes)),
        include_dirs=_unique(_keyword_texts(nodes, "include_dirs")),
        libraries=_unique(_libraries(nodes, assigned)),
        literals=_unique(_literals(nodes)),
        for_old_versions=_unique(_behind_a_version(nodes)),
        imports=_unique(_imports(tree)),
        imports_in_all=_unique(_imports_in_all(tree)),
    )


def _imported_files(tree: ast.Module, folder: Path, reader: FolderReader) -> list[ast.Module]:
    """The files in the folder of setup.py that it imports, and those that these import; at most ten."""
    found: dict[Path, ast.Module] = {}
    pending = [tree]
    while pending:
        names = dict.fromkeys(name for node in ast.walk(pending.pop(0)) for name in _imported(node))
        for name in names:
            stem = folder.joinpath(*name.split("."))
            for file in (stem.with_suffix(".py"), stem / "__init__.py"):
                if file in found or len(found) == _MOST_IMPORTED or not (text := reader.text(file)):
                    continue
                if (module := reader.python(file, text)) is not None:
                    found[file] = module
                    pending.append(module)
    return list(found.values())


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{item.name}" for item in node.names)


def standard_flags(script: SetupScript) -> tuple[str, ...]:
    """Flags that force a C++ standard on a CUDA build: not those of another backend's flags in the same file."""
    lists: list[ast.expr] = []
    for node in script.nodes:
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "nvcc" in keys:
                lists += node.values
    for call in script.calls("CUDAExtension", "CppExtension"):
        lists += [item.value for item in call.keywords if item.arg == "extra_compile_args"]
    texts = [text for item in lists if isinstance(found := script.literal(item), list) for text in found]
    texts += script.nvcc_flags
    return tuple(
        dict.fromkeys(text for text in texts if isinstance(text, str) and re.match(r"[-/]+std[=:]", text))
    )


def own_path_in_flags(script: SetupScript) -> bool:
    """A flag joins "-I" and the folder of setup.py, as the Inria family does for glm."""

    silent: set[int] = set()

    def speaks_of_itself(node: ast.AST, depth: int = 0) -> bool:
        for inner in _walk(node, silent):
            if isinstance(inner, ast.Name) and inner.id == "__file__":
                return True
            if isinstance(inner, ast.Call) and SetupScript.callee(inner) in ("getcwd", "cwd"):
                return True
            named = script.assigned.get(inner.id) if isinstance(inner, ast.Name) and depth < 5 else None
            if named is not None and speaks_of_itself(named, depth + 1):
                return True
        return False

    for node in script.nodes:
        first = node.left if isinstance(node, ast.BinOp) else None
        if isinstance(node, ast.JoinedStr):
            first = next(iter(node.values), None)
        if isinstance(first, ast.Constant) and str(first.value).startswith("-I") and speaks_of_itself(node):
            return True
    return False


def _imports(tree: ast.Module) -> Iterator[str]:
    """``pkg_resources`` of ``import pkg_resources``; ``pkg_resources.packaging`` of ``from pkg_resources import packaging``."""
    for node in tree.body:
        yield from _imported(node)


def _imports_in_all(tree: ast.Module) -> Iterator[str]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        yield from (name.partition(".")[0] for name in _imported(node))
        if not isinstance(node, (ast.Try, ast.If)):
            pending += ast.iter_child_nodes(node)


def _assignments(nodes: Nodes) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _flag_texts(nodes: Nodes) -> Iterator[str]:
    """Literal texts that end in the ``"nvcc"`` list of ``extra_compile_args``, also through named lists."""
    roots: list[ast.AST] = [
        value
        for node in nodes
        if isinstance(node, ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "nvcc"
    ]
    roots += [value for node in nodes for value in _put_under_nvcc(node)]
    filled: dict[str, list[ast.AST]] = {}
    for node in nodes if roots else ():
        for name, value in _fillings(node):
            filled.setdefault(name, []).append(value)
    seen: set[int] = set()
    while roots:
        for node in _walk(roots.pop(), seen):
            yield from constants(node) if not _is_nvcc_key(node) else ()
            if isinstance(node, ast.Name):
                roots.extend(filled.pop(node.id, ()))


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


def _fillings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The right-hand sides and arguments through which lists get their items, each with the list's name."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from ((last_name(target), node.value) for target in targets)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("append", "extend", "insert"):
            yield from ((last_name(node.func.value), argument) for argument in node.args)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield last_name(node.target), node.iter


def _keyword_texts(nodes: Nodes, keyword: str) -> Iterator[str]:
    seen: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.keyword) and node.arg == keyword:
            for inner in _walk(node.value, seen):
                yield from constants(inner)


def _libraries(nodes: Nodes, assigned: Mapping[str, ast.expr]) -> Iterator[str]:
    """What ``libraries=[...]`` and ``-l`` flags name, also through one named list."""
    for keyword in ("libraries", "extra_link_args"):
        seen: set[int] = set()
        for node in nodes:
            if not (isinstance(node, ast.keyword) and node.arg == keyword):
                continue
            value = (
                assigned.get(node.value.id, node.value) if isinstance(node.value, ast.Name) else node.value
            )
            for text in (text for inner in _walk(value, seen) for text in constants(inner)):
                if keyword == "libraries":
                    yield text
                elif text.startswith("-l"):
                    yield text.removeprefix("-l")


def _literals(nodes: Nodes) -> Iterator[str]:
    documentation = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes:
        if id(node) not in documentation:
            yield from constants(node)


def _behind_a_version(nodes: Nodes) -> Iterator[str]:
    """Literal texts behind ``if int(major) < 11:``."""
    seen: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.If) and _asks_for_an_old_version(node.test):
            for statement in node.body:
                for inner in _walk(statement, seen):
                    yield from constants(inner)


def _asks_for_an_old_version(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return False
    return re.search(r"\b\d+(\.\d+)*\b", ast.unparse(test.comparators[0])) is not None


def _walk(root: ast.AST, seen: set[int]) -> Iterator[ast.AST]:
    """As :func:`ast.walk` without what was met before: nested calls and flags that name each other are walked once."""
    pending = [root]
    for node in pending:
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += ast.iter_child_nodes(node)


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
