"""Published torch builds for several GPUs at once, with a wheel for a machine's Python and C library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from splatfix.checks._common import torch_family
from splatfix.checks.advice import pip
from splatfix.core.step import Step, run
from splatfix.facts import Facts
from splatfix.knowledge import Arch
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.torch_releases import (
    RankedBuild,
    TorchBuild,
    builds_for_arch,
    replacing_words,
)
from splatfix.plan.versions import release_numbers


def platform_of(facts: Facts) -> Platform | None:
    """``linux`` or ``windows``; None where there is no CUDA (macOS)."""
    known: dict[str, Literal["linux", "windows"]] = {"linux": "linux", "windows": "windows"}
    return known.get(facts.machine.system)


def python_of(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of the target interpreter."""
    found = facts.environment.interpreter.value
    return _pair(found.version if found else "")


def glibc_of(facts: Facts) -> tuple[int, int] | None:
    """(major, minor) of the C library."""
    return _pair(facts.machine.glibc or "")


def no_wheels(facts: Facts) -> str:
    """Why PyTorch publishes no wheel at all that this machine could use; "" where it does."""
    libc = facts.machine.libc.value or ""
    return f"PyTorch publishes no wheel for {libc}; glibc is needed" if libc.startswith("musl") else ""


def builds_for_all(
    archs: Sequence[Arch],
    facts: Facts,
    *,
    driver: tuple[int, ...] | None = None,
    leaving_out: str = "",
    include_unknown: bool = False,
) -> list[RankedBuild]:
    """Builds that run on every one of these GPUs and have a wheel here, the best for the first GPU first.

    Args:
        driver: the driver that must start them; None: any.
        leaving_out: ``python`` or ``glibc``, which is then not asked.
        include_unknown: also those of which the tables do not know whether they run there.
    """
    platform = platform_of(facts)
    if platform is None or no_wheels(facts) or not archs:
        return []
    python = None if leaving_out == "python" else python_of(facts)
    glibc = None if leaving_out == "glibc" else glibc_of(facts)
    first, *others = (
        builds_for_arch(
            arch,
            platform,
            facts.machine.machine,
            python=python,
            glibc=glibc,
            driver=driver,
            include_unknown=include_unknown,
        )
        for arch in archs
    )
    rest = [{(item.build.release, item.build.tag) for item in other} for other in others]
    return [item for item in first if all((item.build.release, item.build.tag) in other for other in rest)]


def install_command(build: TorchBuild, facts: Facts) -> tuple[str, Step]:
    """Version and exact pip command for a build in place of what is there, companions included."""
    version, command = replacing_words(build.torch, build.tag, torch_family(facts))
    return version, pip_here(facts, *command)


def pip_here(facts: Facts, *what: str) -> Step:
    """``pip install WHAT`` for the target environment, as the findings write it: by its own python, or by uv's pip.

    A system's Python refuses every installation (PEP 668), so there it is for an environment that is still to be made.
    """
    step = pip(facts, "install", *what)
    return step if step.command else run("FOLDER/bin/python", "-m", "pip", "install", *what)


def _pair(text: str) -> tuple[int, int] | None:
    numbers = release_numbers(text)
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None
