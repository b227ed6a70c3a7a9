"""The Python side of the splatting extensions in an environment, and the modules that shadow them on the import path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from splatfix.binaries import BinaryError
from splatfix.facts.environment.distributions import claimed_modules, editable_source
from splatfix.facts.environment.extensions import module_name
from splatfix.facts.model.environment import Distribution, Extension, SplatPackage
from splatfix.facts.model.source import Shadow
from splatfix.facts.source.python_source import SPLAT_MODULE, PackageSource, read_package_source
from splatfix.facts.system.live import System

_ALWAYS_SHADOWABLE = frozenset({"torch", "torchvision", "numpy"})


def read_packages(
    system: System,
    sites: Iterable[str],
    distributions: Iterable[Distribution],
    extensions: Iterable[Extension],
) -> tuple[SplatPackage, ...]:
    """Every splatting package of the environment, also those inside another package, and each of several copies."""
    known, native = tuple(distributions), tuple(extensions)
    roots = [*sites, *_roots(known)]
    places: dict[tuple[str, str], None] = {}
    for root in roots:
        for name in system.listdir(root):
            if SPLAT_MODULE.fullmatch(name) and _is_package(system, f"{root}/{name}"):
                places[(root, name)] = None
    for item in native:
        module, _, last = module_name(item).rpartition(".")
        if last == "_C" and item.links_torch and SPLAT_MODULE.fullmatch(module.rpartition(".")[2]):
            places[(item.folder, module.replace(".", "/"))] = None
    claims = {item: claimed_modules(system, item) for item in known if _may_ship_splats(item)}
    return tuple(
        _read(system, root, path, native, tuple(_owners(root, path, claims))) for root, path in places
    )


def read_shadows(system: System, folder: str, installed: Iterable[SplatPackage]) -> tuple[Shadow, ...]:
    """Modules in ``folder`` (searched before site-packages) that carry the name of an installed package.

    A folder without ``__init__.py`` shadows nothing: a real package further down the path wins over it.
    """
    packages = tuple(installed)
    names = _ALWAYS_SHADOWABLE | {item.module for item in packages}
    homes = {system.realpath(item.folder) for item in packages}
    found = []
    for entry in system.listdir(folder):
        path = f"{folder}/{entry}"
        module = entry.removesuffix(".py")
        if module not in names or system.realpath(path) in homes:
            continue
        if entry == module and not system.exists(f"{path}/__init__.py"):
            continue
        native = any(re.search(r"\.(so|pyd)$", name) for name in system.listdir(path))
        found.append(Shadow(module, path, native))
    return tuple(found)


def _roots(distributions: Iterable[Distribution]) -> Iterator[str]:
    for item in distributions:
        source = item.origin if item.origin.endswith(".egg") else editable_source(item)
        if source and not item.source_gone:
            yield source


def _is_package(system: System, folder: str) -> bool:
    """A folder that Python would import: with ``__init__.py``, or with compiled modules in it."""
    return any(
        name == "__init__.py" or name.endswith((".so", ".pyd", ".py")) for name in system.listdir(folder)
    )


def _may_ship_splats(item: Distribution) -> bool:
    """Whether its list of files is worth reading: torch's and NVIDIA's are long, and ship none of these modules."""
    return re.match(r"(nvidia|torch|triton|numpy|scipy|pip|setuptools|sympy)", item.name.lower()) is None


def _owners(root: str, path: str, claims: dict[Distribution, frozenset[str]]) -> Iterator[str]:
    top = path.split("/")[0]
    for item, modules in claims.items():
        home = item.origin if item.origin.endswith(".egg") else (editable_source(item) or item.location)
        if (home == root and top in modules) or (
            home == root and item.editable and item.name.replace("-", "_") == top
        ):
            yield item.name


def _read(
    system: System, root: str, path: str, extensions: tuple[Extension, ...], owners: tuple[str, ...]
) -> SplatPackage:
    folder, module = f"{root}/{path}", path.replace("/", ".")
    files = {module_name(item): f"{item.folder}/{item.path}" for item in extensions if item.importable}
    source, error = PackageSource(), ""
    text = system.read(f"{folder}/__init__.py")
    if text is not None:
        try:
            source = read_package_source(module, text)
        except (SyntaxError, ValueError, RecursionError) as problem:
            error = f"__init__.py is not Python this version can read: {problem}"
    own = tuple(name for name in files if name.startswith(f"{module}."))
    native = tuple(dict.fromkeys((*source.native, *own)))
    exports_missing: tuple[str, ...] = ()
    compiled = [files[name] for name in source.native if name in files]
    if compiled and source.exports:
        try:
            held = {text for file in compiled for text in system.contains(file, source.exports)}
            exports_missing = tuple(text for text in source.exports if text not in held)
        except (BinaryError, OSError) as problem:
            error = str(problem)
    return SplatPackage(
        module=module,
        folder=folder,
        distributions=owners,
        native=native,
        native_missing=tuple(name for name in source.native if name not in files),
        settings=source.settings,
        settings_defaults=source.settings_defaults,
        classes=source.classes,
        forward=source.forward,
        forward_required=source.forward_required,
        returns=source.returns,
        exports=source.exports,
        exports_missing=exports_missing,
        imports_torch=None if text is None else _imports_torch(text),
        error=error,
    )


def _imports_torch(text: str) -> bool | None:
    """Whether an ``__init__.py`` imports torch; None where it imports other files of its package, which may do so."""
    if re.search(r"^\s*(import|from)\s+torch\b", text, re.MULTILINE):
        return True
    others = re.search(r"^\s*from\s+\.+(?!_C\b)(?!\s*import\s+_C\b)", text, re.MULTILINE)
    return None if others else False
