"""Puts options together: what this machine can verify, splatfix's own commands, and the order of what install executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context import Context
from splatfix.context.commands import python_option
from splatfix.core.errors import require
from splatfix.core.proof import RungName
from splatfix.core.step import BLANKS, Command, Step, target_options
from splatfix.knowledge import Arch
from splatfix.model import Considered
from splatfix.model.option import InstallPlan, Limit, Option, OptionKind, Request
from splatfix.model.steps import (
    BuildWheel,
    CheckImport,
    Confirm,
    EditSource,
    FetchWheel,
    InstallStep,
    InstallWheel,
    MakeDropin,
    Reason,
    Rebuild,
    UseDropins,
    VerifyWheel,
)
from splatfix.plan.assessment import Assessment, names_of_archs
from splatfix.plan.dependencies import Dependencies
from splatfix.plan.parts import conflict_with
from splatfix.plan.requirements import replaced_version, usable_python

UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run verifies, and for native code only a run on the GPU."""
_NOTHING_NATIVE = Limit(RungName.BUILT, "nothing native is built")


def make_option(
    assessment: Assessment,
    kind: OptionKind,
    steps: tuple[Step, ...],
    reasons: Sequence[Reason],
    unsure: Sequence[str] = (),
    *,
    native: bool = True,
) -> Option:
    """An available option, with what this machine can and cannot verify about it."""
    # the rungs that can be verified on this machine, and the others
    proves, limits = [RungName.RESOLVED], []
    if native:
        proves.append(RungName.BUILT)
    else:
        limits.append(_NOTHING_NATIVE)
    proves.append(RungName.LOADS)
    away = names_of_archs(assessment.away)
    if assessment.context.targets and not assessment.here:
        reason = f"no {away} GPU is in this machine"
        if not native:
            reason += "; on the CPU it can be verified"
        limits += [Limit(rung, reason) for rung in UPPER_RUNGS]
    else:
        proves += UPPER_RUNGS
        if away:
            limits += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
    title = kind.title(
        first_build=assessment.nothing_installed, torch_is_there=assessment.context.torch is not None
    )
    # what is kept works only after the repair, so its title must not promise that nothing is to be done
    if kind is OptionKind.KEEP and assessment.repairs:
        manual = "manual steps"
        if len(assessment.repairs) == 1:
            manual = "one manual step"
        title = f"{manual}, then {title}"
    rebuilt: set[str] = set()
    for step in steps:
        if isinstance(step, UseDropins):
            rebuilt.update(assessment.subjects)
        elif isinstance(step, Rebuild):
            rebuilt.update(step.subjects)
    conflicts = [Reason(p.conflict) for p in assessment.parts if p.conflict and p.name in rebuilt]
    return Option(
        kind,
        title,
        (*assessment.repairs, *steps),
        tuple(proves),
        tuple(limits),
        (*reasons, *conflicts),
        tuple(dict.fromkeys(unsure)),
        targets=assessment.context.archs,
    )


def without_rungs(option: Option, rungs: Sequence[RungName], reason: str) -> Option:
    """The same option, which cannot prove these rungs."""
    limits = [limit for limit in option.cannot_prove if limit.rung not in rungs]
    limits += [Limit(rung, reason) for rung in rungs]
    proves = tuple(rung for rung in option.proves if rung not in rungs)
    return replace(option, proves=proves, cannot_prove=tuple(limits))


def splatfix(assessment: Assessment, *arguments: str) -> Command:
    """A command of splatfix for the target environment."""
    argv = ("splatfix", *arguments, *python_option(assessment.context.facts))
    return Command(argv, blanks=tuple(word for word in arguments if word in BLANKS))


def confirm(assessment: Assessment) -> Confirm:
    """The last step: train where the GPU is, with what was built, else at least see that its code is there."""
    if assessment.context.targets and not assessment.here:
        checkout = assessment.context.facts.checkout.value
        options = target_options(assessment.context.archs)
        if checkout:
            options = ("--repo", checkout.folder, *options)
        command = splatfix(assessment, "diagnose", *options)
        return Confirm(command=command, what=f"confirm the code for {assessment.names}")
    # the smoke trainer is to call the rasterizer that was built
    names = {canonicalize_name(name) for name in assessment.subjects}
    renderer: tuple[str, ...] = ()
    if "gsplat" in names:
        renderer = ("--renderer", "gsplat")
    elif "diff-gaussian-rasterization" in names:
        renderer = ("--renderer", "inria")
    command = splatfix(assessment, "certify", "--device", "cuda", *renderer)
    return Confirm(command=command, what="test training")


# What install executes


class Wheels(Struct, frozen=True, kw_only=True):
    """What a backend decided for a request: how the wheels come about, and what has to be there before."""

    kind: OptionKind
    makers: tuple[BuildWheel | MakeDropin | FetchWheel, ...]
    variants: Mapping[str, Sequence[str]]
    """By the name of a distribution, keys of the variants that it can be."""
    dependencies: Dependencies = field(default_factory=Dependencies)
    first: tuple[InstallStep, ...] = ()
    """Steps before the makers, after the dependencies."""
    considered: tuple[Considered, ...] = ()
    notes: tuple[str, ...] = ()
    targets: tuple[Arch, ...] = ()
    jobs: int = 0


def installation(request: Request, context: Context, wheels: Wheels) -> InstallPlan:
    """The executable option of a request: everything is made and verified before the first thing is installed.

    Raises:
        SplatfixError: as :func:`usable_python`.
    """
    facts = context.facts
    interpreter = require(usable_python(facts))
    # three lists, so that a build that fails after half an hour has changed nothing in the environment
    verifications: list[InstallStep] = []
    installs: list[InstallStep] = []
    for step in wheels.makers:
        # a drop-in's own kernels are compiled, and so shown, while it is made
        targets: tuple[Arch, ...] = ()
        if not isinstance(step, MakeDropin):
            targets = step.targets
        # the checkout is edited only once the wheel made with the same edits has been verified
        if isinstance(step, BuildWheel) and request.in_place and step.edits:
            installs.append(EditSource(subject=step.subject, source=step.source, edits=step.edits))
        verifications.append(VerifyWheel(subject=step.subject, targets=targets))
        installs.append(InstallWheel(subject=step.subject, replaces=replaced_version(facts, step.subject)))
        installs.append(CheckImport(subject=step.subject))
    proves = [RungName.RESOLVED, RungName.BUILT, RungName.LOADS]
    limits = [
        Limit(RungName.COMPUTES, "nothing is run; splatfix certify --level 2 does that"),
        Limit(RungName.TRAINS, "nothing is trained; splatfix certify does that"),
    ]
    if wheels.kind is OptionKind.DROPIN:
        proves.remove(RungName.BUILT)
        limits.insert(0, _NOTHING_NATIVE)
    # whose rasterizer is replaced by another stack's
    variants = {canonicalize_name(name): keys for name, keys in wheels.variants.items()}
    conflicts = []
    for package in facts.environment.packages.value or ():
        names = (canonicalize_name(text) for text in (package.module, *package.distributions))
        for name in dict.fromkeys(names):
            if sentence := conflict_with(package, variants.get(name, ())):
                conflicts.append(sentence)
    dependencies = wheels.dependencies
    title = wheels.kind.title()
    if wheels.kind is OptionKind.REBUILD and not wheels.targets:
        title = "build without a CUDA toolkit: there is no CUDA code"
    return InstallPlan(
        wheels.kind,
        title,
        steps=(*dependencies.steps, *wheels.first, *wheels.makers, *verifications, *installs),
        proves=tuple(proves),
        cannot_prove=tuple(limits),
        considered=tuple(dict.fromkeys(wheels.considered)),
        notes=(*wheels.notes, *conflicts, *dependencies.notes),
        targets=wheels.targets,
        python=interpreter.executable,
        prefix=interpreter.prefix,
        jobs=wheels.jobs,
    )
