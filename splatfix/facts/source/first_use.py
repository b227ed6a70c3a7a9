"""Where a checkout's Python code has torch compile an extension when it first runs, in the place of a setup.py."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import last_name, text_constant

_MENTIONS = re.compile(r"\bcpp_extension\b")


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
    reader, found = FolderReader(), list[FirstUse]()
    for file in reader.files_below(folder, (".py",), depth=6):
        text = reader.text(file)
        tree = reader.python(file, text) if _MENTIONS.search(text) else None
        for node in ast.walk(tree) if tree else ():
            if (
                isinstance(node, ast.Call)
                and last_name(node.func) in ("load", "load_inline")
                and _is_torchs(node, text)
            ):
                named = [item.value for item in node.keywords if item.arg == "name"] or node.args[:1]
                name = text_constant(named[0]) if named else None
                found.append(FirstUse(file.relative_to(folder).as_posix(), node.lineno, name or ""))
    return tuple(found)


def _is_torchs(call: ast.Call, text: str) -> bool:
    """``cpp_extension.load(...)``, or ``load(...)`` of a file that imports it from there."""
    owner = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return owner == "cpp_extension" or (
        not owner and re.search(r"cpp_extension[ \t]+import[ \t(]+[^\n]*\bload", text) is not None
    )
