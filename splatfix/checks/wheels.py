"""Checks of whether pip can find a torch here at all: the Python, the C library and the platform against the published wheels."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks.model import Evidence, Outcome, fail, ok, unknown, warn
from splatfix.checks.registry import check
from splatfix.context import Context
from splatfix.core.step import say
from splatfix.core.versions import major_minor, release
from splatfix.knowledge import torch_releases


@check("python-version-unsupported", family="environment", title="There are torch wheels for this Python")
def python_version_unsupported(context: Context) -> Iterator[Outcome]:
    """torch publishes wheels for a few minors of CPython, 64 bits only; on another Python pip says "No matching distribution
    found for torch" and no more. Said only where torch is not installed yet. Source: knowledge/data/torch_releases.json."""
    python = context.environment.interpreter.value
    if python is None or context.environment.torch_installed.value is not False:
        return
    version = major_minor(python.version)
    evidence = (
        Evidence(
            "Python", f"{python.version} ({python.implementation}, {python.platform_tag})", python.executable
        ),
    )
    known = torch_releases.releases()
    answers = {row.release: row.supports_python(version) for row in known} if version else {}
    narrow = python.platform_tag in ("win32", "linux-i686", "linux-armv7l")
    ordinary = python.implementation == "CPython" and not narrow
    fitting = [release for release, answer in answers.items() if answer]
    if ordinary and fitting:
        newest = max(fitting, key=release)
        later = [release for release, answer in answers.items() if answer is None]
        open_end = f"; of {max(later, key=release)} that is not known" if later else ""
        yield ok(
            f"torch up to {newest} has wheels for Python {python.version}{open_end}.",
            evidence=evidence,
        )
        return
    if ordinary and version and all(version > _newest_python(row) for row in known):
        yield unknown(
            f"Whether torch has wheels for Python {python.version} is not in splatfix's tables.",
            evidence=evidence,
        )
        return
    why = (
        "it is a 32-bit build"
        if narrow
        else f"it is {python.implementation}"
        if python.implementation != "CPython"
        else "no release in splatfix's tables has wheels for it"
    )
    last = max(known, key=lambda row: release(row.release))
    upper = ".".join(map(str, last.python_max)) if last.python_max else "the newest"
    yield fail(
        f"There is no torch for this Python {python.version}: {why}.",
        evidence=evidence,
        remedy=(
            say(
                f"Make the environment anew with 64-bit CPython {'.'.join(map(str, last.python_min))} to {upper}."
            ),
        ),
    )


def _newest_python(row: torch_releases.TorchRelease) -> tuple[int, int]:
    """The newest Python that the table says anything about for a release."""
    return max((row.python_max or row.python_min, *row.python_experimental))


@check(
    "no-matching-wheel", family="environment", title="The torch that is wanted has a wheel for this machine"
)
def no_matching_wheel(context: Context) -> Iterator[Outcome]:
    """The torch that a checkout pins must have a wheel for this Python and C library: torch 1.12 ends at Python 3.10, wheels
    from 2.7 on need glibc 2.28, and musl (Alpine) has none at all. pip then says "Could not find a version that satisfies
    the requirement". Said only where torch is not installed yet. Source: knowledge/data/torch_releases.json."""
    python, libc = context.environment.interpreter.value, context.machine.libc
    if python is None or context.environment.torch_installed.value is not False:
        return
    if libc.value and libc.value.startswith("musl"):
        yield fail(
            f"torch has no wheels for {libc.value}.",
            evidence=(Evidence("C library", libc.value, libc.found_via),),
            remedy=(
                say(
                    "Use a distribution or an image with glibc (Debian, Ubuntu, RHEL); Alpine's musl cannot load torch."
                ),
            ),
        )
        return
    found = context.checkout
    pins = (item for item in (found.pins if found else ()) if item.name.lower() in ("torch", "pytorch"))
    pin = next((item for item in pins if item.spec.startswith("==")), None)
    row = torch_releases.release(pin.spec.removeprefix("==")) if pin else None
    if pin is None or row is None:
        return
    platform = context.platform or "linux"
    glibc = major_minor(context.machine.glibc)
    obstacles = [
        torch_releases.wheel_obstacle(
            item, platform, context.machine.machine, python=major_minor(python.version), glibc=glibc
        )
        for item in row.builds
    ]
    if obstacles and all(obstacles):
        yield warn(
            f"{pin.file} pins torch {pin.spec.removeprefix('==')}: {obstacles[0]}",
            evidence=(
                Evidence(pin.file, f"{pin.name}{pin.spec}", "its text"),
                Evidence("Python", python.version, python.executable),
                Evidence("glibc", context.machine.glibc or "not known", libc.found_via),
            ),
            remedy=(
                say("Leave that pin aside and install a torch for this GPU, or take another Python for it."),
            ),
        )
