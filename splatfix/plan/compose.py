"""Puts options together: the rungs this machine can verify, splatfix's own commands, the step that confirms the result."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.utils import canonicalize_name

from splatfix.context.commands import target_options
from splatfix.core.proof import RungName
from splatfix.core.step import BLANKS, Command, Step
from splatfix.plan.assessment import Assessment
from splatfix.plan.option import Limit, Option, OptionKind
from splatfix.plan.steps import Confirm, Reason, Rebuild, UseDropins

UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run verifies, and for native code only a run on the GPU."""


def make_option(
    found: Assessment,
    kind: OptionKind,
    steps: tuple[Step, ...],
    reasons: Sequence[Reason],
    unsure: Sequence[str] = (),
    *,
    native: bool = True,
) -> Option:
    """An available option, with what this machine can and cannot verify about it."""
    can, cannot = [RungName.RESOLVED], []
    if native:
        can.append(RungName.BUILT)
    else:
        cannot.append(Limit(RungName.BUILT, "nothing native is built"))
    can.append(RungName.LOADS)
    away = ", ".join(arch.sm for arch in found.away)
    if found.targets and not found.here:
        why = f"no {away} GPU is in this machine" + ("" if native else "; on the CPU it can be verified")
        cannot += [Limit(rung, why) for rung in UPPER_RUNGS]
    else:
        can += UPPER_RUNGS
        if away:
            cannot += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
    manual = "one manual step, then " if len(found.repairs) == 1 else "manual steps, then "
    first = manual if kind is OptionKind.KEEP and found.repairs else ""
    return Option(
        kind,
        first + _title(found, kind),
        (*found.repairs, *steps),
        tuple(can),
        tuple(cannot),
        (*reasons, *(Reason(text) for text in _conflicts(found, steps))),
        tuple(dict.fromkeys(unsure)),
        targets=found.archs,
    )


def _title(found: Assessment, kind: OptionKind) -> str:
    title = kind.label.replace("rebuild", "build") if found.nothing_installed else kind.label
    return title if found.torch else title.replace("another build of torch", "install torch")


def _conflicts(found: Assessment, steps: Sequence[Step]) -> list[str]:
    """Whose rasterizer these steps replace by another one."""
    built = {name for step in steps if isinstance(step, Rebuild) for name in step.subjects}
    dropins = any(isinstance(step, UseDropins) for step in steps)
    return [part.conflict for part in found.parts if part.conflict and (dropins or part.name in built)]


def splatfix(found: Assessment, *words: str) -> Command:
    """A command of splatfix for the target environment."""
    interpreter = found.facts.environment.interpreter.value
    python = ("--python", interpreter.executable) if interpreter else ()
    return Command(("splatfix", *words, *python), blanks=tuple(word for word in words if word in BLANKS))


def confirm(found: Assessment) -> Confirm:
    """The last step: train where the GPU is, with what was built, else at least see that its code is there."""
    if found.targets and not found.here:
        checkout = found.facts.checkout.value
        repo = ("--repo", checkout.folder) if checkout else ()
        command = splatfix(found, "diagnose", *repo, *target_options(found.archs))
        return Confirm(command=command, what=f"confirm the code for {found.words}")
    names = {canonicalize_name(name) for name in found.subjects}
    renderer = "gsplat" if "gsplat" in names else "inria" if "diff-gaussian-rasterization" in names else ""
    words = ("--renderer", renderer) if renderer else ()
    return Confirm(command=splatfix(found, "certify", "--device", "cuda", *words), what="test training")
