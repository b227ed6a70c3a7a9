"""From a measurement to a criterion: three outcomes, and a fourth for a run that was too short."""

from __future__ import annotations

from dataclasses import replace

from splatfix.certify.model import Criterion, Outcome
from splatfix.certify.record import TrainingRecord
from splatfix.core.words import counted

SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""


def criterion(
    code: str, met: bool | None, *, measured: str, required: str, meaning: str = "", source: str = ""
) -> Criterion:
    """A criterion by its outcome.

    Args:
        met: None for what was not measured.
        meaning: what a failure means in practice; left out where there is none.
        source: where the threshold comes from.
    """
    if met is None:
        outcome = Outcome.NOT_MEASURED
    elif met:
        outcome = Outcome.MET
    else:
        outcome = Outcome.FAILED
    return Criterion(code, outcome, measured, required, "" if met else meaning, source)


def not_measured(code: str, reason: str, required: str) -> Criterion:
    """A criterion that this run cannot be judged by."""
    return Criterion(code, Outcome.NOT_MEASURED, reason, required)


def unless_short(item: Criterion, record: TrainingRecord, *, measured: bool) -> Criterion:
    """A failure that a short run was bound to show is no failure; one whose measurement is missing stays one."""
    done = record.iterations
    if item.outcome is not Outcome.FAILED or not measured or done is None or done >= SHORTEST:
        return item
    reason = (
        f"a run of {counted(done, 'iteration')} is too short to judge this: {SHORTEST} or more decide it."
    )
    return replace(item, outcome=Outcome.UNDETERMINED, why=reason)
