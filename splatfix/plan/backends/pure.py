"""Drop-ins in place of the extensions: plain PyTorch, far slower; or with GPU code that NVRTC compiles."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.torch_wheels import no_wheels, preference
from splatfix.core.errors import SplatfixError, require
from splatfix.core.proof import RungName
from splatfix.core.step import target_options
from splatfix.knowledge.dropins import DROPINS, Dropin, dropin_for_variant, refusal
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.model import Considered
from splatfix.model.option import InstallPlan, Native, NotApplicable, Option, OptionKind, Replacement, Request
from splatfix.model.steps import Confirm, InstallTorch, MakeDropin, Reason, UseDropins
from splatfix.plan.assessment import Assessment, torch_obstacles
from splatfix.plan.backends.nvrtc import CAVEAT, unsure_of_nvrtc
from splatfix.plan.backends.torch import other_builds
from splatfix.plan.compose import UPPER_RUNGS, Wheels, installation, make_option, splatfix, without_rungs
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.hosts import host_obstacle, imports_of_hosts
from splatfix.plan.parts import NativePart, native_parts
from splatfix.plan.replacement import replacement_for
from splatfix.plan.requirements import usable_python, usable_torch

_ON_A_GPU = Reason("on a GPU; for tensors on a CPU, and in double precision, plain PyTorch runs")
_VERSION = f"0+splatfix.{__version__}"
"""The version drop-ins carry: below every real release, and saying where it comes from."""


# The options of a machine


def dropins(assessment: Assessment) -> Option:
    """Plain PyTorch in place of the extensions."""
    replacement = _usable_dropins(assessment)
    against, unsure = torch_obstacles(assessment)
    install_torch: tuple[InstallTorch, ...] = ()
    if assessment.context.torch is None:
        step = _first_torch(assessment)
        if step is None:
            lacking = (
                no_wheels(assessment.context.facts) or "no release in the tables has a wheel for this Python"
            )
            raise NotApplicable(f"{against[0]}, and {lacking}")
        install_torch = (step,)
        against = []
        if assessment.context.targets and step.tag == "cpu":
            against = [f"no CUDA build of torch in the tables serves {assessment.names} here"]
    elif not assessment.context.targets:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [
            f"whether the drop-ins run on anything but the CPU with torch {assessment.context.torch.version}"
        ]
    steps = _use(assessment, replacement, "pure", on_the_cpu=bool(against))
    must_be_native, unknown_names = _reasons(replacement)
    slow = Reason("same values within rounding; far slower than CUDA, for small scenes")
    reasons = (*must_be_native, slow, *unknown_names)
    option = make_option(
        assessment, OptionKind.DROPIN, (*install_torch, *steps), reasons, unsure, native=False
    )
    if against:
        reason = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
        option = without_rungs(option, UPPER_RUNGS, reason)
    # a training needs a rasterizer
    training = (RungName.TRAINS, RungName.REPRODUCES)
    if replacement.native:
        names = ", ".join(item.module for item in replacement.native)
        return without_rungs(option, training, f"{names} must be built natively")
    if not replacement.renderer:
        return without_rungs(option, training, "none of these is a rasterizer, which a training needs")
    return option


def dropins_on_gpu(assessment: Assessment) -> Option:
    """Make the option of drop-ins with GPU code: where plain PyTorch would serve, and NVRTC compiles for the targets."""
    plain = dropins(assessment)
    replacement = _usable_dropins(assessment)
    try:
        unsure = unsure_of_nvrtc(assessment.context)
    except SplatfixError as error:
        obstacle = error.what.rstrip(".")
        if error.code == "cpu-only-torch" and error.todo and error.todo[0].command:
            obstacle += f"; possible after: {error.todo[0].line()}"
        raise NotApplicable(obstacle) from error
    targets = target_options(assessment.context.archs)
    steps = _use(assessment, replacement, "nvrtc", *targets, on_the_cpu=not assessment.here)
    must_be_native, unknown_names = _reasons(replacement)
    needs_no_tools = Reason("made in seconds; no toolkit, host compiler or ninja is needed")
    reasons = [*must_be_native, *unknown_names, needs_no_tools, Reason(CAVEAT)]
    option = make_option(assessment, OptionKind.NVRTC, steps, reasons, unsure)
    # what plain PyTorch cannot show for want of a rasterizer or a fitting torch, these cannot either
    for limit in plain.cannot_prove:
        if limit.rung in option.proves and limit.rung is not RungName.BUILT:
            option = without_rungs(option, (limit.rung,), limit.why)
    return option


def _use(
    assessment: Assessment, replacement: Replacement, backend: str, *options: str, on_the_cpu: bool
) -> tuple[UseDropins | Confirm, ...]:
    """Install the drop-ins, then compare their numbers, and train with their rasterizer."""
    # the user's own sources, else the drop-ins, else a placeholder
    sources = assessment.sources.named or replacement.names or ("CHECKOUT",)
    install = splatfix(assessment, "install", *sources, "--backend", backend, *options)
    use = UseDropins(command=install, subjects=replacement.names, backend=backend)
    verify = Confirm(command=splatfix(assessment, "certify", "--level", "2"), what="check accuracy")
    if not replacement.renderer:
        return use, verify
    certify = ["certify", "--renderer", replacement.renderer]
    if on_the_cpu:
        certify += ["--device", "cpu"]
    return use, verify, Confirm(command=splatfix(assessment, *certify), what="test training")


def _reasons(replacement: Replacement) -> tuple[list[Reason], list[Reason]]:
    """What has no drop-in, and that it depends where nothing is known of the extensions."""
    must_be_native = []
    for item in replacement.native:
        texts = (f"{item.module} must be built natively", item.reason)
        must_be_native.append(Reason(": ".join(filter(None, texts))))
    if replacement.dropins or replacement.native:
        return must_be_native, []
    text = "whether there is a drop-in depends on the rasterizer that your trainer calls: name the checkout"
    return [], [Reason(text)]


def _usable_dropins(assessment: Assessment) -> Replacement:
    """The drop-ins for what is meant, without those that are installed.

    Raises:
        NotApplicable: they would serve nobody, or there is nothing for them to replace.
    """
    if assessment.kept:
        raise NotApplicable(f"{', '.join(assessment.kept)} must not change (--keep)")
    sources, checkout = assessment.sources, assessment.context.facts.checkout.value
    parts = assessment.parts or native_parts(assessment.context, sources)  # none is judged without a target
    installed = {name for part in parts if part.dropin and not part.unfit for name in part.names}
    if sources.replacement.dropins or sources.replacement.native:
        # the sources themselves have told, by how they call it
        replacement = sources.replacement
    elif checkout and not sources.variants:
        replacement = replacement_for(checkout)
    else:
        replacement = _by_parts(
            part for part in assessment.parts if canonicalize_name(part.name) not in installed
        )
    missing: list[Dropin] = []
    native = list(replacement.native)
    for dropin in replacement.dropins:
        if dropin.distribution in installed:
            continue
        # its host is not here or is none that it serves: that must be built natively
        if obstacle := host_obstacle(assessment.context, dropin):
            native.append(Native(dropin.name, obstacle.what.rstrip(".")))
        else:
            missing.append(dropin)
    replacement = Replacement(tuple(missing), tuple(native))
    if replacement.useless:
        obstacles = []
        for item in replacement.native:
            # without a name the reason is about all of them, and a sentence of its own
            subject = ""
            if item.module:
                subject = f"nothing replaces {item.module}"
            obstacles.append(": ".join(filter(None, (subject, item.reason))))
        others = ""
        if missing:
            others = f"; of the others {', '.join(replacement.names)} can be replaced"
        raise NotApplicable("; ".join(obstacles) + others)
    if not missing and (assessment.parts or (parts and all(part.dropin for part in parts))):
        raise NotApplicable("every extension is one of splatfix's drop-ins already")
    return replacement


def _by_parts(parts: Iterable[NativePart]) -> Replacement:
    """What replaces extensions of which no more than the variant or the name is known."""
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


def _first_torch(assessment: Assessment) -> InstallTorch | None:
    """The torch to install where there is none: one that serves the targets, else the newest for the CPU; None: no wheel."""
    facts = assessment.context.facts
    candidates = other_builds(assessment)
    if candidates:
        best = min(
            candidates,
            key=lambda item: (
                item.runs == "unknown",
                preference(facts, item.build, assessment.context.archs),
            ),
        )
        version, tag = best.build.torch, best.build.tag
    else:
        # the newest release with wheels for this Python and C library
        python, glibc = assessment.context.python, assessment.context.glibc
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


# The plan for sources at hand


def dropin_plan(request: Request, context: Context, replacement: Replacement, *, on_gpu: bool) -> InstallPlan:
    """Make the drop-ins, verify and install them.

    Args:
        replacement: what was chosen for the sources of the request.
        on_gpu: with GPU code, which NVRTC compiles; else in pure PyTorch.

    Raises:
        SplatfixError: what is wrong with the environment; as ``host_obstacle``, ``imports_of_hosts`` and ``unsure_of_nvrtc``.
    """
    facts = context.facts
    for dropin in replacement.dropins:
        if obstacle := host_obstacle(context, dropin):
            raise obstacle.error()
    imports = require(imports_of_hosts(context, replacement.dropins, installing=request.with_dependencies))
    unsure = unsure_of_nvrtc(context) if on_gpu else []
    require(usable_python(facts))
    require(usable_torch(context, cuda=False))
    considered = []
    for item in replacement.native:
        considered.append(Considered(f"a drop-in for {item.module}", item.reason or "none was made"))
    asked_for = f"--backend {request.backend} was asked for; it needs no toolkit"
    considered += [Considered(f"native build of {name}", asked_for) for name in replacement.names]
    makers = []
    for dropin in replacement.dropins:
        make = MakeDropin(
            subject=dropin.distribution,
            module=dropin.module,
            version=_VERSION,
            variant=dropin.variant,
            declared=dropin.declared if not dropin.serves else None,
            reasons=(Reason(dropin.note),),
        )
        if on_gpu:
            make = replace(make, backend="nvrtc", targets=context.archs, reasons=(_ON_A_GPU,))
        makers.append(make)
    notes = [f"not replaced, and to be built natively: {item.text}" for item in replacement.native]
    if on_gpu:
        # what a drop-in's note says of its speed is not so with GPU code
        notes = [CAVEAT, *(f"not known here: {text}" for text in unsure), *notes]
    else:
        notes += [f"{dropin.name}: {dropin.note}" for dropin in replacement.dropins]
    dependencies = require(plan_dependencies(request, facts, ()))
    wheels = Wheels(
        kind=OptionKind.NVRTC if on_gpu else OptionKind.DROPIN,
        makers=tuple(makers),
        variants={dropin.distribution: dropin.serves for dropin in replacement.dropins},
        dependencies=replace(dependencies, steps=(*imports, *dependencies.steps)),
        considered=tuple(considered),
        notes=tuple(notes),
        targets=context.archs if on_gpu else (),
    )
    return installation(request, context, wheels)
