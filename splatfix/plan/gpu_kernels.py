"""Drop-ins with GPU code and no compiler: whether torch's NVRTC, or NVIDIA Warp, serves the targets here; else why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.core.errors import Problem
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.warp import BUILDS, GLIBC, OLDEST_ARCH, PYTHON, WarpBuild, kernel_of
from splatfix.plan.assessment import Assessment, driver_objection, torch_obstacles
from splatfix.plan.requirements import usable_torch

NEVER_RUN = (
    "No GPU has run these kernels yet: on a CPU, emulated, they agree with the pure-PyTorch ones to rounding"
)
NEVER_RUN_WARP = (
    "No GPU has run gswarp here yet: on Warp's CPU device its kernels agree with the pure-PyTorch ones to rounding; "
    "the first call compiles them, for tens of seconds"
)
_FIRST_NVRTC = (11, 2)
"""The first that tells what it compiles for (nvrtcGetSupportedArchs); see splatfix/kernels/nvrtc.py."""


@dataclass(frozen=True)
class Compilable:
    """What compiles GPU code for the targets, and what is not known about it."""

    unsure: tuple[str, ...] = ()
    warp: WarpBuild | None = None
    """The build of Warp; None for NVRTC."""


def nvrtc_serves(context: Context) -> Compilable | Problem:
    """Whether the NVRTC that torch brought compiles our CUDA kernels for the targets."""
    torch = context.no_target or usable_torch(context, cuda=True)
    if isinstance(torch, Problem):
        return torch
    cuda = release(torch.cuda)[:2]
    if cuda < _FIRST_NVRTC:
        what = f"torch {torch.version} brings the NVRTC of CUDA {torch.cuda}; 11.2 is the oldest that serves."
        return _refused("nvrtc-too-old", what)
    names = {canonicalize_name(item.name) for item in context.distributions}
    by_wheels = any(name.startswith("nvidia-cublas") for name in names)
    if by_wheels and not any(name.startswith("nvidia-cuda-nvrtc") for name in names):
        wheel = "nvidia-cuda-nvrtc" + (f"-cu{cuda[0]}" if cuda[0] < 13 else "")
        return Problem(
            "nvrtc-missing",
            f"torch {torch.version} has its CUDA libraries as wheels, and that of NVRTC is missing.",
            todo=(pip(context.facts, "install", wheel, text="Install it"),),
        )
    if dropped := [arch.sm for arch in context.archs if _dropped(arch, cuda)]:
        what = f"The NVRTC of CUDA {torch.cuda} does not compile for {', '.join(dropped)} any more."
        return _refused("target-too-old", what)
    against, unsure = torch_obstacles(Assessment(context))
    if against:
        return _refused("torch-does-not-serve", f"Here {'; '.join(against)}.")
    if not by_wheels:
        unsure.append(f"whether torch {torch.version} carries an NVRTC")
    unsure += [
        f"whether the driver compiles the PTX of CUDA {torch.cuda} for {arch.sm}, which that NVRTC does not know"
        for arch in context.archs
        if _not_yet(arch, cuda)
    ]
    return Compilable(tuple(unsure))


def warp_serves(context: Context, dropins: Sequence[Dropin]) -> Compilable | Problem:
    """Whether gswarp on a build of Warp serves the targets: the newest build that the driver and the targets allow."""
    torch = context.no_target or usable_torch(context, cuda=True)
    if isinstance(torch, Problem):
        return torch
    refused = {item.name: why for item in dropins if (why := kernel_of(item)[1])}
    if refused:
        words = "; ".join(f"{name}: {why}" for name, why in refused.items())
        return Problem("no-warp-kernels", f"gswarp does not serve {words}.")
    if context.python is not None and context.python < PYTHON:
        wanted, have = (".".join(map(str, version)) for version in (PYTHON, context.python))
        return _refused("warp-needs-python", f"gswarp needs Python {wanted} or newer; this is {have}.")
    if why := _no_wheel(context):
        return _refused("warp-has-no-wheel", f"NVIDIA Warp has no wheel for this machine: {why}.")
    oldest = min(arch.number for arch in context.archs)
    if oldest < OLDEST_ARCH:
        what = f"gswarp needs sm_{OLDEST_ARCH} or newer, and sm_{oldest} is a target."
        return _refused("target-too-old", what)
    found = Assessment(context)
    against, unsure = torch_obstacles(found)
    if against:
        return _refused("torch-does-not-serve", f"Here {'; '.join(against)}.")
    builds = [item for item in BUILDS if item.oldest_arch <= oldest]
    if found.driver is None:  # whatever driver torch's own CUDA needs is there
        fitting = [item for item in builds if release(item.cuda)[0] <= release(torch.cuda)[0]]
        chosen = (fitting or builds[-1:])[0]
        unsure.append(f"whether the driver there starts CUDA {chosen.cuda}, which Warp is built with")
        return Compilable(tuple(unsure), chosen)
    verdicts = {item: driver_objection(found, item.cuda) for item in builds}
    for item, verdict in verdicts.items():
        if verdict.ok is not False:
            return Compilable(tuple(unsure), item)
    return _refused("driver-too-old", f"Here {verdicts[builds[-1]].why}.")


def _no_wheel(context: Context) -> str:
    machine = context.machine
    libc = machine.libc.value or ""
    if libc.startswith("musl"):
        return f"its wheels need glibc, this is {libc}"
    wanted = GLIBC.get(machine.machine)
    if machine.system == "linux" and wanted is None:
        return f"this is {machine.machine}"
    if machine.system == "linux" and wanted and context.glibc is not None and context.glibc < wanted:
        return f"its wheels need glibc {wanted[0]}.{wanted[1]}, this is {context.glibc[0]}.{context.glibc[1]}"
    return ""


def _dropped(arch: Arch, cuda: tuple[int, ...]) -> bool:
    info = arch_info(arch)
    return info is not None and info.last_toolkit is not None and cuda > info.last_toolkit


def _not_yet(arch: Arch, cuda: tuple[int, ...]) -> bool:
    info = arch_info(arch)
    return info is not None and info.first_toolkit is not None and cuda < info.first_toolkit


def _refused(code: str, what: str) -> Problem:
    return Problem(code, what, todo=(say("splatfix install --dry-run --why shows what else there is."),))
