"""Drop-ins with our own CUDA kernels, which the NVRTC that torch brought compiles: no toolkit, no host compiler, no ninja."""

from __future__ import annotations

from packaging.utils import canonicalize_name

from splatfix.context.commands import pip
from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import say, target_options
from splatfix.core.versions import release
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info
from splatfix.model.option import OptionKind, Plan, Replacement
from splatfix.model.steps import Reason
from splatfix.plan.backends.pure import (
    CAVEAT_ON_GPU,
    make_dropins,
    must_be_native,
    pure,
    usable_dropins,
    use_dropins,
)
from splatfix.plan.case import (
    Case,
    make_option,
    names_of_archs,
    not_applicable,
    torch_obstacles,
    without_rungs,
)
from splatfix.plan.requirements import NoCuda, usable_torch

_FIRST_NVRTC = (11, 2)
"""The first that tells what it compiles for (nvrtcGetSupportedArchs); see splatfix/kernels/nvrtc.py."""


def nvrtc(case: Case) -> Plan | Rejected:
    """Put drop-ins with GPU code in place of the extensions, where plain PyTorch would serve and NVRTC the targets."""
    plain, replacement = pure(case), usable_dropins(case)
    if isinstance(plain, Rejected):
        return plain
    if isinstance(replacement, Rejected):
        return replacement
    unsure = _unsure(case)
    if isinstance(unsure, Rejected):
        obstacle = unsure.what.rstrip(".")
        if isinstance(unsure, NoCuda) and unsure.todo and unsure.todo[0].command:
            obstacle += f"; possible after: {unsure.todo[0].line()}"
        return not_applicable(obstacle)
    targets = target_options(case.context.archs)
    steps = use_dropins(case, replacement, "nvrtc", *targets, on_the_cpu=not case.here)
    needs_no_tools = Reason("made in seconds; no toolkit, host compiler or ninja is needed")
    reasons = (*must_be_native(replacement), needs_no_tools, Reason(CAVEAT_ON_GPU))
    plan = make_option(case, OptionKind.NVRTC, steps, reasons, unsure)
    # what plain PyTorch cannot show for want of a rasterizer or a fitting torch, these cannot either
    for limit in plain.cannot_prove:
        if limit.rung in plan.proves and limit.rung is not RungName.BUILT:
            plan = without_rungs(plan, (limit.rung,), limit.why)
    return plan


def make_dropins_on_gpu(case: Case, replacement: Replacement) -> Plan | Rejected:
    """Make the drop-ins with GPU code, verify and install them: what ``install`` executes."""
    return make_dropins(case, replacement, on_gpu=_unsure(case))


def _unsure(case: Case) -> list[str] | Rejected:
    """Tell what is not known here about compiling our CUDA kernels for the targets by the NVRTC that torch brought."""
    if case.context.no_target:
        return case.context.no_target
    torch = usable_torch(case.context, cuda=True)
    if isinstance(torch, Rejected):
        return torch
    cuda = release(torch.cuda)[:2]
    if cuda < _FIRST_NVRTC:
        text = f"torch {torch.version} brings the NVRTC of CUDA {torch.cuda}; 11.2 is the oldest that serves."
        return _not_here("nvrtc-too-old", text)
    names = {canonicalize_name(item.name) for item in case.context.distributions}
    # torch from a conda channel or built by hand has its CUDA libraries elsewhere
    from_wheels = any(name.startswith("nvidia-cublas") for name in names)
    if from_wheels and not any(name.startswith("nvidia-cuda-nvrtc") for name in names):
        wheel = "nvidia-cuda-nvrtc"
        if cuda[0] < 13:
            wheel += f"-cu{cuda[0]}"
        todo = (pip(case.context.facts, "install", wheel, text="Install it"),)
        return Rejected.of("plan.nvrtc-missing", torch=torch.version, todo=todo)
    dropped: list[Arch] = []
    newer: list[Arch] = []
    for arch in case.context.archs:
        info = arch_info(arch)
        if info and info.last_toolkit and cuda > info.last_toolkit:
            dropped.append(arch)
        if info and info.first_toolkit and cuda < info.first_toolkit:
            newer.append(arch)
    if dropped:
        text = f"The NVRTC of CUDA {torch.cuda} does not compile for {names_of_archs(dropped)} any more."
        return _not_here("target-too-old", text)
    against, unsure = torch_obstacles(case)
    if against:
        return _not_here("torch-does-not-serve", f"Here {'; '.join(against)}.")
    if not from_wheels:
        unsure.append(f"whether torch {torch.version} carries an NVRTC")
    for arch in newer:
        unsure.append(
            f"whether the driver compiles the PTX of CUDA {torch.cuda} for {arch.sm}, which that NVRTC does not know"
        )
    return unsure


def _not_here(code: str, what: str) -> Rejected:
    """Build the rejection of a machine that NVRTC does not serve."""
    hint = say("splatfix install --dry-run --why shows what else there is.")
    return Rejected(code=code, what=what, todo=(hint,))
