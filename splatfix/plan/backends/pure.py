"""Drop-ins in place of the extensions: plain PyTorch, far slower; and what those with GPU code have in common with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context.commands import pip
from splatfix.context.torch_wheels import no_wheels
from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.knowledge import Arch
from splatfix.knowledge.dropins import DROPINS, Dropin, dropin_for_variant, refusal
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.model import Considered
from splatfix.model.option import Native, OptionKind, Plan, Replacement
from splatfix.model.steps import Confirm, InstallTorch, MakeDropin, Reason
from splatfix.plan.backends.torch import other_builds, rank_of
from splatfix.plan.case import (
    UPPER_RUNGS,
    Case,
    installation,
    make_option,
    not_applicable,
    splatfix,
    torch_obstacles,
    without_rungs,
)
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.hosts import host_obstacle, imports_of_hosts
from splatfix.plan.parts import NativePart, native_parts
from splatfix.plan.replacement import replacement_for
from splatfix.plan.requirements import usable_python, usable_torch

_VERSION = f"0+splatfix.{__version__}"
"""The version drop-ins carry: below every real release, and saying where it comes from."""
CAVEAT_ON_GPU = "On one GPU so far, an H200, they agree with float64; for others they were emulated on a CPU"


def pure(case: Case) -> Plan | Rejected:
    """Put plain PyTorch in place of the extensions."""
    replacement = usable_dropins(case)
    if isinstance(replacement, Rejected):
        return replacement
    against, unsure = torch_obstacles(case)
    torch, facts = case.context.torch, case.context.facts
    install_torch: tuple[InstallTorch, ...] = ()
    if torch is None:
        step = _first_torch(case)
        if step is None:
            lacking = no_wheels(facts) or "no release in the tables has a wheel for this Python"
            return not_applicable(f"{against[0]}, and {lacking}")
        install_torch = (step,)
        against = []
        if case.context.targets and step.tag == "cpu":
            against = [f"no CUDA build of torch in the tables serves {case.names} here"]
    elif not case.context.targets:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [f"whether the drop-ins run on anything but the CPU with torch {torch.version}"]
    steps = use_dropins(case, replacement, "pure", on_the_cpu=bool(against))
    slow = Reason("same values within rounding; far slower than CUDA, for small scenes")
    reasons = [*must_be_native(replacement), slow]
    if not (replacement.dropins or replacement.native):
        reasons = [slow, *must_be_native(replacement)]
    plan = make_option(case, OptionKind.DROPIN, (*install_torch, *steps), reasons, unsure)
    if against:
        reason = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
        plan = without_rungs(plan, UPPER_RUNGS, reason)
    # a training needs a rasterizer
    training = (RungName.TRAINS, RungName.REPRODUCES)
    if replacement.native:
        names = ", ".join(item.module for item in replacement.native)
        return without_rungs(plan, training, f"{names} must be built natively")
    if not replacement.renderer:
        return without_rungs(plan, training, "none of these is a rasterizer, which a training needs")
    return plan


def use_dropins(
    case: Case, replacement: Replacement, backend: str, *options: str, on_the_cpu: bool
) -> tuple[MakeDropin | Confirm, ...]:
    """List the steps that install the drop-ins by a command, compare their numbers, and train with their rasterizer."""
    # the user's own sources, else the drop-ins, else a placeholder
    sources = case.sources.named or replacement.names or ("CHECKOUT",)
    install = splatfix(case, "install", *sources, "--backend", backend, *options)
    use = MakeDropin(command=install, subjects=replacement.names, backend=backend)
    verify = Confirm(command=splatfix(case, "certify", "--level", "2"), what="check accuracy")
    if not replacement.renderer:
        return use, verify
    certify = ["certify", "--renderer", replacement.renderer]
    if on_the_cpu:
        certify += ["--device", "cpu"]
    return use, verify, Confirm(command=splatfix(case, *certify), what="test training")


def must_be_native(replacement: Replacement) -> list[Reason]:
    """Say what has no drop-in; that it depends, where nothing is known of the extensions."""
    if not replacement.dropins and not replacement.native:
        text = (
            "whether there is a drop-in depends on the rasterizer that your trainer calls: name the checkout"
        )
        return [Reason(text)]
    texts = ((f"{item.module} must be built natively", item.reason) for item in replacement.native)
    return [Reason(": ".join(filter(None, text))) for text in texts]


def usable_dropins(case: Case) -> Replacement | Rejected:
    """Choose the drop-ins for what is meant, without those that are installed."""
    if case.kept:
        return not_applicable(f"{', '.join(case.kept)} must not change (--keep)")
    checkout = case.context.checkout
    parts = case.parts or native_parts(case.context, case.sources)  # none is judged without a target
    installed = {name for part in parts if part.dropin and not part.unfit for name in part.names}
    replacement = case.sources.replacement
    # where the sources themselves have not told, by how they call it
    if not replacement.dropins and not replacement.native:
        if checkout and not case.sources.variants:
            replacement = replacement_for(checkout)
        else:
            replacement = _by_parts(
                part for part in case.parts if canonicalize_name(part.name) not in installed
            )
    missing: list[Dropin] = []
    native = list(replacement.native)
    for dropin in replacement.dropins:
        if dropin.distribution in installed:
            continue
        # its host is not here or is none that it serves: that must be built natively
        if obstacle := host_obstacle(case.context, dropin):
            native.append(Native(dropin.name, obstacle.what.rstrip(".")))
        else:
            missing.append(dropin)
    replacement = Replacement(tuple(missing), tuple(native))
    if replacement.useless:
        obstacles = []
        for item in replacement.native:
            # without a name the reason is about all of them, and a sentence of its own
            subject = f"nothing replaces {item.module}" if item.module else ""
            obstacles.append(": ".join(filter(None, (subject, item.reason))))
        others = ""
        if missing:
            others = f"; of the others {', '.join(replacement.names)} can be replaced"
        return not_applicable("; ".join(obstacles) + others)
    if not missing and (case.parts or (parts and all(part.dropin for part in parts))):
        return not_applicable("every extension is one of splatfix's drop-ins already")
    return replacement


def _by_parts(parts: Iterable[NativePart]) -> Replacement:
    """Choose what replaces extensions of which no more than the variant or the name is known."""
    chosen: list[Dropin] = []
    native: list[Native] = []
    for part in parts:
        names = (canonicalize_name(part.name), *part.names)
        fitting = [dropin for dropin in DROPINS if (dropin.host or dropin.distribution) in names]
        if part.variant:
            by_variant = dropin_for_variant(part.variant)
            if by_variant:
                chosen.append(by_variant)
            else:
                native.append(Native(part.name, refusal(part.variant) or "no drop-in was made for it"))
        elif len(fitting) == 1:
            chosen.append(fitting[0])
        else:
            reason = "it has no drop-in"
            if fitting:
                reason = "several packages share this name, and which one it is cannot be determined here"
            native.append(Native(part.name, reason))
    return Replacement(tuple(chosen), tuple(native))


def _first_torch(case: Case) -> InstallTorch | None:
    """Choose the torch to install where there is none: for the targets, else the newest for the CPU; None: no wheel."""
    facts = case.context.facts
    candidates = other_builds(case)
    if candidates:
        best = min(candidates, key=lambda item: rank_of(case, item))
        version, tag = best.build.torch, best.build.tag
    else:
        # the newest release with wheels for this Python and C library
        python, glibc = case.context.python, case.context.glibc
        fitting = ""
        for item in () if no_wheels(facts) else releases():
            python_fits = python is None or item.supports_python(python) is not False
            if python_fits and (glibc is None or item.min_glibc is None or glibc >= item.min_glibc):
                fitting = item.release
        if not fitting:
            return None
        version, tag = f"{fitting}.*", "cpu"
    step = pip(facts, "install", *pip_words(version, tag))
    return InstallTorch(command=step.command, version=version, tag=tag)


def make_dropins(
    case: Case, replacement: Replacement, on_gpu: Sequence[str] | Rejected | None = None
) -> Plan | Rejected:
    """Make the drop-ins, verify and install them: what ``install`` executes.

    Args:
        replacement: what was chosen for the sources of the request.
        on_gpu: what is not known of the GPU code that NVRTC compiles, or why it does not; None: in pure PyTorch.
    """
    context, facts, request = case.context, case.context.facts, case.request
    for dropin in replacement.dropins:
        if obstacle := host_obstacle(context, dropin):
            return obstacle
    imports = imports_of_hosts(context, replacement.dropins, installing=request.with_dependencies)
    if isinstance(imports, Rejected):
        return imports
    if isinstance(on_gpu, Rejected):
        return on_gpu
    python, torch = usable_python(facts), usable_torch(context, cuda=False)
    if isinstance(python, Rejected):
        return python
    if isinstance(torch, Rejected):
        return torch
    dependencies = plan_dependencies(request, facts, ())
    if isinstance(dependencies, Rejected):
        return dependencies
    considered = []
    for item in replacement.native:
        considered.append(Considered(f"a drop-in for {item.module}", item.reason or "none was made"))
    asked_for = f"--backend {request.backend} was asked for; it needs no toolkit"
    considered += [Considered(f"native build of {name}", asked_for) for name in replacement.names]
    kind, backend = OptionKind.DROPIN, "pure"
    targets: tuple[Arch, ...] = ()
    if on_gpu is not None:
        kind, backend, targets = OptionKind.NVRTC, "nvrtc", context.archs
    makers = []
    notes = [f"not replaced, and to be built natively: {item.text}" for item in replacement.native]
    if on_gpu is not None:
        # what a drop-in's note says of its speed is not so with GPU code
        notes = [CAVEAT_ON_GPU, *(f"not known here: {text}" for text in on_gpu), *notes]
    for dropin in replacement.dropins:
        reason = Reason("on a GPU; for tensors on a CPU, and in double precision, plain PyTorch runs")
        if on_gpu is None:
            reason = Reason(dropin.note)
            notes.append(f"{dropin.name}: {dropin.note}")
        make = MakeDropin(
            subject=dropin.distribution,
            module=dropin.module,
            version=_VERSION,
            variant=dropin.variant,
            declared=dropin.declared if not dropin.serves else None,
            backend=backend,
            targets=targets,
            reasons=(reason,),
        )
        makers.append(make)
    variants = {dropin.distribution: dropin.serves for dropin in replacement.dropins}
    dependencies = replace(dependencies, steps=(*imports, *dependencies.steps))
    draft = Plan(kind, kind.title(), considered=tuple(considered), notes=tuple(notes), targets=targets)
    return installation(case, draft, makers, variants, dependencies)
