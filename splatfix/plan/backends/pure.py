"""Pure-PyTorch drop-ins in place of the extensions: no toolkit, no architecture, the same numbers, far slower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.context import Context, Rejected
from splatfix.context.commands import pip
from splatfix.context.torch_wheels import preference
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.core.step import target_options
from splatfix.knowledge.dropins import DROPINS, Dropin, dropin_for_variant, refusal
from splatfix.knowledge.torch_releases import pip_words, releases
from splatfix.plan.assessment import Assessment, torch_obstacles
from splatfix.plan.backends.torch import other_builds
from splatfix.plan.compose import UPPER_RUNGS, make_option, splatfix, without_rungs
from splatfix.plan.dependencies import plan_dependencies
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.gpu_kernels import GpuKernels
from splatfix.plan.option import InstallPlan, Limit, NotApplicable, Option, OptionKind, Request
from splatfix.plan.ordering import NOT_RUN, conflicts_of, in_order
from splatfix.plan.parts import NativePart
from splatfix.plan.replacement import Replacement, replacement_for, useless
from splatfix.plan.requirements import usable_python, usable_torch
from splatfix.plan.steps import Confirm, InstallStep, InstallTorch, MakeDropin, Reason, UseDropins

_ON_A_GPU = Reason("on a GPU; for tensors on a CPU, and in double precision, plain PyTorch runs")

# The option of a machine


@dataclass(frozen=True)
class DropinChoice:
    """Names of the drop-ins for the extensions that are meant, and what has none, with the reason ("": nobody made one)."""

    names: tuple[str, ...]
    refused: dict[str, str]

    @property
    def trains(self) -> bool:
        """A rasterizer is among them (or may be, where they are not known), so that a training can run on them."""
        return not self.names or any("rasterization" in name for name in self.names)

    def sources(self, assessment: Assessment) -> tuple[str, ...]:
        """What the command names: the user's own sources, else the drop-ins, else a placeholder."""
        return assessment.sources.named or self.names or ("CHECKOUT",)


def use_dropins(assessment: Assessment) -> Option:
    """Plain PyTorch in place of the extensions."""
    choice = usable_dropins(assessment)
    against, unsure = torch_obstacles(assessment)
    install_torch: tuple[InstallTorch, ...] = ()
    if assessment.torch is None:
        step = _first_torch(assessment)
        if step is None:
            no_wheels = assessment.no_wheels or "no release in the tables has a wheel for this Python"
            raise NotApplicable(f"{against[0]}, and {no_wheels}")
        install_torch = (step,)
        against = []
        if assessment.targets and step.tag == "cpu":
            against = [f"no CUDA build of torch in the tables serves {assessment.names} here"]
    elif not assessment.targets:
        # ROCm and Metal run plain PyTorch; whether all of it was never tried
        against = []
        unsure = [f"whether the drop-ins run on anything but the CPU with torch {assessment.torch.version}"]
    command = splatfix(assessment, "install", *choice.sources(assessment), "--backend", "pure")
    use = UseDropins(command=command, subjects=choice.names)
    steps = (*install_torch, use, *confirm_dropins(assessment, choice, on_the_cpu=bool(against)))
    reasons = [
        *reasons_of(choice),
        Reason("same values within rounding; far slower than CUDA, for small scenes"),
    ]
    reasons += _names_unknown(choice)
    option = make_option(assessment, OptionKind.DROPIN, steps, reasons, unsure, native=False)
    if against:
        reason = f"on that GPU ({'; '.join(against)}); on the CPU it can be verified"
        option = without_rungs(option, UPPER_RUNGS, reason)
    return without_training(option, choice)


def kernel_option(assessment: Assessment, compiled_by: Callable[[Sequence[Dropin]], GpuKernels]) -> Option:
    """Drop-ins with GPU code: where plain PyTorch would serve, and something compiles their kernels for the targets."""
    plain = use_dropins(assessment)
    choice = usable_dropins(assessment)
    try:
        kernels = compiled_by([dropin for dropin in DROPINS if dropin.name in choice.names])
    except SplatfixError as error:
        raise NotApplicable(error.what.rstrip(".")) from error
    backend = kernels.kind.value
    arguments = (*choice.sources(assessment), "--backend", backend, *target_options(assessment.archs))
    use = UseDropins(
        command=splatfix(assessment, "install", *arguments), subjects=choice.names, backend=backend
    )
    steps = (use, *confirm_dropins(assessment, choice, on_the_cpu=not assessment.here))
    reasons = [
        *reasons_of(choice),
        *_names_unknown(choice),
        Reason(f"{kernels.brings}; no toolkit, host compiler or ninja is needed"),
        Reason(kernels.caveat),
    ]
    option = make_option(assessment, kernels.kind, steps, reasons, kernels.unsure)
    # what plain PyTorch cannot show for want of a rasterizer or a fitting torch, these cannot either
    for limit in plain.cannot_prove:
        if limit.rung in option.proves and limit.rung is not RungName.BUILT:
            option = without_rungs(option, (limit.rung,), limit.why)
    return option


def usable_dropins(assessment: Assessment) -> DropinChoice:
    """The drop-ins for what is meant.

    Raises:
        NotApplicable: they would serve nobody, or there is nothing for them to replace.
    """
    if assessment.kept:
        raise NotApplicable(f"{', '.join(assessment.kept)} must not change (--keep)")
    choice = _choice(assessment)
    if useless(choice.names, choice.refused):
        obstacles = []
        for name, reason in choice.refused.items():
            # without a name the reason is about all of them, and a sentence of its own
            obstacles.append(_with_reason(f"nothing replaces {name}", reason) if name else reason)
        others = f"; of the others {', '.join(choice.names)} can be replaced" if choice.names else ""
        raise NotApplicable("; ".join(obstacles) + others)
    if assessment.parts and not choice.names:
        raise NotApplicable("every extension is one of splatfix's drop-ins already")
    return choice


def reasons_of(choice: DropinChoice) -> list[Reason]:
    """What has no drop-in."""
    refused = choice.refused.items()
    return [Reason(_with_reason(f"{name} must be built natively", reason)) for name, reason in refused]


def _names_unknown(choice: DropinChoice) -> list[Reason]:
    if choice.names or choice.refused:
        return []
    text = "whether there is a drop-in depends on the rasterizer that your trainer calls: name the checkout"
    return [Reason(text)]


def _with_reason(statement: str, reason: str) -> str:
    return f"{statement}: {reason}" if reason else statement


def without_training(option: Option, choice: DropinChoice) -> Option:
    """The option without the rungs that need a rasterizer, where none is among its drop-ins or all must be native."""
    training = (RungName.TRAINS, RungName.REPRODUCES)
    if choice.refused:
        return without_rungs(option, training, f"{', '.join(choice.refused)} must be built natively")
    if not choice.trains:
        return without_rungs(option, training, "none of these is a rasterizer, which a training needs")
    return option


def confirm_dropins(assessment: Assessment, choice: DropinChoice, *, on_the_cpu: bool) -> tuple[Confirm, ...]:
    """The commands that show what the drop-ins do: numbers by verify, a training by certify with their rasterizer."""
    verify = Confirm(command=splatfix(assessment, "verify"), what="check accuracy")
    if not choice.trains:
        return (verify,)
    device = ("--device", "cpu") if on_the_cpu else ()
    certify = splatfix(assessment, "certify", "--renderer", "inria", *device)
    return (verify, Confirm(command=certify, what="test training"))


def _choice(assessment: Assessment) -> DropinChoice:
    sources, checkout = assessment.sources, assessment.facts.checkout.value
    installed = {canonicalize_name(part.name) for part in assessment.parts if part.dropin and not part.unfit}
    refused: dict[str, str] = {}
    names: list[str] = []
    if sources.dropins or sources.no_dropins:
        # the sources themselves have told, by how they call it
        names, refused = list(sources.dropins), dict(sources.no_dropins)
    elif checkout and not sources.variants:
        replacement = replacement_for(checkout)
        names = [dropin.name for dropin in replacement.dropins]
        refused = {item.module: item.reason for item in replacement.native}
    else:
        for part in assessment.parts:
            if canonicalize_name(part.name) in installed:
                continue
            dropin = _dropin_for(part)
            if isinstance(dropin, Dropin):
                names.append(dropin.name)
            else:
                refused[part.name] = dropin
    missing = [name for name in names if canonicalize_name(name.partition("@")[0]) not in installed]
    return DropinChoice(tuple(missing), refused)


def _dropin_for(part: NativePart) -> Dropin | str:
    """The drop-in, or why there is none."""
    if part.variant:
        return dropin_for_variant(part.variant) or refusal(part.variant) or "no drop-in was made for it"
    name = canonicalize_name(part.name)
    fitting = [dropin for dropin in DROPINS if dropin.distribution == name]
    if len(fitting) > 1:
        return "several packages share this name, and which one it is cannot be determined here"
    return fitting[0] if fitting else "it has no drop-in"


def _first_torch(assessment: Assessment) -> InstallTorch | None:
    """The torch to install where there is none: one that serves the targets, else the newest for the CPU; None: no wheel."""
    facts = assessment.facts
    candidates = other_builds(assessment)
    if candidates:
        best = min(
            candidates,
            key=lambda item: (item.runs == "unknown", preference(facts, item.build, assessment.archs)),
        )
        version, tag = best.build.torch, best.build.tag
    elif release := _release_for_the_cpu(assessment):
        version, tag = f"{release}.*", "cpu"
    else:
        return None
    step = pip(facts, "install", *pip_words(version, tag))
    return InstallTorch(command=step.command, version=version, tag=tag)


def _release_for_the_cpu(assessment: Assessment) -> str:
    """The newest release with wheels for this Python and C library; "" where there is none."""
    if assessment.no_wheels:
        return ""
    python, glibc = assessment.python, assessment.glibc
    for item in reversed(releases()):
        python_fits = python is None or item.supports_python(python) is not False
        glibc_fits = glibc is None or item.min_glibc is None or glibc >= item.min_glibc
        if python_fits and glibc_fits:
            return item.release
    return ""


# The plan for sources at hand


def pure_plan(request: Request, context: Context) -> InstallPlan:
    """Make the drop-ins for the sources of a request, verify and install them.

    Raises:
        SplatfixError: what is wrong with the sources or the environment.
    """
    return dropin_plan(request, context, choose_dropins(request.sources, context.checkout))


def dropin_plan(
    request: Request, context: Context, replacement: Replacement, kernels: GpuKernels | None = None
) -> InstallPlan:
    """Make drop-ins, with GPU code where ``kernels`` says what compiles it.

    Raises:
        SplatfixError: what is wrong with the environment.
    """
    facts = context.facts
    interpreter = usable_python(facts)
    usable_torch(context, cuda=False)
    dependencies = plan_dependencies(request, facts, ())
    kind = kernels.kind if kernels else OptionKind.DROPIN
    targets = context.archs if kernels else ()
    first: list[InstallStep] = [dependencies.step] if dependencies.step else []
    if kernels and kernels.install:
        first.append(kernels.install)
    makers = []
    for dropin in replacement.dropins:
        reason = _ON_A_GPU if kernels else Reason(dropin.note)
        make = MakeDropin(
            subject=dropin.distribution,
            module=dropin.module,
            version=dropin_version(),
            variant=dropin.variant,
            backend=kernels.kind.value if kernels else "pure",
            targets=targets,
            reasons=(reason,),
        )
        makers.append(make)
    limits = NOT_RUN
    if kernels is None:
        limits = (Limit(RungName.BUILT, "nothing native is built"), *NOT_RUN)
    proves = [RungName.RESOLVED, RungName.LOADS]
    if kernels:
        proves.insert(1, RungName.BUILT)
    coming = {dropin.distribution: dropin.serves for dropin in replacement.dropins}
    return InstallPlan(
        kind,
        kind.label,
        steps=(*first, *in_order(facts, makers)),
        proves=tuple(proves),
        cannot_prove=limits,
        considered=_considered(request, replacement),
        notes=(
            *_notes(replacement, kernels),
            *dependencies.notes,
            *conflicts_of(facts, coming),
        ),
        targets=targets,
        python=interpreter.executable,
        prefix=interpreter.prefix,
    )


def dropin_version() -> str:
    """The version drop-ins carry: below every real release, and saying where it comes from."""
    return f"0+splatfix.{__version__}"


def _notes(replacement: Replacement, kernels: GpuKernels | None) -> list[str]:
    notes = [f"not replaced, and to be built natively: {item.text}" for item in replacement.native]
    if kernels is None:
        return notes + [f"{dropin.name}: {dropin.note}" for dropin in replacement.dropins]
    # what a drop-in's note says of its speed is not so with GPU code
    return [kernels.caveat, *(f"not known here: {text}" for text in kernels.unsure), *notes]


def _considered(request: Request, replacement: Replacement) -> tuple[Rejected, ...]:
    considered = []
    for item in replacement.native:
        considered.append(Rejected(f"a drop-in for {item.module}", item.reason or "none was made"))
    reason = f"--backend {request.backend} was asked for; it needs no toolkit"
    for dropin in replacement.dropins:
        considered.append(Rejected(f"native build of {dropin.name}", reason))
    return tuple(considered)
