"""Options of a trainer's command line, read from its source as syntax trees; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.source.reader import FolderReader, is_regular_file
from splatfix.facts.source.syntax import keyword_value, last_name, text_constant

_MOST_FILES = 40


@dataclass(frozen=True)
class Argument:
    """One option of a command line."""

    name: str
    """As it is typed, the long form: ``--iterations``."""
    kind: str
    """``value``, ``flag`` or ``list``."""
    default: object = None
    """None where it has none, or one that is computed."""
    file: str = ""
    line: int = 0


def read_arguments(root: Path, script: str) -> dict[str, Argument]:
    """The options of ``root/script`` by name without the dashes: ``iterations``.

    Read are ``add_argument`` calls, and the attributes of parameter groups in the way of Inria's trainers: a class made from
    ``ParamGroup`` whose ``__init__`` sets ``self.iterations = 30_000`` adds ``--iterations``, and ``self._resolution`` adds
    ``--resolution`` with a short form; a boolean is a flag. Looked at are the script and the own modules that it imports by name.
    Empty where the script is not there or is no Python.
    """
    reader = FolderReader()
    arguments: dict[str, Argument] = {}
    for path in _files(root, script, reader):
        text = reader.text(path)
        tree = reader.python(path, text)
        if tree is not None:
            for argument in _arguments(tree, path.relative_to(root).as_posix()):
                # of two the first counts: the script's own wins over those of what it imports
                arguments.setdefault(argument.name.lstrip("-").replace("-", "_"), argument)
    return arguments


def _files(root: Path, script: str, reader: FolderReader) -> list[Path]:
    """The script, and every module of the checkout that it names in an import."""
    files = [root / script]
    tree = reader.python(files[0], reader.text(files[0])) if is_regular_file(files[0]) else None
    if tree is None:
        return []
    for node in ast.walk(tree):
        for name in _imported_modules(node):
            stem = root.joinpath(*name.split("."))
            for path in (stem.with_suffix(".py"), stem / "__init__.py"):
                if path not in files and is_regular_file(path):
                    files.append(path)
    return files[:_MOST_FILES]


def _imported_modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module


def _arguments(tree: ast.Module, file: str) -> Iterator[Argument]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("ParamGroup" in ast.unparse(base) for base in node.bases):
            yield from _arguments_of_group(node, file)
        elif isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
            yield from _argument_of_call(node, file)


def _arguments_of_group(group: ast.ClassDef, file: str) -> Iterator[Argument]:
    for method in group.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        for node in method.body:
            if not isinstance(node, ast.Assign):
                continue
            default = _literal(node.value)
            kind = "flag" if isinstance(default, bool) else "value"
            for target in node.targets:
                if isinstance(target, ast.Attribute) and last_name(target.value) == "self":
                    yield Argument(f"--{target.attr.lstrip('_')}", kind, default, file, node.lineno)
        return


def _argument_of_call(call: ast.Call, file: str) -> Iterator[Argument]:
    texts = [text_constant(argument) for argument in call.args]
    long_forms = [text for text in texts if text is not None and text.startswith("--")]
    if not long_forms:
        return
    kind = "value"
    if _literal(keyword_value(call, "action")) in ("store_true", "store_false"):
        kind = "flag"
    elif keyword_value(call, "nargs") is not None:
        kind = "list"
    default = _literal(keyword_value(call, "default"))
    yield Argument(long_forms[0], kind, default, file, call.lineno)


def _literal(node: ast.expr | None) -> object:
    """None where there is none, or only running it would tell."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
