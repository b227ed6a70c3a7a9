"""Build logs and wheels, as they are and as they would break out."""

import io
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from splatfix.core.errors import SplatfixError
from splatfix.explain import explain_build
from splatfix.install.wheels import add_manifest, open_wheel, write_wheel


def read_log(data: bytes) -> None:
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
    for number, evil in enumerate(
        ("../evil", "/evil", "pkg\\..\\evil", "pkg-1.data/data/../../evil", "a" * 5000)
    ):
        packed = io.BytesIO(whole)
        with zipfile.ZipFile(packed, "a") as archive:
            archive.writestr(evil, b"")
        made[f"evil-{number}"] = packed.getvalue()
    return made


def read_wheel(path: Path) -> None:
    """Everything that an installation asks of a wheel before pip gets it."""
    place = Path("/nowhere/env")
    target: Any = SimpleNamespace(
        purelib=place / "p", platlib=place / "l", scripts=place / "s", data=place, headers=place / "h"
    )
    try:
        wheel = open_wheel(path)
        inside = all(place in one.parents and ".." not in one.parts for one in wheel.destinations(target))
        assert wheel.modules is not None and inside, "a member leaves the environment"
        add_manifest(path, {"kind": "built"})
    except SplatfixError as error:
        assert error.code in ("not-a-wheel", "cannot-write"), error.code
