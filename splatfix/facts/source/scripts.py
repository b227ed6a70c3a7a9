"""The scripts by which people train, render and measure, and the packages of an extension: what they import and use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from splatfix.core.source_pattern import NamePattern
from splatfix.facts.model.source import NativeModule
from splatfix.facts.source.folder import packages_in
from splatfix.facts.source.program import Program, read_program
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader, is_regular_file, is_there

_MOST_SCRIPTS = 40
# Scripts in a checkout's top folder by which people train, render and measure.
_TELLING_NAME = re.compile(r"(\w*train\w*|render|metrics)\.py")
# ``python -u train.py``, ``torchrun --nproc_per_node 2 train.py``
_STARTED = re.compile(
    r"\b(?:python[\d.]{0,5}|torchrun|accelerate[ ]launch)(?:[ ]{1,4}-{1,2}[\w-]{1,40}(?:[ =]\d{1,9})?){0,6}"
    r"[ ]{1,4}(?:\./)?([\w./-]{1,200}\.py)\b"
)
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
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
