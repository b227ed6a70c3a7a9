"""Small questions to Python's syntax trees, for every reader of source text here; nothing is executed."""

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``; "" for what is no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return ""


def dotted_name(node: ast.AST) -> str:
    """``torch.version.cuda``; "" for what is not made of names alone."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(attributes)])


def is_main(test: ast.expr) -> bool:
    """Tell whether it is the condition of ``if __name__ == "__main__":``."""
    return isinstance(test, ast.Compare) and dotted_name(test.left) == "__name__"


def text_constant(node: ast.AST | None) -> str | None:
    """The text of a string literal; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def texts_below(root: ast.AST, visited: set[int]) -> Iterator[str]:
    """Every string literal of an expression or statement; see :func:`walk_once`."""
    for node in walk_once(root, visited):
        text = text_constant(node)
        if text is not None:
            yield text


def walk_once(root: ast.AST, visited: set[int]) -> Iterator[ast.AST]:
    """As :func:`ast.walk` without the nodes in ``visited``, which grows: flags that name each other would be walked again and
    again, and a forged file needs a few hundred lines to make that take hours."""
    pending = [root]
    for node in pending:
        if id(node) not in visited:
            visited.add(id(node))
            yield node
            pending += ast.iter_child_nodes(node)


def own_expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Every node of a statement's own expressions, without those of the statements in it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from ast.walk(child)


def simple_assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of ``name = value`` and ``name: type = value``, in the order of ``nodes``."""
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


class Imported(NamedTuple):
    """One name that an absolute import binds."""

    module: str
    name: str
    """What is taken from the module; "" where the module itself is imported."""
    local: str
    line: int

    @property
    def deepest(self) -> str:
        """The module, or what is taken from it, with its whole name."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def stands_for(self) -> str:
        """What the local name is: of a plain ``import a.b`` it is ``a``."""
        return self.local if self.deepest.startswith(f"{self.local}.") and not self.name else self.deepest


def imported(node: ast.AST) -> Iterator[Imported]:
    """What an import statement binds by absolute names; nothing for any other node."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Imported(alias.name, "", alias.asname or alias.name.partition(".")[0], node.lineno)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield Imported(node.module, alias.name, alias.asname or alias.name, node.lineno)


def keyword_value(call: ast.Call, keyword: str) -> ast.expr | None:
    """The value of ``keyword=`` in a call; None where it is not given."""
    for argument in call.keywords:
        if argument.arg == keyword:
            return argument.value
    return None
