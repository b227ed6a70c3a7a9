"""What the dynamic loader would find for a native file of an environment, read from bytes; nothing is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from splatfix.binaries import Binary, BinaryError, SymbolNeeds
from splatfix.facts.environment.packages import is_native
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.system.live import System
from splatfix.facts.tables import TABLES
from splatfix.model import Linkage, RuntimeCopy, RuntimeLibrary, Torch

_KEPT = 20
_MOST_LIBRARIES = 40
# Two copies in one process have each their own state. auditwheel renames those that it bundles with a hash.
_LOADED_ONCE = re.compile(
    r"(libcudart|libc10(?:_cuda)?|libtorch(?:_cpu|_cuda|_python)?)(-[0-9a-f]{8})?\.so\.?([\d.]*)"
)
_FAMILY = re.compile(r"(GLIBC|GLIBCXX|CXXABI)_(\d[\d.]*)$")
# Itanium mangling: names that begin in torch's namespaces (also their vtables and type infos), and torch's Python glue.
_TORCH_NAME = re.compile(
    r"_Z(T[ISVT]|GV)?N?[VKRO]*(3c10|2at|5torch|6caffe2)(?=[\dEICSDK_])|_Z\d+THP\w+|THP\w+"
    r"|\?[^@]+(@[^@]+)*?@(c10|at|torch|caffe2)@@.*"  # the same for MSVC, whose names end in the outermost namespace
)
# What the interpreter itself exports, whether it is linked into the program or is in a libpython.
_PYTHON_NAME = re.compile(r"_?Py[A-Z_]\w*")
# Not walked into for symbols: they are huge and export nothing that an extension would find only through them.
_DEAD_END = re.compile(r"lib(cu|nv|nccl|torch|c10)")
# c10's error function takes a std::string; it is exported under one of two names, by the ABI libc10 was built with.
_CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRK"
_NEW_ABI = _CHECK_FAIL + "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_OLD_ABI = _CHECK_FAIL + "Ss"


def of_torch(name: str) -> bool:
    """The mangled name belongs to torch's own namespaces, so torch's libraries must export it."""
    return _TORCH_NAME.match(name) is not None


def torch_libraries(torch: Torch) -> list[Path]:
    """Return those of its libraries that export what extensions call."""
    folder, names = Path(torch.folder) / "lib", TABLES["torch_libraries"]
    paths = [folder / form.format(name) for name in names for form in ("lib{}.so", "{}.dll")]
    return [path for path in paths if path.is_file()]


def runtime_libraries(loader: Loader) -> tuple[RuntimeLibrary, ...]:
    """The C and C++ runtime the interpreter would load, with the highest versions they define."""
    libraries = []
    for name in ("libc.so.6", "libstdc++.so.6"):
        # a library that cannot be read tells nothing; the checks then know no version
        with suppress(BinaryError, OSError):
            if path := loader.find(name):
                defined = loader.system.provided_versions(path)
                highest = tuple(version for _, version in _highest((name, version) for version in defined))
                libraries.append(RuntimeLibrary(name, loader.system.realpath(path), highest))
    return tuple(libraries)


def runtime_copies(system: System, site: str, files: Iterable[str]) -> tuple[RuntimeCopy, ...]:
    """The copies of libraries that a process should hold once, among the native files of one site-packages folder."""
    folders = ["torch/lib", *(f"nvidia/{vendor}/lib" for vendor in system.listdir(f"{site}/nvidia"))]
    listed = [
        *files,
        *(f"{folder}/{name}" for folder in folders for name in system.listdir(f"{site}/{folder}")),
    ]
    copies = []
    for path in listed:
        if match := _LOADED_ONCE.fullmatch(path.rsplit("/", 1)[-1]):
            library, hash_of_repair, version = match.groups()
            copies.append(RuntimeCopy(library, path, version, bundled=hash_of_repair is not None))
    return tuple(copies)


def torch_abi(loader: Loader) -> bool | None:
    """Which std::string the installed torch was built with, by the name under which libc10 exports its error function."""
    libc10 = next((path for path in loader.torch_libraries if path.endswith("/libc10.so")), None)
    if libc10 is not None:
        with suppress(BinaryError, OSError):
            missing = loader.system.missing_exports((_NEW_ABI, _OLD_ABI), (libc10,))
            if len(missing) == 1:
                return missing[0] == _OLD_ABI
    return None


def read_linkage(loader: Loader, binaries: Mapping[str, Binary]) -> dict[str, Linkage]:
    """What the loader would find for each of these files (path -> what was read of it).

    torch's libraries are asked once for all names together, by hash lookup.
    """
    linkage: dict[str, Linkage] = {}
    needs: dict[str, SymbolNeeds] = {}
    for path in binaries:
        try:
            needs[path] = loader.system.symbol_needs(path)
        except (BinaryError, OSError) as error:
            linkage[path] = Linkage(error=str(error))
    names = {name for need in needs.values() for name in need.imported if of_torch(name)}
    # those that torch does not export, or why that cannot be told
    absent, torch_error = None, ""
    if loader.torch_folder is None:
        torch_error = "torch is not installed"
    elif not loader.torch_libraries:
        torch_error = f"there are no libraries in {loader.torch_folder}/lib"
    else:
        try:
            absent = frozenset(loader.system.missing_exports(sorted(names), loader.torch_libraries))
        except (BinaryError, OSError) as error:
            torch_error = str(error)
    for path, need in needs.items():
        binary, origin = binaries[path], path.rsplit("/", 1)[0]
        beside = _package_files(loader, path)
        found = {name: loader.find(name, binary.rpath, origin) or beside.get(name) for name in binary.needed}
        unresolved = tuple(name for name, library in found.items() if library is None)
        torch_names = [name for name in need.imported if of_torch(name)]
        own_missing: tuple[str, ...] = ()
        # with a library missing, what it would export is not known; a PE names the library of each symbol
        if not unresolved and binary.format == "elf" and absent is not None:
            others = [
                name for name in need.imported if not of_torch(name) and not _PYTHON_NAME.fullmatch(name)
            ]
            own_missing = _exported_nowhere(loader, others, (*filter(None, found.values()), *beside.values()))
        linkage[path] = Linkage(
            unresolved=unresolved,
            versions=_highest(need.versions),
            torch_symbols=len(torch_names),
            torch_missing=tuple(name for name in torch_names if name in (absent or ()))[:_KEPT],
            own_missing=own_missing[:_KEPT],
            cxx11_abi=abi_of(torch_names),
            error=torch_error if torch_names and absent is None else "",
        )
    return linkage


def abi_of(names: Iterable[str]) -> bool | None:
    """Which std::string the mangled names use: the new one, the old one, or None where none appears."""
    abi = None
    for name in names:
        if "__cxx11" in name or "B5cxx11" in name:
            return True
        if re.search(r"(?<![a-z])[KRPO]*Ss(E|$|[RPKNISbijlmfd])", name):
            abi = False
    return abi


def _package_files(loader: Loader, path: str) -> dict[str, str]:
    """Libraries in the file's own folder and in the package's ``lib`` and ``.libs``: its package may load them itself."""
    folder = path.rsplit("/", 1)[0]
    if folder in loader.sites:  # a module of its own in site-packages: its neighbours are strangers
        return {}
    package = folder
    for site in loader.sites:
        if folder.startswith(f"{site}/"):
            package = f"{site}/{folder.removeprefix(f'{site}/').split('/')[0]}"
    files: dict[str, str] = {}
    for searched in dict.fromkeys((folder, f"{folder}/lib", f"{package}/lib", f"{package}.libs")):
        for name in loader.system.listdir(searched):
            if is_native(name) and f"{searched}/{name}" != path:
                files[name] = f"{searched}/{name}"
    return files


def _exported_nowhere(loader: Loader, names: Sequence[str], libraries: Iterable[str]) -> tuple[str, ...]:
    """Names that neither these libraries, nor those they need in turn, nor the interpreter export."""
    system = loader.system
    always = filter(None, map(loader.find, TABLES["always_loaded"]))
    pending = list(dict.fromkeys((*always, *libraries, *loader.torch_libraries, loader.executable)))
    visited = set(pending)
    try:
        missing = system.missing_exports(tuple(names), pending)
        for _ in range(_MOST_LIBRARIES):  # libraries of libraries: a name may come through one of them
            if not missing or not pending:
                break
            path = pending.pop(0)
            folder, _, file = path.rpartition("/")
            if _DEAD_END.match(file):
                continue
            binary = system.read_binary(path)
            needed = [loader.find(name, binary.rpath, folder) for name in binary.needed]
            new = [library for library in needed if library and library not in visited]
            visited.update(new)
            pending += new
            missing = system.missing_exports(missing, new)
    except (BinaryError, OSError):
        return ()  # one library cannot be read: what it exports is not known, so nothing is said to be missing
    return missing


def _highest(versions: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Keep of these (library, version) the highest version of each family: the parts of glibc share theirs."""
    rows = []
    for library, text in versions:
        if match := _FAMILY.fullmatch(text):
            rows.append((match[1], tuple(map(int, re.findall(r"\d+", match[2]))), library, text))
    rows.sort(key=lambda row: row[:2])
    return tuple({family: (library, text) for family, _, library, text in rows}.values())
