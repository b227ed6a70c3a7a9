"""Native files of an environment that link torch or carry GPU code: where they are, what is in them, what they link to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from splatfix.binaries import Binary, BinaryError
from splatfix.facts.environment.distributions import editable_source, owners_of_native_files
from splatfix.facts.environment.linkage import read_linkage, runtime_copies
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.model.environment import Distribution, Extension, RuntimeCopy
from splatfix.facts.model.fact import group_fatbins
from splatfix.facts.system.live import System

# Folders whose native files belong to torch and its runtime libraries; they are not extensions of a splatting stack.
_NOT_EXTENSIONS = frozenset(
    {"torch", "functorch", "torchgen", "nvidia", "triton", "numpy", "scipy", "pandas", "cuda"}
)
_NATIVE = (".so", ".pyd", ".dll")
_IMPORTABLE = re.compile(r"\.(cpython-\d+[\w-]*|abi3|cp\d+-\w+)\.(so|pyd)$|^[^.]+\.(so|pyd)$")
_OF_ONE_PYTHON = re.compile(r"\.(cpython-|cp)\d+[\w-]*\.(so|pyd)$")
_NOT_SOURCE = frozenset({"build", "dist", "third_party", "node_modules", "output", "data"})


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
    for folder, name in _other_roots(known):
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


def module_name(extension: Extension) -> str:
    """The dotted name by which Python imports an extension file: ``pkg/_C.cpython-311-....so`` -> ``pkg._C``."""
    folder, _, name = extension.path.rpartition("/")
    stem = name.split(".")[0]
    return f"{folder.replace('/', '.')}.{stem}" if folder else stem


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
            python_module=_has_init(system, folder, path)
            if importable and _OF_ONE_PYTHON.search(path)
            else None,
        )


def _has_init(system: System, folder: str, path: str) -> bool | None:
    """Python can import it: it exports ``PyInit_`` and its name. torch.ops loads others by their path, whatever their name."""
    stem = path.rpartition("/")[2].split(".")[0]
    try:
        return not system.missing_exports((f"PyInit_{stem}",), (f"{folder}/{path}",))
    except (BinaryError, OSError):
        return None


def _native_files(system: System, site: str) -> Iterator[str]:
    pending = [name for name in system.listdir(site) if name not in _NOT_EXTENSIONS]
    while pending:
        name = pending.pop()
        last = name.rsplit("/", 1)[-1]
        if last.endswith(_NATIVE) or ".so." in last:
            yield name
        elif ("." not in last or last.endswith(".libs")) and last != "__pycache__":
            pending += [f"{name}/{child}" for child in system.listdir(f"{site}/{name}")]


def _other_roots(distributions: Iterable[Distribution]) -> Iterator[tuple[str, str]]:
    """Eggs, and source folders that editable installs run from, with the distribution's name, each once."""
    seen: set[str] = set()
    for item in distributions:
        source = item.origin if item.origin.endswith(".egg") else editable_source(item)
        if source and not item.source_gone and source not in seen:
            seen.add(source)
            yield source, item.name


def _source_files(system: System, folder: str, depth: int = 3) -> Iterator[str]:
    """Native files built in place in a source folder, not those of its build output."""
    for name in system.listdir(folder):
        if name.endswith(_NATIVE):
            yield name
        elif depth and "." not in name and name not in _NOT_SOURCE and name != "__pycache__":
            yield from (f"{name}/{path}" for path in _source_files(system, f"{folder}/{name}", depth - 1))
