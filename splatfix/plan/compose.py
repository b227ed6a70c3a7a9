"""Puts plans together: what this machine can verify, splatfix's own commands, and the order of what install executes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context.commands import python_option
from splatfix.core.proof import RungName
from splatfix.core.step import Command, Step, target_options
from splatfix.knowledge import Arch
from splatfix.model.option import Limit, OptionKind, Plan
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
    VerifyWheel,
)
from splatfix.plan.case import Case, names_of_archs
from splatfix.plan.dependencies import Dependencies
from splatfix.plan.parts import other_variant
from splatfix.plan.requirements import replaced_version

UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run verifies, and for native code only a run on the GPU."""
_NOT_NATIVE = (OptionKind.CONTAINER, OptionKind.DROPIN)
_NOTHING_NATIVE = Limit(RungName.BUILT, "nothing native is built")


def make_option(
    case: Case,
    kind: OptionKind,
    steps: Sequence[Step],
    reasons: Sequence[Reason],
    unsure: Sequence[str] = (),
) -> Plan:
    """Build the plan for a machine, with what it can and cannot verify about it."""
    native = kind not in _NOT_NATIVE
    # the rungs that can be verified on this machine, and the others
    proves, limits = [RungName.RESOLVED], []
    if native:
        proves.append(RungName.BUILT)
    else:
        limits.append(_NOTHING_NATIVE)
    proves.append(RungName.LOADS)
    away = names_of_archs(case.away)
    if case.context.targets and not case.here:
        reason = f"no {away} GPU is in this machine"
        if not native:
            reason += "; on the CPU it can be verified"
        limits += [Limit(rung, reason) for rung in UPPER_RUNGS]
    else:
        proves += UPPER_RUNGS
        if away:
            limits += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
    title = kind.title(first_build=case.nothing_installed, torch_is_there=case.context.torch is not None)
    # what is kept works only after the repair, so its title must not promise that nothing is to be done
    if kind is OptionKind.KEEP and case.repairs:
        manual = "manual steps"
        if len(case.repairs) == 1:
            manual = "one manual step"
        title = f"{manual}, then {title}"
    replaced: set[str] = set()
    for step in steps:
        if isinstance(step, MakeDropin):
            replaced.update(case.subjects)
        elif isinstance(step, BuildWheel):
            replaced.update(step.subjects)
    conflicts = [Reason(part.conflict) for part in case.parts if part.conflict and part.name in replaced]
    return Plan(
        kind,
        title,
        (*case.repairs, *steps),
        tuple(proves),
        tuple(limits),
        (*reasons, *conflicts),
        tuple(dict.fromkeys(unsure)),
        targets=case.context.archs,
    )


def without_rungs(plan: Plan, rungs: Sequence[RungName], reason: str) -> Plan:
    """Return the same plan, which cannot prove these rungs."""
    limits = [limit for limit in plan.cannot_prove if limit.rung not in rungs]
    limits += [Limit(rung, reason) for rung in rungs]
    proves = tuple(rung for rung in plan.proves if rung not in rungs)
    return replace(plan, proves=proves, cannot_prove=tuple(limits))


def splatfix(case: Case, *arguments: str) -> Command:
    """Build a command of splatfix for the target environment."""
    return Command(("splatfix", *arguments, *python_option(case.context.facts)))


def confirm(case: Case) -> Confirm:
    """Build the last step: train where the GPU is, with what was built, else at least see that its code is there."""
    if case.context.targets and not case.here:
        checkout = case.context.checkout
        options = target_options(case.context.archs)
        if checkout:
            options = ("--repo", checkout.folder, *options)
        command = splatfix(case, "diagnose", *options)
        return Confirm(command=command, what=f"confirm the code for {case.names}")
    # the smoke trainer is to call the rasterizer that was built
    names = {canonicalize_name(name) for name in case.subjects}
    renderer: tuple[str, ...] = ()
    if "gsplat" in names:
        renderer = ("--renderer", "gsplat")
    elif "diff-gaussian-rasterization" in names:
        renderer = ("--renderer", "inria")
    command = splatfix(case, "certify", "--device", "cuda", *renderer)
    return Confirm(command=command, what="test training")


def installation(
    case: Case,
    draft: Plan,
    makers: Sequence[BuildWheel | FetchWheel] | Sequence[MakeDropin],
    variants: Mapping[str, Sequence[str]],
    dependencies: Dependencies,
    first: Sequence[InstallStep] = (),
) -> Plan:
    """Build the plan that ``install`` executes: everything is made and verified before the first thing is installed.

    Args:
        draft: kind, targets, and what was considered for it.
        makers: how the wheels come about.
        variants: by the name of a distribution, keys of the variants that it can be.
        first: steps before the makers, after the dependencies.
    """
    facts = case.context.facts
    python = facts.environment.interpreter.value
    assert python is not None, "it is usable"
    # three lists, so that a build that fails after half an hour has changed nothing in the environment
    verifications: list[InstallStep] = []
    installs: list[InstallStep] = []
    for step in makers:
        # a drop-in's own kernels are compiled, and so shown, while it is made
        targets: tuple[Arch, ...] = ()
        if not isinstance(step, MakeDropin):
            targets = step.targets
        # the checkout is edited only once the wheel made with the same edits has been verified
        if isinstance(step, BuildWheel) and case.request.in_place and step.edits:
            installs.append(EditSource(subject=step.subject, source=step.source, edits=step.edits))
        verifications.append(VerifyWheel(subject=step.subject, targets=targets))
        installs.append(InstallWheel(subject=step.subject, replaces=replaced_version(facts, step.subject)))
        installs.append(CheckImport(subject=step.subject))
    proves = [RungName.RESOLVED, RungName.BUILT, RungName.LOADS]
    limits = [
        Limit(RungName.COMPUTES, "nothing is run; splatfix certify --level 2 does that"),
        Limit(RungName.TRAINS, "nothing is trained; splatfix certify does that"),
    ]
    if draft.kind is OptionKind.DROPIN:
        proves.remove(RungName.BUILT)
        limits.insert(0, _NOTHING_NATIVE)
    # whose rasterizer is replaced by another stack's
    keys_by_name = {canonicalize_name(name): keys for name, keys in variants.items()}
    conflicts = []
    for package in facts.environment.packages.value or ():
        names = (canonicalize_name(text) for text in (package.module, *package.distributions))
        for name in dict.fromkeys(names):
            _, sentence = other_variant(package, keys_by_name.get(name, ()))
            if sentence:
                conflicts.append(sentence)
    return replace(
        draft,
        steps=(*dependencies.steps, *first, *makers, *verifications, *installs),
        proves=tuple(proves),
        cannot_prove=tuple(limits),
        considered=tuple(dict.fromkeys(draft.considered)),
        notes=(*draft.notes, *conflicts, *dependencies.notes),
        python=python.executable,
        prefix=python.prefix,
        request=case.request,
    )
