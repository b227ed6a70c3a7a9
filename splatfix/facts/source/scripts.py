"""The scripts by which people train, render and measure, and the packages of an extension: what they import, use and compile, and
which options they take."""

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from splatfix.core.reading import is_regular_file, is_there
from splatfix.core.source_pattern import NamePattern
from splatfix.core.versions import release
from splatfix.facts.source.folder import packages_in
from splatfix.facts.source.names import NAMES
from splatfix.facts.source.program import Program, files_of_module, read_program
from splatfix.facts.source.python_source import is_splat_module
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.syntax import dotted_name, imported, keyword_value, last_name, text_constant

_MOST_SCRIPTS = 40
_MOST_MODULES = 40
_LONGEST_NAME = 80
# Scripts in a checkout's top folder by which people train, render and measure.
_TELLING_NAME = re.compile(r"(\w*train\w*|render|metrics)\.py")
# ``python -u train.py``, ``torchrun --nproc_per_node 2 train.py``
_STARTED = re.compile(
    r"\b(?:python[\d.]{0,5}|torchrun|accelerate[ ]launch)(?:[ ]{1,4}-{1,2}[\w-]{1,40}(?:[ =]\d{1,9})?){0,6}"
    r"[ ]{1,4}(?:\./)?([\w./-]{1,200}\.py)\b"
)
_MAIN = re.compile(r"^if\s+__name__\s*==", re.MULTILINE)
_MENTIONS_BUILDER = re.compile(r"\b(cpp_extension|charonload)\b")
_CMAKE_MINIMUM = re.compile(
    r"\bcmake_minimum_required\s*\(\s*VERSION\s+(\d{1,4}(?:\.\d{1,4}){0,2})\b", re.IGNORECASE
)
_IMPORTS_LOAD = re.compile(r"cpp_extension[ \t]+import[ \t(]+[^\n]*\bload")
# What its own charonload-config.cmake asks for.
_OF_CHARONLOAD = "3.27"


def read_scripts(root: Path, patterns: Iterable[NamePattern] = ()) -> tuple[Program, FolderReader]:
    """Return what the scripts of a checkout import and use, without splatting extensions, and the reader that read them; see
    :func:`find_scripts`."""
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
        path = Path(entry.path)
        if entry.name.endswith(".py"):
            in_top_folder.append(path)
        elif entry.name.lower().startswith("readme") and is_regular_file(path):
            in_readmes += (root / name for name in _STARTED.findall(reader.text(path)))
    files = (path for path in dict.fromkeys([*in_top_folder, *in_readmes]) if is_regular_file(path))
    there = [path for path in files if path.name != "setup.py"]
    in_top_folder = [path for path in there if path in in_top_folder]
    started = [path for path in dict.fromkeys(in_readmes) if path in there]
    scripts = [script for script in in_top_folder if _TELLING_NAME.fullmatch(script.name)]
    scripts = scripts or [script for script in started if script.parent == root]
    scripts = scripts or [script for script in in_top_folder if _MAIN.search(reader.text(script))]
    beside = [script for script in started if script not in scripts]
    return scripts[:_MOST_SCRIPTS], beside[:_MOST_SCRIPTS]


def read_packages_of(
    folder: Path,
    packages: tuple[str, ...],
    modules: tuple[str, ...],
    patterns: Iterable[NamePattern] = (),
) -> Program:
    """Return what the packages of an extension import and use when they are imported themselves: those that setup.py names, else
    each beside it that could be meant."""
    entries = []
    for parent in (folder, folder / "src"):
        for name in dict.fromkeys(packages or packages_in(parent)):
            entry = parent / name / "__init__.py"
            if name.isidentifier() and name not in NAMES["not-installed"] and is_there(entry):
                entries.append(entry)
    if not entries:
        return Program()
    program = read_program(entries, folder, patterns, FolderReader())
    own = {module.partition(".")[0] for module in modules}
    return Program(tuple(item for item in program.imports if item.name not in own), program.matches)


class FirstUse(Struct, frozen=True):
    """A call of ``torch.utils.cpp_extension.load``, or of ``charonload.Config``, which has CMake compile at the import."""

    place: str
    """``render/ops.py:12 (plugin)``, with the module's name where it can be read."""
    cmake: str = ""
    """The oldest CMake that takes it; "" where torch compiles."""

    @property
    def builder(self) -> str:
        """What compiles there, for a sentence."""
        return f"CMake {self.cmake} or newer" if self.cmake else "torch, with ninja,"


def compiled_at_first_use(folder: Path) -> tuple[FirstUse, ...]:
    """Every call of ``cpp_extension.load`` and the like in a checkout's Python files, in order of name."""
    reader, calls = FolderReader(), []
    for file in reader.files_below(folder, (".py",), depth=6):
        text = reader.text(file)
        tree = reader.python(file, text) if _MENTIONS_BUILDER.search(text) else None
        for node in ast.walk(tree) if tree else ():
            if not isinstance(node, ast.Call):
                continue
            place, called = f"{file.relative_to(folder).as_posix()}:{node.lineno}", dotted_name(node.func)
            if called == "charonload.Config":
                lists = reader.files_below(file.parent, ("CMakeLists.txt",), depth=4)
                asked = [number for path in lists for number in _CMAKE_MINIMUM.findall(reader.text(path))]
                calls.append(FirstUse(place, max([*asked, _OF_CHARONLOAD], key=release)))
            # ``cpp_extension.load(...)``, or ``load(...)`` of a file that imports it from there
            elif re.search(r"\bcpp_extension\.load(_inline)?$", called) or (
                called in ("load", "load_inline") and _IMPORTS_LOAD.search(text)
            ):
                name = text_constant(keyword_value(node, "name") or next(iter(node.args), None))
                calls.append(FirstUse(f"{place} ({name[:_LONGEST_NAME]})" if name else place))
    return tuple(calls)


def read_arguments(root: Path, script: str) -> dict[str, str]:
    """The options of ``root/script`` as they are typed, by name: ``{"iterations": "--iterations"}``.

    Read are ``add_argument`` calls, and the attributes of parameter groups in the way of Inria's trainers: a class made from
    ``ParamGroup`` whose ``__init__`` sets ``self.iterations = 30_000`` adds ``--iterations``, and ``self._resolution`` adds
    ``--resolution`` with a short form. Looked at are the script and the own modules that it imports by name.
    Empty where the script is not there or is no Python.
    """
    reader = FolderReader()
    arguments: dict[str, str] = {}
    files = [root / script]
    for path in files:  # which grows
        tree = reader.python(path, reader.text(path))
        if tree is None:
            continue
        if len(files) == 1:  # the script itself, and every module of the checkout that it names in an import
            names = [item.module.split(".") for node in ast.walk(tree) for item in imported(node)]
            inner = dict.fromkeys(file for name in names for file in files_of_module(root, name))
            files += list(inner)[: _MOST_MODULES - 1]
        for argument in _arguments(tree):
            # of two the first counts: the script's own wins over those of what it imports
            arguments.setdefault(argument.lstrip("-").replace("-", "_"), argument)
    return arguments


def _arguments(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(bases=bases, body=body) if any(
                "ParamGroup" in ast.unparse(base) for base in bases
            ):
                made = [item for item in body if getattr(item, "name", "") == "__init__"]
                statements = [statement for method in made for statement in getattr(method, "body", ())]
                targets = [target for item in statements for target in getattr(item, "targets", ())]
                for target in targets:
                    if isinstance(target, ast.Attribute) and last_name(target.value) == "self":
                        yield f"--{target.attr.lstrip('_')}"
            case ast.Call(func=function, args=arguments) if last_name(function) == "add_argument":
                texts = filter(None, map(text_constant, arguments))
                yield from islice((text for text in texts if text.startswith("--")), 1)
