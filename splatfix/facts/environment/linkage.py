"""What the dynamic loader would find for a native file of an environment, read from bytes; nothing is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from splatfix.binaries import Binary, BinaryError, SymbolNeeds
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.model.environment import Linkage, RuntimeCopy, RuntimeLibrary
from splatfix.facts.system.live import System

_KEPT = 20
_ALWAYS_LOADED = (
    "libc.so.6",
    "libstdc++.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
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


def runtime_libraries(loader: Loader) -> tuple[RuntimeLibrary, ...]:
    """The C and C++ runtime the interpreter would load, with the highest versions they define."""
    found = []
    for name in ("libc.so.6", "libstdc++.so.6"):
        path = loader.find(name)
        if path is None:
            continue
        try:
            defined = loader.system.provided_versions(path)
        except (BinaryError, OSError):
            continue  # a library that cannot be read tells nothing; the checks then know no version
        found.append(RuntimeLibrary(name, loader.system.realpath(path), _highest(defined)))
    return tuple(found)


def runtime_copies(system: System, site: str, files: Iterable[str]) -> tuple[RuntimeCopy, ...]:
    """The copies of libraries that a process should hold once, among the native files of one site-packages folder."""
    listed = list(files)
    listed += [f"torch/lib/{name}" for name in system.listdir(f"{site}/torch/lib")]
    for vendor in system.listdir(f"{site}/nvidia"):
        listed += [f"nvidia/{vendor}/lib/{name}" for name in system.listdir(f"{site}/nvidia/{vendor}/lib")]
    copies = []
    for path in listed:
        match = re.fullmatch(
            r"(libcudart|libc10(?:_cuda)?|libtorch(?:_cpu|_cuda|_python)?)(-[0-9a-f]{8})?\.so\.?([\d.]*)",
            path.rsplit("/", 1)[-1],
        )
        if match:
            copies.append(RuntimeCopy(match.group(1), path, match.group(3), match.group(2) is not None))
    return tuple(copies)


def torch_abi(loader: Loader) -> bool | None:
    """Which std::string the installed torch was built with, by the name under which libc10 exports its error function."""
    for library in loader.torch_libraries:
        if library.endswith("/libc10.so"):
            try:
                left = loader.system.missing_exports((_NEW_ABI, _OLD_ABI), (library,))
            except (BinaryError, OSError):
                return None
            return {_OLD_ABI: True, _NEW_ABI: False}[left[0]] if len(left) == 1 else None
    return None


def read_linkage(loader: Loader, binaries: Mapping[str, Binary]) -> dict[str, Linkage]:
    """What the loader would find for each of these files (path -> what was read of it).

    torch's libraries are asked once for all names together, by hash lookup.
    """
    needs: dict[str, SymbolNeeds] = {}
    errors: dict[str, str] = {}
    for path in binaries:
        try:
            needs[path] = loader.system.symbol_needs(path)
        except (BinaryError, OSError) as error:
            errors[path] = str(error)
    wanted = {name for item in needs.values() for name in item.imported if _TORCH_NAME.match(name)}
    absent, torch_error = _absent_from_torch(loader, wanted)
    found = {path: Linkage(error=error) for path, error in errors.items()}
    for path, need in needs.items():
        found[path] = _linkage(loader, path, binaries[path], need, absent, torch_error)
    return found


def _absent_from_torch(loader: Loader, names: Iterable[str]) -> tuple[frozenset[str] | None, str]:
    """Those of ``names`` that torch does not export; None, with the reason, where that cannot be read."""
    if loader.torch_folder is None:
        return None, "torch is not installed"
    if not loader.torch_libraries:
        return None, f"there are no libraries in {loader.torch_folder}/lib"
    try:
        return frozenset(loader.system.missing_exports(sorted(names), loader.torch_libraries)), ""
    except (BinaryError, OSError) as error:
        return None, str(error)


def _linkage(
    loader: Loader,
    path: str,
    binary: Binary,
    need: SymbolNeeds,
    absent: frozenset[str] | None,
    torch_error: str,
) -> Linkage:
    origin = path.rsplit("/", 1)[0]
    beside = _package_files(loader, path)
    resolved: dict[str, str] = {}
    unresolved = []
    for name in binary.needed:
        place = loader.find(name, binary.rpath, origin) or beside.get(name)
        if place is None:
            unresolved.append(name)
        else:
            resolved[name] = place
    torch_names = [name for name in need.imported if _TORCH_NAME.match(name)]
    own_missing: tuple[str, ...] = ()
    if not unresolved and binary.format == "elf" and absent is not None:
        others = [
            name for name in need.imported if not _TORCH_NAME.match(name) and not _PYTHON_NAME.fullmatch(name)
        ]
        own_missing = _found_nowhere(loader, others, (*resolved.values(), *beside.values()))
    return Linkage(
        unresolved=tuple(unresolved),
        versions=_highest_wanted(need.versions),
        torch_symbols=len(torch_names),
        torch_missing=tuple(name for name in torch_names if absent is not None and name in absent)[:_KEPT],
        own_missing=own_missing[:_KEPT],
        cxx11_abi=abi_of(torch_names),
        error=torch_error if torch_names and absent is None else "",
    )


def abi_of(names: Iterable[str]) -> bool | None:
    """Which std::string the mangled names use: the new one, the old one, or None where none appears."""
    old = False
    for name in names:
        if "__cxx11" in name or "B5cxx11" in name:
            return True
        old = old or re.search(r"(?<![a-z])[KRPO]*Ss(E|$|[RPKNISbijlmfd])", name) is not None
    return False if old else None


def _package_files(loader: Loader, path: str) -> dict[str, str]:
    """Libraries in the file's own folder and in the package's ``lib`` and ``.libs``: its package may load them itself."""
    folder = path.rsplit("/", 1)[0]
    top = folder
    for site in loader.sites:
        if folder.startswith(f"{site}/"):
            top = f"{site}/{folder.removeprefix(f'{site}/').split('/')[0]}"
    places = dict.fromkeys((folder, f"{folder}/lib", f"{top}/lib", f"{top}.libs"))
    if top in loader.sites:  # a module of its own in site-packages: its neighbours are strangers
        places = {}
    return {
        name: f"{place}/{name}"
        for place in places
        for name in loader.system.listdir(place)
        if re.search(r"\.(so|dll|pyd)(\.[\d.]+)?$", name) and f"{place}/{name}" != path
    }


def _found_nowhere(loader: Loader, names: Sequence[str], libraries: Iterable[str]) -> tuple[str, ...]:
    """Names that neither these libraries, nor those they need in turn, nor the interpreter export."""
    base = [place for name in _ALWAYS_LOADED if (place := loader.find(name))]
    pending = list(dict.fromkeys((*base, *libraries, *loader.torch_libraries, loader.executable)))
    seen = set(pending)
    left = tuple(names)
    try:
        left = loader.system.missing_exports(left, pending)
        for _ in range(40):  # libraries of libraries, few and small; a name may come through one of them
            if not left or not pending:
                break
            here = pending.pop(0)
            if _DEAD_END.match(here.rsplit("/", 1)[-1]):
                continue
            binary = loader.system.read_binary(here)
            more = [loader.find(name, binary.rpath, here.rsplit("/", 1)[0]) for name in binary.needed]
            new = [place for place in more if place and place not in seen]
            seen.update(new)
            pending += new
            left = loader.system.missing_exports(left, new)
    except (BinaryError, OSError):
        return ()  # one library cannot be read: what it exports is not known, so nothing is said to be missing
    return left


def _highest(versions: Iterable[str]) -> tuple[str, ...]:
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for text in versions:
        if match := _FAMILY.fullmatch(text):
            number = tuple(int(part) for part in re.findall(r"\d+", match.group(2)))
            best[match.group(1)] = max(best.get(match.group(1), ((), "")), (number, text))
    return tuple(text for _, (_, text) in sorted(best.items()))


def _highest_wanted(wanted: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    by_library: dict[str, list[str]] = {}
    for library, text in wanted:
        by_library.setdefault(library, []).append(text)
    best: dict[str, tuple[str, str]] = {}
    for library, texts in by_library.items():
        for text in _highest(texts):
            family = text.partition("_")[0]
            # libm, libpthread and the rest of glibc share its versions; the highest of all of them counts
            if family not in best or _highest((best[family][1], text)) == (text,):
                best[family] = (library, text)
    return tuple(best[family] for family in sorted(best))
