"""Native files of an environment that link torch or carry GPU code, and those that torch compiled at first use and caches."""

import contextlib
import datetime
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from splatfix.binaries import Binary, BinaryError
from splatfix.facts.environment.linkage import read_linkage, runtime_copies
from splatfix.facts.environment.packages import IMPORTS_TORCH, is_native, other_roots, owners_of_native_files
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.system.live import System, captured
from splatfix.model import Distribution, Extension, FatbinGroup, JitCache, RuntimeCopy, Torch, group_fatbins

# Folders whose native files belong to torch and its runtime libraries; they are not extensions of a splatting stack.
_NOT_EXTENSIONS = frozenset(
    {"torch", "functorch", "torchgen", "nvidia", "triton", "numpy", "scipy", "pandas", "cuda"}
)
_IMPORTABLE = re.compile(r"\.(cpython-\d+[\w-]*|abi3|cp\d+-\w+)\.(so|pyd)$|^[^.]+\.(so|pyd)$")
_LINKS_TORCH = re.compile(r"(lib)?(torch|c10)")
_SOURCE_DEPTH = 3
_NOT_SOURCE = frozenset({"build", "dist", "third_party", "node_modules", "output", "data", "__pycache__"})

# Folder of one Python and CUDA, as torch/utils/cpp_extension.py (_get_build_directory) names it: py311_cu130, py312t_cpu.
_TAG = re.compile(r"py\d+[a-z]*_(cpu|cu\d+|rocm?\w*)")
_ARCH_FLAG = re.compile(r"-gencode[= ]\S+|-arch[= ]\S+")
_TORCH_INCLUDE = re.compile(r"-(?:isystem|I)\s*(\S+?/torch)/include\b")
_NVCC = re.compile(r"^nvcc\s*=\s*(\S+?)/bin/nvcc", re.MULTILINE)


def read_extensions(
    loader: Loader, sites: Iterable[str], distributions: Iterable[Distribution]
) -> tuple[tuple[Extension, ...], tuple[RuntimeCopy, ...]]:
    """Every native file in site-packages, in eggs and in the sources of editable installs that links torch or has GPU code;
    and the copies of runtime libraries met beside them."""
    system = loader.system
    installed = tuple(distributions)
    extensions: list[Extension] = []
    copies: list[RuntimeCopy] = []
    binaries: dict[str, Binary] = {}
    for site in sites:
        files = tuple(_native_files(system, site))
        copies += runtime_copies(system, site, files)
        extensions += _read(system, site, files, binaries)
    others = other_roots(installed)
    for folder in others:
        files = tuple(path for path in _source_files(system, folder) if is_importable(path))
        extensions += _read(system, folder, files, binaries)
    if not extensions:  # most environments on a CPU: the RECORD of each distribution need not be read
        return (), tuple(copies)
    owners = owners_of_native_files(system, installed)
    linkage = read_linkage(loader, binaries)
    complete = []
    for item in extensions:
        owner = owners.get((item.folder, item.path)) or others.get(item.folder)
        # a damaged file that nobody owns and Python cannot import may be anything
        if owner is not None or item.importable or not item.error:
            importable = item.importable or bool(item.error)
            links = linkage.get(f"{item.folder}/{item.path}")
            complete.append(replace(item, distribution=owner, importable=importable, linkage=links))
    return tuple(complete), tuple(copies)


def is_importable(path: str) -> bool:
    """Its name is that of a Python extension module, and not of a plain library."""
    return _IMPORTABLE.search(path.rsplit("/", 1)[-1]) is not None


def links_torch(binary: Binary) -> bool:
    """One of torch's libraries is among those it needs."""
    return any(_LINKS_TORCH.match(name) for name in binary.needed)


def _read(
    system: System, folder: str, files: Iterable[str], binaries: dict[str, Binary]
) -> Iterator[Extension]:
    """The extensions among the files of one folder; those whose linkage is worth a look go to ``binaries``."""
    for path in files:
        importable = is_importable(path)
        try:
            binary = system.read_binary(f"{folder}/{path}")
        except (BinaryError, OSError) as error:
            yield Extension(path, folder, None, (), (), False, importable, 0, error=str(error))
            continue
        links = links_torch(binary)
        code = group_fatbins(binary.fatbins)
        if not links and not code:
            continue
        if links or importable:
            binaries[f"{folder}/{path}"] = binary
        python_module, is_optional = None, False
        if importable:
            # Python can import what exports ``PyInit_`` and its name; torch.ops loads others by their path
            stem = path.rpartition("/")[2].split(".")[0]
            with contextlib.suppress(BinaryError, OSError):
                python_module = not system.missing_exports((f"PyInit_{stem}",), (f"{folder}/{path}",))
        if python_module is False:
            # importing its package does not load it where the package's own __init__.py imports no torch
            text = system.read(f"{folder}/{path.split('/')[0]}/__init__.py")
            is_optional = text is not None and not IMPORTS_TORCH.search(text)
        extension = Extension(path, folder, None, code, binary.needed, links, importable, binary.size)
        yield replace(extension, python_module=python_module, optional=is_optional)


def _native_files(system: System, site: str) -> Iterator[str]:
    """Native files below a site-packages folder. One that links lead to again is met once: they may lead in circles."""
    pending = [name for name in system.listdir(site) if name not in _NOT_EXTENSIONS]
    # a folder is known again by its real path, asked only of those that hold the same names: few do, and asking is slow
    first_of: dict[tuple[str, ...], str] = {}
    met: dict[tuple[str, ...], set[str]] = {}
    while pending:
        path = pending.pop()
        name = path.rsplit("/", 1)[-1]
        if is_native(name):
            yield path
            continue
        # by its name alone: a look at each of a hundred thousand files would take minutes
        if name == "__pycache__" or ("." in name and not name.endswith(".libs")):
            continue
        folder = f"{site}/{path}"
        names = system.listdir(folder)
        first = first_of.setdefault(names, folder)
        if first != folder:
            known = met.setdefault(names, {system.realpath(first)})
            if (real := system.realpath(folder)) in known:
                continue
            known.add(real)
        pending += [f"{path}/{child}" for child in names]


def _source_files(system: System, folder: str, inside: str = "", depth: int = _SOURCE_DEPTH) -> Iterator[str]:
    """Native files built in place in a source folder, not those of its build output."""
    for name in system.listdir(f"{folder}/{inside}".rstrip("/")):
        if is_native(name):
            yield inside + name
        elif depth and "." not in name and name not in _NOT_SOURCE:
            yield from _source_files(system, folder, f"{inside}{name}/", depth - 1)


def cache_root(system: System) -> tuple[str, bool] | None:
    """The folder that may hold the cache, and whether TORCH_EXTENSIONS_DIR names it; None where no variable tells.

    torch puts its own tag between the default folder and the extensions, and none where the variable is set.
    """
    env, inside = system.env, "torch_extensions"
    if named := env.get("TORCH_EXTENSIONS_DIR"):
        return named.replace("\\", "/").rstrip("/"), True
    home = env.get("HOME", "")
    caches = home and f"{home}/.cache"
    if system.name == "windows":
        caches, inside = env.get("LOCALAPPDATA", "").replace("\\", "/"), f"{inside}/{inside}/Cache"
    elif system.name == "darwin":
        caches = home and f"{home}/Library/Caches"
    else:
        caches = env.get("XDG_CACHE_HOME") or caches
    return (f"{caches}/{inside}", False) if caches else None


def own_tag(python: str, abiflags: str, torch: Torch | None) -> str:
    """The tag of the target environment: its Python's version and its torch's CUDA; "" without a torch."""
    if torch is None:
        return ""
    major, minor = python.split(".")[:2]
    cuda = f"cu{torch.cuda.replace('.', '')}" if torch.cuda else "cpu"
    return f"py{major}{minor}{abiflags}_{cuda}"


def read_jit_caches(loader: Loader, tag: str) -> tuple[JitCache, ...]:
    """Every cached extension. Only those that the target environment would load are looked at for missing symbols."""
    system = loader.system
    root = cache_root(system)
    if root is None:
        return ()
    caches: list[JitCache] = []
    binaries: dict[str, Binary] = {}
    folders: list[tuple[str, str]] = []
    for name in system.listdir(root[0]):
        inside = f"{root[0]}/{name}"
        if _TAG.fullmatch(name):
            folders += [(f"{inside}/{child}", name) for child in system.listdir(inside)]
        else:
            folders.append((inside, ""))
    for folder, folder_tag in folders:
        is_current = (root[1] and not folder_tag) or (bool(tag) and folder_tag == tag)
        names = system.listdir(folder)
        libraries = [f"{folder}/{name}" for name in filter(is_native, names)]
        # torch renumbers a library (name_v1.so) when it recompiles in one process; the newest is what it loads
        library = max(libraries, key=lambda path: system.modified(path) or 0.0, default=None)
        if library is None and "build.ninja" not in names and "lock" not in names:
            continue
        ninja = system.read(f"{folder}/build.ninja") or ""
        error = ""
        code: tuple[FatbinGroup, ...] = ()
        if library is not None:
            try:
                binary = system.read_binary(library)
                code = group_fatbins(binary.fatbins)
                if is_current and links_torch(binary):
                    binaries[library] = binary
            except (BinaryError, OSError) as problem:
                error = str(problem)
        caches.append(
            JitCache(
                name=folder.rsplit("/", 1)[-1],
                folder=folder,
                tag=folder_tag,
                current=is_current,
                built=_written(system, library) if library else None,
                locked=_written(system, f"{folder}/lock") if "lock" in names else None,
                library=library,
                code=code,
                torch_folder=captured(_TORCH_INCLUDE, ninja),
                cuda_home=captured(_NVCC, ninja),
                gencode=tuple(dict.fromkeys(_ARCH_FLAG.findall(ninja))),
                error=error,
            )
        )
    linkage = read_linkage(loader, binaries) if binaries else {}
    return tuple(replace(item, linkage=linkage.get(item.library or "", item.linkage)) for item in caches)


def _written(system: System, path: str) -> str | None:
    if (seconds := system.modified(path)) is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")
