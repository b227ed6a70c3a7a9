"""What an extension's source folder says about its own build, and code in it that is known to break; nothing is executed."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from splatfix.core.reading import is_regular_file, is_there
from splatfix.core.redact import redacted
from splatfix.core.source_pattern import NamePattern, SourcePattern, without_comments
from splatfix.facts.source.build_variables import (
    arch_variables,
    cuda_switches,
    environment_reads,
    environment_writes,
)
from splatfix.facts.source.cmake import MENTIONS_CUDA, read_cmake
from splatfix.facts.source.git_files import git_folder, read_submodules, sections
from splatfix.facts.source.pins import read_project_file
from splatfix.facts.source.reach import COMPILED, is_its_own, missing_folders
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.scripts import read_packages_of
from splatfix.facts.source.setup_py import SetupScript, given, parse_setup_script, read_setup_script
from splatfix.facts.source.variable_names import is_arch_variable
from splatfix.model import ArchVariable, CodeMatch, Source

# A checkout three levels deep has some hundred folders; a home folder or a disk has many thousands.
MOST_FOLDERS = 3000
_DEEPEST = 6
_NEAR = 3
_NOT_BUILT = {"test", "tests", "docs"}
_OUTPUT = {"build", "dist", "__pycache__", "node_modules", "venv", "env", "output", "data"}
_BUILD_FILES = ("setup.py", "pyproject.toml", "CMakeLists.txt")
_TORCH_NAMES = ("CUDAExtension", "CppExtension")
_DECLARING_NAMES = (*_TORCH_NAMES, "Extension", "ext_modules")
_LONGEST_LINE = 160
_BUILDERS = {"setuptools", "torch", "pkg_resources", "distutils", *sys.stdlib_module_names}
_OF_SETUPTOOLS = ("pkg_resources", "distutils")
_SCM = re.compile(r"(?:setuptools[-_.]scm|hatch-vcs)\b")
_INCLUDE = re.compile(r'#\s*include\s*"([^"\n]+)"')
BUILD_BACKEND = re.compile(r"^[ \t]*build-backend[ \t]*=[ \t]*[\"']([\w.:]+)", re.MULTILINE)
_COMPILES_NOTHING = re.compile(r"setuptools\.build_meta|hatchling\.|flit_core\.|poetry\.core\.|pdm\.backend")
# setuptools' own table of extensions, and what these backends run of a project's own
_COMPILED_BY_TABLE = re.compile(
    r"ext-modules|backend-path|\[tool\.[\w.-]*(?:hooks|poetry\.build|pdm\.build)\b"
)


def read_source(folder: Path, setup_text: str | None = None, reader: FolderReader | None = None) -> Source:
    """Read one extension's source folder, which must exist; nothing in it is executed.

    Args:
        setup_text: read this in the place of setup.py's content, to see what an edit would come to.
    """
    reader = reader or FolderReader()
    if setup_text is None:
        script = read_setup_script(folder / "setup.py", reader)
    else:
        script = parse_setup_script(setup_text, reader, folder)
    pyproject, wrong = read_project_file(folder / "pyproject.toml", reader)
    # nothing also where it cannot be read: its build will say so
    config = dict(sections(reader.text(folder / "setup.cfg")))
    # a source distribution has in its PKG-INFO what its setup.py computes
    released = re.search(r"^Version:(.*)", reader.text(folder / "PKG-INFO"), re.MULTILINE)
    reads, cmake = environment_reads(script), read_cmake(folder, script, reader)
    cpu_only = _is_cpu_only(folder, script, reader)
    needs_cuda = script.mentions("CUDAExtension") or not cpu_only
    modules = tuple(script.argument(call, "name", position=0) or "" for call in _declared(script))
    by_cmake = bool(cmake.text) and not script.mentions(*_TORCH_NAMES)
    if by_cmake:
        modules = modules or cmake.modules
        needs_cuda = needs_cuda and MENTIONS_CUDA.search(cmake.text) is not None
    packages, project = script.setup_texts("packages"), pyproject.project
    submodules = tuple(item for item in read_submodules(folder, reader) if item.empty)
    source = Source(
        folder=str(folder),
        build_files=tuple(file for file in _BUILD_FILES if is_regular_file(folder / file)),
        name=script.setup_text("name") or project.name or config.get("metadata", {}).get("name"),
        version=script.setup_text("version")
        or project.version
        or (released[1].strip() if released else None),
        packages=packages,
        modules=modules,
        # which it compiles is known once it is asked
        files=tuple(
            text
            for text in script.literals
            if text.endswith(COMPILED) and "\0" not in text and is_regular_file(folder / text)
        ),
        needs_cuda=needs_cuda,
        uses_torch_builder=script.mentions(*_TORCH_NAMES, "BuildExtension")
        and not (by_cmake and script.mentions("CMakeExtension")),
        build_requires=pyproject.build_system.requires,
        requires=(*script.setup_texts("install_requires"), *pyproject.requirements(folder, reader)),
        python=project.requires_python
        or script.setup_text("python_requires")
        or config.get("options", {}).get("python_requires", ""),
        reads=tuple(dict.fromkeys((*reads, *cmake.variables))),
        sets=environment_writes(script),
        arch_variables=(
            *arch_variables(reads, script),
            *map(ArchVariable, filter(is_arch_variable, cmake.variables)),
        ),
        switches=cuda_switches(reads, script),
        version_from_git=script.mentions("use_scm_version", "setuptools_scm")
        or any(map(_SCM.match, pyproject.build_system.requires)),
        nvcc_flags=script.nvcc_flags,
        libraries=tuple(dict.fromkeys((*script.libraries, *cmake.libraries))),
        imports=tuple(module for module in script.imports if module.partition(".")[0] in _OF_SETUPTOOLS),
        build_imports=tuple(
            module
            for module in script.imports_in_all
            if module not in _BUILDERS
            and not any(is_there(folder / name) for name in (module, f"{module}.py"))
        ),
        needs=read_packages_of(folder, packages, modules).imports,
        missing_folders=tuple(missing_folders(folder, script, submodules, reader)),
        submodules=submodules,
        clone=git_folder(folder, reader) is not None,
        setups=tuple((script.argument(call, "name") or "")[:_LONGEST_LINE] for call in script.setups),
        cpu_only=cpu_only,
        error="; ".join(filter(None, (script.error, wrong))),
    )
    return redacted(source)


def _declared(script: SetupScript) -> Iterator[ast.Call]:
    return script.calls("CUDAExtension", "CppExtension", "Extension")


class FolderWalk(Struct, frozen=True):
    """What a look through a folder for extensions came to."""

    found: tuple[Path, ...]
    """In order of name."""
    unreadable: tuple[Path, ...] = ()
    complete: bool = True
    """False when there were too many folders, and the rest was not looked at."""


def walk_extensions(
    folder: Path,
    depth: int = _DEEPEST,
    most: int = MOST_FOLDERS,
    reader: FolderReader | None = None,
    *,
    below: bool = False,
) -> FolderWalk:
    """Folders at or below ``folder`` whose setup.py declares native modules; the nearest are looked into first.

    Not those in build output, and not below an extension it found. More than three levels down, where stacks have their
    ``modeling/pixel_decoder/ops`` and libraries their examples, only those built with torch count.

    Args:
        most: how many folders are looked into.
        below: the folder itself does not count, so that those inside an extension are found.
    """
    reader, complete = reader or FolderReader(), True
    extensions: list[Path] = []
    unreadable: list[Path] = []
    pending = [(folder, 0)]
    for count, (current, level) in enumerate(pending):  # which grows
        is_near = level <= _NEAR
        if count == most:
            if is_near:
                reader.leave_out(folder, f"it holds more than {most} folders; the others are not looked into")
            complete = not is_near
            break
        if current != folder or not below:
            script = read_setup_script(current / "setup.py", reader)
            names = _DECLARING_NAMES if is_near else _TORCH_NAMES
            if script.mentions(*names) or (script.error and any(name in script.source for name in names)):
                extensions.append(current)
                continue
        entries = reader.children(current) if level < depth else []
        if reader.was_left_out(current):
            unreadable.append(current)
        skipped = _OUTPUT if level < _NEAR else _OUTPUT | _NOT_BUILT
        for entry in entries:
            if entry.name not in skipped and entry.is_dir(follow_symlinks=False):
                pending.append((current / entry.name, level + 1))
    return FolderWalk(tuple(sorted(extensions)), tuple(unreadable), complete)


def _is_cpu_only(folder: Path, script: SetupScript, reader: FolderReader) -> bool:
    if any(text.endswith(".cu") for text in script.literals):
        return False
    lists = [script.texts(given(call, "sources", position=1)) for call in _declared(script)]
    if lists and all(lists):
        return True
    declares = script.mentions(*_DECLARING_NAMES, "cmdclass") or "ext_modules" in script.literals
    pyproject = reader.text(folder / "pyproject.toml")
    backend = BUILD_BACKEND.search(pyproject)
    if not (declares or script.error or is_there(folder / "CMakeLists.txt")) and (
        backend is None or _COMPILES_NOTHING.match(backend[1])
    ):
        # charonload, cpp_extension.load and the like compile what lies there when it is imported
        return _COMPILED_BY_TABLE.search(pyproject) is None
    # sources that only running it would list: what lies there is compiled
    return not any(is_its_own(folder, file) for file in reader.files_below(folder, (".cu",), depth=8))


def code_matches(
    folder: Path, patterns: Iterable[SourcePattern | NamePattern], reader: FolderReader
) -> Iterator[CodeMatch]:
    """The first line of each pattern in each file of an extension's source folder.

    What a pattern asks a file to lack may also stand in a local header that the file includes, one level deep.
    """
    source_patterns = [pattern for pattern in patterns if isinstance(pattern, SourcePattern)]
    for file in reader.files_below(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"), depth=3):
        looking = [pattern for pattern in source_patterns if pattern.looks_at(file.name)]
        text = without_comments(file.name, reader.text(file)) if looking else ""
        headers: list[str] | None = None
        for pattern in looking:
            match = re.search(pattern.pattern, text)
            if match is None:
                continue
            if headers is None and pattern.unless:
                included = dict.fromkeys(_INCLUDE.findall(text))
                headers = [reader.text(file.parent / header) for header in included]
            if pattern.find(text, *(headers or ())):
                line = text.count("\n", 0, match.start()) + 1
                shown = text.splitlines()[line - 1].strip()[:_LONGEST_LINE]
                yield CodeMatch(pattern.key, file.relative_to(folder).as_posix(), line, shown)
