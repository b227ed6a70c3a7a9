"""Defaults of dataclass fields that newer Pythons refuse, found in a syntax tree."""

from __future__ import annotations

import ast


def unhashable_defaults(tree: ast.Module) -> list[int]:
    """Lines of dataclass fields whose default is an instance of another dataclass of the file that cannot be hashed.

    Python 3.11 refuses them ("mutable default"); before, only lists, dicts and sets were refused. A dataclass cannot be
    hashed unless it is frozen, says ``eq=False`` or ``unsafe_hash=True``, or has a ``__hash__`` of its own.
    """
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    marked = {node: mark for node in classes if (mark := _dataclass_mark(node)) is not None}
    unhashable = {node.name for node, mark in marked.items() if not _hashable(node, mark)}
    return [
        item.lineno
        for node in marked
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        if not any(
            "ClassVar" in (getattr(part, "id", ""), getattr(part, "attr", ""))
            for part in ast.walk(item.annotation)
        )
        if _default_of(item.value) in unhashable
    ]


def _dataclass_mark(node: ast.ClassDef) -> ast.expr | None:
    """The decorator that makes a class a dataclass; None for any other class."""
    for mark in node.decorator_list:
        named = mark.func if isinstance(mark, ast.Call) else mark
        if (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) == "dataclass":
            return mark
    return None


def _hashable(node: ast.ClassDef, mark: ast.expr) -> bool:
    if any(isinstance(item, ast.FunctionDef) and item.name == "__hash__" for item in node.body):
        return True
    said = {
        item.arg: getattr(item.value, "value", None)
        for item in (mark.keywords if isinstance(mark, ast.Call) else ())
    }
    return (
        said.get("frozen", False) is not False
        or said.get("unsafe_hash", False) is not False
        or not said.get("eq", True)
    )


def _default_of(value: ast.expr | None) -> str:
    """``Settings`` of ``Settings()``, and of ``field(default=Settings())``."""
    if isinstance(value, ast.Call) and _callee(value) == "field":
        value = next((item.value for item in value.keywords if item.arg == "default"), None)
    return _callee(value) if isinstance(value, ast.Call) else ""


def _callee(call: ast.Call) -> str:
    """``field`` of ``dataclasses.field(...)``."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))
