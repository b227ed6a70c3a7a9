"""The scripts by which people train, render and measure, and the packages of an extension: what they import, use and compile."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.source_pattern import NamePattern
from splatfix.facts.model.source import NativeModule
from splatfix.facts.source.folder import packages_in
from splatfix.facts.source.program import Program, read_program
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader, is_regular_file, is_there
from splatfix.facts.source.syntax import keyword_value, last_name, text_constant

_MOST_SCRIPTS = 40
# Scripts in a checkout's top folder by which people train, render and measure.
_TELLING_NAME = re.compile(r"(\w*train\w*|render|metrics)\.py")
# ``python -u train.py``, ``torchrun --nproc_per_node 2 train.py``
_STARTED = re.compile(
    r"\b(?:python[\d.]{0,5}|torchrun|accelerate[ ]launch)(?:[ ]{1,4}-{1,2}[\w-]{1,40}(?:[ =]\d{1,9})?){0,6}"
    r"[ ]{1,4}(?:\./)?([\w./-]{1,200}\.py)\b"
)
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_MENTIONS_BUILDER = re.compile(r"\bcpp_extension\b")
_IMPORTS_LOAD = re.compile(r"cpp_extension[ \t]+import[ \t(]+[^\n]*\bload")
# Packages beside a setup.py that does not say which it installs; find_packages() mostly leaves these out.
_NOT_INSTALLED = frozenset(
    {"tests", "test", "docs", "examples", "scripts", "benchmarks", "tools", "third_party"}
)


def read_scripts(root: Path, patterns: Iterable[NamePattern] = ()) -> tuple[Program, FolderReader]:
    """What the scripts of a checkout import and use, and the reader that read them; see :func:`find_scripts`.

    Splatting extensions are left out.
    """
    reader = FolderReader()
    scripts, beside = find_scripts(root, reader)
    program = read_program(scripts, root, patterns, reader, beside)
    others = tuple(item for item in program.imports if not is_splat_module(item.name))
    return Program(others, program.matches), reader


def find_scripts(root: Path, reader: FolderReader) -> tuple[list[Path], list[Path]]:
    """The scripts by which a checkout trains, renders and measures, and others that its READMEs tell people to start.

    Where none in its top folder has a name that tells so, they are those that the READMEs start there; failing that, those
    with ``if __name__ == "__main__"``.
    """
    in_top_folder: list[Path] = []
    in_readmes: list[Path] = []
    for entry in reader.children(root):
        if not entry.is_file():
            continue
        if entry.name.endswith(".py") and entry.name != "setup.py":
            in_top_folder.append(Path(entry.path))
        elif entry.name.lower().startswith("readme"):
            in_readmes += [root / name for name in _STARTED.findall(reader.text(Path(entry.path)))]
    started = [
        script
        for script in dict.fromkeys(in_readmes)
        if script.name != "setup.py" and is_regular_file(script)
    ]
    scripts = [script for script in in_top_folder if _TELLING_NAME.fullmatch(script.name)]
    if not scripts:
        scripts = [script for script in started if script.parent == root]
    if not scripts:
        scripts = [script for script in in_top_folder if _MAIN.search(reader.text(script))]
    beside = [script for script in started if script not in scripts]
    return scripts[:_MOST_SCRIPTS], beside[:_MOST_SCRIPTS]


def read_packages_of(
    folder: Path,
    packages: tuple[str, ...],
    modules: tuple[NativeModule, ...],
    patterns: Iterable[NamePattern] = (),
) -> Program:
    """What the packages of an extension import and use when they are imported themselves.

    Args:
        packages: those that setup.py names; () for each beside it that could be meant.
    """
    entries = []
    for parent in (folder, folder / "src"):
        for name in dict.fromkeys(packages or packages_in(parent)):
            entry = parent / name / "__init__.py"
            if name.isidentifier() and name not in _NOT_INSTALLED and is_there(entry):
                entries.append(entry)
    if not entries:
        return Program()
    program = read_program(entries, folder, patterns, FolderReader())
    own = {module.name.partition(".")[0] for module in modules}
    return Program(tuple(item for item in program.imports if item.name not in own), program.matches)


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
        if not _MENTIONS_BUILDER.search(text):
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
