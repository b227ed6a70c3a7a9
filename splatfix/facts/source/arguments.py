"""Options of a trainer's command line, read from its source as syntax trees; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.source.reader import FolderReader

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
    found: dict[str, Argument] = {}
    for path in _files(root, script, reader):
        text = reader.text(path)
        tree = reader.python(path, text) if text else None
        if tree is not None:
            for item in _arguments(tree, path.relative_to(root).as_posix()):
                found.setdefault(item.name.lstrip("-").replace("-", "_"), item)
    return found


def _files(root: Path, script: str, reader: FolderReader) -> list[Path]:
    """The script, and every module of the checkout that it names in an import."""
    first = root / script
    tree = reader.python(first, reader.text(first)) if first.is_file() else None
    if tree is None:
        return []
    files = [first]
    for node in ast.walk(tree):
        names: Sequence[str] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            place = root.joinpath(*name.split("."))
            for path in (place.with_suffix(".py"), place / "__init__.py") if name else ():
                if path.is_file() and path not in files:
                    files.append(path)
    return files[:_MOST_FILES]


def _arguments(tree: ast.Module, file: str) -> Iterator[Argument]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any("ParamGroup" in ast.unparse(base) for base in node.bases):
            yield from _of_group(node, file)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            yield from _of_call(node, file)


def _of_group(group: ast.ClassDef, file: str) -> Iterator[Argument]:
    begin = next(
        (item for item in group.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None
    )
    for node in begin.body if begin else ():
        targets = node.targets if isinstance(node, ast.Assign) else ()
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                assert isinstance(node, ast.Assign)
                default = _literal(node.value)
                kind = "flag" if isinstance(default, bool) else "value"
                yield Argument(f"--{target.attr.lstrip('_')}", kind, default, file, node.lineno)


def _of_call(call: ast.Call, file: str) -> Iterator[Argument]:
    names = [item.value for item in call.args if isinstance(item, ast.Constant)]
    words = [name for name in names if isinstance(name, str) and name.startswith("--")]
    if not words:
        return
    given = {item.arg: item.value for item in call.keywords if item.arg}
    action = _literal(given["action"]) if "action" in given else None
    kind = "flag" if action in ("store_true", "store_false") else "list" if "nargs" in given else "value"
    default = _literal(given["default"]) if "default" in given else None
    yield Argument(words[0], kind, default, file, call.lineno)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
