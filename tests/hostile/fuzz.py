"""Coverage-guided fuzzing of every reader of strangers' bytes: ``python -m tests.hostile.fuzz TARGET [--seconds N]``.

Atheris (libFuzzer) where it is installed, else blind mutation of the same seeds. What breaks a reader is kept in a folder
and named; put it into ``corpus/TARGET``, from where every later run begins.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GUIDED = importlib.util.find_spec("atheris") is not None
Read = Callable[[bytes], None]
"""Reads the bytes; raises only for what its documentation does not allow."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed."""

    reader: Callable[[Path], Read]
    """Given a folder for files; imports what it needs when it is called."""
    seeds: Callable[[], Mapping[str, bytes]]


def _binaries(_: Path) -> Read:
    from tests.hostile import binaries

    def read(data: bytes) -> None:
        for call in binaries.calls_for(data):
            binaries.outcome(call, data, b"")

    return read


def _binary_seeds() -> Mapping[str, bytes]:
    from tests.hostile.binaries import corpus

    return {name: data for name, data in corpus().items() if len(data) < 50_000}


def _source(folder: Path) -> Read:
    """The first letter says which of the files it is."""
    from splatfix.facts import read_source
    from splatfix.facts.source.checkout import read_checkout
    from splatfix.knowledge.breakages import source_patterns

    patterns = tuple(source_patterns())

    def read(data: bytes) -> None:
        for number, name in enumerate(_SOURCES):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data[1:] if data[:1] == b"%d" % number else b"")
        read_source(folder)
        read_checkout(folder, patterns)

    return read


_SOURCES = (
    "setup.py",
    "pyproject.toml",
    "setup.cfg",
    "train.py",
    "ext.cu",
    "environment.yml",
    ".gitmodules",
    ".git/config",
)


def _source_seeds() -> Mapping[str, bytes]:
    from tests.hostile.checkouts import FILES

    return {name.replace("/", "_"): b"%d%s" % (n, FILES[name].encode()) for n, name in enumerate(_SOURCES)}


def _colmap(folder: Path) -> Read:
    from smoke_trainer.data import colmap
    from smoke_trainer.errors import SceneError

    readers: tuple[Callable[[Path], object], ...] = (
        *(colmap.read_cameras_binary, colmap.read_images_binary, colmap.read_points_binary),
        *(colmap.read_cameras_text, colmap.read_images_text, colmap.read_points_text),
    )

    def read(data: bytes) -> None:
        (folder / "model").write_bytes(data[1:])
        try:
            readers[data[0] % len(readers) if data else 0](folder / "model")
        except SceneError as error:
            assert "model" in error.message

    return read


def _colmap_seeds() -> Mapping[str, bytes]:
    import struct

    number = struct.Struct("<Q").pack
    camera = struct.pack("<IiQQ4d", 1, 1, 48, 36, 45.0, 46.0, 25.0, 17.0)
    image = (
        struct.pack("<I7dI", 1, 1, 0, 0, 0, 1, 2, 3, 1)
        + b"a.png\0"
        + number(1)
        + struct.pack("<2dQ", 1, 2, 3)
    )
    point = struct.pack("<Q3d3Bd", 1, 1.0, 2.0, 3.0, 1, 2, 3, 0.5) + number(1) + struct.pack("<II", 1, 0)
    texts = (
        b"# c\n1 PINHOLE 48 36 45 46 25 17\n",
        b"1 1 0 0 0 1 2 3 1 a.png\n1 2 3\n",
        b"1 1 2 3 4 5 6 0.5 1 0\n",
    )
    files = (number(1) + camera, number(1) + image, number(1) + point, *texts)
    return {f"file-{index}": bytes([index]) + data for index, data in enumerate(files)}


def _ply(folder: Path) -> Read:
    from tests.hostile.scenes import read_ply

    def read(data: bytes) -> None:
        (folder / "p.ply").write_bytes(data)
        read_ply(folder / "p.ply")

    return read


def _ply_seeds() -> Mapping[str, bytes]:
    from tests.hostile.scenes import ply_files

    return ply_files()


def _facts(folder: Path) -> Read:
    from splatfix.checks import Status, run_checks
    from splatfix.context import Goal, make_context
    from splatfix.core.errors import SplatfixError
    from splatfix.facts import load

    def read(data: bytes) -> None:
        (folder / "facts.json").write_bytes(data)
        try:
            facts = load(folder / "facts.json")
        except SplatfixError:
            return
        broken = [
            item.summary for item in run_checks(make_context(facts, Goal())) if item.status is Status.CRASH
        ]
        assert not broken, broken

    return read


def _facts_seeds() -> Mapping[str, bytes]:
    from splatfix.core.codec import to_json
    from tests.machines import facts_of

    names = ("rtx-5080", "a100-mig-kubernetes", "rtx-4090-windows-vs2022")
    return {name: json.dumps(to_json(facts_of(name)), separators=(",", ":")).encode() for name in names}


def _log(_: Path) -> Read:
    from tests.hostile.documents import read_log

    return read_log


def _log_seeds() -> Mapping[str, bytes]:
    from tests.hostile.documents import logs

    return {str(index): text for index, text in enumerate(logs())}


def _overrides(folder: Path) -> Read:
    from splatfix.knowledge import KnowledgeError, load_overrides

    def read(data: bytes) -> None:
        (folder / "extra.toml").write_bytes(data)
        try:
            load_overrides(folder / "extra.toml")
        except KnowledgeError as error:
            assert "extra.toml" in str(error)

    return read


def _override_seeds() -> Mapping[str, bytes]:
    from tests.hostile.documents import TOML

    return {"example": TOML}


def _wheel(folder: Path) -> Read:
    from tests.hostile.documents import read_wheel

    def read(data: bytes) -> None:
        (folder / "pkg-1-py3-none-any.whl").write_bytes(data)
        read_wheel(folder / "pkg-1-py3-none-any.whl")

    return read


def _wheel_seeds() -> Mapping[str, bytes]:
    from splatfix.install.wheels import write_wheel

    with tempfile.TemporaryDirectory() as folder:
        files = {"pkg.py": b"", "pkg-1.dist-info/entry_points.txt": b"[console_scripts]\nrun = pkg:main\n"}
        return {"wheel": write_wheel(Path(folder), "pkg", "1", files, "").read_bytes()}


TARGETS = {
    "binaries": Target(_binaries, _binary_seeds),
    "source": Target(_source, _source_seeds),
    "colmap": Target(_colmap, _colmap_seeds),
    "ply": Target(_ply, _ply_seeds),
    "facts": Target(_facts, _facts_seeds),
    "logs": Target(_log, _log_seeds),
    "overrides": Target(_overrides, _override_seeds),
    "wheels": Target(_wheel, _wheel_seeds),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS, nargs="?")
    parser.add_argument("--list", action="store_true", help="print the targets")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument(
        "--crashes", type=Path, default=Path("build/fuzz"), help="where what breaks a reader is kept"
    )
    parser.add_argument("--only", type=Path, metavar="FILE", help="read this one")
    typed = parser.parse_args()
    if typed.list or not typed.target:
        print("\n".join(TARGETS))
        return 0 if typed.list else 2
    target = TARGETS[typed.target]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folder, seeds = Path(temporary) / "files", Path(temporary) / "seeds"
        folder.mkdir()
        seeds.mkdir()
        atheris: Any = importlib.import_module("atheris") if GUIDED else None
        watched = (
            atheris.instrument_imports(include=["splatfix", "smoke_trainer"]) if atheris else nullcontext()
        )
        with watched:
            read = target.reader(folder)
        if typed.only:
            read(typed.only.read_bytes())
            return 0
        known = {
            f"kept-{path.name}": path.read_bytes() for path in (HERE / "corpus" / typed.target).glob("*")
        }
        for name, data in {**target.seeds(), **known}.items():
            (seeds / name).write_bytes(data)
            read(data)
        crashes = typed.crashes / typed.target
        crashes.mkdir(parents=True, exist_ok=True)
        if atheris is None:
            return blindly(read, seeds, crashes, typed.seconds)
        limits = [f"-max_total_time={typed.seconds}", "-timeout=20", "-rss_limit_mb=900", "-max_len=200000"]
        atheris.Setup(
            [sys.argv[0], *limits, f"-artifact_prefix={crashes}/", "-print_final_stats=1", str(seeds)], read
        )
        child = os.fork()
        if child == 0:
            atheris.Fuzz()  # ends the process
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def blindly(read: Read, seeds: Path, crashes: Path, seconds: int) -> int:
    """Mutants of the seeds for so long, where there is no atheris."""
    from tests.hostile.mutate import damaged_text, mutants

    rng = random.Random(0)
    files = {path.name: path.read_bytes() for path in sorted(seeds.iterdir())}
    end = time.monotonic() + seconds
    runs = 0
    while time.monotonic() < end:
        ((_, data),) = mutants(files, 1, rng.getrandbits(32))
        data = data if runs % 2 else damaged_text(rng, rng.choice(list(files.values())))
        runs += 1
        try:
            read(data)
        except BaseException:  # whatever it is: it is raised again
            kept = crashes / f"crash-{runs}"
            kept.write_bytes(data)
            print(f"kept {kept}", file=sys.stderr)
            raise
    print(f"stat::number_of_executed_units: {runs}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
