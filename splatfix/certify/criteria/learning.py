"""Whether a training learned: held-out views, gradients of every group, loss, densification, quality, the file it saved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smoke_trainer.record import GroupGradients, ImageQuality, TrainingRecord
from splatfix.certify.criteria.criterion import (
    SMOKE,
    STACK,
    Measure,
    Measures,
    Training,
    criterion,
    missing,
)
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
REQUIRED_GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
"""Every one must get gradients. Those of f_rest are counted from the first step that uses a degree above 0."""
MAX_ZERO_STEPS = 0.05
"""Maximum share of steps in which a parameter group has a zero gradient (a view may see nothing)."""
MIN_MOVED = 0.5
"""Of the steps that were looked at. A learning rate may have decayed to nothing at the end, or be raised from it at the start."""
LONG = 1000
"""Iterations from which on a stack's own trainer must have learned as much as splatfix's own on the sample scenes."""
SLOW_LOSS_FACTOR = 0.95
LEAST_GAIN_DB = 0.5
"""What counts as learning in a shorter run: the last loss as a share of the first, and what held-out PSNR gains."""

_OF_ANCHORS = ("anchor", "offset", "anchor_feat", "scaling", "means", "opacities", "scales", "quats", "sh0")
"""What Scaffold-GS, whose networks make the rest, and gsplat's trainers must train."""
_HARMONICS = ("f_rest", "features_rest", "shN", "sh_rest")
"""Groups whose gradients are zero until the degree of the harmonics rises, every 1,000 iterations in Inria's family."""
_COMPARE_KERNELS = (
    "Run splatfix certify --level 2, which compares forward and backward of every rasterizer with float64, and certify again "
    "with --renderer torch: where that trains, the installed extension is at fault, and splatfix install rebuilds it."
)
_ONLY_PYTORCH = (
    "All that ran was plain PyTorch on the CPU, so no extension is at fault: look at a scene of yours with splatfix scenes "
    "check; for a sample scene, install torch anew, or another version of it."
)
_SETTINGS = "the length (--iterations), learning rates, and the gradient from which Gaussians grow"
_LEARN_ELSEWHERE = (
    "Certify again with --renderer torch --device cpu: where that learns, the GPU kernels are at fault (splatfix certify "
    "--level 2 names them); where it does not, look at the scene's images and poses with splatfix scenes check. Where both are "
    f"sound it is the settings: {_SETTINGS}."
)
_LEARN_IN_PYTORCH = (
    "All that ran was plain PyTorch on the CPU, so no extension is at fault: look at a scene of yours with splatfix scenes "
    f"check. Where that is sound it is the settings: {_SETTINGS}. For a sample scene, install torch anew, or another "
    "version of it."
)
_LEARNS_SLOWLY = "It learns, though less than a run of this length shows with splatfix's own trainer: more iterations decide it."


@criterion(
    "held-out-views",
    title="Held-out views are apart from training views",
    required="at least one held-out view, none in both sets, each of them evaluated",
    why="Quality on views that were trained on says nothing about the scene.",
    source="every 8th view is held out, as in mip-NeRF 360 and the 3DGS paper; images are compared byte for byte; "
    "graphdeco-inria/gaussian-splatting#1074: both sets in one cloud",
    advice="Look for photos that are in the scene twice, under one name or two.",
)
def held_out_views(training: Training) -> Measures:
    """Count the views of both sets: quality is measured on those that were not trained on, and on all of them."""
    split, views = training.record.split, training.record.heldout.views
    shared = {*(set(split.train) & set(split.test)), *split.repeated}
    met = bool(split.test) and bool(split.train) and not shared and views == len(split.test)
    sets = f"{len(split.train)} for training, {len(split.test)} held out, {len(shared)} in both"
    return Measure(met, f"{sets}, {views} evaluated")


@criterion(
    "finite-values",
    title="No NaN or infinity",
    required="no NaN or infinity in loss or gradients",
    why="NaN or infinite values spread to every Gaussian they touch.",
    source="arithmetic: nothing finite follows; hbb1/2d-gaussian-splatting#30: another glm built well, and all became NaN",
    advice=_COMPARE_KERNELS,
    advice_in_pytorch=_ONLY_PYTORCH,
)
def finite_values(training: Training) -> Measures:
    """Count the steps with a NaN or an infinity in any gradient, and look at the loss."""
    record = training.record
    counts = [record.gradients.get(name, GroupGradients()).non_finite_steps for name in groups_of(record)]
    known = [count for count in counts if count is not None]
    if not known:
        return missing()
    losses = [record.train_loss.first, record.train_loss.last]
    first, last = ("not finite" if loss is None else f"{loss:.4f}" for loss in losses)
    measured = f"{counted(sum(known), 'step')} with non-finite gradients, loss {first} to {last}"
    return Measure(len(known) == len(counts) and not sum(known) and None not in losses, measured)


def groups_of(record: TrainingRecord) -> tuple[str, ...]:
    """Return the parameter groups that must have gradients."""
    if record.config.groups:  # of a stack's own trainer
        return tuple(record.config.groups)
    if record.config.sh_degree == 0:  # no harmonics above the constant one
        return tuple(name for name in REQUIRED_GROUPS if name != "f_rest")
    return REQUIRED_GROUPS


_GRADIENTS = {
    "title": "Gradients reach {subject}",
    "required": f"zero in at most {MAX_ZERO_STEPS:.0%} of the steps",
    "why": "No gradient reaches it: training runs, but never changes this part of the scene.",
    "source": "field report: gsplat on a T4, 30,000 iterations with all gradients zero",
    "advice": _COMPARE_KERNELS,
    "advice_in_pytorch": _ONLY_PYTORCH,
    "learning": True,
}


@criterion("gradients", of=(SMOKE,), **_GRADIENTS)
def gradients(training: Training) -> Iterator[Measure]:
    """Judge each group of the smoke trainer."""
    for name in groups_of(training.record):
        group = training.record.gradients.get(name, GroupGradients())
        steps = training.record.iterations or 0
        if name == "f_rest":  # trained from the first rise of the degree on, every other group in every step
            steps = group.steps or 0
        measured = "no gradient recorded"
        if group.zero_steps is not None:
            measured = (
                f"zero in {group.zero_steps} of {counted(steps, 'step')}, largest norm {group.max or 0.0:.3g}"
            )
        # only what was not due yet is excused by a short run
        excused = group.zero_steps is not None and steps == 0
        yield Measure(_reaches(group, steps), measured, subject=_code(name), missing=not excused)


@criterion("gradients", of=(STACK,), **_GRADIENTS)
def stack_gradients(training: Training) -> Iterator[Measure]:
    """Judge each group of a stack's own trainer, whatever its groups are called."""
    record = training.record
    needed = REQUIRED_GROUPS if "xyz" in record.gradients else _OF_ANCHORS
    for name, group in record.gradients.items():
        if reason := _not_judged(name, group, record, needed=name in needed):
            yield Measure(None, reason, subject=_code(name))
            continue
        steps, last, done = group.steps or 0, group.last_step or 0, record.iterations or 0
        why, after = f"Gradients reach {name} in some steps only.", ""
        # Zero in all that followed, and before in no more steps than are allowed: something that happened then cut it off.
        if 0 < last < done and done - last > MAX_ZERO_STEPS * steps:
            after = f", none after iteration {last}"
            why = f"From iteration {last + 1} on no gradient reached {name}: training goes on without this part of the scene."
        elif not group.max:
            why = ""
        zero = f"zero or none in {group.zero_steps or 0} of {counted(steps, 'step')}"
        measured = f"{zero}{after}, largest norm {group.max or 0.0:.3g}"
        yield Measure(
            _reaches(group, steps), measured, subject=_code(name), why=why, missing=group.zero_steps is None
        )


def _reaches(group: GroupGradients, steps: int) -> bool:
    zero = group.zero_steps
    return zero is not None and (group.max or 0.0) > 0 and steps > 0 and zero <= MAX_ZERO_STEPS * steps


def _code(group: str) -> str:
    return re.sub("[^a-z0-9]+", "-", group.lower()).strip("-")


def _not_judged(name: str, group: GroupGradients, record: TrainingRecord, *, needed: bool) -> str:
    """Return why a group of a stranger's trainer may have no gradients; "" where it must."""
    if name in _HARMONICS and not record.config.sh_degree:
        return "the degree of the harmonics stayed 0: the trainer raises it later than this run is long"
    if not needed and group.none_steps == group.steps:
        if group.trained:
            return "it is no part of what was differentiated"
        return "it is no part of what was differentiated: requires_grad is off"
    if not any(size for shape in group.shape or () for size in shape):
        return "the group has no parameters"
    return ""


@criterion(
    "parameters-move",
    title="The optimizer moves every group",
    required=f"each group moved in at least {MIN_MOVED:.0%} of the steps that were looked at and had a gradient",
    why="The optimizer leaves a group as it is: its gradients are right, and nothing is trained by them.",
    source="snuvclab/gtu#6: gradients were right, and all but the colours stayed as they were",
    advice="Look at the optimizer: a group that densification replaced must be the one that it steps, and its learning rate "
    "above zero. For the smoke trainer, put torch back (splatfix install --repair torch).",
)
def parameters_move(training: Training) -> Measures:
    """Compare where every group is before and after some steps of the optimizer."""
    updates = training.record.updates
    if not updates:
        return Measure(None if training.stack else False, "no step of an optimizer was looked at")
    looked_at = {name: group for name, group in updates.items() if group.steps}
    if not looked_at:  # which is a criterion of its own
        return Measure(None, "no group had a gradient")
    still = [
        f"{name} moved in {group.moved} of {counted(group.steps, 'step')} with a gradient"
        for name, group in looked_at.items()
        if group.moved < MIN_MOVED * group.steps
    ]
    return Measure(not still, "; ".join(still) or f"{', '.join(looked_at)} moved")


@criterion(
    "gaussians-reached",
    title="Gradients reach most Gaussians",
    required=f"at least {MIN_REACHED:.0%}",
    why="Most Gaussians never change: the backward pass leaves them out, or no view sees them.",
    source="the sample scenes reach 97 % and more; field report: gsplat on a T4, 30,000 iterations with all gradients zero",
    advice=_COMPARE_KERNELS,
    advice_in_pytorch=_ONLY_PYTORCH,
    learning=True,
)
def gaussians_reached(training: Training) -> Measures:
    """Take the share of the Gaussians that gradients still reach at the end of the run."""
    share, steps = training.record.reached.share, training.record.reached.steps
    if share is None or not steps:
        return missing()
    return Measure(share >= MIN_REACHED, f"{share:.1%} had a gradient in the last {counted(steps, 'step')}")


@criterion(
    "loss-falls",
    title="Loss falls from start to end",
    required=f"below {LOSS_FACTOR:.0%} of the start",
    why="The optimizer does not improve its training views.",
    source="graphdeco-inria/gaussian-splatting#1161: trained to its end, the loss never fell, all was black",
    advice=_LEARN_ELSEWHERE,
    advice_in_pytorch=_LEARN_IN_PYTORCH,
    learning=True,
)
def loss_falls(training: Training) -> Measures:
    """Compare the loss of the last iterations with that of the first."""
    first, last = training.record.train_loss.first, training.record.train_loss.last
    if first is None or last is None:
        return missing()
    measured = f"{first:.4f} to {last:.4f}"
    return _unless_slow(training, last < LOSS_FACTOR * first, measured, last <= SLOW_LOSS_FACTOR * first)


@criterion(
    "densification-works",
    title="Densification works",
    required="Gaussians are added (cloned or split), and some remain",
    why="The screen-space gradient that drives densification is missing, or its schedule never started.",
    source="Kerbl et al. 2023, section 5.2; trianglesplatting/triangle-splatting#25: a rasterizer that returned half of that "
    "gradient",
    advice="Densification needs the gradient of the projected means (means2D), which some variants of the rasterizer do not "
    "return. Certify again with --renderer torch: where that works, install the variant that the stack names.",
    learning=True,
)
def densification(training: Training) -> Measures:
    """Count what was added; of a stack's own trainer only the number was seen, not which were cloned or split."""
    counts = training.record.gaussians
    added, shown = counts.added or 0, {"added": counts.added, "removed": counts.removed}
    if training.stack is None:
        added = (counts.cloned or 0) + (counts.split or 0)
        shown = {"cloned": counts.cloned, "split": counts.split, "pruned": counts.pruned}
    numbers = {"initial": counts.initial, "final": counts.final, **shown}
    measured = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
    if not counts.initial or not counts.final:
        return missing(measured or "not recorded")
    return Measure(added > 0, measured)


@criterion(
    "held-out-psnr-rises",
    title="Held-out PSNR rises",
    required=f"up by at least {MIN_GAIN_DB} dB",
    why="Held-out views did not improve: nothing was learned about the scene.",
    source="the sample scenes gain 8 dB and more; graphdeco-inria/gaussian-splatting#1161: trained to its end, with 7 to 9 dB",
    advice=_LEARN_ELSEWHERE,
    advice_in_pytorch=_LEARN_IN_PYTORCH,
    learning=True,
)
def heldout_gain(training: Training) -> Measures:
    """Compare held-out views with how they looked before the training."""
    before = (training.record.initial_heldout or ImageQuality()).psnr
    after = training.record.heldout.psnr
    if before is None or after is None:
        return missing("not measured")
    measured = f"{before:.2f} dB to {after:.2f} dB"
    return _unless_slow(training, after >= before + MIN_GAIN_DB, measured, after >= before + LEAST_GAIN_DB)


def _unless_slow(training: Training, met: bool, measured: str, learns: bool) -> Measure:
    """Leave a stack's trainer that learns, and slower than ours, undetermined in a short run: a longer one shows how far."""
    if met or training.stack is None or not learns or (training.record.iterations or 0) >= LONG:
        return Measure(met, measured)
    advice = "Give it more with --iterations."
    return Measure(False, measured, why=_LEARNS_SLOWLY, advice=advice, undetermined=True)


@criterion(
    "held-out-quality",
    title="Held-out quality reaches the reference",
    required="no reference PSNR for this scene, length and size",
    why="Quality is below the reference for this scene.",
    source="1.5 dB below the lowest of three seeds; nerfstudio-project/gsplat#872: a degraded training that nothing else told",
    advice=_LEARN_ELSEWHERE,
    advice_in_pytorch=_LEARN_IN_PYTORCH,
)
def heldout_quality(training: Training) -> Measures:
    """Compare held-out PSNR with the scene's reference, where there is one for this length and size."""
    psnr, floor = training.record.heldout.psnr, training.record.config.psnr_floor
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        return Measure(None, measured)
    return Measure(psnr is not None and psnr >= floor, measured, required=f"at least {floor:.2f} dB")


@criterion(
    "held-out-not-above-training",
    title="Held-out views are no better than training views",
    required=f"at most {MAX_ABOVE_TRAINING_DB:g} dB above training views",
    why="Held-out views look better than what was trained on: they leaked into the training.",
    source="on the sample scenes held-out views are at most 0.5 dB better; graphdeco-inria/gaussian-splatting#1074: a cloud that "
    "held-out photos are in",
    advice="Look for photos that are in the scene twice, cropped or saved anew, and for video frames that hardly differ: such "
    "held-out views were as good as trained on.",
)
def heldout_not_above_training(training: Training) -> Measures:
    """Compare views that were held out with those that were trained on."""
    return _against_training(training.record, -MAX_ABOVE_TRAINING_DB, None)


@criterion(
    "held-out-near-training",
    title="Held-out views are nearly as good as training views",
    required=f"at most {MAX_BELOW_TRAINING_DB:g} dB below training views",
    why="Training views were learned by heart: what was trained does not show the scene from anywhere else.",
    source="on the scenes of the quick suite held-out views are at most 1.3 dB worse; ubc-vision/3dgs-mcmc#28: 18.6 dB held out, "
    "44.1 dB trained",
    advice="Train on more photos, from between those that there are, or for fewer iterations; look at the poses with splatfix "
    "scenes check. On a sample scene, certify again with --renderer torch --device cpu: where that holds, the GPU kernels are at "
    "fault.",
    of=(SMOKE,),
)
def heldout_near_training(training: Training) -> Measures:
    """Compare the two the other way round."""
    return _against_training(training.record, None, MAX_BELOW_TRAINING_DB)


def _against_training(record: TrainingRecord, least: float | None, most: float | None) -> Measure:
    """Judge by how many dB training views are better than held-out ones."""
    heldout, trained = record.heldout.psnr, record.training_views.psnr
    if heldout is None or trained is None:
        return missing("not measured")
    better = trained - heldout
    met = (least is None or better >= least) and (most is None or better <= most)
    return Measure(met, f"{heldout:.2f} dB held out, {trained:.2f} dB of training views")


@criterion(
    "ply-round-trip",
    title="The saved PLY is what was trained",
    required="the saved point cloud renders the same image",
    why="The saved file differs from what was trained.",
    source="the file holds the same float32 numbers, which CUDA may add in another order; cvg/resplat#5: a PLY that rendered "
    "otherwise",
    advice="Do not use this point cloud. Look for a full or failing disk, and certify again in another --out folder.",
    of=(SMOKE,),
)
def ply_round_trip(training: Training) -> Measures:
    """Compare what the saved point cloud, read back, renders with what was trained."""
    difference, tolerance = training.record.ply.round_trip_difference, training.record.ply.tolerance
    if difference is None or tolerance is None:
        return missing("not measured")
    required = f"the saved point cloud renders the same image (within {tolerance})"
    return Measure(difference <= tolerance, f"largest difference {difference:.2g}", required=required)
