"""Wheels as files: their metadata, where each member will land, a small deterministic writer, and adding our manifest."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.step import say
from splatfix.install.target import Target

MANIFEST = "splatfix.json"
"""File in a dist-info folder that marks what splatfix made; ``kind`` is ``built`` or ``swap``."""

# The earliest time a zip file can hold; equal inputs then give equal wheels.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class WheelFile:
    """A wheel's own words about itself."""

    path: Path
    name: str
    version: str
    dist_info: str
    """``simple_knn-0.0.0.dist-info``"""
    pure: bool
    """Root-Is-Purelib"""
    tags: tuple[str, ...]
    members: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Importable names in it: top-level packages and modules, and every extension module, in that order."""
        tops: dict[str, None] = {}
        natives: dict[str, None] = {}
        for member in self._installed():
            parts = PurePosixPath(member).parts
            stem = parts[-1].split(".")[0]
            if member.endswith(".py") and (len(parts) == 1 or parts[1:] == ("__init__.py",)):
                tops[parts[0].removesuffix(".py")] = None
            elif member.endswith((".so", ".pyd")) and not parts[-1].startswith("lib"):
                natives[".".join((*parts[:-1], stem))] = None
            elif member.endswith(".py") and len(parts) == 2 and f"{parts[0]}/__init__.py" not in self.members:
                natives[".".join((parts[0], stem))] = None  # a namespace package has no module of its own
        return (*tops, *(name for name in natives if name not in tops))

    def _installed(self) -> tuple[str, ...]:
        return tuple(m for m in self.members if ".dist-info/" not in m and ".data/" not in m)

    def destinations(self, target: Target) -> tuple[Path, ...]:
        """Where pip will write each member, and the launcher scripts it will make (wheel specification, PEP 427)."""
        found = [path for _, path in self.placed(target)]
        for script in self._launchers():
            found += [target.scripts / script, target.scripts / f"{script}.exe"]
        return tuple(found)

    def placed(self, target: Target) -> tuple[tuple[str, Path], ...]:
        """Every member with the place where pip will write it."""
        root = target.purelib if self.pure else target.platlib
        data_folder = f"{self.dist_info.removesuffix('.dist-info')}.data/"
        found: list[tuple[str, Path]] = []
        for member in self.members:
            if not member.startswith(data_folder):
                found.append((member, root / member))
                continue
            scheme, _, rest = member.removeprefix(data_folder).partition("/")
            base = {
                "purelib": target.purelib,
                "platlib": target.platlib,
                "scripts": target.scripts,
                "data": target.data,
                "headers": target.headers / self.name,
            }.get(scheme)
            if base is not None:
                found.append((member, base / rest))
        return tuple(found)

    def _launchers(self) -> tuple[str, ...]:
        member = f"{self.dist_info}/entry_points.txt"
        if member not in self.members:
            return ()
        parser = ConfigParser(delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        with zipfile.ZipFile(self.path) as archive:
            try:
                parser.read_string(archive.read(member).decode("utf-8"))
            except (Error, UnicodeDecodeError):
                return ()
        groups = ("console_scripts", "gui_scripts")
        return tuple(name for group in groups if parser.has_section(group) for name in parser.options(group))


def open_wheel(path: Path) -> WheelFile:
    """Read a wheel's metadata.

    Raises:
        SplatfixError: ``not-a-wheel``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = tuple(info.filename for info in archive.infolist() if not info.is_dir())
            infos = {m.split("/")[0] for m in members if m.split("/")[0].endswith(".dist-info")}
            if len(infos) != 1:
                raise ValueError(f"it has {len(infos)} dist-info folders")
            dist_info = infos.pop()
            wheel = HeaderParser().parsestr(archive.read(f"{dist_info}/WHEEL").decode("utf-8"))
            metadata = HeaderParser().parsestr(archive.read(f"{dist_info}/METADATA").decode("utf-8"))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise SplatfixError(
            "not-a-wheel",
            f"{path.name} is no proper wheel: {error}.",
            meaning="Nothing was installed.",
            todo=(say("Build it again; if that does not help, the source's setup.py makes broken wheels."),),
        ) from error
    return WheelFile(
        path=path,
        name=metadata["Name"],
        version=metadata["Version"],
        dist_info=dist_info,
        pure=(wheel["Root-Is-Purelib"] or "").strip().lower() == "true",
        tags=tuple(wheel.get_all("Tag") or ()),
        members=members,
    )


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes], summary: str) -> Path:
    """Write a pure wheel (py3-none-any) with these files, with metadata and RECORD; equal input gives equal bytes.

    A dozen lines of the wheel specification are less than a build backend in the target environment would be, and
    need nothing there.
    """
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    wheel = "Wheel-Version: 1.0\nGenerator: splatfix\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = dict(files) | {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": wheel.encode()}
    path = folder / f"{stem}-py3-none-any.whl"
    _write(path, members, f"{info}/RECORD")
    return path


def add_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Put :data:`MANIFEST` into a wheel's dist-info and bring its RECORD up to date."""
    wheel = open_wheel(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in wheel.members}
    modes = _modes(path)
    record = f"{wheel.dist_info}/RECORD"
    for name in (record, f"{record}.jws", f"{record}.p7s"):
        members.pop(name, None)
    members[f"{wheel.dist_info}/{MANIFEST}"] = (json.dumps(manifest, indent=2) + "\n").encode()
    _write(path, members, record, modes)


def _modes(path: Path) -> dict[str, int]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: info.external_attr for info in archive.infolist()}


def _write(
    path: Path, members: Mapping[str, bytes], record: str, modes: Mapping[str, int] | None = None
) -> None:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(content)])
    writer.writerow([record, "", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [*members.items(), (record, rows.getvalue().encode())]:
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, 0o100644 << 16)
            archive.writestr(info, content)
    write_bytes(path, buffer.getvalue())
