"""What an extension's source folder says about its own build, and code in it that is known to break; nothing is executed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatfix.core.redact import redacted
from splatfix.core.source_pattern import NamePattern, SourcePattern, without_comments
from splatfix.core.table import Table
from splatfix.facts.model.source import ArchVariable, CodeMatch, NativeModule, Source
from splatfix.facts.source.build_variables import is_arch_variable
from splatfix.facts.source.folder import git_folder, read_submodules, sections
from splatfix.facts.source.missing_folders import is_its_own, missing_folders
from splatfix.facts.source.program import read_packages_of
from splatfix.facts.source.reader import FolderReader, is_there
from splatfix.facts.source.setup_py import SetupScript, parse_setup_script, read_setup_script
from splatfix.facts.source.syntax import last_name

# A checkout three levels deep has some hundred folders; a home folder or a disk has many thousands.
MOST_FOLDERS = 3000
_DEEPEST = 6
_NEAR = 3
_NOT_BUILT = {"test", "tests", "docs"}
_INCLUDE = re.compile(r'#\s*include\s*"([^"\n]+)"')
_MOST_TOML = 512 << 10
_BUILDERS = {"setuptools", "torch", "pkg_resources", "distutils", *sys.stdlib_module_names}
_CMAKE_VALUE = re.compile(r"\bset\s*\(\s*(\w+)\s+\"?([\w.]+)\"?\s*\)", re.IGNORECASE)
_CMAKE_MODULE = re.compile(
    r"\b(?:pybind11_add_module|nanobind_add_module|Python3?_add_library)\s*\(\s*(?:\$\{(\w+)\}|(\w+))",
    re.IGNORECASE,
)
_OF_SETUPTOOLS = ("pkg_resources", "distutils")
_OUTPUT = {"build", "dist", "__pycache__", "node_modules", "venv", "env", "output", "data"}


def read_source(folder: Path, setup_text: str | None = None, reader: FolderReader | None = None) -> Source:
    """Read one extension's source folder; ``folder`` must exist. Nothing in it is executed.

    Args:
        setup_text: read this in the place of setup.py's content, to see what an edit would come to.
        reader: keeps what was left out; None for a new one.
    """
    reader = reader or FolderReader()
    files = tuple(
        name for name in ("setup.py", "pyproject.toml", "CMakeLists.txt") if (folder / name).is_file()
    )
    document = _pyproject(folder / "pyproject.toml", reader)
    if setup_text is None:
        script = read_setup_script(folder / "setup.py", reader)
    else:
        script = parse_setup_script(setup_text, reader, folder)
    project, system = document.table("project"), document.table("build-system")
    name, version = project.text("name"), project.text("version")
    dependencies, python = project.texts("dependencies"), project.text("requires-python")
    build_requires = system.texts("requires")
    modules = tuple(_modules(folder, script)) or tuple(_modules_of_cmake(folder, files, reader))
    submodules = tuple(item for item in read_submodules(folder, reader) if item.empty)
    packages, wanted = script.texts("packages"), script.texts("install_requires")
    of_cmake = dict.fromkeys(re.findall(r"\$ENV\{(\w+)\}", reader.text(folder / "CMakeLists.txt")))
    for reason in script.evaluator.exceeded:
        reader.leave_out(folder / "setup.py", reason)
    source = Source(
        folder=str(folder),
        build_files=files,
        name=script.text("name") or name,
        version=script.text("version") or version,
        packages=packages,
        modules=modules,
        needs_cuda=_needs_cuda(folder, script, modules, reader),
        uses_torch_builder=script.mentions("CUDAExtension", "CppExtension", "BuildExtension"),
        build_requires=build_requires,
        requires=(*wanted, *dependencies),
        python=python or script.text("python_requires") or _in_setup_cfg(folder, "python_requires", reader),
        reads=tuple(dict.fromkeys((*script.reads, *of_cmake))),
        sets=script.sets,
        arch_variables=(*script.arch_variables, *map(ArchVariable, filter(is_arch_variable, of_cmake))),
        switches=script.switches,
        version_from_git=script.mentions("use_scm_version", "setuptools_scm")
        or any(re.match(r"(?:setuptools[-_.]scm|hatch-vcs)\b", text) for text in build_requires),
        nvcc_flags=script.nvcc_flags,
        libraries=script.libraries,
        imports=tuple(name for name in script.imports if name.partition(".")[0] in _OF_SETUPTOOLS),
        build_imports=tuple(name for name in script.imports_in_all if _is_foreign(folder, name)),
        needs=read_packages_of(folder, packages, modules).imports,
        missing_folders=tuple(missing_folders(folder, script, submodules, reader)),
        submodules=submodules,
        clone=git_folder(folder, reader) is not None,
        error="; ".join(filter(None, (script.error, *document.wrong[:3]))),
    )
    return redacted(source)


def _is_foreign(folder: Path, module: str) -> bool:
    return module not in _BUILDERS and not any(is_there(folder / name) for name in (module, f"{module}.py"))


@dataclass(frozen=True)
class FolderWalk:
    """What a look through a folder for extensions came to."""

    found: tuple[Path, ...]
    """In order of name."""
    unreadable: tuple[Path, ...] = ()
    complete: bool = True
    """False when there were too many folders, and the rest was not looked at."""


def extension_folders(folder: Path, reader: FolderReader | None = None) -> tuple[Path, ...]:
    """Folders at or below ``folder`` whose setup.py declares native modules, in order of name.

    Not those in build output, and not below an extension it found. More than three levels down, where stacks have their
    ``modeling/pixel_decoder/ops`` and libraries their examples, only those built with torch count.
    """
    return walk_extensions(folder, reader=reader).found


def walk_extensions(
    folder: Path,
    depth: int = _DEEPEST,
    most: int = MOST_FOLDERS,
    reader: FolderReader | None = None,
    *,
    below: bool = False,
) -> FolderWalk:
    """The same, with what could not be read; the nearest folders first, and no more than ``most`` of them.

    Args:
        below: the folder itself does not count, so that those inside an extension are found.
    """
    reader = reader or FolderReader()
    pending, found, unreadable = [(folder, depth)], list[Path](), list[Path]()
    seen = 0
    while pending:
        here, left = pending.pop(0)
        near = depth - left <= _NEAR
        if seen == most:
            if near:
                reader.leave_out(folder, f"it holds more than {most} folders; the others are not looked into")
            return FolderWalk(tuple(sorted(found)), tuple(unreadable), complete=not near)
        seen += 1
        if not (below and here == folder) and _declares_modules(here, reader, any_kind=near):
            found.append(here)
        elif left:
            inside = reader.children(here)
            if reader.was_left_out(here):
                unreadable.append(here)
            pending += [
                (here / item.name, left - 1)
                for item in inside
                if item.name not in _OUTPUT
                and (depth - left < _NEAR or item.name not in _NOT_BUILT)
                and item.is_dir(follow_symlinks=False)
            ]
    return FolderWalk(tuple(sorted(found)), tuple(unreadable))


def _declares_modules(folder: Path, reader: FolderReader, *, any_kind: bool) -> bool:
    script = read_setup_script(folder / "setup.py", reader)
    names = ("CUDAExtension", "CppExtension", *(("Extension", "ext_modules") if any_kind else ()))
    if script.error:
        return any(name in script.source for name in names)
    return script.mentions(*names)


def _modules(folder: Path, script: SetupScript) -> Iterator[NativeModule]:
    for call in script.calls("CUDAExtension", "CppExtension", "Extension"):
        name = script.value(call, "name", position=0)
        declared = script.value(call, "sources", position=1)
        sources = (
            tuple(item for item in declared if isinstance(item, str)) if isinstance(declared, list) else ()
        )
        yield NativeModule(
            name=name if isinstance(name, str) else "",
            sources=sources,
            missing=tuple(item for item in sources if not is_there(folder / item)),
            cuda=last_name(call.func) == "CUDAExtension",
        )


def _modules_of_cmake(folder: Path, files: Sequence[str], reader: FolderReader) -> Iterator[NativeModule]:
    """The Python modules that CMake builds, by name; which sources go into them only CMake itself can tell."""
    if "CMakeLists.txt" not in files:
        return
    texts = [reader.text(file) for file in reader.files_below(folder, ("CMakeLists.txt",), depth=3)]
    values = dict(_CMAKE_VALUE.findall("\n".join(texts)))
    for variable, name in dict.fromkeys(_CMAKE_MODULE.findall("\n".join(texts))):
        if name or variable in values:
            yield NativeModule(name or values[variable], cuda=False)


def _needs_cuda(
    folder: Path, script: SetupScript, modules: tuple[NativeModule, ...], reader: FolderReader
) -> bool:
    if script.mentions("CUDAExtension") or any(text.endswith(".cu") for text in script.literals):
        return True
    listed = bool(modules) and all(module.sources for module in modules)
    return not listed and any(
        is_its_own(folder, file) for file in reader.files_below(folder, (".cu",), depth=8)
    )


def _pyproject(file: Path, reader: FolderReader) -> Table:
    if not (text := reader.text(file, _MOST_TOML)):
        return Table({}, file.name)
    from splatfix.core.toml import parse_toml  # few sources need it

    try:
        return Table(parse_toml(text), file.name)
    except ValueError as error:
        return Table({}, file.name, [f"pyproject.toml cannot be read: {error}"])


def _in_setup_cfg(folder: Path, name: str, reader: FolderReader) -> str:
    """One of the options in setup.cfg; "" where there is none, also because the file cannot be read: its build will say so."""
    for section, values in sections(reader.text(folder / "setup.cfg")):
        if section == "options" and name in values:
            return values[name]
    return ""


def code_matches(
    folder: Path, patterns: Iterable[SourcePattern | NamePattern], reader: FolderReader | None = None
) -> Iterator[CodeMatch]:
    """The first place of each pattern in each file of an extension's source folder.

    What a pattern asks a file to lack may also stand in a local header that the file includes, one level deep.
    """
    reader = reader or FolderReader()
    wanted = tuple(item for item in patterns if isinstance(item, SourcePattern))
    for file in reader.files_below(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"), depth=3):
        here = [pattern for pattern in wanted if pattern.looks_at(file.name)]
        if not here:
            continue
        name, text = file.relative_to(folder).as_posix(), without_comments(file.name, reader.text(file))
        found = [(pattern, match) for pattern in here if (match := pattern.pattern.search(text))]
        headers = _INCLUDE.findall(text) if any(pattern.unless for pattern, _ in found) else ()
        included = [reader.text(file.parent / header) for header in dict.fromkeys(headers)]
        for pattern, match in found:
            if pattern.find(text, *included):
                line = text.count("\n", 0, match.start()) + 1
                yield CodeMatch(pattern.key, name, line, text.splitlines()[line - 1].strip()[:160])
