"""Gathers a lane's Python packages on this machine, so that the image build needs no Python index and no certificates."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from splatfix.containers.lanes import Lane
from splatfix.containers.pip_download import PipDownload, wheel_machine
from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_json
from splatfix.core.runner import Runner
from splatfix.core.step import say

_UNUSED_S = 30 * 24 * 3600
_ROUNDS = 5
"""How often missing requirements of requirements are fetched; each round goes one level deeper."""


@dataclass(frozen=True)
class Wheelhouse:
    """A closed set of wheels: everything that any of them requires is among them."""

    folder: Path
    pins: tuple[str, ...]
    """``name==version`` of every wheel, sorted."""
    digest: str
    """SHA-256 over the names and contents of all wheels."""
    torch_from: str
    """Where torch came from, in words."""


def marker_environment(lane: Lane, arch: str) -> dict[str, str]:
    """What environment markers are judged by inside the lane (PEP 508), whatever Python runs here."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{lane.python}.0",
        "os_name": "posix",
        "platform_machine": wheel_machine(arch),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{lane.python}.0",
        "python_version": lane.python,
        "sys_platform": "linux",
    }


def gather(
    lane: Lane,
    requirements: Sequence[str],
    arch: str,
    *,
    runner: Runner,
    cache: Path,
    constraints: str,
    progress: Callable[[str], None],
    log: Path | None = None,
) -> Wheelhouse:
    """All wheels for ``lane`` on ``arch``; from ``cache`` when the same set was gathered before.

    pip's own configuration on this machine (indexes, certificates, proxies) applies. torch is asked for as the
    lane's one exact build, first there, then on the lane's ``torch_index``.

    Raises:
        SplatfixError: ``lane-torch-unavailable`` or ``lane-packages-unavailable`` with pip's own last words,
            ``pip-missing``.
    """
    environment = marker_environment(lane, arch)
    pinned = applicable_constraints(constraints, environment, without=lane.torch)
    recipe = [
        lane.python,
        lane.glibc,
        arch,
        lane.torch,
        lane.torch_index,
        sorted(requirements),
        sorted(pinned),
    ]
    key = hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
    folder = cache / f"wheelhouse-{lane.name}-{key}"
    if known := _load(folder):
        progress(f"{len(known.pins)} Python packages for lane {lane.name} are in the cache")
        return known
    with _work_folder(cache, folder.name) as temporary:
        work = Path(temporary) / "wheels"
        work.mkdir()
        pip = PipDownload(lane, arch, runner, work, progress, log)
        progress(f"gathering Python packages for lane {lane.name} (once; kept in {cache})")
        torch_from = pip.download_with_torch([lane.torch, *requirements], pinned)
        _close(work, pip, environment, [lane.torch, *requirements], pinned)
        found = _describe(work, torch_from)
        write_json(
            work / "wheelhouse.json", {"pins": found.pins, "digest": found.digest, "torch_from": torch_from}
        )
        if _load(folder) is None:  # another run may have been faster; its set is as good
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    _forget_old(cache, f"wheelhouse-{lane.name}-", keep=folder)
    return _load(folder) or Wheelhouse(folder, found.pins, found.digest, torch_from)


def applicable_constraints(text: str, environment: Mapping[str, str], *, without: str) -> list[str]:
    """The pins of a constraints file that hold in ``environment``, less the distribution of ``without``.

    pip judges markers by the Python it runs on; here that is not the Python that will use the packages.
    """
    left_out = canonicalize_name(Requirement(without).name)
    pins = []
    for raw in text.splitlines():
        line = raw.split(" #")[0].strip()
        if not line or line.startswith(("#", "-")):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise SplatfixError(
                "constraints-invalid", f"constraints.txt has a line pip would not take: {error}."
            ) from error
        if canonicalize_name(requirement.name) == left_out:
            continue
        if requirement.marker is None or requirement.marker.evaluate(dict(environment)):
            requirement.marker = None
            pins.append(str(requirement))
    return pins


def missing_requirements(
    wheels: Iterable[Path], environment: Mapping[str, str], asked: Iterable[str]
) -> list[str]:
    """Requirements of ``wheels`` (and of ``asked``) that hold in ``environment`` and that no wheel there meets by name.

    ``asked`` tells which extras were wanted of which distribution.
    """
    metadata = {canonicalize_name(parse_wheel_filename(w.name)[0]): _requires(w) for w in wheels}
    wanted = [Requirement(line) for line in asked]
    missing: set[str] = set()
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name not in metadata:
            missing.add(str(requirement))
            continue
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in metadata[name]:
                inner = Requirement(line)
                if inner.marker is None or inner.marker.evaluate({**environment, "extra": extra}):
                    inner.marker = None
                    wanted.append(inner)
    return sorted(missing)


def _close(
    folder: Path,
    pip: PipDownload,
    environment: Mapping[str, str],
    asked: Sequence[str],
    constraints: Sequence[str],
) -> None:
    """Fetch what the wheels require in the lane although pip, judging by its own Python, left it out."""
    for _ in range(_ROUNDS):
        wheels = sorted(folder.glob("*.whl"))
        missing = missing_requirements(wheels, environment, asked)
        if not missing:
            return
        pip.progress(f"also needed inside the lane: {', '.join(missing)}")
        # what is there already is pinned, so that nothing comes in a second version
        pip.require(missing, [*constraints, *_pins(wheels)])
    raise SplatfixError(
        "lane-packages-unavailable",
        f"The requirements of lane {pip.lane.name} do not close after {_ROUNDS} rounds.",
    )


@contextmanager
def _work_folder(cache: Path, name: str) -> Iterator[str]:
    """A folder beside the finished sets, so that moving a new one there is one step; gone at the end."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=f".{name}.", dir=cache)
    except OSError as error:
        raise SplatfixError(
            "cannot-write",
            f"Cannot keep the lane's packages in {cache}: {error.strerror or error}.",
            todo=(say("Name a folder you may write to in SPLATFIX_CACHE."),),
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forget_old(cache: Path, prefix: str, *, keep: Path) -> None:
    """Remove a lane's sets that were not used for a month: each weighs hundreds of megabytes, and pins do change."""
    for folder in cache.glob(f"{prefix}*"):
        if folder != keep and time.time() - folder.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _describe(folder: Path, torch_from: str) -> Wheelhouse:
    wheels = sorted(folder.glob("*.whl"))
    digest = hashlib.sha256()
    for wheel in wheels:
        with wheel.open("rb") as file:
            content = hashlib.sha256()
            while block := file.read(1 << 20):
                content.update(block)
        digest.update(f"{wheel.name} {content.hexdigest()}\n".encode())
    return Wheelhouse(folder, tuple(_pins(wheels)), digest.hexdigest(), torch_from)


def _load(folder: Path) -> Wheelhouse | None:
    """A wheelhouse gathered before, if all of it is still there."""
    try:
        document = json.loads((folder / "wheelhouse.json").read_text(encoding="utf-8"))
        pins, digest, origin = tuple(document["pins"]), str(document["digest"]), str(document["torch_from"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # never finished, or damaged: it is gathered anew
    if tuple(_pins(sorted(folder.glob("*.whl")))) != pins:
        return None
    with suppress(OSError):  # a cache that may only be read is as good
        os.utime(folder)  # used today
    return Wheelhouse(folder, pins, digest, origin)


def _pins(wheels: Iterable[Path]) -> list[str]:
    parsed = [parse_wheel_filename(wheel.name) for wheel in wheels]
    return sorted(f"{name}=={version}" for name, version, _, _ in parsed)


def _requires(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        text = archive.read(names[0]).decode("utf-8")
    return HeaderParser().parsestr(text, headersonly=True).get_all("Requires-Dist", [])
