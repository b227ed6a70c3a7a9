"""The installed distributions, who owns which file, the Python side of splatting packages, and modules that shadow them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from splatfix.binaries import BinaryError, Fatbin, FatbinEntry
from splatfix.core.codec import parse_json
from splatfix.facts.model.environment import BuildRecord, Distribution, Extension, SplatPackage
from splatfix.facts.model.fact import group_fatbins
from splatfix.facts.model.source import PackageSource, Shadow
from splatfix.facts.source.python_source import is_splat_module, read_package_source
from splatfix.facts.source.reader import NotPython
from splatfix.facts.system.live import System

_ALWAYS_SHADOWABLE = frozenset({"torch", "torchvision", "numpy"})


# Only these say something about each other's exact versions that a splatting environment must keep.
_TORCH_FAMILY = re.compile(r"torch(vision|audio)?", re.IGNORECASE)
_PIN = re.compile(r"^Requires-Dist:\s*(torch|triton|numpy)\s*\(?==\s*([\w.+!*]+)", re.MULTILINE)
_CUBIN_LINE = re.compile(r'^"?([^\n"]*\.(?:cubin|ptx))"?,', re.MULTILINE)
_NATIVE_LINE = re.compile(r'^"?([^\n"]*\.(?:so|pyd|dll)(?:\.[\d.]+)?)"?,', re.MULTILINE)


def read_distributions(system: System, sites: Iterable[str]) -> Iterator[Distribution]:
    """Every distribution in these site-packages folders, also eggs and the links of editable installs."""
    for site in sites:
        for name in system.listdir(site):
            if name.endswith(".dist-info"):
                yield _from_dist_info(system, site, name)
            elif name.endswith(".egg-link"):
                yield _from_egg_link(system, site, name)
            elif name.endswith(".egg-info"):
                yield Distribution(*name_and_version(name), site)
            elif name.endswith(".egg") and system.exists(f"{site}/{name}/EGG-INFO"):
                yield Distribution(*name_and_version(name), site, origin=f"{site}/{name}")


def editable_source(distribution: Distribution) -> str | None:
    """The folder that an editable install runs from; None for any other."""
    return origin_folder(distribution) if distribution.editable else None


def origin_folder(distribution: Distribution) -> str | None:
    """The folder it was installed from; None where that was an address, or is not written down."""
    if not distribution.origin:
        return None
    try:
        parts = urlsplit(distribution.origin)
    except ValueError:  # an address such as https://[x/
        return None
    if parts.scheme != "file":
        return distribution.origin if "://" not in distribution.origin else None
    path = unquote(parts.path)
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path


def other_roots(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Eggs, and the source folders that editable installs run from -> name of the (first) distribution."""
    found: dict[str, str] = {}
    for item in distributions:
        if (home := _home(item)) != item.location and not item.source_gone:
            found.setdefault(home, item.name)
    return found


def _home(item: Distribution) -> str:
    """The folder that its modules are imported from."""
    return item.origin if item.origin.endswith(".egg") else editable_source(item) or item.location


def metadata_folder(distribution: Distribution) -> str:
    """Its ``.dist-info`` folder, whether there is one or not."""
    return f"{distribution.location}/{distribution.name}-{distribution.version}.dist-info"


def owners_of_native_files(
    system: System, distributions: Iterable[Distribution]
) -> dict[tuple[str, str], str]:
    """(site-packages folder, relative path) of every native file that a RECORD lists -> the distribution's name."""
    owners: dict[tuple[str, str], str] = {}
    for distribution in distributions:
        record = system.read(f"{metadata_folder(distribution)}/RECORD") or ""
        # a RECORD has thousands of lines; a plain search for the few that matter is four times as fast as the pattern
        lines = (line for line in record.splitlines() if ".so" in line or ".pyd" in line or ".dll" in line)
        for match in filter(None, map(_NATIVE_LINE.match, lines)):
            owners[(distribution.location, match.group(1))] = distribution.name
    return owners


def claimed_modules(system: System, distribution: Distribution) -> frozenset[str]:
    """Top-level names that a distribution ships, by its RECORD or its ``top_level.txt``."""
    if record := system.read(f"{metadata_folder(distribution)}/RECORD"):
        heads = {line.partition("/")[0].partition(",")[0] for line in record.splitlines()}
        return frozenset(head.partition(".")[0] for head in heads if not head.endswith((".dist-info", "..")))
    stem = f"{distribution.location}/{distribution.name}"
    for folder in (
        f"{stem}.egg-info",
        f"{stem}-{distribution.version}.egg-info",
        f"{distribution.origin}/EGG-INFO",
        f"{distribution.origin}/{distribution.name}.egg-info",
    ):
        if text := system.read(f"{folder}/top_level.txt"):
            return frozenset(text.split())
    return frozenset()


def name_and_version(metadata: str) -> tuple[str, str]:
    """Of a distribution, from the name of its dist-info, egg-info, egg or egg-link.

    In a version no hyphen is left, in an egg-link there is no version.
    """
    stem, _, kind = metadata.rpartition(".")
    project, hyphen, version = re.sub(r"-py\d.*$", "", stem).rpartition("-")
    return (project, version) if hyphen and kind != "egg-link" else (stem, "")


def _from_egg_link(system: System, site: str, name: str) -> Distribution:
    lines = (system.read(f"{site}/{name}") or "").splitlines()
    origin = lines[0].strip() if lines else ""
    project, _ = name_and_version(name)
    info = system.read(f"{origin}/{project.replace('-', '_')}.egg-info/PKG-INFO") or ""
    version = re.search(r"^Version:\s*(\S+)", info, re.MULTILINE)
    return Distribution(
        name=project,
        version=version.group(1) if version else "",
        location=site,
        editable=True,
        origin=origin,
        source_gone=not (origin and system.exists(origin)),
    )


def _from_dist_info(system: System, site: str, name: str) -> Distribution:
    project, version = name_and_version(name)
    origin, editable = "", False
    if direct := system.read(f"{site}/{name}/direct_url.json"):
        try:
            document = parse_json(direct)
            origin = str(document.get("url", ""))
            editable = bool(document.get("dir_info", {}).get("editable", False))
        except (ValueError, AttributeError):
            origin = "(direct_url.json is damaged)"
    mark, built, dropin = _manifest(system.read(f"{site}/{name}/splatfix.json"))
    pins: tuple[str, ...] = ()
    if _TORCH_FAMILY.fullmatch(project):
        metadata = system.read(f"{site}/{name}/METADATA") or ""
        pins = tuple(f"{other}=={exact}" for other, exact in _PIN.findall(metadata))
    found = Distribution(
        name=project,
        version=version,
        location=site,
        editable=editable,
        origin=origin,
        made_by_splatfix=mark,
        dropin=dropin,
        built=built,
        pins=pins,
    )
    if dropin:
        found = _with_code(system, found)
    folder = origin_folder(found) or ""
    if editable and folder and not system.exists(folder):
        return dataclasses.replace(found, source_gone=True)
    buildable = folder and any(system.exists(f"{folder}/{name}") for name in ("setup.py", "pyproject.toml"))
    return dataclasses.replace(found, source=folder) if buildable else found


def _with_code(system: System, dropin: Distribution) -> Distribution:
    """The same with what its cubins and PTX hold, those of one kernel file for several GPUs together."""
    record = system.read(f"{metadata_folder(dropin)}/RECORD") or ""
    kernels: dict[str, list[FatbinEntry]] = {}
    for path in _CUBIN_LINE.findall(record):
        name = path.rpartition("/")[2]
        try:
            fatbins = system.read_binary(f"{dropin.location}/{path}").fatbins
        except (BinaryError, OSError) as error:
            return dataclasses.replace(dropin, code_error=f"{path}: {error}")
        entries = [entry for fatbin in fatbins for entry in fatbin.entries]
        told = name.replace("-compute_", "-sm_")
        if wrong := [entry.arch for entry in entries if f"-{entry.arch}-" not in told]:
            return dataclasses.replace(dropin, code_error=f"{path} holds code for {wrong[0]}")
        kernels.setdefault(name.partition("-")[0], []).extend(entries)
    code = group_fatbins(Fatbin(0, name, tuple(entries)) for name, entries in kernels.items())
    return dataclasses.replace(dropin, code=code)


def _manifest(text: str | None) -> tuple[str, BuildRecord | None, str]:
    """The kind of a wheel that splatfix made, how it was built, and which drop-in it is; a damaged manifest still says
    that splatfix made it."""
    if not text:
        return "", None, ""
    try:
        document = parse_json(text)
        kind = str(document.get("kind", "built"))
        record = BuildRecord(
            targets=tuple(map(str, document.get("targets") or ())),
            source=str(document.get("source") or ""),
            cuda_mismatch=str(document.get("cuda_mismatch") or ""),
            edits=tuple(map(str, document.get("edits") or ())),
            built_with=tuple((str(k), str(v)) for k, v in (document.get("built_with") or {}).items()),
        )
        named = (str(document.get(key) or "") for key in ("replaces", "variant"))
    except (ValueError, AttributeError, TypeError):
        return "built", None, ""
    return (
        kind,
        record if kind == "built" else None,
        "@".join(filter(None, named)) if kind == "drop-in" else "",
    )


def read_packages(
    system: System,
    sites: Iterable[str],
    distributions: Iterable[Distribution],
    extensions: Iterable[Extension],
) -> tuple[SplatPackage, ...]:
    """Every splatting package of the environment, also those inside another package, and each of several copies."""
    known, native = tuple(distributions), tuple(extensions)
    places: dict[tuple[str, str], None] = {}
    for root in (*sites, *other_roots(known)):
        for name in system.listdir(root):
            if is_splat_module(name) and _is_package(system, f"{root}/{name}"):
                places[(root, name)] = None
    for item in native:
        module, _, last = item.module.rpartition(".")
        if last == "_C" and item.links_torch and is_splat_module(module.rpartition(".")[2]):
            places[(item.folder, module.replace(".", "/"))] = None
    dropins = {item.name: item.dropin for item in known}
    claims = {item: claimed_modules(system, item) for item in known if _may_ship_splats(item)}
    found = (_read(system, root, path, native, tuple(_owners(root, path, claims))) for root, path in places)
    return tuple(
        dataclasses.replace(item, dropin=next(filter(None, map(dropins.get, item.distributions)), ""))
        for item in found
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
        own_name = item.editable and item.name.replace("-", "_") == top
        if _home(item) == root and (own_name or top in modules):
            yield item.name


def _read(
    system: System, root: str, path: str, extensions: tuple[Extension, ...], owners: tuple[str, ...]
) -> SplatPackage:
    folder, module = f"{root}/{path}", path.replace("/", ".")
    files = {item.module: f"{item.folder}/{item.path}" for item in extensions if item.importable}
    source, error = PackageSource(), ""
    text = system.read(f"{folder}/__init__.py")
    if text is not None:
        try:
            source = read_package_source(module, text)
        except NotPython as problem:
            error = f"__init__.py is not Python this version can read: {problem}"

    def written(name: str) -> bool:
        return system.exists(f"{root}/{name.replace('.', '/')}.py")

    own = tuple(name for name in files if name.startswith(f"{module}."))
    native = tuple(dict.fromkeys((*(name for name in source.native if not written(name)), *own)))
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
        native_missing=tuple(name for name in source.native if name not in files and not written(name)),
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
    if re.search(r"^[ \t]*(import|from)[ \t]+torch\b", text, re.MULTILINE):
        return True
    others = re.search(r"^[ \t]*from[ \t]+\.+(?!_C\b)(?![ \t]*import[ \t]+_C\b)", text, re.MULTILINE)
    return None if others else False
