"""Calls ``pip download`` for another Python than the one that runs it, and reads from its output what was missing."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from splatfix.containers.lanes import Lane
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.runner import Completed, Runner
from splatfix.core.step import run, say

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Docker's word for a processor -> the one in wheel names and in ``platform.machine()``."""

_DOWNLOAD_TIMEOUT_S = 3600


class PipDownload:
    """``pip download`` for another Python than the one that runs it."""

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
        """Fetch everything, torch from the first place that has the lane's build; returns that place in words."""
        first = self.download(requirements, constraints)
        if first.ok:
            return "this machine's pip configuration"
        if self._lacks_torch(first):
            self.progress(
                f"{self.lane.torch} is not among this machine's indexes; asking {self.lane.torch_index}"
            )
            self.options = (f"--extra-index-url={self.lane.torch_index}",)  # later calls must find it too
            second = self.download(requirements, constraints)
            if second.ok:
                return self.lane.torch_index
            if self._lacks_torch(second):
                raise SplatfixError(
                    "lane-torch-unavailable",
                    f"{self.lane.torch} for Python {self.lane.python} could not be had, neither from this machine's pip"
                    f" configuration nor from {self.lane.torch_index}.",
                    meaning="The lane is not built with another torch instead: its certificate would speak of that one.",
                    todo=(
                        say(
                            f"Reach {self.lane.torch_index} from this machine, or put that wheel into a folder and set"
                            " PIP_FIND_LINKS to it."
                        ),
                    ),
                    exit_code=Exit.UNDETERMINED,
                    details={"pip": _pip_errors(second)},
                )
            first = second
        raise self._unavailable(first)

    def download(self, requirements: Sequence[str], constraints: Sequence[str]) -> Completed:
        """One call of pip; its outcome is for the caller to judge."""
        pinned = self.dest.parent / "constraints.txt"
        pinned.write_text("".join(f"{line}\n" for line in constraints), encoding="utf-8")
        command = [
            *_pip_command(),
            "download",
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
        ]
        command += [
            *self.target,
            f"--dest={self.dest}",
            f"--constraint={pinned}",
            *self.options,
            *requirements,
        ]
        return self.runner.run(command, timeout=_DOWNLOAD_TIMEOUT_S, on_line=self._tell, log=self.log)

    def _tell(self, line: str) -> None:
        if line.startswith(("Collecting ", "Downloading ", "  Downloading ", "Saved ")):
            self.progress(line.strip())

    def _lacks_torch(self, completed: Completed) -> bool:
        errors = " ".join(_pip_errors(completed))
        return f"No matching distribution found for {self.lane.torch}" in errors

    def require(self, requirements: Sequence[str], constraints: Sequence[str]) -> None:
        """Fetch more, or say why not."""
        completed = self.download(requirements, constraints)
        if not completed.ok:
            raise self._unavailable(completed)

    def _unavailable(self, completed: Completed) -> SplatfixError:
        errors = _pip_errors(completed)
        return SplatfixError(
            "lane-packages-unavailable",
            f"pip could not gather the packages of lane {self.lane.name}: {errors[-1] if errors else completed.why()}.",
            meaning="The image is not built; nothing was certified.",
            todo=(
                say("Check that pip can download on this machine (pip config list; network; certificates)."),
            ),
            exit_code=Exit.UNDETERMINED,
            details={"pip": errors},
        )


def platform_tags(glibc: str, machine: str) -> list[str]:
    """Every wheel platform that a Linux with that C library can run, newest first (PEP 600 and its older aliases)."""
    minor = int(glibc.split(".")[1])
    tags = [f"manylinux_2_{n}_{machine}" for n in range(minor, 16, -1)]
    tags += [f"manylinux_2_17_{machine}", f"manylinux2014_{machine}"] if minor >= 17 else []
    if machine == "x86_64":
        # the two older generations were defined for Intel only (PEP 513, PEP 571)
        tags += [f"manylinux_2_12_{machine}", f"manylinux2010_{machine}"]
        tags += [f"manylinux_2_5_{machine}", f"manylinux1_{machine}"]
    return [*dict.fromkeys(tags), f"linux_{machine}"]


def wheel_machine(arch: str) -> str:
    """The processor's name in wheel tags and in ``platform.machine()`` for Docker's name of it."""
    try:
        return _MACHINES[arch]
    except KeyError:
        raise SplatfixError(
            "docker-architecture-unknown",
            f"The Docker engine runs on {arch!r}; the lanes are for {' and '.join(_MACHINES)}.",
            exit_code=Exit.UNDETERMINED,
        ) from None


def _pip_command() -> list[str]:
    """The pip beside splatfix (pipx shares one), else any on PATH; it need not be the lane's Python."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise SplatfixError(
        "pip-missing",
        "There is no pip on this machine to gather the lane's packages with.",
        todo=(run(sys.executable, "-m", "ensurepip", "--upgrade"),),
        exit_code=Exit.UNDETERMINED,
    )


def _pip_errors(completed: Completed) -> list[str]:
    lines = [line.strip() for line in (completed.stdout + completed.stderr).splitlines()]
    return [line.removeprefix("ERROR: ").rstrip(".") for line in lines if line.startswith("ERROR: ")]
