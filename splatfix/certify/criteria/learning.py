"""Whether a training learned: loss, quality of views that were held out, densification. The same for any trainer."""

from __future__ import annotations

from itertools import combinations

from splatfix.certify.criteria.criterion import criterion, unless_short
from splatfix.certify.criteria.gradients import ZERO_GRADIENTS, groups_of
from splatfix.certify.model import Criterion
from splatfix.certify.record import GroupGradients, TrainingRecord
from splatfix.core.words import counted

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


def for_any_trainer(record: TrainingRecord) -> tuple[Criterion, ...]:
    """The criteria on what was learned that can be observed of any trainer from outside."""
    return (
        held_out_views(record),
        finite_values(record),
        gaussians_reached(record),
        loss_falls(record),
        loss_trend(record),
        heldout_gain(record),
        heldout_quality(record),
        heldout_not_above_training(record),
    )


def held_out_views(record: TrainingRecord) -> Criterion:
    """Quality is measured on views that were not trained on, and on all of them."""
    train, test = record.split.train, record.split.test
    shared = {*(set(train) & set(test)), *record.split.repeated}
    views = record.heldout.views
    return criterion(
        "held-out-views",
        bool(test) and bool(train) and not shared and views == len(test),
        measured=f"{len(train)} for training, {len(test)} held out, {len(shared)} in both, {views} evaluated",
        required="at least one held-out view, none in both sets, all held-out views evaluated",
        meaning="Quality on training views says nothing about the scene.",
        source="every 8th view is held out, as in mip-NeRF 360 and the 3DGS paper; images are compared byte for byte",
    )


def finite_values(record: TrainingRecord) -> Criterion:
    """No NaN and no infinity in any gradient, nor in the loss."""
    groups = groups_of(record)
    counts = [record.gradients.get(name, GroupGradients()).non_finite_steps for name in groups]
    known = [count for count in counts if count is not None]
    first, last = record.train_loss.first, record.train_loss.last
    measured = "not recorded"
    if known:
        losses = f"{_loss_text(first)} to {_loss_text(last)}"
        measured = f"{counted(sum(known), 'step')} with non-finite gradients, loss {losses}"
    return criterion(
        "finite-values",
        len(known) == len(counts) and sum(known) == 0 and first is not None and last is not None,
        measured=measured,
        required="no NaN or infinity in loss or gradients",
        meaning="NaN or infinite values spread to every Gaussian they touch.",
        source="arithmetic: nothing finite follows",
    )


def _loss_text(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.4f}"


def gaussians_reached(record: TrainingRecord) -> Criterion:
    """At the end of the run gradients still reach most of the Gaussians."""
    share, steps = record.reached.share, record.reached.steps
    measured = "not recorded"
    if steps:
        measured = f"{share or 0:.1%} had a gradient in the last {counted(steps, 'step')}"
    item = criterion(
        "gaussians-reached",
        share is not None and share >= MIN_REACHED,
        measured=measured,
        required=f"at least {MIN_REACHED:.0%}",
        meaning="Most Gaussians never change: the backward pass leaves them out, or no view sees them.",
        source=f"the sample scenes reach 97 % and more; {ZERO_GRADIENTS}",
    )
    return unless_short(item, record, measured=share is not None)


def loss_falls(record: TrainingRecord) -> Criterion:
    """The loss of the last iterations is below that of the first."""
    first, last = record.train_loss.first, record.train_loss.last
    known = first is not None and last is not None
    falls, measured = False, "not recorded"
    if first is not None and last is not None:
        falls = last < LOSS_FACTOR * first
        measured = f"{first:.4f} to {last:.4f}"
    item = criterion(
        "loss-falls",
        falls,
        measured=measured,
        required=f"below {LOSS_FACTOR:.0%} of the start",
        meaning="The optimizer does not improve its training views.",
        source=ZERO_GRADIENTS,
    )
    return unless_short(item, record, measured=known)


def loss_trend(record: TrainingRecord) -> Criterion:
    """The loss fell over the run, by the order of its parts."""
    windows = record.train_loss.windows
    known = [loss for loss in windows if loss is not None]
    pairs = list(combinations(known, 2))
    falls, measured = False, "not recorded"
    if pairs:
        # Kendall's tau against time: pairs that rise less pairs that fall, of all
        tau = sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)
        falls = len(known) == len(windows) and tau <= TREND and known[-1] <= MAX_ABOVE_BEST * min(known)
        ratio = known[-1] / min(known)
        measured = f"Kendall's tau {tau:.2f} over {len(known)} parts, the last {ratio:.2f} times the best"
    item = criterion(
        "loss-trend",
        falls,
        measured=measured,
        required=f"tau at most {TREND}, the last part at most {MAX_ABOVE_BEST} times the best",
        meaning="The loss fell and rose again: first and last alone do not show it.",
        source="Mann 1945, Kendall 1975: a trend at 5 %; an opacity reset raises one part",
    )
    return unless_short(item, record, measured=len(known) == len(windows))


def heldout_gain(record: TrainingRecord) -> Criterion:
    """Held-out views look better than before the training."""
    before, after = record.initial_heldout.psnr, record.heldout.psnr
    known = before is not None and after is not None
    rises, measured = False, "not measured"
    if before is not None and after is not None:
        rises = after - before >= MIN_GAIN_DB
        measured = f"{before:.2f} dB to {after:.2f} dB"
    item = criterion(
        "held-out-psnr-rises",
        rises,
        measured=measured,
        required=f"up by at least {MIN_GAIN_DB} dB",
        meaning="Held-out views did not improve: nothing was learned about the scene.",
        source="the sample scenes gain 8 dB and more",
    )
    return unless_short(item, record, measured=known)


def heldout_quality(record: TrainingRecord) -> Criterion:
    """Held-out PSNR reaches the scene's reference, where there is one for this length and size."""
    psnr, floor = record.heldout.psnr, record.config.psnr_floor
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        required = "no reference PSNR for this scene, length and size"
        return criterion("held-out-quality", None, measured=measured, required=required)
    return criterion(
        "held-out-quality",
        psnr is not None and psnr >= floor,
        measured=measured,
        required=f"at least {floor:.2f} dB",
        meaning="Quality is below the reference for this scene.",
        source="1.5 dB below the lowest of three seeds",
    )


def heldout_not_above_training(record: TrainingRecord) -> Criterion:
    """Views that were held out do not look better than those that were trained on."""
    heldout, trained = record.heldout.psnr, record.training_views.psnr
    not_above, measured = False, "not measured"
    if heldout is not None and trained is not None:
        not_above = heldout <= trained + MAX_ABOVE_TRAINING_DB
        measured = f"{heldout:.2f} dB held out, {trained:.2f} dB of training views"
    return criterion(
        "held-out-not-above-training",
        not_above,
        measured=measured,
        required=f"at most {MAX_ABOVE_TRAINING_DB:g} dB above training views",
        meaning="Held-out views look better than what was trained on: they leaked into the training.",
        source="on the sample scenes held-out views are at most 0.5 dB better",
    )


def densification(record: TrainingRecord, *, from_outside: bool = False) -> Criterion:
    """Gaussians are added, and some remain.

    Args:
        from_outside: only their number was seen, and not which were cloned and which split.
    """
    counts = record.gaussians
    if from_outside:
        made = counts.added or 0
        shown = {"added": counts.added, "removed": counts.removed}
        required = "Gaussians are added, and some remain"
        limit = "; which were cloned and which split is not seen from outside"
    else:
        made = (counts.cloned or 0) + (counts.split or 0)
        shown = {"cloned": counts.cloned, "split": counts.split, "pruned": counts.pruned}
        required = "Gaussians are cloned or split, and some remain"
        limit = ""
    numbers = {"initial": counts.initial, "final": counts.final, **shown}
    measured = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
    item = criterion(
        "densification-works",
        counts.initial is not None and made > 0 and bool(counts.final),
        measured=measured or "not recorded",
        required=required,
        meaning="The screen-space gradient that drives densification is missing, or its schedule never started.",
        source=f"Kerbl et al. 2023, section 5.2{limit}",
    )
    return unless_short(item, record, measured=bool(counts.initial and counts.final))
