"""Puts options together: the rungs this machine can verify, splatfix's own commands, the step that confirms the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.context.commands import python_option
from splatfix.core.proof import RungName
from splatfix.core.step import BLANKS, Command, Step, target_options
from splatfix.plan.assessment import Assessment, names_of_archs
from splatfix.plan.option import Limit, Option, OptionKind
from splatfix.plan.steps import Confirm, Reason, Rebuild, UseDropins

UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run verifies, and for native code only a run on the GPU."""


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
    proves, limits = _provable(assessment, native=native)
    conflicts = [Reason(text) for text in _conflicts(assessment, steps)]
    return Option(
        kind,
        _title(assessment, kind),
        (*assessment.repairs, *steps),
        tuple(proves),
        tuple(limits),
        (*reasons, *conflicts),
        tuple(dict.fromkeys(unsure)),
        targets=assessment.archs,
    )


def _provable(assessment: Assessment, *, native: bool) -> tuple[list[RungName], list[Limit]]:
    """The rungs that can be verified on this machine, and the others."""
    proves, limits = [RungName.RESOLVED], []
    if native:
        proves.append(RungName.BUILT)
    else:
        limits.append(Limit(RungName.BUILT, "nothing native is built"))
    proves.append(RungName.LOADS)
    away = names_of_archs(assessment.away)
    if assessment.targets and not assessment.here:
        reason = f"no {away} GPU is in this machine"
        if not native:
            reason += "; on the CPU it can be verified"
        limits += [Limit(rung, reason) for rung in UPPER_RUNGS]
        return proves, limits
    proves += UPPER_RUNGS
    if away:
        limits += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
    return proves, limits


def without_rungs(option: Option, rungs: Sequence[RungName], reason: str) -> Option:
    """The same option, which cannot prove these rungs."""
    limits = [limit for limit in option.cannot_prove if limit.rung not in rungs]
    limits += [Limit(rung, reason) for rung in rungs]
    proves = tuple(rung for rung in option.proves if rung not in rungs)
    return replace(option, proves=proves, cannot_prove=tuple(limits))


def _title(assessment: Assessment, kind: OptionKind) -> str:
    torch_is_there = assessment.torch is not None
    title = kind.title(first_build=assessment.nothing_installed, torch_is_there=torch_is_there)
    # what is kept works only after the repair, so its title must not promise that nothing is to be done
    if kind is OptionKind.KEEP and assessment.repairs:
        manual = "one manual step" if len(assessment.repairs) == 1 else "manual steps"
        title = f"{manual}, then {title}"
    return title


def _conflicts(assessment: Assessment, steps: Sequence[Step]) -> list[str]:
    """Whose rasterizer these steps replace by another one."""
    rebuilt: set[str] = set()
    for step in steps:
        if isinstance(step, UseDropins):
            rebuilt.update(assessment.subjects)
        elif isinstance(step, Rebuild):
            rebuilt.update(step.subjects)
    return [part.conflict for part in assessment.parts if part.conflict and part.name in rebuilt]


def splatfix(assessment: Assessment, *arguments: str) -> Command:
    """A command of splatfix for the target environment."""
    argv = ("splatfix", *arguments, *python_option(assessment.facts))
    return Command(argv, blanks=tuple(word for word in arguments if word in BLANKS))


def confirm(assessment: Assessment) -> Confirm:
    """The last step: train where the GPU is, with what was built, else at least see that its code is there."""
    if assessment.targets and not assessment.here:
        checkout = assessment.facts.checkout.value
        repo = ("--repo", checkout.folder) if checkout else ()
        command = splatfix(assessment, "diagnose", *repo, *target_options(assessment.archs))
        return Confirm(command=command, what=f"confirm the code for {assessment.names}")
    renderer = _renderer(assessment.subjects)
    return Confirm(
        command=splatfix(assessment, "certify", "--device", "cuda", *renderer), what="test training"
    )


def _renderer(subjects: Sequence[str]) -> tuple[str, ...]:
    """The option of ``certify`` that makes the smoke trainer call the rasterizer that was built."""
    names = {canonicalize_name(name) for name in subjects}
    if "gsplat" in names:
        return ("--renderer", "gsplat")
    if "diff-gaussian-rasterization" in names:
        return ("--renderer", "inria")
    return ()
