"""What is fuzzed: for each reader of strangers' bytes a function that reads some, and seeds. Imported by ``fuzz`` when it may."""

import io
import struct
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from smoke_trainer.errors import SceneError
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.core.errors import SplatfixError
from splatfix.explain import explain_build
from splatfix.facts.checkout import read_source
from splatfix.facts.source.checkout import read_checkout
from splatfix.install.wheels import add_manifest, open_wheel, write_wheel
from tests.explain.test_build_output import LOGS
from tests.smoke_trainer.test_limits import COLMAP

from . import binaries
from .checkouts import FILES
from .scenes import ply_files, read_ply

Read = Callable[[bytes, Path], None]
"""Reads the bytes, with a folder for files; raises only for what its documentation does not allow."""


def _binaries(data: bytes, _: Path) -> None:
    for call in binaries.calls_for(data):
        binaries.outcome(call, data)


_SOURCES = (
    *("setup.py", "pyproject.toml", "setup.cfg", "train.py"),
    *("ext.cu", "environment.yml", ".gitmodules", ".git/config"),
)


_PATTERNS = tuple(source_patterns())


def _source(data: bytes, folder: Path) -> None:
    """The first letter says which of the files it is."""
    for number, name in enumerate(_SOURCES):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data[1:] if data[:1] == b"%d" % number else b"")
    read_source(folder)
    read_checkout(folder, _PATTERNS)


_COLMAP = [(suffix, read) for suffix in (".bin", ".txt") for read in COLMAP.values()]


def _colmap(data: bytes, folder: Path) -> None:
    suffix, read = _COLMAP[data[0] % len(_COLMAP) if data else 0]
    path = folder / f"model{suffix}"
    path.write_bytes(data[1:])
    try:
        read(path)
    except SceneError as error:
        assert "model" in error.message


def _colmap_seeds() -> Mapping[str, bytes]:
    number = struct.Struct("<Q").pack
    camera = struct.pack("<IiQQ4d", 1, 1, 48, 36, 45.0, 46.0, 25.0, 17.0)
    image = struct.pack("<I7dI", 1, 1, 0, 0, 0, 1, 2, 3, 1) + b"a.png\0" + number(1)
    image += struct.pack("<2dQ", 1, 2, 3)
    point = struct.pack("<Q3d3Bd", 1, 1.0, 2.0, 3.0, 1, 2, 3, 0.5) + number(1) + struct.pack("<II", 1, 0)
    texts = (
        b"# c\n1 PINHOLE 48 36 45 46 25 17\n",
        b"1 1 0 0 0 1 2 3 1 a.png\n1 2 3\n",
        b"1 1 2 3 4 5 6 0.5 1 0\n",
    )
    files = (number(1) + camera, number(1) + image, number(1) + point, *texts)
    return {f"file-{index}": bytes([index]) + data for index, data in enumerate(files)}


def _ply(data: bytes, folder: Path) -> None:
    (folder / "p.ply").write_bytes(data)
    read_ply(folder / "p.ply")


def _log(data: bytes, _: Path) -> None:
    """Find the cause in it, as a build does with its own log."""
    cause = explain_build(data.decode("utf-8", errors="replace"))
    assert cause.kind and len(cause.lines) < 12


def wheels() -> dict[str, bytes]:
    """A wheel with a script, an entry point and data; and one for each name that would leave the environment."""
    files = {"pkg/__init__.py": b"x = 1\n", "pkg/_C.so": b"\x7fELF", "pkg-1.data/scripts/run": b"#!python\n"}
    files["pkg-1.dist-info/entry_points.txt"] = b"[console_scripts]\nrun = pkg:main\n"
    with tempfile.TemporaryDirectory() as folder:
        whole = write_wheel(Path(folder), "pkg", "1", files, "test").read_bytes()
    made = {"whole": whole}
    evils = ("../evil", "/evil", "pkg\\..\\evil", "pkg-1.data/data/../../evil", "a" * 5000)
    for number, evil in enumerate(evils):
        packed = io.BytesIO(whole)
        with zipfile.ZipFile(packed, "a") as archive:
            archive.writestr(evil, b"")
        made[f"evil-{number}"] = packed.getvalue()
    return made


def _wheel(data: bytes, folder: Path) -> None:
    """Everything that an installation asks of a wheel before pip gets it."""
    path = folder / "pkg-1-py3-none-any.whl"
    path.write_bytes(data)
    place = Path("/nowhere/env")
    schemes = {name: place / name for name in ("purelib", "platlib", "scripts", "headers")}
    target: Any = SimpleNamespace(version="3.11", data=place, **schemes)
    try:
        wheel = open_wheel(path)
        inside = all(place in one.parents and ".." not in one.parts for one in wheel.destinations(target))
        assert wheel.modules is not None and inside, "a member leaves the environment"
        add_manifest(path, "built", {})
    except SplatfixError as error:
        assert error.code in ("not-a-wheel", "cannot-write"), error.code


READERS: dict[str, tuple[Read, Callable[[], Mapping[str, bytes]]]] = {
    "binaries": (_binaries, lambda: {k: data for k, data in binaries.corpus().items() if len(data) < 50_000}),
    "source": (
        _source,
        lambda: {f"file-{n}": b"%d%s" % (n, FILES[k].encode()) for n, k in enumerate(_SOURCES)},
    ),
    "colmap": (_colmap, _colmap_seeds),
    "ply": (_ply, ply_files),
    "logs": (_log, lambda: {name: text.encode() for name, text in LOGS.items() if isinstance(text, str)}),
    "wheels": (_wheel, wheels),
}
