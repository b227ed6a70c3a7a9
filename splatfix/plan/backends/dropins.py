"""Drop-ins in place of the extensions: in plain PyTorch, or with our own CUDA kernels, compiled by the NVRTC of torch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context.commands import pip
from splatfix.context.torch_wheels import no_wheels
from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import target_options
from splatfix.core.versions import release
from splatfix.knowledge import Arch
from splatfix.knowledge.archs import arch_info
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.model import Considered
from splatfix.model.option import OptionKind, Plan, Replacement
from splatfix.model.steps import Confirm, InstallTorch, MakeDropin, Reason
from splatfix.plan.backends.torch import other_builds, rank_of
from splatfix.plan.case import UPPER_RUNGS, Case, installation, names_of_archs, not_applicable, without_rungs
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.dropins import host_obstacle, imports_of_hosts, usable_dropins
from splatfix.plan.tools import NoCuda, usable_python, usable_torch

_CAVEAT_ON_GPU = "our kernels agree with float64 on one GPU so far, an H200; others were emulated on a CPU"
_KINDS = {"pure": OptionKind.DROPIN, "nvrtc": OptionKind.NVRTC}
_FIRST_NVRTC = (11, 2)
"""The first that tells what it compiles for (nvrtcGetSupportedArchs); see splatfix/kernels/nvrtc.py."""


def pure(case: Case) -> Plan | Rejected:
    """Put plain PyTorch in place of the extensions."""
    replacement = usable_dropins(case)
    if isinstance(replacement, Rejected):
        return replacement
    against, unsure = case.torch_obstacles()
    context, facts, torch = case.context, case.context.facts, case.context.torch
    first: tuple[InstallTorch, ...] = ()
    if torch is None:
        # the best build for the targets, else the newest for the CPU with wheels for this Python and C library
        version, tag = "", "cpu"
        for item in () if no_wheels(facts) else releases():
            fits_python = context.python is None or item.supports_python(context.python) is not False
            if fits_python and (not context.glibc or not item.min_glibc or context.glibc >= item.min_glibc):
                version = f"{item.release}.*"
        if builds := other_builds(case):
            best = min(builds, key=lambda item: rank_of(case, item)).build
            version, tag = best.torch, best.tag
        if not version:
            lacking = no_wheels(facts) or "no release in the tables has a wheel for this Python"
            return not_applicable(f"{against[0]}, and {lacking}")
        step = pip(facts, "install", *pip_words(version, tag))
        first, against = (InstallTorch(command=step.command, version=version, tag=tag),), []
        if context.targets and tag == "cpu":
            against = [f"no CUDA build of torch in the tables serves {case.names} here"]
    elif not context.targets:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [f"whether the drop-ins run on anything but the CPU with torch {torch.version}"]
    obstacle = ""
    if against:
        obstacle = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
    slow = "same values within rounding; far slower than CUDA, for small scenes"
    return _option(case, replacement, "pure", [slow], unsure, first, obstacle)


def nvrtc(case: Case) -> Plan | Rejected:
    """Put drop-ins with GPU code in place of the extensions, where NVRTC serves the targets."""
    replacement = usable_dropins(case)
    if isinstance(replacement, Rejected):
        return replacement
    unsure = _unsure_of_nvrtc(case)
    if isinstance(unsure, Rejected):
        obstacle = unsure.what.rstrip(".")
        if isinstance(unsure, NoCuda) and unsure.todo and unsure.todo[0].command:
            obstacle += f"; possible after: {unsure.todo[0].line()}"
        return not_applicable(obstacle)
    reasons = ["made in seconds; no toolkit, host compiler or ninja is needed", _CAVEAT_ON_GPU]
    return _option(case, replacement, "nvrtc", reasons, unsure)


def _option(
    case: Case,
    replacement: Replacement,
    backend: str,
    why: Sequence[str],
    unsure: Sequence[str],
    first: Sequence[InstallTorch] = (),
    obstacle: str = "",
) -> Plan:
    """Build the plan that installs the drop-ins by a command after what comes ``first``, compares their numbers, and trains with
    their rasterizer: on the CPU where an ``obstacle`` stands before the GPU."""
    reasons: list[str] = []
    for item in replacement.native:
        reasons.append(": ".join(filter(None, (f"{item.module} must be built natively", item.reason))))
    reasons += why
    if not replacement.dropins and not replacement.native:
        unknown = "whether there is a drop-in depends on the rasterizer that your trainer calls"
        reasons.append(f"{unknown}: name the checkout")
    # the user's own sources, else the drop-ins, else a placeholder
    words = ["install", *(case.sources.named or replacement.names or ("CHECKOUT",)), "--backend", backend]
    certify, on_cpu = ["certify", "--renderer", replacement.renderer], bool(obstacle)
    if backend == "nvrtc":
        words += target_options(case.context.archs)
        on_cpu = not case.here
    if on_cpu:
        certify += ["--device", "cpu"]
    steps = [
        *first,
        MakeDropin(command=case.splatfix(*words), subjects=replacement.names, backend=backend),
        Confirm(command=case.splatfix("certify", "--level", "2"), what="check accuracy"),
    ]
    if replacement.renderer:
        steps.append(Confirm(command=case.splatfix(*certify), what="test training"))
    plan = case.make_option(_KINDS[backend], steps, [*map(Reason, reasons)], unsure)
    if obstacle:
        plan = without_rungs(plan, UPPER_RUNGS, obstacle)
    # a training needs a rasterizer
    lacking = ""
    if replacement.native:
        lacking = f"{', '.join(item.module for item in replacement.native)} must be built natively"
    elif not replacement.renderer:
        lacking = "a training needs a rasterizer that the smoke trainer calls, and none of these is one"
    if lacking:
        plan = without_rungs(plan, (RungName.TRAINS, RungName.REPRODUCES), lacking)
    return plan


def make_dropins(case: Case, replacement: Replacement, backend: str) -> Plan | Rejected:
    """Make the drop-ins that were chosen for the sources of the request, verify and install them: what ``install`` executes."""
    context, facts, request = case.context, case.context.facts, case.request
    for dropin in replacement.dropins:
        if obstacle := host_obstacle(context, dropin):
            return obstacle
    imports = imports_of_hosts(context, replacement.dropins, installing=request.with_dependencies)
    if isinstance(imports, Rejected):
        return imports
    notes = [f"not replaced, and to be built natively: {item.text}" for item in replacement.native]
    targets: tuple[Arch, ...] = ()
    if backend == "nvrtc":
        unsure = _unsure_of_nvrtc(case)
        if isinstance(unsure, Rejected):
            return unsure
        # what a drop-in's note says of its speed is not so with GPU code
        notes = [_CAVEAT_ON_GPU, *(f"not known here: {text}" for text in unsure), *notes]
        targets = context.archs
    for needed in (usable_python(facts), usable_torch(context, cuda=False)):
        if isinstance(needed, Rejected):
            return needed
    dependencies = plan_dependencies(request, facts, ())
    if isinstance(dependencies, Rejected):
        return dependencies
    considered: list[Considered] = []
    for item in replacement.native:
        considered.append(Considered(f"a drop-in for {item.module}", item.reason or "none was made"))
    for name in replacement.names:
        asked_for = f"--backend {request.backend} was asked for; it needs no toolkit"
        considered.append(Considered(f"native build of {name}", asked_for))
    makers = []
    for dropin in replacement.dropins:
        reason = "on a GPU; for tensors on a CPU, and in double precision, plain PyTorch runs"
        if backend == "pure":
            reason = dropin.note
            notes.append(f"{dropin.name}: {dropin.note}")
        make = MakeDropin(
            subject=dropin.distribution,
            module=dropin.module,
            version=f"0+splatfix.{__version__}",  # below every real release, and saying where it comes from
            variant=dropin.variant,
            declared=dropin.declared if not dropin.serves else None,
            backend=backend,
            targets=targets,
            reasons=(Reason(reason),),
        )
        makers.append(make)
    variants = {dropin.distribution: dropin.serves for dropin in replacement.dropins}
    dependencies = replace(dependencies, steps=(*imports, *dependencies.steps))
    kind = _KINDS[backend]
    draft = Plan(kind, kind.title(), considered=tuple(considered), notes=tuple(notes), targets=targets)
    return installation(case, draft, makers, variants, dependencies)


def _unsure_of_nvrtc(case: Case) -> list[str] | Rejected:
    """Tell what is not known here about compiling our CUDA kernels for the targets by the NVRTC that torch brought."""
    context = case.context
    if context.no_target:
        return context.no_target
    torch = usable_torch(context, cuda=True)
    if isinstance(torch, Rejected):
        return torch
    cuda = release(torch.cuda)[:2]
    if cuda < _FIRST_NVRTC:
        return Rejected.of("plan.nvrtc-too-old", torch=torch.version, cuda=torch.cuda)
    names = {canonicalize_name(item.name) for item in context.distributions}
    # torch from a conda channel or built by hand has its CUDA libraries elsewhere
    from_wheels = any(name.startswith("nvidia-cublas") for name in names)
    if from_wheels and not any(name.startswith("nvidia-cuda-nvrtc") for name in names):
        wheel = "nvidia-cuda-nvrtc"
        if cuda[0] < 13:
            wheel += f"-cu{cuda[0]}"
        todo = (pip(context.facts, "install", wheel, text="Install it"),)
        return Rejected.of("plan.nvrtc-missing", torch=torch.version, todo=todo)
    dropped, newer = [], []
    for arch in context.archs:
        info = arch_info(arch)
        if info and info.last_toolkit and cuda > info.last_toolkit:
            dropped.append(arch)
        elif info and info.first_toolkit and cuda < info.first_toolkit:
            newer.append(arch.sm)
    if dropped:
        return Rejected.of("plan.target-too-old", cuda=torch.cuda, targets=names_of_archs(dropped))
    against, unsure = case.torch_obstacles()
    if against:
        return Rejected.of("plan.torch-does-not-serve", obstacles="; ".join(against))
    if not from_wheels:
        unsure.append(f"whether torch {torch.version} carries an NVRTC")
    ptx = f"whether the driver compiles the PTX of CUDA {torch.cuda}"
    return unsure + [f"{ptx} for {name}, which that NVRTC does not know" for name in newer]
