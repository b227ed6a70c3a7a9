"""Whether a training learned: loss, quality of views that were held out, densification. The same for any trainer."""

from splatfix.certify.criteria.criterion import criterion, not_measured, unless_short
from splatfix.certify.criteria.gradients import groups_of
from splatfix.certify.model import Criterion
from splatfix.certify.record import GroupGradients, TrainingRecord
from splatfix.core.words import counted

LOSS_FACTOR = 0.8
"""The smoothed loss at the end must be below this share of the one at the start."""
MIN_GAIN_DB = 2.0
"""Held-out PSNR must rise by this much over the untrained scene, which its points already color."""
MIN_REACHED = 0.5
"""Share of the Gaussians that a gradient must reach at the end of the run. On the sample scenes it is above 0.97."""
MAX_ABOVE_TRAINING_DB = 2.0
"""Held-out views may have so much more PSNR than training views. On the sample scenes it is at most 0.5 dB more."""
MAX_BELOW_TRAINING_DB = 12.0
"""Held-out views may have so much less. On the three scenes of the quick suite it is at most 1.3 dB less."""


def for_any_trainer(record: TrainingRecord) -> tuple[Criterion, ...]:
    """The criteria on what was learned that can be observed of any trainer from outside."""
    return (
        held_out_views(record),
        finite_values(record),
        gaussians_reached(record),
        loss_falls(record),
        heldout_gain(record),
        heldout_quality(record),
        heldout_not_above_training(record),
    )


def held_out_views(record: TrainingRecord) -> Criterion:
    """Quality is measured on views that were not trained on, and on all of them."""
    train, test = record.split.train, record.split.test
    shared = {*(set(train) & set(test)), *record.split.repeated}
    views = record.heldout.views
    met = bool(test) and bool(train) and not shared and views == len(test)
    measured = f"{len(train)} for training, {len(test)} held out, {len(shared)} in both, {views} evaluated"
    return criterion("held-out-views", met, measured)


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
        measured,
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
        "gaussians-reached", share is not None and share >= MIN_REACHED, measured, least=MIN_REACHED
    )
    return unless_short(item, record, measured=share is not None)


def loss_falls(record: TrainingRecord) -> Criterion:
    """The loss of the last iterations is below that of the first."""
    first, last = record.train_loss.first, record.train_loss.last
    if first is None or last is None:
        return criterion("loss-falls", False, "not recorded", share=LOSS_FACTOR)
    measured = f"{first:.4f} to {last:.4f}"
    item = criterion("loss-falls", last < LOSS_FACTOR * first, measured, share=LOSS_FACTOR)
    return unless_short(item, record, measured=True)


def heldout_gain(record: TrainingRecord) -> Criterion:
    """Held-out views look better than before the training."""
    before, after = record.initial_heldout.psnr, record.heldout.psnr
    if before is None or after is None:
        return criterion("held-out-psnr-rises", False, "not measured", gain=MIN_GAIN_DB)
    measured = f"{before:.2f} dB to {after:.2f} dB"
    item = criterion("held-out-psnr-rises", after - before >= MIN_GAIN_DB, measured, gain=MIN_GAIN_DB)
    return unless_short(item, record, measured=True)


def heldout_quality(record: TrainingRecord) -> Criterion:
    """Held-out PSNR reaches the scene's reference, where there is one for this length and size."""
    psnr, floor = record.heldout.psnr, record.config.psnr_floor
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        return not_measured("held-out-quality", measured, "no reference PSNR for this scene, length and size")
    return criterion("held-out-quality", psnr is not None and psnr >= floor, measured, floor=floor)


def heldout_not_above_training(record: TrainingRecord) -> Criterion:
    """Views that were held out do not look better than those that were trained on."""
    heldout, trained = record.heldout.psnr, record.training_views.psnr
    not_above, measured = False, "not measured"
    if heldout is not None and trained is not None:
        not_above = heldout <= trained + MAX_ABOVE_TRAINING_DB
        measured = f"{heldout:.2f} dB held out, {trained:.2f} dB of training views"
    return criterion("held-out-not-above-training", not_above, measured, above=MAX_ABOVE_TRAINING_DB)


def heldout_near_training(record: TrainingRecord) -> Criterion:
    """Views that were held out do not look much worse than those that were trained on, which were learned by heart then."""
    heldout, trained = record.heldout.psnr, record.training_views.psnr
    near, measured = False, "not measured"
    if heldout is not None and trained is not None:
        near = heldout >= trained - MAX_BELOW_TRAINING_DB
        measured = f"{heldout:.2f} dB held out, {trained:.2f} dB of training views"
    return criterion("held-out-near-training", near, measured, below=MAX_BELOW_TRAINING_DB)


def densification(record: TrainingRecord, *, from_outside: bool = False) -> Criterion:
    """Gaussians are added, and some remain; ``from_outside`` only their number was seen, not which were cloned or split."""
    counts = record.gaussians
    if from_outside:
        row, made = "densification-works/from-outside", counts.added or 0
        shown = {"added": counts.added, "removed": counts.removed}
    else:
        row, made = "densification-works", (counts.cloned or 0) + (counts.split or 0)
        shown = {"cloned": counts.cloned, "split": counts.split, "pruned": counts.pruned}
    numbers = {"initial": counts.initial, "final": counts.final, **shown}
    measured = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
    met = counts.initial is not None and made > 0 and bool(counts.final)
    item = criterion(row, met, measured or "not recorded")
    return unless_short(item, record, measured=bool(counts.initial and counts.final))
