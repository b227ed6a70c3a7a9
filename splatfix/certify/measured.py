"""From a trainer's result to a criterion: reading what may be missing, and outcomes that need every number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatfix.certify.model import Criterion, Outcome
from splatfix.core.words import counted

SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""


def get(result: Mapping[str, Any], *path: str) -> Any:
    """What lies at a path of keys; None where any of them is missing."""
    value: Any = result
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def shown(value: float | None) -> str:
    """A loss for people."""
    return "not finite" if value is None else f"{value:.4f}"


def criterion(code: str, good: bool | None, measured: str, required: str, why: str, source: str) -> Criterion:
    """``good``: None for what was not measured. ``source``: where the threshold comes from."""
    outcome = Outcome.NOT_MEASURED if good is None else (Outcome.MET if good else Outcome.FAILED)
    return Criterion(code, outcome, measured, required, "" if good else why, source)


def unless_short(judged: Criterion, result: Mapping[str, Any], measured: bool) -> Criterion:
    """A failure that a short run was bound to show is no failure."""
    done = number(get(result, "iterations"))
    if judged.outcome is not Outcome.FAILED or not measured or done is None or done >= SHORTEST:
        return judged
    why = f"a run of {counted(done, 'iteration')} is too short to judge this: {SHORTEST} or more decide it."
    return replace(judged, outcome=Outcome.UNDETERMINED, why=why)
