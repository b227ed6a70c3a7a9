"""The criteria of a certificate: each turns the trainer's measurements into met, failed or not measured.

Each exists because without it a broken stack looked fine: a run that "finished" with zero gradients, that never
densified, that had no test split and reported the quality of its training views, or that used a slow fallback.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatfix.certify.model import Criterion, Outcome
from splatfix.core.words import counted

# Every trained group must get gradients. Those of f_rest are counted from the first step that uses a degree above 0.
REQUIRED_GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""
MAX_ZERO_STEPS = 0.05
"""Maximum share of steps in which a parameter group has a zero gradient (a view may see nothing)."""
LOSS_FACTOR = 0.8
"""The smoothed loss at the end must be below this share of the one at the start."""
MIN_GAIN_DB = 2.0
"""Held-out PSNR must rise by this much over the untrained scene, which its points already color."""


def judge(result: Mapping[str, Any], renderer: str, iterations: int | None = None) -> tuple[Criterion, ...]:
    """All criteria for one run's ``result.json``; a measurement that is missing fails its criterion, and a run below
    SHORTEST leaves what it cannot show undetermined.

    Args:
        renderer: the one that was asked for.
        iterations: as many as were asked for; None: as many as the preset has, which the result repeats.
    """
    return (
        _finished(result, iterations),
        _renderer(result, renderer),
        _split(result),
        _finite(result),
        *_gradients(result),
        _loss(result),
        _densified(result),
        _gain(result),
        _quality(result),
        _round_trip(result),
    )


def _get(result: Mapping[str, Any], *path: str) -> Any:
    value: Any = result
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _format(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def _criterion(code: str, good: bool | None, measured: str, required: str, why: str) -> Criterion:
    outcome = Outcome.NOT_MEASURED if good is None else (Outcome.MET if good else Outcome.FAILED)
    return Criterion(code, outcome, measured, required, "" if good else why)


def _finished(result: Mapping[str, Any], iterations: int | None) -> Criterion:
    done, status = _get(result, "iterations"), _get(result, "status")
    wanted = iterations if iterations is not None else _get(result, "config", "iterations")
    return _criterion(
        "training-finishes",
        isinstance(done, int) and done == wanted and status == "ok",
        f"{counted(done or 0, 'iteration')}, {status}",
        f"{counted(wanted or 0, 'iteration')}",
        "The trainer stopped early.",
    )


def _renderer(result: Mapping[str, Any], renderer: str) -> Criterion:
    ran = _get(result, "implementations", "renderer", "kind")
    name = _get(result, "implementations", "renderer", "name")
    return _criterion(
        "renderer-as-asked",
        ran == renderer,
        f"{ran} ({name})",
        renderer,
        "A different renderer ran than the one requested.",
    )


def _split(result: Mapping[str, Any]) -> Criterion:
    train, test = _get(result, "split", "train") or [], _get(result, "split", "test") or []
    shared = set(train) & set(test)
    views = _get(result, "heldout", "views")
    return _criterion(
        "held-out-views",
        bool(test) and bool(train) and not shared and views == len(test),
        f"{len(train)} for training, {len(test)} held out, {len(shared)} in both, {views} evaluated",
        "at least one held-out view, none in both sets, all held-out views evaluated",
        "Quality on training views says nothing about the scene.",
    )


def _finite(result: Mapping[str, Any]) -> Criterion:
    steps = {name: _number(_get(result, "gradients", name, "non_finite_steps")) for name in _groups(result)}
    first, last = _number(_get(result, "train_loss", "first")), _number(_get(result, "train_loss", "last"))
    known = [value for value in steps.values() if value is not None]
    good = len(known) == len(steps) and sum(known) == 0 and first is not None and last is not None
    return _criterion(
        "finite-values",
        good,
        f"{counted(sum(known), 'step')} with non-finite gradients, loss {_format(first)} to {_format(last)}"
        if known
        else "not recorded",
        "no NaN or infinity in loss or gradients",
        "NaN or infinite values spread to every Gaussian they touch.",
    )


def _groups(result: Mapping[str, Any]) -> tuple[str, ...]:
    constant = _get(result, "config", "sh_degree") == 0  # no harmonics above the constant one
    return tuple(name for name in REQUIRED_GROUPS if not (constant and name == "f_rest"))


def _gradients(result: Mapping[str, Any]) -> list[Criterion]:
    criteria = []
    for name in _groups(result):
        group = _get(result, "gradients", name) or {}
        steps = _number(_get(group, "steps") if name == "f_rest" else _get(result, "iterations")) or 0.0
        zero, largest = _number(_get(group, "zero_steps")), _number(_get(group, "max"))
        good = (
            zero is not None
            and largest is not None
            and largest > 0
            and steps > 0
            and zero <= MAX_ZERO_STEPS * steps
        )
        measured = f"zero in {zero or 0:.0f} of {counted(steps, 'step')}, largest norm {largest or 0:.3g}"
        judged = _criterion(
            f"gradients-{name.replace('_', '-')}",
            good,
            "no gradient recorded" if zero is None else measured,
            f"zero in at most {MAX_ZERO_STEPS:.0%} of the steps",
            f"No gradient reaches {name}: training runs, but never changes this part of the scene.",
        )
        criteria.append(_unless_short(judged, result, zero is not None and steps == 0))
    return criteria


def _unless_short(criterion: Criterion, result: Mapping[str, Any], measured: bool) -> Criterion:
    """A failure that a short run was bound to show is no failure."""
    done = _number(_get(result, "iterations"))
    if criterion.outcome is not Outcome.FAILED or not measured or done is None or done >= SHORTEST:
        return criterion
    why = f"a run of {counted(done, 'iteration')} is too short to judge this: {SHORTEST} or more decide it."
    return replace(criterion, outcome=Outcome.UNDETERMINED, why=why)


def _loss(result: Mapping[str, Any]) -> Criterion:
    first, last = _number(_get(result, "train_loss", "first")), _number(_get(result, "train_loss", "last"))
    known = first is not None and last is not None
    judged = _criterion(
        "loss-falls",
        first is not None and last is not None and last < LOSS_FACTOR * first,
        f"{first:.4f} to {last:.4f}" if known else "not recorded",
        f"below {LOSS_FACTOR:.0%} of the start",
        "The optimizer does not improve its training views.",
    )
    return _unless_short(judged, result, known)


def _densified(result: Mapping[str, Any]) -> Criterion:
    counts = {
        name: _number(_get(result, "gaussians", name))
        for name in ("initial", "final", "cloned", "split", "pruned")
    }
    made = (counts["cloned"] or 0) + (counts["split"] or 0)
    measured = ", ".join(f"{name} {value:.0f}" for name, value in counts.items() if value is not None)
    judged = _criterion(
        "densification-works",
        counts["initial"] is not None and made > 0 and (counts["final"] or 0) > 0,
        measured or "not recorded",
        "Gaussians are cloned or split, and some remain",
        "The screen-space gradient that drives densification is missing, or its schedule never started.",
    )
    return _unless_short(judged, result, bool(counts["initial"] and counts["final"]))


def _gain(result: Mapping[str, Any]) -> Criterion:
    before, after = _number(_get(result, "initial_heldout", "psnr")), _number(_get(result, "heldout", "psnr"))
    known = before is not None and after is not None
    judged = _criterion(
        "held-out-psnr-rises",
        before is not None and after is not None and after - before >= MIN_GAIN_DB,
        f"{before:.2f} dB to {after:.2f} dB" if known else "not measured",
        f"up by at least {MIN_GAIN_DB} dB",
        "Held-out views did not improve: nothing was learned about the scene.",
    )
    return _unless_short(judged, result, known)


def _quality(result: Mapping[str, Any]) -> Criterion:
    psnr, floor = _number(_get(result, "heldout", "psnr")), _number(_get(result, "config", "psnr_floor"))
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        return _criterion(
            "held-out-quality", None, measured, "no reference PSNR for this scene, length and size", ""
        )
    return _criterion(
        "held-out-quality",
        psnr is not None and psnr >= floor,
        measured,
        f"at least {floor:.2f} dB",
        "Quality is below the reference for this scene.",
    )


def _round_trip(result: Mapping[str, Any]) -> Criterion:
    error = _number(_get(result, "ply", "round_trip_difference"))
    tolerance = _number(_get(result, "ply", "tolerance"))
    return _criterion(
        "ply-round-trip",
        error is not None and tolerance is not None and error <= tolerance,
        "not measured" if error is None else f"largest difference {error:.2g}",
        f"the saved point cloud renders the same image (within {tolerance})",
        "The saved file differs from what was trained.",
    )
