"""Wheels: metadata, where pip puts each member, and a deterministic writer."""

import base64
import csv
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from contextlib import contextmanager
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.install.environment import Environment

MANIFEST = "splatfix.json"
"""File in a dist-info folder that marks what splatfix made; ``kind`` is ``built`` or ``drop-in``."""
_MANIFEST_VERSION = 2

# What distributions and scripts are called: a name, never a path.
_NAME = re.compile(r"[\w.-]*\w[\w.-]*")

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, LookupError, ValueError, OSError, RuntimeError)
"""What reading an archive raises, or a text in it."""
# The earliest time a zip file can hold; equal inputs then give equal wheels.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class WheelFile(Struct, frozen=True):
    """A wheel's metadata."""

    path: Path
    name: str
    version: str
    dist_info: str
    """``simple_knn-0.0.0.dist-info``"""
    pure: bool
    """Root-Is-Purelib"""
    tags: tuple[str, ...]
    members: tuple[str, ...]
    scripts: tuple[str, ...] = ()
    """Names of the launchers that pip makes for its entry points."""

    @property
    def modules(self) -> tuple[str, ...]:
        """Importable names: top-level packages and modules, then every extension module."""
        tops: dict[str, None] = {}
        natives: dict[str, None] = {}
        members = set(self.members)
        for member in self.members:
            if ".dist-info/" in member or ".data/" in member:
                continue
            *folders, name = member.split("/")
            module = ".".join([*folders, name.split(".")[0]])
            is_native = name.endswith((".so", ".pyd")) and not name.startswith("lib")
            is_python = name.endswith(".py")
            if len(folders) == 1 and name == "__init__.py":
                tops[folders[0]] = None
            elif is_python and not folders:
                tops[module] = None
            # a namespace package has no module of its own
            elif is_native or (
                is_python and len(folders) == 1 and f"{folders[0]}/__init__.py" not in members
            ):
                natives[module] = None
        return (*tops, *(name for name in natives if name not in tops))

    def destinations(self, environment: Environment) -> tuple[Path, ...]:
        """Where pip writes each member, and the launcher scripts it makes (wheel specification, PEP 427)."""
        version = environment.version
        # launchers that pip adds for a program (get_console_script_specs of its operations/install/wheel.py)
        added: dict[str, tuple[str, ...]] = {
            "pip": (f"pip{version.partition('.')[0]}", f"pip{version}"),
            "easy_install": (f"easy_install-{version}",),
        }
        paths = [path for _, path in self.placed(environment)]
        for name in (name for script in self.scripts for name in (script, *added.get(script, ()))):
            paths += [environment.scripts / name, environment.scripts / f"{name}.exe"]
        return tuple(paths)

    def placed(self, environment: Environment) -> tuple[tuple[str, Path], ...]:
        """Every member with the path where pip writes it."""
        root = environment.purelib if self.pure else environment.platlib
        data_folder = f"{self.dist_info.removesuffix('.dist-info')}.data"
        schemes = {
            "purelib": environment.purelib,
            "platlib": environment.platlib,
            "scripts": environment.scripts,
            "data": environment.data,
            "headers": environment.headers / self.name,
        }
        placed: list[tuple[str, Path]] = []
        for member in self.members:
            top, _, rest = member.partition("/")
            scheme, _, inside = rest.partition("/")
            if top != data_folder:
                placed.append((member, root / member))
            elif scheme in schemes:
                placed.append((member, schemes[scheme] / inside))
        return tuple(placed)


def open_wheel(path: Path) -> WheelFile:
    """Read a wheel's metadata; raises ``not-a-wheel``, also where members or scripts would be written elsewhere."""
    with _archive(path) as archive:
        members = tuple(info.filename for info in archive.infolist() if not info.is_dir())
        tops = dict.fromkeys(member.partition("/")[0] for member in members)
        infos = [top for top in tops if top.endswith(".dist-info")]
        if len(infos) != 1:
            raise ValueError(f"it has {len(infos)} dist-info folders")
        (dist_info,) = infos
        said = HeaderParser().parsestr(archive.read(f"{dist_info}/WHEEL").decode())
        named = HeaderParser().parsestr(archive.read(f"{dist_info}/METADATA").decode())
        points = f"{dist_info}/entry_points.txt"
        scripts = launchers_in(archive.read(points).decode()) if points in members else ()
        for member in members:
            if "\\" in member or PurePosixPath(member).is_absolute() or ".." in member.split("/"):
                raise ValueError(f"{member!r} would be written elsewhere")
        for script in scripts:
            if not _NAME.fullmatch(script):
                raise ValueError(f"{script!r} would be written elsewhere")
        if not _NAME.fullmatch(named["Name"] or "") or not named["Version"]:
            raise ValueError("its METADATA has no proper Name and Version")
    pure = (said["Root-Is-Purelib"] or "").strip().lower() == "true"
    tags = tuple(said.get_all("Tag") or ())
    return WheelFile(path, named["Name"], named["Version"], dist_info, pure, tags, members, scripts)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel opened; whatever is wrong with what is read of it is ``not-a-wheel``."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except UNREADABLE as error:
        raise SplatfixError.of("install.not-a-wheel", path_name=path.name, error=error) from error


def launchers_in(entry_points: str) -> tuple[str, ...]:
    """Return names of the programs that an ``entry_points.txt`` asks for; () when it cannot be read."""
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(entry_points)
    except Error:
        return ()
    names: list[str] = []
    for group in ("console_scripts", "gui_scripts"):  # pip makes launchers for these two alone
        if parser.has_section(group):
            names += parser.options(group)
    return tuple(names)


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes],
    summary: str,
    *,
    requires: Iterable[str] = (),
    entry_points: str = "",
) -> Path:
    """Write a pure wheel (py3-none-any) of these files, with metadata and RECORD; equal input gives equal bytes.

    Done by hand, because the target environment may lack a build backend.
    """
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    wheel = "Wheel-Version: 1.0\nGenerator: splatfix\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    members = dict(files) | {f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": wheel.encode()}
    if entry_points:
        members[f"{info}/entry_points.txt"] = entry_points.encode()
    path = folder / f"{stem}-py3-none-any.whl"
    _write(path, members, f"{info}/RECORD", {})
    return path


def add_manifest(path: Path, kind: str, made_so: Mapping[str, Any]) -> None:
    """Put :data:`MANIFEST` into a wheel's dist-info and update its RECORD; ``kind`` is ``built`` or ``drop-in``."""
    wheel = open_wheel(path)
    with _archive(path) as archive:
        members = {name: archive.read(name) for name in wheel.members}
        modes = {info.filename: info.external_attr for info in archive.infolist()}
    record = f"{wheel.dist_info}/RECORD"
    # a signature of RECORD does not hold for the one that is written now
    for name in (record, f"{record}.jws", f"{record}.p7s"):
        members.pop(name, None)
    manifest = {"schema_version": _MANIFEST_VERSION, "kind": kind, "splatfix": __version__, **made_so}
    members[f"{wheel.dist_info}/{MANIFEST}"] = (json.dumps(manifest, indent=2) + "\n").encode()
    _write(path, members, record, modes)


def _write(path: Path, members: Mapping[str, bytes], record: str, modes: Mapping[str, int]) -> None:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", len(content)])
    writer.writerow([record, "", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in [*members.items(), (record, rows.getvalue().encode())]:
            info = zipfile.ZipInfo(name, _EPOCH)
            # the upper half is the mode; pip makes executable what is so here
            info.external_attr = modes.get(name, 0o100644 << 16)
            archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    write_bytes(path, buffer.getvalue())
