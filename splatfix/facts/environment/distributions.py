"""The installed distributions of an environment, read from their metadata folders, and which of them owns which file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from splatfix.facts.model.environment import BuildRecord, Distribution
from splatfix.facts.system.live import System

# Only these say something about each other's exact versions that a splatting environment must keep.
_TORCH_FAMILY = re.compile(r"torch(vision|audio)?", re.IGNORECASE)
_PIN = re.compile(r"^Requires-Dist:\s*(torch|triton|numpy)\s*\(?==\s*([\w.+!*]+)", re.MULTILINE)
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
                yield Distribution(*_egg_name(name.removesuffix(".egg-info")), site)
            elif name.endswith(".egg") and system.exists(f"{site}/{name}/EGG-INFO"):
                yield Distribution(*_egg_name(name.removesuffix(".egg")), site, origin=f"{site}/{name}")


def editable_source(distribution: Distribution) -> str | None:
    """The folder that an editable install runs from; None for any other."""
    if not distribution.editable or not distribution.origin:
        return None
    parts = urlsplit(distribution.origin)
    if parts.scheme != "file":
        return distribution.origin if "://" not in distribution.origin else None
    path = unquote(parts.path)
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path


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


def _egg_name(stem: str) -> tuple[str, str]:
    match = re.match(r"(.+?)-([^-]+)(-py\d.*)?$", stem)
    return (match.group(1), match.group(2)) if match else (stem, "")


def _from_egg_link(system: System, site: str, name: str) -> Distribution:
    lines = (system.read(f"{site}/{name}") or "").splitlines()
    origin = lines[0].strip() if lines else ""
    project = name.removesuffix(".egg-link")
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
    project, _, version = name.removesuffix(".dist-info").rpartition("-")
    origin, editable = "", False
    if direct := system.read(f"{site}/{name}/direct_url.json"):
        try:
            document = json.loads(direct)
            origin = str(document.get("url", ""))
            editable = bool(document.get("dir_info", {}).get("editable", False))
        except (ValueError, AttributeError):
            origin = "(direct_url.json is damaged)"
    mark, built = _manifest(system.read(f"{site}/{name}/splatfix.json"))
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
        built=built,
        pins=pins,
    )
    source = editable_source(found)
    if source is None or system.exists(source):
        return found
    return Distribution(**{**vars(found), "source_gone": True})


def _manifest(text: str | None) -> tuple[str, BuildRecord | None]:
    """The kind of a wheel that splatfix made, and how it was built; a damaged manifest still says that splatfix made it."""
    if not text:
        return "", None
    try:
        document = json.loads(text)
        kind = str(document.get("kind", "built"))
        record = BuildRecord(
            targets=tuple(map(str, document.get("targets") or ())),
            cuda_mismatch=str(document.get("cuda_mismatch") or ""),
            edits=tuple(map(str, document.get("edits") or ())),
            built_with=tuple((str(k), str(v)) for k, v in (document.get("built_with") or {}).items()),
        )
    except (ValueError, AttributeError, TypeError):
        return "built", None
    return kind, record if kind == "built" else None
