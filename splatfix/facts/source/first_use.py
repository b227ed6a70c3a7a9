"""Where a checkout's Python code has torch compile an extension when it first runs, in the place of a setup.py."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import keyword_value, last_name, text_constant

_MENTIONS = re.compile(r"\bcpp_extension\b")
_IMPORTS_LOAD = re.compile(r"cpp_extension[ \t]+import[ \t(]+[^\n]*\bload")


@dataclass(frozen=True)
class FirstUse:
    """A call of ``torch.utils.cpp_extension.load``."""

    file: str
    """Relative to the checkout."""
    line: int
    name: str = ""
    """Of the module; "" where only running it would tell."""


def compiled_at_first_use(folder: Path) -> tuple[FirstUse, ...]:
    """Every call of ``cpp_extension.load`` and ``load_inline`` in a checkout's Python files, in order of name."""
    reader, calls = FolderReader(), []
    for file in reader.files_below(folder, (".py",), depth=6):
        text = reader.text(file)
        if not _MENTIONS.search(text):
            continue
        tree = reader.python(file, text)
        if tree is None:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_load_of_torch(node, text):
                name = text_constant(keyword_value(node, "name") or next(iter(node.args), None))
                calls.append(FirstUse(file.relative_to(folder).as_posix(), node.lineno, name or ""))
    return tuple(calls)


def _is_load_of_torch(call: ast.Call, text: str) -> bool:
    """``cpp_extension.load(...)``, or ``load(...)`` of a file that imports it from there."""
    if last_name(call.func) not in ("load", "load_inline"):
        return False
    if isinstance(call.func, ast.Attribute):
        return last_name(call.func.value) == "cpp_extension"
    return _IMPORTS_LOAD.search(text) is not None
