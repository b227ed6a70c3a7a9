"""Headers of CUDA and of torch that an extension's sources include and that are not here; compared with the real folders."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, product
from pathlib import Path

from msgspec import Struct, field

from splatfix.core.reading import is_there
from splatfix.core.source_pattern import without_comments
from splatfix.facts.source.cmake import place_of_package, read_cmake
from splatfix.facts.source.folder import cloned_in_readme
from splatfix.facts.source.names import NAMES, any_of
from splatfix.facts.source.reach import COMPILED
from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.setup_py import SetupScript
from splatfix.model import EnvironmentFacts, MachineFacts, MissingHeader, Source

_MOST_FILES = 300
_MOST_FOLDERS = 3000
# What GCC, clang and cl add to their search by themselves.
_INCLUDE_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "INCLUDE")
_CARRIED_LIBRARY = any_of("carried-libraries", re.IGNORECASE)
_OF_TORCH, _OF_TOOLKIT = any_of("headers-of-torch"), any_of("headers-of-toolkits")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)", re.MULTILINE)
_ARCHIVE = re.compile(r"https?://\S+\.(zip|tgz|tar(\.\w+)?)")
_INCLUDED = re.compile(r'[<"]([^<>"\n]{1,200})[>"]')


class IncludeFolders(Struct, frozen=True):
    """The folders that compilers search here."""

    toolkits: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """By the root of each toolkit."""
    torch: tuple[Path, ...] = ()
    always: tuple[Path, ...] = ()
    """Searched whatever the toolkit: NVIDIA's packages in the environment, CPATH, the system's."""
    system: tuple[Path, ...] = ()
    """Those of the system among them, where it is one whose packages have names that are known."""
    installed: frozenset[str] = frozenset()
    """What the environment has, by the bare names of distributions and modules: ``easypbr``."""

    def package_of(self, header: str) -> str:
        """The package of the system that has a header, where it is a library's of its own and not here; else ""."""
        folders = (*self.always, *(folder / "eigen3" for folder in self.system))
        if not self.system or _first_with(folders, header):
            return ""
        table: dict[str, str] = NAMES["headers-of-packages"]
        return next((package for pattern, package in table.items() if re.fullmatch(pattern, header)), "")

    def package_of_cmake(self, name: str) -> str:
        """The package of the system with what ``find_package(name REQUIRED)`` asks for, where that is not here; else ""."""
        package: str = NAMES["packages-of-cmake"].get(name, "")
        if not self.system or not package:
            return ""
        prefixes = {folder.parent for folder in self.always if folder.name == "include"}
        shares = ("lib/cmake/*", "lib/*/cmake/*", "share/*", "share/*/*")
        files = (f"{name}Config.cmake", f"{name.lower()}-config.cmake")
        for prefix, share, file in product(prefixes, shares, files):
            if any(prefix.glob(f"{share}/{file}")):
                return ""
        return package

    def lacking(self, header: str) -> tuple[str, ...] | None:
        """Give the roots of the toolkits that lack a header, () for one that torch lacks; None where it is there or not known."""
        if header.startswith("/") or ".." in header or _first_with((*self.always, *self.torch), header):
            return None
        if _OF_TORCH.fullmatch(header):
            return () if self.torch else None
        if not _OF_TOOLKIT.fullmatch(header):
            return None
        lacking = [root for root, folders in self.toolkits.items() if not _first_with(folders, header)]
        return tuple(lacking) or None


def include_folders(machine: MachineFacts, environment: EnvironmentFacts) -> IncludeFolders:
    """Those of this machine and environment; a toolkit or torch that is not on this disk is left out."""
    toolkits = {}
    for toolkit in machine.toolkits.value or ():
        targets = FolderReader().children(Path(toolkit.root, "targets"))
        roots = (toolkit.root, *map(os.fspath, targets))
        folders = tuple(_with_cccl(Path(root, "include") for root in roots))
        # facts may come from another machine (diagnose --facts)
        if _first_with(folders, "cuda_runtime.h"):
            toolkits[toolkit.root] = folders
    torch: tuple[Path, ...] = ()
    if environment.torch.value is not None:
        of_torch = Path(environment.torch.value.folder, "include")
        if is_there(of_torch / "torch/extension.h"):
            torch = (of_torch, of_torch / "torch/csrc/api/include")
    system = (Path("/usr/include"), Path("/usr/local/include"))
    always: list[Path] = []
    python = environment.interpreter.value
    for site in python.site_packages if python else ():
        packages = FolderReader().children(Path(site, "nvidia"))
        always += _with_cccl(Path(package.path, "include") for package in packages)
    for variable in _INCLUDE_VARIABLES:
        always += map(Path, filter(None, machine.variables.get(variable, "").split(os.pathsep)))
    always += system
    if python:
        always.append(Path(python.prefix, "include"))  # conda's
    names = [item.name for item in environment.distributions.value or ()]
    names += environment.modules.value or ()
    searched = system if machine.system == "linux" else ()
    return IncludeFolders(toolkits, torch, tuple(always), searched, frozenset(map(_bare, names)))


def missing_headers(
    folder: Path,
    source: Source,
    script: SetupScript,
    root: Path,
    searched: IncludeFolders,
    reader: FolderReader,
) -> Iterator[MissingHeader]:
    """Yield the headers of CUDA, torch or a library of the system that the sources include under no condition, and that are not
    here. What lies anywhere in the checkout, ``root``, is not missing. Includes behind ``#if`` are left out, and so are those of
    libraries that the source carries along."""
    if not source.uses_torch_builder:
        yield from _missing_for_cmake(folder, script, root, searched, reader)
    # by the header: what is missing where the checkout does not hold it, of which one walk through it tells for all
    wanted: dict[str, MissingHeader] = {}
    own_folders = [folder, *(folder / text for text in script.include_dirs if "\0" not in text)]
    # CMake looks for libraries in places of its own
    finds_libraries = "CMakeLists.txt" in source.build_files or not script.knows_include_dirs
    # archives that setup.py fetches as it runs
    fetches = any(script.calls("urlopen", "urlretrieve", "download_url_to_file"))
    downloads = [text for text in script.literals if fetches and _ARCHIVE.fullmatch(text)]
    endings = tuple(ending for ending in COMPILED if source.needs_cuda or ending != ".cu")
    pending = [folder / name for name in source.files] or list(reader.files_below(folder, endings, depth=4))
    visited = set(pending)
    for file in pending:  # which grows
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
            continue
        for line, header in certain_includes(without_comments(file.name, reader.text(file))):
            if own := _first_with((file.parent, *own_folders), header):
                inside = Path(os.path.relpath(own, folder)).parts
                is_carried = any(map(_CARRIED_LIBRARY.fullmatch, inside))
                if not is_carried and own not in visited and len(visited) < _MOST_FILES:
                    visited.add(own)
                    pending.append(own)
            elif header not in wanted:
                lacking, package = searched.lacking(header), searched.package_of(header)
                library = package.removeprefix("lib").removesuffix("-dev").rstrip("0123456789")
                address = next((text for text in downloads if package and library in text), "")
                if finds_libraries and not address:
                    package = ""
                if lacking is not None or package:
                    at = os.path.relpath(file, folder)
                    wanted[header] = MissingHeader(header, at, line, lacking or (), package, address)
    there = _lying_in(root, wanted)
    yield from (item for header, item in wanted.items() if header not in there)


def _missing_for_cmake(
    folder: Path, script: SetupScript, root: Path, searched: IncludeFolders, reader: FolderReader
) -> Iterator[MissingHeader]:
    """Yield what CMake downloads, the packages of the system that it asks for and does not find, and what it finds by a module
    of the checkout's own: what its README clones must be installed first."""
    cmake = read_cmake(folder, script, reader)
    for name, address in cmake.fetched.items():
        yield MissingHeader(name, "CMakeLists.txt", 1, address=address)
    finders = _lying_in(root, [f"Find{name}.cmake" for name in cmake.packages])
    clones = {_bare(address.rpartition("/")[2]): address for address in cloned_in_readme(root, reader)}
    for name in cmake.packages:
        header, package, clone = f"{name}Config.cmake", searched.package_of_cmake(name), ""
        if f"Find{name}.cmake" in finders:
            header, package = name, ""
            clone = clones.get(_bare(name), "") if _bare(name) not in searched.installed else ""
        if package or clone:
            yield MissingHeader(header, *place_of_package(folder, name, reader), (), package, clone=clone)


def _first_with(folders: Iterable[Path], header: str) -> Path | None:
    return next((folder / header for folder in folders if is_there(folder / header)), None)


def certain_includes(text: str) -> Iterator[tuple[int, str]]:
    """(line, header) of every include that no condition can leave out; the text has no comments any more."""
    directives: list[tuple[int, str, str]] = []
    line, position = 1, 0
    for match in _DIRECTIVE.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        directives.append((line, match.group(1), match.group(2)))
    depth, macro = 0, []
    # the file may be one big ``#ifndef NAME``, ``#define NAME``
    if len(directives) > 1 and directives[0][1] in ("ifndef", "if") and directives[1][1] == "define":
        macro = directives[1][2].split()
    if macro and re.search(rf"\b{re.escape(macro[0])}\b", directives[0][2]):
        depth = -1
    for line, directive, rest in directives:
        if directive in ("if", "ifdef", "ifndef"):
            depth += 1
        elif directive == "endif":
            depth -= 1
        elif directive == "include" and depth == 0 and (included := _INCLUDED.match(rest)):
            yield line, included.group(1)


def _with_cccl(folders: Iterable[Path]) -> Iterator[Path]:
    """With the folder below that CUDA 13 keeps Thrust and CUB in, which nvcc searches by itself."""
    for folder in folders:
        yield from (folder, folder / "cccl")


def _lying_in(root: Path, headers: Collection[str]) -> set[str]:
    """Those of the headers that lie somewhere in the checkout, or in the repository that it is a part of."""
    repository = next((path for path in (root, *root.parents[:3]) if is_there(path / ".git")), root)
    by_name: dict[str, list[str]] = {}
    for header in headers:
        by_name.setdefault(header.rpartition("/")[2], []).append(header)
    found: set[str] = set()
    # for sixty headers of Eigen it was walked through sixty times
    for folder, _, files in islice(os.walk(repository), _MOST_FOLDERS):
        if len(found) == len(headers):
            break
        for name in by_name.keys() & set(files):
            found.update(header for header in by_name[name] if f"{folder}/{name}".endswith(f"/{header}"))
    return found


def _bare(name: str) -> str:
    """Give ``easypbr`` for ``EasyPBR`` and ``easy_pbr.git``."""
    return re.sub(r"\.git$|[-_.]", "", name).lower()
