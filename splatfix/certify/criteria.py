"""The criteria of a certificate: each turns the trainer's measurements into met, failed or not measured.

Each exists because without it a broken stack looked fine: a run that "finished" with zero gradients, that never
densified, that had no test split and reported the quality of its training views, or that used a slow fallback.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from splatfix.certify.measured import criterion, get, number, shown, unless_short
from splatfix.certify.model import Criterion
from splatfix.certify.resources import judge_resources
from splatfix.core.words import counted

# Every trained group must get gradients. Those of f_rest are counted from the first step that uses a degree above 0.
REQUIRED_GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
MAX_ZERO_STEPS = 0.05
"""Maximum share of steps in which a parameter group has a zero gradient (a view may see nothing)."""
LOSS_FACTOR = 0.8
"""The smoothed loss at the end must be below this share of the one at the start."""
MIN_GAIN_DB = 2.0
"""Held-out PSNR must rise by this much over the untrained scene, which its points already color."""
TREND = -0.46
"""Kendall's tau between the mean losses of ten equal parts of a run and time: below it their fall is significant at 5 %
(21 of 45 pairs; Mann 1945, Kendall 1975)."""
MAX_ABOVE_BEST = 1.25
"""The loss of the last part may be this many times that of the best."""
MIN_REACHED = 0.5
"""Share of the Gaussians that a gradient must reach at the end of the run. On the sample scenes it is above 0.97."""
MAX_ABOVE_TRAINING_DB = 2.0
"""Held-out views may have so much more PSNR than training views. On the sample scenes it is at most 0.5 dB more."""

_T4 = "field report: gsplat on a T4, 30,000 iterations with all gradients zero"
_TAMING = "field report: Taming-3DGS on an RTX 5080, 13 scenes"


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
        _reached(result),
        _loss(result),
        judge_trend(result),
        _densified(result),
        _gain(result),
        _quality(result),
        _not_leaked(result),
        _round_trip(result),
        *judge_resources(result),
    )


def judge_learning(result: Mapping[str, Any]) -> tuple[Criterion, ...]:
    """The criteria on what was learned, which hold for any trainer whose result has the shape of ours."""
    return (
        _split(result),
        _finite(result),
        _reached(result),
        _loss(result),
        judge_trend(result),
        _gain(result),
        _quality(result),
        _not_leaked(result),
    )


def _finished(result: Mapping[str, Any], iterations: int | None) -> Criterion:
    done, status = get(result, "iterations"), get(result, "status")
    wanted = iterations if iterations is not None else get(result, "config", "iterations")
    return criterion(
        "training-finishes",
        # "failed" after all iterations: the saved point cloud differs, which is a criterion of its own
        isinstance(done, int) and done == wanted and status in ("ok", "failed"),
        f"{counted(done or 0, 'iteration')}, {status}",
        f"{counted(wanted or 0, 'iteration')}",
        "The trainer stopped early.",
        "what was asked for",
    )


def _renderer(result: Mapping[str, Any], renderer: str) -> Criterion:
    ran = get(result, "implementations", "renderer", "kind")
    name = get(result, "implementations", "renderer", "name")
    return criterion(
        "renderer-as-asked",
        ran == renderer,
        f"{ran} ({name})",
        renderer,
        "A different renderer ran than the one requested.",
        "what was asked for",
    )


def _split(result: Mapping[str, Any]) -> Criterion:
    train, test = get(result, "split", "train") or [], get(result, "split", "test") or []
    shared = {*(set(train) & set(test)), *(get(result, "split", "repeated") or [])}
    views = get(result, "heldout", "views")
    return criterion(
        "held-out-views",
        bool(test) and bool(train) and not shared and views == len(test),
        f"{len(train)} for training, {len(test)} held out, {len(shared)} in both, {views} evaluated",
        "at least one held-out view, none in both sets, all held-out views evaluated",
        "Quality on training views says nothing about the scene.",
        "every 8th view is held out, as in mip-NeRF 360 and the 3DGS paper; images are compared byte for byte",
    )


def _finite(result: Mapping[str, Any]) -> Criterion:
    steps = {name: number(get(result, "gradients", name, "non_finite_steps")) for name in _groups(result)}
    first, last = number(get(result, "train_loss", "first")), number(get(result, "train_loss", "last"))
    known = [value for value in steps.values() if value is not None]
    good = len(known) == len(steps) and sum(known) == 0 and first is not None and last is not None
    return criterion(
        "finite-values",
        good,
        f"{counted(sum(known), 'step')} with non-finite gradients, loss {shown(first)} to {shown(last)}"
        if known
        else "not recorded",
        "no NaN or infinity in loss or gradients",
        "NaN or infinite values spread to every Gaussian they touch.",
        "arithmetic: nothing finite follows",
    )


def _groups(result: Mapping[str, Any]) -> tuple[str, ...]:
    if own := get(result, "config", "groups"):  # of a stack's own trainer
        return tuple(own)
    constant = get(result, "config", "sh_degree") == 0  # no harmonics above the constant one
    return tuple(name for name in REQUIRED_GROUPS if not (constant and name == "f_rest"))


def _gradients(result: Mapping[str, Any]) -> list[Criterion]:
    criteria = []
    for name in _groups(result):
        group = get(result, "gradients", name) or {}
        steps = number(get(group, "steps") if name == "f_rest" else get(result, "iterations")) or 0.0
        zero, largest = number(get(group, "zero_steps")), number(get(group, "max"))
        good = (
            zero is not None
            and largest is not None
            and largest > 0
            and steps > 0
            and zero <= MAX_ZERO_STEPS * steps
        )
        measured = f"zero in {zero or 0:.0f} of {counted(steps, 'step')}, largest norm {largest or 0:.3g}"
        judged = criterion(
            f"gradients-{name.replace('_', '-')}",
            good,
            "no gradient recorded" if zero is None else measured,
            f"zero in at most {MAX_ZERO_STEPS:.0%} of the steps",
            f"No gradient reaches {name}: training runs, but never changes this part of the scene.",
            _T4,
        )
        criteria.append(unless_short(judged, result, zero is not None and steps == 0))
    return criteria


def _loss(result: Mapping[str, Any]) -> Criterion:
    first, last = number(get(result, "train_loss", "first")), number(get(result, "train_loss", "last"))
    known = first is not None and last is not None
    judged = criterion(
        "loss-falls",
        first is not None and last is not None and last < LOSS_FACTOR * first,
        f"{first:.4f} to {last:.4f}" if known else "not recorded",
        f"below {LOSS_FACTOR:.0%} of the start",
        "The optimizer does not improve its training views.",
        _T4,
    )
    return unless_short(judged, result, known)


def judge_trend(result: Mapping[str, Any]) -> Criterion:
    """Whether the loss fell over the run, by the order of its parts."""
    windows = [number(value) for value in get(result, "train_loss", "windows") or ()]
    known = [value for value in windows if value is not None]
    pairs = list(combinations(known, 2))
    tau = sum((later > earlier) - (later < earlier) for earlier, later in pairs) / max(len(pairs), 1)
    good = (
        bool(pairs)
        and len(known) == len(windows)
        and tau <= TREND
        and known[-1] <= MAX_ABOVE_BEST * min(known)
    )
    judged = criterion(
        "loss-trend",
        good,
        f"Kendall's tau {tau:.2f} over {len(known)} parts, the last {known[-1] / min(known):.2f} times the best"
        if pairs
        else "not recorded",
        f"tau at most {TREND}, the last part at most {MAX_ABOVE_BEST} times the best",
        "The loss fell and rose again: first and last alone do not show it.",
        "Mann 1945, Kendall 1975: a trend at 5 %; an opacity reset raises one part",
    )
    return unless_short(judged, result, windows == known)


def _reached(result: Mapping[str, Any]) -> Criterion:
    share, steps = number(get(result, "reached", "share")), number(get(result, "reached", "steps"))
    judged = criterion(
        "gaussians-reached",
        share is not None and share >= MIN_REACHED,
        f"{share or 0:.1%} had a gradient in the last {counted(steps or 0, 'step')}"
        if steps
        else "not recorded",
        f"at least {MIN_REACHED:.0%}",
        "Most Gaussians never change: the backward pass leaves them out, or no view sees them.",
        "the sample scenes reach 97 % and more; " + _T4,
    )
    return unless_short(judged, result, share is not None)


def _not_leaked(result: Mapping[str, Any]) -> Criterion:
    heldout, trained = (number(get(result, name, "psnr")) for name in ("heldout", "training_views"))
    return criterion(
        "held-out-not-above-training",
        heldout is not None and trained is not None and heldout <= trained + MAX_ABOVE_TRAINING_DB,
        f"{heldout:.2f} dB held out, {trained:.2f} dB of training views"
        if heldout is not None and trained is not None
        else "not measured",
        f"at most {MAX_ABOVE_TRAINING_DB:g} dB above training views",
        "Held-out views look better than what was trained on: they leaked into the training.",
        "on the sample scenes held-out views are at most 0.5 dB better",
    )


def _densified(result: Mapping[str, Any]) -> Criterion:
    counts = {
        name: number(get(result, "gaussians", name))
        for name in ("initial", "final", "cloned", "split", "pruned")
    }
    made = (counts["cloned"] or 0) + (counts["split"] or 0)
    measured = ", ".join(f"{name} {value:.0f}" for name, value in counts.items() if value is not None)
    judged = criterion(
        "densification-works",
        counts["initial"] is not None and made > 0 and (counts["final"] or 0) > 0,
        measured or "not recorded",
        "Gaussians are cloned or split, and some remain",
        "The screen-space gradient that drives densification is missing, or its schedule never started.",
        "Kerbl et al. 2023, section 5.2",
    )
    return unless_short(judged, result, bool(counts["initial"] and counts["final"]))


def _gain(result: Mapping[str, Any]) -> Criterion:
    before, after = number(get(result, "initial_heldout", "psnr")), number(get(result, "heldout", "psnr"))
    known = before is not None and after is not None
    judged = criterion(
        "held-out-psnr-rises",
        before is not None and after is not None and after - before >= MIN_GAIN_DB,
        f"{before:.2f} dB to {after:.2f} dB" if known else "not measured",
        f"up by at least {MIN_GAIN_DB} dB",
        "Held-out views did not improve: nothing was learned about the scene.",
        "the sample scenes gain 8 dB and more",
    )
    return unless_short(judged, result, known)


def _quality(result: Mapping[str, Any]) -> Criterion:
    psnr, floor = number(get(result, "heldout", "psnr")), number(get(result, "config", "psnr_floor"))
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        return criterion(
            "held-out-quality", None, measured, "no reference PSNR for this scene, length and size", "", ""
        )
    return criterion(
        "held-out-quality",
        psnr is not None and psnr >= floor,
        measured,
        f"at least {floor:.2f} dB",
        "Quality is below the reference for this scene.",
        "1.5 dB below the lowest of three seeds",
    )


def _round_trip(result: Mapping[str, Any]) -> Criterion:
    error = number(get(result, "ply", "round_trip_difference"))
    tolerance = number(get(result, "ply", "tolerance"))
    return criterion(
        "ply-round-trip",
        error is not None and tolerance is not None and error <= tolerance,
        "not measured" if error is None else f"largest difference {error:.2g}",
        f"the saved point cloud renders the same image (within {tolerance})",
        "The saved file differs from what was trained.",
        "the file holds the same float32 numbers; CUDA kernels may add them in another order",
    )
