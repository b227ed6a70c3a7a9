"""Native files of an environment that link torch or carry GPU code, and those that torch compiled at first use and caches."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from splatfix.binaries import Binary, BinaryError
from splatfix.facts.environment.linkage import read_linkage, runtime_copies
from splatfix.facts.environment.packages import other_roots, owners_of_native_files
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.model.environment import Distribution, Extension, JitCache, RuntimeCopy, Torch
from splatfix.facts.model.fact import FatbinGroup, group_fatbins
from splatfix.facts.system.live import System

# Folders whose native files belong to torch and its runtime libraries; they are not extensions of a splatting stack.
_NOT_EXTENSIONS = frozenset(
    {"torch", "functorch", "torchgen", "nvidia", "triton", "numpy", "scipy", "pandas", "cuda"}
)
_NATIVE = (".so", ".pyd", ".dll")
_IMPORTABLE = re.compile(r"\.(cpython-\d+[\w-]*|abi3|cp\d+-\w+)\.(so|pyd)$|^[^.]+\.(so|pyd)$")
_OF_ONE_PYTHON = re.compile(r"\.(cpython-|cp)\d+[\w-]*\.(so|pyd)$")
_MOST_FOLDERS = 20_000
_DEEPEST = 20
_NOT_SOURCE = frozenset({"build", "dist", "third_party", "node_modules", "output", "data"})


# Folder of one Python and CUDA, as torch/utils/cpp_extension.py (_get_build_directory) names it: py311_cu130, py312t_cpu.
_TAG = re.compile(r"py\d+[a-z]*_(cpu|cu\d+|rocm?\w*)")
_ARCH_FLAG = re.compile(r"-gencode[= ]\S+|-arch[= ]\S+")


@dataclasses.dataclass(frozen=True)
class NativeFiles:
    """The extensions of an environment, and the copies of runtime libraries met beside them."""

    extensions: tuple[Extension, ...]
    copies: tuple[RuntimeCopy, ...]


def read_extensions(
    loader: Loader, sites: Iterable[str], distributions: Iterable[Distribution]
) -> NativeFiles:
    """Every native file in site-packages, in eggs and in the sources of editable installs that links torch or has GPU code."""
    system = loader.system
    known = tuple(distributions)
    owners = owners_of_native_files(system, known)
    found: list[Extension] = []
    copies: list[RuntimeCopy] = []
    binaries: dict[str, Binary] = {}
    for site in sites:
        files = tuple(_native_files(system, site))
        copies += runtime_copies(system, site, files)
        found += _read(system, site, files, owners, binaries)
    for folder, name in other_roots(known).items():
        files = tuple(path for path in _source_files(system, folder) if is_importable(path))
        found += _read(system, folder, files, {(folder, path): name for path in files}, binaries)
    linkage = read_linkage(loader, binaries)
    extensions = tuple(
        dataclasses.replace(item, linkage=linkage.get(f"{item.folder}/{item.path}")) for item in found
    )
    return NativeFiles(extensions, tuple(copies))


def is_importable(path: str) -> bool:
    """Its name is that of a Python extension module, and not of a plain library."""
    return _IMPORTABLE.search(path.rsplit("/", 1)[-1]) is not None


def links_torch(binary: Binary) -> bool:
    """One of torch's libraries is among those it needs."""
    return any(re.match(r"(lib)?(torch|c10)", name) for name in binary.needed)


def _read(
    system: System,
    folder: str,
    files: Iterable[str],
    owners: Mapping[tuple[str, str], str],
    binaries: dict[str, Binary],
) -> Iterator[Extension]:
    for path in files:
        owner = owners.get((folder, path))
        importable = is_importable(path)
        try:
            binary = system.read_binary(f"{folder}/{path}")
        except (BinaryError, OSError) as error:
            if owner is not None or importable:
                yield Extension(path, folder, owner, (), (), False, True, 0, error=str(error))
            continue
        links = links_torch(binary)
        code = group_fatbins(binary.fatbins)
        versioned = _OF_ONE_PYTHON.search(path) is not None
        if not links and not code:
            continue
        if links or importable:
            binaries[f"{folder}/{path}"] = binary
        yield Extension(
            path,
            folder,
            owner,
            code,
            binary.needed,
            links,
            importable,
            binary.size,
            python_module=(
                module := _has_init(system, folder, path) if importable and (links or versioned) else None
            ),
            optional=links and module is False and _left_alone(system, folder, path),
        )


def _has_init(system: System, folder: str, path: str) -> bool | None:
    """Python can import it: it exports ``PyInit_`` and its name. torch.ops loads others by their path, whatever their name."""
    stem = path.rpartition("/")[2].split(".")[0]
    try:
        return not system.missing_exports((f"PyInit_{stem}",), (f"{folder}/{path}",))
    except (BinaryError, OSError):
        return None


def _left_alone(system: System, folder: str, path: str) -> bool:
    """Importing its package does not load it: the package's own ``__init__.py`` says nothing of torch."""
    text = system.read(f"{folder}/{path.split('/')[0]}/__init__.py")
    return text is not None and "torch" not in text


def _native_files(system: System, site: str) -> Iterator[str]:
    """Native files below a site-packages folder. One that links lead to again is met once: they may lead in circles."""
    pending = [name for name in system.listdir(site) if name not in _NOT_EXTENSIONS]
    met: dict[tuple[str, ...], set[str]] = {}
    first: dict[tuple[str, ...], str] = {}
    looked = 0
    while pending:
        name = pending.pop()
        last = name.rsplit("/", 1)[-1]
        if last.endswith(_NATIVE) or ".so." in last:
            yield name
        elif ("." not in last or last.endswith(".libs")) and last != "__pycache__":
            looked += 1
            if looked > _MOST_FOLDERS:
                system.leave_out(
                    site, f"it holds more than {_MOST_FOLDERS} folders; the others are not looked into"
                )
                return
            place = f"{site}/{name}"
            if name.count("/") > _DEEPEST:
                system.leave_out(place, f"it lies more than {_DEEPEST} folders deep")
                continue
            names = system.listdir(place)
            # only folders that hold the same names can be the same, and few do
            if first.setdefault(names, place) != place:
                known = met.setdefault(names, {system.realpath(first[names])})
                if (real := system.realpath(place)) in known:
                    continue
                known.add(real)
            pending += [f"{name}/{child}" for child in names]


def _source_files(system: System, folder: str, depth: int = 3) -> Iterator[str]:
    """Native files built in place in a source folder, not those of its build output."""
    pending = [("", depth)]
    looked = 0
    while pending:
        inside, left = pending.pop()
        looked += 1
        if looked > _MOST_FOLDERS:
            system.leave_out(
                folder, f"it holds more than {_MOST_FOLDERS} folders; the others are not looked into"
            )
            return
        for name in system.listdir(f"{folder}/{inside}".rstrip("/")):
            if name.endswith(_NATIVE):
                yield inside + name
            elif left and "." not in name and name not in _NOT_SOURCE and name != "__pycache__":
                pending.append((f"{inside}{name}/", left - 1))


def cache_roots(system: System) -> tuple[tuple[str, bool], ...]:
    """Folders that may hold the cache, each with whether TORCH_EXTENSIONS_DIR names it.

    torch puts its own tag between the default folder and the extensions, and none where the variable is set.
    """
    if named := system.env.get("TORCH_EXTENSIONS_DIR"):
        return ((named.replace("\\", "/").rstrip("/"), True),)
    env = system.env
    if system.name == "windows":
        base = env.get("LOCALAPPDATA", "").replace("\\", "/")
        return ((f"{base}/torch_extensions/torch_extensions/Cache", False),) if base else ()
    if system.name == "darwin":
        return ((f"{env['HOME']}/Library/Caches/torch_extensions", False),) if env.get("HOME") else ()
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    return ((f"{base}/torch_extensions", False),) if base else ()


def own_tag(raw: Mapping[str, Any], torch: Torch | None) -> str:
    """The tag of the target environment: its Python and its torch's CUDA; "" without a torch."""
    if torch is None:
        return ""
    major, minor = str(raw["version"]).split(".")[:2]
    cuda = f"cu{torch.cuda.replace('.', '')}" if torch.cuda else "cpu"
    return f"py{major}{minor}{raw.get('abiflags', '')}_{cuda}"


def read_jit_caches(loader: Loader, tag: str) -> tuple[JitCache, ...]:
    """Every cached extension. Only those that the target environment would load are looked at for missing symbols."""
    system = loader.system
    found: list[JitCache] = []
    binaries: dict[str, Binary] = {}
    for root, named in cache_roots(system):
        for folder, folder_tag in _folders(system, root):
            current = (named and not folder_tag) or (bool(tag) and folder_tag == tag)
            item = _read_cache(system, folder, folder_tag, current, binaries)
            if item is not None:
                found.append(item)
    linkage = read_linkage(loader, binaries) if binaries else {}
    return tuple(
        dataclasses.replace(item, linkage=linkage[item.library]) if item.library in linkage else item
        for item in found
    )


def _folders(system: System, root: str) -> Iterator[tuple[str, str]]:
    for name in system.listdir(root):
        if _TAG.fullmatch(name):
            for child in system.listdir(f"{root}/{name}"):
                yield f"{root}/{name}/{child}", name
        else:
            yield f"{root}/{name}", ""


def _read_cache(
    system: System, folder: str, tag: str, current: bool, binaries: dict[str, Binary]
) -> JitCache | None:
    names = system.listdir(folder)
    name = folder.rsplit("/", 1)[-1]
    libraries = [f"{folder}/{item}" for item in names if item.endswith((".so", ".pyd"))]
    # torch renumbers a library (name_v1.so) when it recompiles in one process; the newest is what it loads
    library = max(libraries, key=lambda path: system.modified(path) or 0.0, default=None)
    if library is None and not {"build.ninja", "lock"} & set(names):
        return None
    ninja = system.read(f"{folder}/build.ninja") or ""
    error = ""
    code: tuple[FatbinGroup, ...] = ()
    if library is not None:
        try:
            binary = system.read_binary(library)
            code = group_fatbins(binary.fatbins)
            if current and links_torch(binary):
                binaries[library] = binary
        except (BinaryError, OSError) as problem:
            error = str(problem)
    torch = re.search(r"-(?:isystem|I)\s*(\S+?/torch)/include\b", ninja)
    nvcc = re.search(r"^nvcc\s*=\s*(\S+?)/bin/nvcc", ninja, re.MULTILINE)
    return JitCache(
        name=name,
        folder=folder,
        tag=tag,
        current=current,
        built=_when(system, library),
        locked=_when(system, f"{folder}/lock") if "lock" in names else None,
        library=library,
        code=code,
        torch_folder=torch.group(1) if torch else "",
        cuda_home=nvcc.group(1) if nvcc else "",
        gencode=tuple(dict.fromkeys(_ARCH_FLAG.findall(ninja))),
        error=error,
    )


def _when(system: System, path: str | None) -> str | None:
    seconds = system.modified(path) if path else None
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")
