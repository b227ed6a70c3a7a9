"""Downloads a lane's Python packages on this machine, so that the image build needs no package index."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

from splatfix.containers.lanes import Lane
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.files import make_folder, sha256_of, write_json
from splatfix.core.isolation import find_program
from splatfix.core.runner import Completed, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import run, say
from splatfix.core.trust import distrust
from splatfix.core.words import counted

_UNUSED_S = 30 * 24 * 3600
_ROUNDS = 5
"""Of downloading missing requirements; each goes one level deeper."""
_DOWNLOAD_TIMEOUT_S = 3600
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Docker's name of a processor -> its name in wheel tags and ``platform.machine()``."""


@dataclass(frozen=True)
class Wheelhouse:
    """A folder of wheels with everything that any of them requires."""

    folder: Path
    pins: tuple[str, ...]
    """``name==version`` of every wheel, sorted."""
    hashes: tuple[str, ...]
    """SHA-256 of each, in the same order; pip in the image installs nothing else."""
    digest: str
    """SHA-256 over the names and contents of all wheels."""
    torch_from: str
    """Where torch came from: an index, or this machine's pip configuration."""


def marker_environment(lane: Lane, arch: str) -> dict[str, str]:
    """The variables of environment markers (PEP 508) inside the lane."""
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
    """All wheels for ``lane`` on ``arch``; from ``cache`` where the same set was downloaded before.

    pip's configuration on this machine (indexes, certificates, proxies) applies. torch is the lane's exact build,
    from there or else from the lane's ``torch_index``.

    Raises:
        SplatfixError: ``lane-torch-unavailable`` or ``lane-packages-unavailable`` with pip's errors,
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
        progress(f"using {counted(len(known.pins), 'cached Python package')} for lane {lane.name}")
        return known
    with temporary_folder(".making-", make_folder(cache)) as temporary:
        work = temporary / "wheels"
        work.mkdir(mode=0o700)
        pip = _PipDownload(lane, arch, runner, work, progress, log)
        progress(f"downloading Python packages for lane {lane.name} to {cache}")
        torch_from = pip.download_with_torch([lane.torch, *requirements], pinned)
        _close(work, pip, environment, [lane.torch, *requirements], pinned)
        found = _describe(work, torch_from)
        note = {"pins": found.pins, "hashes": found.hashes, "digest": found.digest, "torch_from": torch_from}
        write_json(work / "wheelhouse.json", note)
        if _load(folder) is None:  # a parallel run may have been faster
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
    _remove_unused(cache, f"wheelhouse-{lane.name}-", keep=folder)
    return _load(folder) or replace(found, folder=folder)


def requirements_for(extra: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """What ``splatfix[extra]`` requires in ``environment``, without markers, and without torch, which the lane pins.

    Raises:
        SplatfixError: ``own-metadata-missing`` where splatfix was copied instead of installed.
    """
    try:
        requires = importlib.metadata.requires("splatfix") or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise SplatfixError(
            "own-metadata-missing",
            "splatfix has no metadata, so its requirements are unknown.",
            meaning="It was copied instead of installed.",
            todo=(say("Install splatfix with pip or pipx."),),
        ) from error
    chosen = set()
    for requirement in map(Requirement, requires):
        marker, requirement.marker = requirement.marker, None
        applies = marker is None or any(marker.evaluate({**environment, "extra": e}) for e in ("", extra))
        if applies and requirement.name != "torch":
            chosen.add(str(requirement))
    return tuple(sorted(chosen))


def applicable_constraints(text: str, environment: Mapping[str, str], *, without: str) -> list[str]:
    """The pins of a constraints file that apply in ``environment``, without the distribution ``without``.

    pip evaluates markers for the Python it runs on, which is not the one that uses the packages.
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
                "constraints-invalid", f"constraints.txt has an invalid line: {error}."
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
    """Names required by ``wheels`` or ``asked`` in ``environment`` that none of the wheels has.

    ``asked`` also says which extras are wanted.
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
    pip: _PipDownload,
    environment: Mapping[str, str],
    asked: Sequence[str],
    constraints: Sequence[str],
) -> None:
    """Download what the wheels require in the lane and pip left out, because it evaluates markers for its own Python."""
    for _ in range(_ROUNDS):
        wheels = sorted(folder.glob("*.whl"))
        missing = missing_requirements(wheels, environment, asked)
        if not missing:
            return
        pip.progress(f"also needed in the lane: {', '.join(missing)}")
        # pins, so that nothing comes in a second version
        pip.require(missing, [*constraints, *map(_pin, wheels)])
    raise SplatfixError(
        "lane-packages-unavailable",
        f"The requirements of lane {pip.lane.name} are incomplete after {_ROUNDS} rounds of downloads.",
    )


def _remove_unused(cache: Path, prefix: str, *, keep: Path) -> None:
    """Remove a lane's sets that were not used for a month: each has hundreds of megabytes."""
    for folder in cache.glob(f"{prefix}*"):
        if folder != keep and time.time() - folder.stat().st_mtime > _UNUSED_S:
            shutil.rmtree(folder, ignore_errors=True)


def _describe(folder: Path, torch_from: str) -> Wheelhouse:
    wheels = sorted(folder.glob("*.whl"))
    hashes = {wheel: sha256_of(wheel) for wheel in wheels}
    digest = hashlib.sha256("".join(f"{wheel.name} {hashes[wheel]}\n" for wheel in wheels).encode())
    pinned = sorted((_pin(wheel), hashes[wheel]) for wheel in wheels)
    pins, locked = tuple(pin for pin, _ in pinned), tuple(found for _, found in pinned)
    return Wheelhouse(folder, pins, locked, digest.hexdigest(), torch_from)


def _load(folder: Path) -> Wheelhouse | None:
    """A complete wheelhouse from the cache, in which nobody else can have written and nothing has changed since."""
    if distrust(folder):
        return None
    try:
        document = json.loads((folder / "wheelhouse.json").read_text(encoding="utf-8"))
        pins, hashes = tuple(document["pins"]), tuple(document["hashes"])
        found = Wheelhouse(folder, pins, hashes, str(document["digest"]), str(document["torch_from"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # unfinished or damaged: download again
    try:
        now = _describe(folder, found.torch_from)
    except (OSError, ValueError):  # a file that cannot be read, or that is called like no wheel
        return None
    if now != found or any(wheel.is_symlink() for wheel in folder.glob("*.whl")):
        return None
    with suppress(OSError):  # a read-only cache is fine
        os.utime(folder)
    return found


def _pin(wheel: Path) -> str:
    name, version, _, _ = parse_wheel_filename(wheel.name)
    return f"{name}=={version}"


def _requires(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")]
        text = archive.read(names[0]).decode("utf-8")
    return HeaderParser().parsestr(text, headersonly=True).get_all("Requires-Dist", [])


class _PipDownload:
    """``pip download`` for the Python of a lane."""

    def __init__(
        self,
        lane: Lane,
        arch: str,
        runner: Runner,
        dest: Path,
        progress: Callable[[str], None],
        log: Path | None,
    ) -> None:
        self.lane, self.runner, self.dest, self.progress, self.log = lane, runner, dest, progress, log
        self.options: tuple[str, ...] = ()
        short = "cp" + lane.python.replace(".", "")
        self.target = [
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={lane.python}",
            f"--abi={short}",
        ]
        self.target += [f"--platform={tag}" for tag in platform_tags(lane.glibc, wheel_machine(arch))]

    def download_with_torch(self, requirements: Sequence[str], constraints: Sequence[str]) -> str:
        """Download everything; returns where torch came from."""
        first = self.download(requirements, constraints)
        if first.ok:
            return "this machine's pip configuration"
        if self._lacks_torch(first):
            self.progress(
                f"{self.lane.torch} is not on this machine's indexes; trying {self.lane.torch_index}"
            )
            self.options = (f"--extra-index-url={self.lane.torch_index}",)  # later calls need it too
            second = self.download(requirements, constraints)
            if second.ok:
                return self.lane.torch_index
            if self._lacks_torch(second):
                raise SplatfixError(
                    "lane-torch-unavailable",
                    f"{self.lane.torch} for Python {self.lane.python} is neither on this machine's indexes nor on"
                    f" {self.lane.torch_index}.",
                    meaning="A lane is never built with another torch.",
                    todo=(
                        say(
                            f"Allow access to {self.lane.torch_index}, or put the wheel into a folder and set PIP_FIND_LINKS"
                            " to it."
                        ),
                    ),
                    exit_code=Exit.UNDETERMINED,
                    details={"pip": _pip_errors(second)},
                )
            first = second
        raise self._unavailable(first)

    def download(self, requirements: Sequence[str], constraints: Sequence[str]) -> Completed:
        """One call of pip."""
        pinned = self.dest.parent / "constraints.txt"
        pinned.write_text("".join(f"{line}\n" for line in constraints), encoding="utf-8")
        command = [*_pip_command(), "download", "--disable-pip-version-check", "--no-input"]
        command += ["--progress-bar=off", *self.target, f"--dest={self.dest}", f"--constraint={pinned}"]
        command += [*self.options, *requirements]
        return self.runner.run(command, timeout=_DOWNLOAD_TIMEOUT_S, on_line=self._on_line, log=self.log)

    def _on_line(self, line: str) -> None:
        if line.startswith(("Collecting ", "Downloading ", "  Downloading ", "Saved ")):
            self.progress(line.strip())

    def _lacks_torch(self, completed: Completed) -> bool:
        errors = " ".join(_pip_errors(completed))
        return f"No matching distribution found for {self.lane.torch}" in errors

    def require(self, requirements: Sequence[str], constraints: Sequence[str]) -> None:
        """Download more, or raise ``lane-packages-unavailable``."""
        completed = self.download(requirements, constraints)
        if not completed.ok:
            raise self._unavailable(completed)

    def _unavailable(self, completed: Completed) -> SplatfixError:
        errors = _pip_errors(completed)
        return SplatfixError(
            "lane-packages-unavailable",
            f"pip could not download the packages of lane {self.lane.name}: {errors[-1] if errors else completed.why()}.",
            meaning="Nothing was certified.",
            todo=(
                say("Check pip's configuration, network and certificates on this machine (pip config list)."),
            ),
            exit_code=Exit.UNDETERMINED,
            details={"pip": errors},
        )


def platform_tags(glibc: str, machine: str) -> list[str]:
    """The wheel platforms of a Linux with that C library, newest first (PEP 600 and its older aliases)."""
    minor = int(glibc.split(".")[1])
    tags = [f"manylinux_2_{n}_{machine}" for n in range(minor, 16, -1)]
    tags += [f"manylinux_2_17_{machine}", f"manylinux2014_{machine}"] if minor >= 17 else []
    if machine == "x86_64":
        # the older two are defined for x86 only (PEP 513, PEP 571)
        tags += [f"manylinux_2_12_{machine}", f"manylinux2010_{machine}"]
        tags += [f"manylinux_2_5_{machine}", f"manylinux1_{machine}"]
    return [*dict.fromkeys(tags), f"linux_{machine}"]


def wheel_machine(arch: str) -> str:
    """The name in wheel tags and ``platform.machine()`` for Docker's name of a processor."""
    try:
        return _MACHINES[arch]
    except KeyError:
        raise SplatfixError(
            "docker-architecture-unknown",
            f"The Docker engine runs on {arch!r}; lanes are for {' and '.join(_MACHINES)}.",
            exit_code=Exit.UNDETERMINED,
        ) from None


def _pip_command() -> list[str]:
    """The pip of splatfix's environment (pipx shares one), else one on PATH."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := find_program(name):
            return [found]
    raise SplatfixError(
        "pip-missing",
        "Downloading the lane's packages needs pip, which was not found.",
        todo=(run(sys.executable, "-m", "ensurepip", "--upgrade"),),
        exit_code=Exit.UNDETERMINED,
    )


def _pip_errors(completed: Completed) -> list[str]:
    lines = [line.strip() for line in (completed.stdout + completed.stderr).splitlines()]
    return [line.removeprefix("ERROR: ").rstrip(".") for line in lines if line.startswith("ERROR: ")]
