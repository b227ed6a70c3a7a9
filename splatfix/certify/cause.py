"""Why a trainer failed, by the engine of ``splatfix explain``: the class that its output shows, and the fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from splatfix.certify.model import Criterion, Outcome
from splatfix.core.step import Step
from splatfix.explain import cause_of

_JUDGED = ("training-finishes", "no-cuda-error")


def explained(judged: Criterion, output: str, *, own: Collection[str] = ()) -> Criterion:
    """The criterion with the cause that the output names, where it failed and has no advice yet.

    Args:
        output: all that the trainer printed, and its error; lines of JSON are its progress, and are left out.
        own: classes for which the criterion's own advice is the better.
    """
    if judged.code not in _JUDGED or judged.outcome is not Outcome.FAILED or judged.advice:
        return judged
    cause = cause_of("\n".join(line for line in output.splitlines() if not line.startswith("{")))
    if cause is None:
        return judged
    why = f"{judged.why} {cause.why.rstrip('.')} [{cause.name}].".strip()
    return replace(judged, why=why, advice="" if cause.name in own else steps_in_words(cause.fix))


def steps_in_words(steps: Iterable[Step]) -> str:
    """What to do, in one line."""
    return "; ".join(
        f"{item.text}: {item.command.shell(windows=False)}" if item.command else item.text for item in steps
    )
