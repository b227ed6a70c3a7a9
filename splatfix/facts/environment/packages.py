"""The installed distributions with their files, the Python side of splatting packages, and modules that shadow them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import asdict, replace

from splatfix.binaries import BinaryError, Fatbin, FatbinEntry
from splatfix.core.codec import fitting, from_json, json_object, parse_json
from splatfix.facts.source.python_source import is_splat_module, read_package_source
from splatfix.facts.source.reader import NotPython
from splatfix.facts.system.live import System, captured
from splatfix.facts.tables import TABLES
from splatfix.model import (
    AlteredFile,
    BuildRecord,
    Distribution,
    Extension,
    FatbinGroup,
    PackageSource,
    Shadow,
    SplatPackage,
    group_fatbins,
)

_SHA256 = "sha256="
_LOOKED_AT = re.compile(r"\.(py|so|pyd|dll),sha256=")
_ALWAYS_SHADOWABLE = frozenset({"torch", "torchvision", "numpy"})
# Only these say something about each other's exact versions that a splatting environment must keep.
_TORCH_FAMILY = re.compile(r"torch(vision|audio)?|nerfstudio", re.IGNORECASE)
_PIN = re.compile(
    r"^Requires-Dist:\s*(torch|triton|numpy|gsplat|nerfacc)\s*\(?==\s*([\w.+!*]+)", re.MULTILINE
)
# a.py, a.so, a.cpython-311-x86_64-linux-gnu.so, or a folder
_MODULE = re.compile(r"([A-Za-z_]\w*)(\.py|\.(?:cpython|abi3|pypy|cp)[\w.-]*\.?(?:so|pyd)|\.so|\.pyd)?")
IMPORTS_TORCH = re.compile(r"^[ \t]*(import|from)[ \t]+torch\b", re.MULTILINE)
_IMPORTS_OWN_FILES = re.compile(r"^[ \t]*from[ \t]+\.+(?!_C\b)(?![ \t]*import[ \t]+_C\b)", re.MULTILINE)


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


def origin_folder(distribution: Distribution) -> str | None:
    """The folder it was installed from; None where that was an address, or is not written down."""
    origin = distribution.origin
    if origin.startswith("file:"):
        # file:///C:/source
        return re.sub(r"^/(?=[A-Za-z]:)", "", unquote(urlsplit(origin).path))
    return None if not origin or "://" in origin else origin


def other_roots(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Eggs, and the source folders that editable installs run from -> name of the (first) distribution."""
    roots: dict[str, str] = {}
    for distribution in distributions:
        home = _home(distribution)
        if home != distribution.location and not distribution.source_gone:
            roots.setdefault(home, distribution.name)
    return roots


def _home(distribution: Distribution) -> str:
    if distribution.origin.endswith(".egg"):
        return distribution.origin
    return (distribution.editable and origin_folder(distribution)) or distribution.location


def record_of(system: System, distribution: Distribution) -> str:
    """The text of its RECORD; "" where it has none, as an egg or a package of conda's."""
    stem = f"{distribution.location}/{distribution.name}-{distribution.version}"
    return system.read(f"{stem}.dist-info/RECORD") or ""


class RecordedFile(Struct, frozen=True):
    """A line of a RECORD (PEP 376)."""

    path: str
    """Relative to the site-packages folder, with forward slashes."""
    sha256: str
    """In base64 as the RECORD spells it; "" where it has none, or one by another algorithm."""
    size: int | None
    """In bytes; None where it does not say."""


def recorded_files(lines: Iterable[str]) -> Iterator[RecordedFile]:
    """The files of lines of a RECORD, those with a comma in their names left out."""
    for line in lines:
        # csv would take ten times as long for the 15,000 lines of torch's
        path, _, rest = line.partition(",")
        digest, _, size = rest.partition(",")
        if path and not path.startswith('"'):
            sha256 = digest.removeprefix(_SHA256) if digest.startswith(_SHA256) else ""
            yield RecordedFile(path, sha256, int(size) if size.isdecimal() else None)


def is_native(path: str) -> bool:
    """Tell by its name alone whether a file is a library or a Python extension module."""
    return path.endswith((".so", ".pyd", ".dll")) or ".so." in path.rpartition("/")[2]


def owners_of_native_files(
    system: System, distributions: Iterable[Distribution]
) -> dict[tuple[str, str], str]:
    """(site-packages folder, relative path) of every native file that a RECORD lists -> the distribution's name."""
    owners: dict[tuple[str, str], str] = {}
    for distribution in distributions:
        for item in recorded_files(record_of(system, distribution).splitlines()):
            if is_native(item.path):
                owners[distribution.location, item.path] = distribution.name
    return owners


def claimed_modules(system: System, distribution: Distribution) -> frozenset[str]:
    """Top-level names that a distribution ships, by its RECORD or its ``top_level.txt``."""
    record = record_of(system, distribution)
    if record:
        heads = {line.partition("/")[0].partition(",")[0] for line in record.splitlines()}
        return frozenset(head.partition(".")[0] for head in heads if not head.endswith((".dist-info", "..")))
    stem = f"{distribution.location}/{distribution.name}"
    for folder in (
        f"{stem}.egg-info",
        f"{stem}-{distribution.version}.egg-info",
        f"{distribution.origin}/EGG-INFO",
        f"{distribution.origin}/{distribution.name}.egg-info",
    ):
        text = system.read(f"{folder}/top_level.txt")
        if text:
            return frozenset(text.split())
    return frozenset()


def name_and_version(metadata: str) -> tuple[str, str]:
    """Of a distribution, from the name of its dist-info, egg-info, egg or egg-link.

    In a version no hyphen is left, in an egg-link there is no version.
    """
    stem, _, kind = metadata.rpartition(".")
    project, hyphen, version = re.sub(r"-py\d.*$", "", stem).rpartition("-")
    if kind == "egg-link" or not hyphen:
        return stem, ""
    return project, version


def _from_egg_link(system: System, site: str, name: str) -> Distribution:
    origin = ((system.read(f"{site}/{name}") or "").splitlines() or [""])[0].strip()
    project = name.removesuffix(".egg-link")
    info = system.read(f"{origin}/{project.replace('-', '_')}.egg-info/PKG-INFO") or ""
    version = captured(r"^Version:\s*(\S+)", info, re.MULTILINE)
    is_gone = not (origin and system.exists(origin))
    return Distribution(project, version, site, editable=True, origin=origin, source_gone=is_gone)


class _Folder(Struct, frozen=True):
    editable: bool = False


class _DirectUrl(Struct, frozen=True):
    """Where pip took a distribution from (PEP 610)."""

    url: str = ""
    dir_info: _Folder = _Folder()


class _Manifest(Struct, frozen=True):
    """What a wheel that splatfix made says of itself (``splatfix.json``)."""

    kind: str = "built"
    replaces: str = ""
    """Of a drop-in."""
    variant: str | None = None
    targets: tuple[str, ...] = ()
    source: str = ""
    cuda_mismatch: str = ""
    edits: tuple[str, ...] = ()
    built_with: Mapping[str, str] = {}


def _from_dist_info(system: System, site: str, name: str) -> Distribution:
    project, version = name_and_version(name)
    direct = fitting(_DirectUrl, json_object(system.read(f"{site}/{name}/direct_url.json") or ""))
    fields: dict[str, Any] = {"origin": direct.url, "editable": direct.dir_info.editable}
    if _TORCH_FAMILY.fullmatch(project):
        metadata = system.read(f"{site}/{name}/METADATA") or ""
        fields["pins"] = tuple(f"{requirement}=={exact}" for requirement, exact in _PIN.findall(metadata))
    if manifest_text := system.read(f"{site}/{name}/splatfix.json"):
        fields["made_by_splatfix"] = "built"  # a damaged one still says that splatfix made it
        with suppress(ValueError):
            manifest = from_json(_Manifest, parse_json(manifest_text))
            fields["made_by_splatfix"] = manifest.kind
            if manifest.kind == "drop-in":
                fields["dropin"] = "@".join(filter(None, (manifest.replaces, manifest.variant)))
            elif manifest.kind == "built":
                made = {name: getattr(manifest, name) for name in BuildRecord.__struct_fields__}
                fields["built"] = BuildRecord(**made | {"built_with": tuple(manifest.built_with.items())})
    distribution = Distribution(project, version, site, **fields)
    if distribution.dropin:
        code, error = _kernel_code(system, distribution)
        distribution = replace(distribution, code=code, code_error=error)
    folder = origin_folder(distribution)
    if folder and distribution.editable and not system.exists(folder):
        return replace(distribution, source_gone=True)
    if folder and any(system.exists(f"{folder}/{file}") for file in ("setup.py", "pyproject.toml")):
        return replace(distribution, source=folder)
    return distribution


def _kernel_code(system: System, dropin: Distribution) -> tuple[tuple[FatbinGroup, ...], str]:
    """What its cubins and PTX hold, those of one kernel file for several GPUs together; or which file is damaged."""
    kernels: dict[str, list[FatbinEntry]] = {}
    for item in recorded_files(record_of(system, dropin).splitlines()):
        path, name = item.path, item.path.rpartition("/")[2]
        if not name.endswith((".cubin", ".ptx")):
            continue
        try:
            fatbins = system.read_binary(f"{dropin.location}/{path}").fatbins
        except (BinaryError, OSError) as error:
            return (), f"{path}: {error}"
        for fatbin in fatbins:
            for entry in fatbin.entries:
                # the name says for which GPU it was compiled, and is what the loader of the drop-in goes by
                if f"-{entry.arch}-" not in name.replace("-compute_", "-sm_"):
                    return (), f"{path} holds code for {entry.arch}"
                kernels.setdefault(name.partition("-")[0], []).append(entry)
    return group_fatbins(Fatbin(0, name, tuple(entries)) for name, entries in kernels.items()), ""


def read_packages(
    system: System,
    sites: Iterable[str],
    distributions: Iterable[Distribution],
    extensions: Iterable[Extension],
) -> tuple[SplatPackage, ...]:
    """Every splatting package of the environment, also those inside another package, and each of several copies."""
    installed, native = tuple(distributions), tuple(extensions)
    locations: dict[tuple[str, str], None] = {}
    for root in (*sites, *other_roots(installed)):
        for name in system.listdir(root):
            if is_splat_module(name):
                # a folder that Python would import: with ``__init__.py``, or with compiled modules in it
                inside = system.listdir(f"{root}/{name}")
                if any(child.endswith((".py", ".so", ".pyd")) for child in inside):
                    locations[root, name] = None
    for extension in native:
        package, _, name = extension.module.rpartition(".")
        if name == "_C" and extension.links_torch and is_splat_module(package.rpartition(".")[2]):
            locations[extension.folder, package.replace(".", "/")] = None
    if not locations:
        return ()
    claims = [(item, claimed_modules(system, item)) for item in installed]
    packages = []
    for root, path in locations:
        top = path.split("/")[0]
        owners = []
        for item, claimed in claims:
            has_its_name = item.editable and item.name.replace("-", "_") == top
            if _home(item) == root and (has_its_name or top in claimed):
                owners.append(item)
        dropin = next(filter(None, (item.dropin for item in owners)), "")
        read = _read_package(system, root, path, native)
        packages.append(replace(read, distributions=tuple(item.name for item in owners), dropin=dropin))
    return tuple(packages)


def read_shadows(system: System, folder: str, installed: Iterable[SplatPackage]) -> tuple[Shadow, ...]:
    """Modules in ``folder`` (searched before site-packages) that carry the name of an installed package.

    A folder without ``__init__.py`` shadows nothing: a real package further down the path wins over it.
    """
    packages = tuple(installed)
    names = _ALWAYS_SHADOWABLE | {item.module for item in packages}
    homes = {system.realpath(item.folder) for item in packages}
    shadows = []
    for entry in system.listdir(folder):
        path, module = f"{folder}/{entry}", entry.removesuffix(".py")
        is_package = entry != module or system.exists(f"{path}/__init__.py")
        if module in names and is_package and system.realpath(path) not in homes:
            is_native = any(name.endswith((".so", ".pyd")) for name in system.listdir(path))
            shadows.append(Shadow(module, path, is_native))
    return tuple(shadows)


def _read_package(system: System, root: str, path: str, extensions: tuple[Extension, ...]) -> SplatPackage:
    folder, module = f"{root}/{path}", path.replace("/", ".")
    files = {item.module: f"{item.folder}/{item.path}" for item in extensions if item.importable}
    source, error = PackageSource(), ""
    text = system.read(f"{folder}/__init__.py")
    if text is not None:
        try:
            source = read_package_source(module, text)
        except NotPython as problem:
            error = f"__init__.py is not Python this version can read: {problem}"
    # a module of a native name that is written in Python: a stub, or a fallback
    native = [name for name in source.native if not system.exists(f"{root}/{name.replace('.', '/')}.py")]
    inside = [name for name in files if name.startswith(f"{module}.")]
    exports_missing: tuple[str, ...] = ()
    compiled = [files[name] for name in source.native if name in files]
    if compiled and source.exports:
        try:
            exported = {name for file in compiled for name in system.contains(file, source.exports)}
            exports_missing = tuple(name for name in source.exports if name not in exported)
        except (BinaryError, OSError) as problem:
            error = str(problem)
    imports_torch: bool | None = None
    # what imports other files of its package leaves the import of torch to them, perhaps
    if text is not None and (IMPORTS_TORCH.search(text) or not _IMPORTS_OWN_FILES.search(text)):
        imports_torch = IMPORTS_TORCH.search(text) is not None
    shown = {name: value for name, value in asdict(source).items() if name in SplatPackage.__struct_fields__}
    shown |= {"module": module, "native": tuple(dict.fromkeys((*native, *inside)))}
    return SplatPackage(
        **shown,
        folder=folder,
        native_missing=tuple(name for name in native if name not in files),
        exports_missing=exports_missing,
        imports_torch=imports_torch,
        error=error,
    )


def importable_names(
    system: System, path: Iterable[str], distributions: Iterable[Distribution]
) -> tuple[str, ...]:
    """Names of modules and packages in the folders of ``sys.path``, and of what editable installs point to.

    Args:
        path: the interpreter's ``sys.path``; the folders of Python's own library are passed over.
        distributions: those that are installed; what the disk does not show of them, their metadata does.
    """
    installed = tuple(distributions)
    folders = [
        folder
        for folder in path
        if not folder.endswith("lib-dynload") and not system.exists(f"{folder}/os.py")
    ]
    for root in other_roots(installed):
        folders += [root, f"{root}/src"]
    names: set[str] = set()
    for folder in dict.fromkeys(folders):
        names |= {match.group(1) for match in map(_MODULE.fullmatch, system.listdir(folder)) if match}
    for distribution in installed:
        if distribution.editable:
            names |= claimed_modules(system, distribution)
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("__")))


def altered_files(
    system: System, distributions: Iterable[Distribution], packages: Iterable[SplatPackage]
) -> Iterator[AlteredFile]:
    """Those of the files that matter most that differ from what was installed: sources by their digest, native files, which
    may have gigabytes, by their size."""
    splatting = {name for package in packages for name in package.distributions}
    for distribution in distributions:
        listed = tuple(TABLES["compared_files"].get(distribution.name.lower(), ()))
        if distribution.editable or not (listed or distribution.name in splatting):
            continue
        lines = record_of(system, distribution).splitlines()
        if listed:
            lines = [line for line in lines if line.startswith(listed)]
        for item in recorded_files(filter(_LOOKED_AT.search, lines)):
            is_source = item.path.endswith(".py")
            fingerprint = system.fingerprint(f"{distribution.location}/{item.path}", is_source)
            digest, _, size = (fingerprint or "").partition(",")
            difference = ""
            if fingerprint == "":
                difference = "not there"
            elif fingerprint and item.size is not None and size != str(item.size):
                difference = f"{size} bytes, not {item.size}"
            elif fingerprint and is_source and digest != f"{_SHA256}{item.sha256}":
                difference = "another content"
            if difference:
                yield AlteredFile(distribution.name, distribution.version, item.path, difference)
