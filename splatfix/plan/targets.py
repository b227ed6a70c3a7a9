"""Which GPU architectures to serve: those a person named, or those of the machine's own GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.step import run
from splatfix.facts import Facts
from splatfix.knowledge import Arch, parse_target, split_targets

AUTO = "auto"


def resolve_targets(requested: Iterable[str], facts: Facts) -> tuple[Arch, ...]:
    """The architectures asked for, each once, in the order given; nothing named means ``auto``.

    Raises:
        SplatfixError: ``unknown-arch`` (exit 2), or ``no-gpu-to-target`` (exit 3) when ``auto`` finds no GPU.
    """
    found: list[Arch] = []
    for text in _each(requested) or [AUTO]:
        found.extend(_own_gpus(facts) if text.lower() == AUTO else [_parse(text)])
    return tuple(dict.fromkeys(found))


def check_spelling(requested: Iterable[str]) -> None:
    """Raise ``unknown-arch`` (exit 2) for a target that is no architecture, before anything else is looked at."""
    for text in _each(requested):
        if text.lower() != AUTO:
            _parse(text)


def _each(requested: Iterable[str]) -> list[str]:
    return [part for text in requested for part in split_targets(text)]


def _parse(text: str) -> Arch:
    try:
        return parse_target(text)
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def archs_here(facts: Facts) -> tuple[Arch, ...]:
    """The architectures of this machine's NVIDIA GPUs, each once, in the driver's order."""
    gpus = facts.machine.gpus.value or ()
    return tuple(dict.fromkeys(Arch.parse(gpu.cc) for gpu in gpus if gpu.vendor == "nvidia" and gpu.cc))


def driver_level(facts: Facts, target: Arch) -> str | None:
    """CUDA level of the driver that will translate PTX for a target; None where that GPU is elsewhere, or nothing tells.

    A driver that waits for its reboot tells nothing: its library is another one than the module that answered.
    """
    driver = facts.machine.driver.value
    if driver is None or target.plain not in archs_here(facts):
        return None
    return driver.cuda if driver.library_version in (None, driver.version) else None


def _own_gpus(facts: Facts) -> tuple[Arch, ...]:
    gpus = facts.machine.gpus
    known = archs_here(facts)
    if known:
        return known
    if gpus.value is None and gpus.error:
        raise _no_gpu(f"Which GPUs this machine has is not known ({gpus.error}).")
    others = [gpu for gpu in gpus.value or () if gpu.vendor != "nvidia"]
    if others and len(others) == len(gpus.value or ()):
        what = f"This machine has no NVIDIA GPU to build for, but {others[0].name}."
    elif gpus.value:
        what = f"The compute capability of {gpus.value[0].name} could not be read."
    else:
        what = "This machine shows no NVIDIA GPU to build for."
    raise _no_gpu(what)


def _no_gpu(what: str) -> SplatfixError:
    return SplatfixError(
        "no-gpu-to-target",
        what,
        meaning="Without a GPU to ask, splatfix cannot know which architecture the code must run on.",
        todo=(
            run(
                "splatfix",
                "install",
                ".",
                "--target",
                "sm_120",
                text="Name it, for example for an RTX 50 card",
            ),
        ),
        exit_code=Exit.UNDETERMINED,
    )
