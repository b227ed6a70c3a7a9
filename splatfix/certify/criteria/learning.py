"""Whether a training learned: held-out views, gradients of every group, loss, densification, quality, the file it saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict

from smoke_trainer.record import GroupGradients, ImageQuality, TrainingRecord
from splatfix.certify.criteria.criterion import MISSING, SMOKE, STACK, Measure, Measures, Training, criterion
from splatfix.core.words import counted

LOSS_FACTOR = 0.8
MIN_GAIN_DB = 2.0
"""Over the untrained scene, which its points already color."""
MIN_REACHED = 0.5
MAX_ABOVE_TRAINING_DB, MAX_BELOW_TRAINING_DB = 2.0, 12.0
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

CPU_TOLERANCE, GPU_TOLERANCE = 1e-6, 1e-2
"""Relative difference of a loss. How far atomics carry in 30 iterations was not measured on a GPU; another seed or another order
of views differs by far more."""

_OF_ANCHORS = ("anchor", "offset", "anchor_feat", "scaling", "means", "opacities", "scales", "quats", "sh0")
"""What Scaffold-GS, whose networks make the rest, and gsplat's trainers must train."""
_HARMONICS = ("f_rest", "features_rest", "shN", "sh_rest")
"""Groups whose gradients are zero until the degree of the harmonics rises, every 1,000 iterations in Inria's family."""
_FIND_THE_PART = (
    "Run splatfix certify --level 2: it holds forward and backward of every kernel against float64, and splatfix install "
    "rebuilds one that fails. Where all agree, look at the scene's images and poses with splatfix scenes check."
)
_LEARN = (
    f"{_FIND_THE_PART} Where both are sound it is the settings: the length (--iterations), learning rates, and the gradient "
    "from which Gaussians grow."
)


@criterion(
    "held-out-views",
    title="Held-out views are apart from training views",
    required="at least one held-out view, none in both sets, each of them evaluated",
    why="Quality on views that were trained on says nothing about the scene.",
    source="every 8th view is held out, as in mip-NeRF 360 and the 3DGS paper; images are compared byte for byte; "
    "graphdeco-inria/gaussian-splatting#1074: both sets in one cloud",
    advice="Look for photos that are in the scene twice, under one name or two.",
    after="rendering",
)
def held_out_views(training: Training) -> Measures:
    split, views = training.record.split, training.record.heldout.views
    shared = {*(set(split.train) & set(split.test)), *split.repeated}
    met = bool(split.test) and bool(split.train) and not shared and views == len(split.test)
    sets = f"{len(split.train)} for training, {len(split.test)} held out, {len(shared)} in both"
    return Measure(met, f"{sets}, {views} evaluated")


@criterion(
    "finite-values",
    title="No NaN or infinity in loss or gradients",
    why="NaN or infinite values spread to every Gaussian they touch.",
    source="arithmetic: nothing finite follows; hbb1/2d-gaussian-splatting#30: another glm built well, and all became NaN",
    advice=_FIND_THE_PART,
)
def finite_values(training: Training) -> Measures:
    record = training.record
    counts = [group.non_finite_steps for group in record.gradients.values()]
    if not counts or None in counts:
        return MISSING
    steps = sum(filter(None, counts))
    measured = f"{counted(steps, 'step')} with non-finite gradients"
    if None in (record.train_loss.first, record.train_loss.last):
        return Measure(False, f"{measured}, and the loss is not finite")
    return Measure(not steps, measured)


@criterion(
    "gradients",
    title="Gradients reach {subject}",
    required=f"zero in at most {MAX_ZERO_STEPS:.0%} of the steps",
    why="No gradient reaches it: training runs, but never changes this part of the scene.",
    source="field report: gsplat on a T4, 30,000 iterations with all gradients zero",
    advice=_FIND_THE_PART,
    learning=True,
)
def gradients(training: Training) -> Iterator[Measure]:
    """Judge each group of ours, and each that a stack's own trainer has, whatever it is called."""
    record = training.record
    done = record.iterations or 0
    ours = {name: record.gradients.get(name, GroupGradients()) for name in REQUIRED_GROUPS}
    for name, group in (record.gradients if training.stack else ours).items():
        code = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
        if reason := _not_judged(name, group, training):
            yield Measure(None, reason, subject=code)
            continue
        steps, zero, last = group.steps or 0, group.zero_steps, group.last_step or 0
        if zero is None:
            yield Measure(False, "no gradient recorded", subject=code, missing=True)
            continue
        why = ""
        # Zero in all that followed, and before in no more steps than are allowed: something that happened then cut it off.
        if 0 < last < done and done - last > MAX_ZERO_STEPS * steps:
            why = f"From iteration {last + 1} on no gradient reached {name}: training goes on without this part of the scene."
        elif group.max:
            why = f"Gradients reach {name} in some steps only."
        zeros = f"zero or none in {zero} of {counted(steps, 'step')}"
        measured = f"{zeros}, largest norm {group.max or 0.0:.3g}"
        met = steps > 0 and (group.max or 0.0) > 0 and zero <= MAX_ZERO_STEPS * steps
        # only what was not due yet is excused by a short run
        excused = training.stack or steps == 0
        yield Measure(met, measured, subject=code, why=why, missing=not excused)


def _not_judged(name: str, group: GroupGradients, training: Training) -> str:
    """Return why a group may have no gradients; "" where it must."""
    if name in _HARMONICS and not training.record.config.sh_degree:
        return "the degree of the harmonics stayed 0"
    if not training.stack:
        return ""
    needed = REQUIRED_GROUPS if "xyz" in training.record.gradients else _OF_ANCHORS
    if name not in needed and group.none_steps == group.steps:
        return "it is no part of what was differentiated"
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
    "densification-works",
    title="Densification works",
    required="Gaussians are added (cloned or split), and some remain",
    why="The screen-space gradient that drives densification is missing, or its schedule never started.",
    source="Kerbl et al. 2023, section 5.2; trianglesplatting/triangle-splatting#25: a rasterizer that returned half of that "
    "gradient",
    advice="Densification needs the gradient of the projected means (means2D), which some variants of the rasterizer do not "
    "return: install the variant that the stack names.",
    learning=True,
    after="training",
)
def densification(training: Training) -> Measures:
    """Count what was added; of a stack's own trainer only the number was seen, not which were cloned or split."""
    counts = training.record.gaussians
    numbers = {name: number for name, number in asdict(counts).items() if number is not None}
    measured = ", ".join(f"{name} {number}" for name, number in numbers.items())
    if not counts.initial or not counts.final:
        return MISSING
    return Measure(any(numbers.get(name) for name in ("cloned", "split", "added")), measured)


@criterion(
    "held-out-not-above-training",
    title="Held-out views are no better than training views",
    required=f"at most {MAX_ABOVE_TRAINING_DB:g} dB above training views",
    why="Held-out views look better than what was trained on: they leaked into the training.",
    source="on the sample scenes held-out views are at most 0.5 dB better; graphdeco-inria/gaussian-splatting#1074: a cloud that "
    "held-out photos are in",
    advice="Look for photos that are in the scene twice, cropped or saved anew, and for video frames that hardly differ: such "
    "held-out views were as good as trained on.",
    after="rendering",
)
def heldout_not_above_training(training: Training) -> Measures:
    return _against_training(training.record, lambda better: better >= -MAX_ABOVE_TRAINING_DB)


@criterion(
    "held-out-near-training",
    title="Held-out views are nearly as good as training views",
    required=f"at most {MAX_BELOW_TRAINING_DB:g} dB below training views",
    why="Training views were learned by heart: what was trained does not show the scene from anywhere else.",
    source="on the scenes of the quick suite held-out views are at most 1.3 dB worse; ubc-vision/3dgs-mcmc#28: 18.6 dB held out, "
    "44.1 dB trained",
    advice=f"Train on more photos, from between those that there are, or for fewer iterations. {_FIND_THE_PART}",
    of=SMOKE,
)
def heldout_near_training(training: Training) -> Measures:
    return _against_training(training.record, lambda better: better <= MAX_BELOW_TRAINING_DB)


def _against_training(record: TrainingRecord, good: Callable[[float], bool]) -> Measure:
    """Judge by how many dB training views are better than held-out ones."""
    heldout, trained = record.heldout.psnr, record.training_views.psnr
    if heldout is None or trained is None:
        return MISSING
    measured = f"{heldout:.2f} dB held out, {trained:.2f} dB of training views"
    return Measure(good(trained - heldout), measured)


@criterion(
    "ply-round-trip",
    title="The saved point cloud renders the same image",
    source="the file holds the same float32 numbers, which CUDA may add in another order; cvg/resplat#5: a PLY that rendered "
    "otherwise",
    advice="Do not use this point cloud. Look for a full or failing disk, and certify again in another --out folder.",
    of=SMOKE,
)
def ply_round_trip(training: Training) -> Measures:
    difference, tolerance = training.record.ply.round_trip_difference, training.record.ply.tolerance
    if difference is None or tolerance is None:
        return MISSING
    measured = f"largest difference {difference:.2g}"
    return Measure(difference <= tolerance, measured, required=f"at most {tolerance}")


@criterion(
    "point-cloud-saved",
    title="A PLY file holds every Gaussian, all values finite",
    source="the trainer's own folder point_cloud/iteration_N",
    of=STACK,
    after="training",
)
def point_cloud_saved(training: Training) -> Measures:
    record = training.record
    expected, trained = str(record.config.iterations), record.gaussians.final
    sound, listed = expected in record.saves, []
    for iteration, cloud in record.saves.items():
        every = iteration != expected or (cloud.count is not None and trained in (None, cloud.count))
        sound = sound and every and not (cloud.error or cloud.non_finite)
        text = f"iteration {iteration}: {cloud.error or counted(cloud.count or 0, 'Gaussian')}"
        if cloud.non_finite:
            text += f", {counted(cloud.non_finite, 'non-finite value')}"
        listed.append(text)
    return Measure(sound, ", ".join(listed) or "no point_cloud.ply was found")


# What everything else decides: these fail with many others.


@criterion(
    "gaussians-reached",
    title="Gradients reach most Gaussians",
    required=f"at least {MIN_REACHED:.0%}",
    why="Most Gaussians never change: the backward pass leaves them out, or no view sees them.",
    source="the sample scenes reach 97 % and more; field report: gsplat on a T4, 30,000 iterations with all gradients zero",
    advice=_FIND_THE_PART,
    learning=True,
    after="training",
)
def gaussians_reached(training: Training) -> Measures:
    share, steps = training.record.reached.share, training.record.reached.steps
    if share is None or not steps:
        return MISSING
    return Measure(share >= MIN_REACHED, f"{share:.1%} had a gradient in the last {counted(steps, 'step')}")


@criterion(
    "loss-falls",
    title="Loss falls from start to end",
    required=f"below {LOSS_FACTOR:.0%} of the start",
    why="The optimizer does not improve its training views.",
    source="graphdeco-inria/gaussian-splatting#1161: trained to its end, the loss never fell, all was black",
    advice=_LEARN,
    learning=True,
    after="training",
)
def loss_falls(training: Training) -> Measures:
    first, last = training.record.train_loss.first, training.record.train_loss.last
    if first is None or last is None:
        return MISSING
    measured = f"{first:.4f} to {last:.4f}"
    return _unless_slow(training, last < LOSS_FACTOR * first, measured, last <= SLOW_LOSS_FACTOR * first)


@criterion(
    "held-out-psnr-rises",
    title="Held-out PSNR rises",
    required=f"up by at least {MIN_GAIN_DB} dB",
    why="Held-out views did not improve: nothing was learned about the scene.",
    source="the sample scenes gain 8 dB and more; graphdeco-inria/gaussian-splatting#1161: trained to its end, with 7 to 9 dB",
    advice=_LEARN,
    learning=True,
    after="rendering",
)
def heldout_gain(training: Training) -> Measures:
    before = (training.record.initial_heldout or ImageQuality()).psnr
    after = training.record.heldout.psnr
    if before is None or after is None:
        return MISSING
    measured = f"{before:.2f} dB to {after:.2f} dB"
    return _unless_slow(training, after >= before + MIN_GAIN_DB, measured, after >= before + LEAST_GAIN_DB)


def _unless_slow(training: Training, met: bool, measured: str, learns: bool) -> Measure:
    """Leave a stack's trainer that learns, and slower than ours, undetermined in a short run: a longer one shows how far."""
    if met or not training.stack or not learns or (training.record.iterations or 0) >= LONG:
        return Measure(met, measured)
    why = "It learns, though less than a run of this length shows with splatfix's own trainer: more iterations decide it."
    return Measure(False, measured, why=why, advice="Give it more with --iterations.", undetermined=True)


@criterion(
    "held-out-quality",
    title="Held-out quality reaches the reference, where there is one for this scene, length and size",
    source="1.5 dB below the lowest of three seeds; nerfstudio-project/gsplat#872: a degraded training that nothing else told",
    advice=_LEARN,
)
def heldout_quality(training: Training) -> Measures:
    psnr, floor = training.record.heldout.psnr, training.record.config.psnr_floor
    measured = "not measured" if psnr is None else f"{psnr:.2f} dB"
    if floor is None:
        return Measure(None, measured)
    return Measure(psnr is not None and psnr >= floor, measured, required=f"at least {floor:.2f} dB")


@criterion(
    "training-repeats",
    title="Training repeats with the same seed",
    why="Two runs of one seed differ from the start: something is random that no seed sets, or memory is read unwritten.",
    source="a CPU repeats to the last digit; on a GPU atomics add in an order that changes; nerfstudio-project/gsplat#872: the "
    "first training on an L4 was worse",
    advice="Look for what no seed sets, and for an extension that reads memory it has not written, which compute-sanitizer "
    "--tool initcheck finds; --renderer torch runs none.",
    of=SMOKE,
)
def training_repeats(training: Training) -> Measures:
    if training.repeated is None:
        return None
    allowed = CPU_TOLERANCE if training.device == "cpu" else GPU_TOLERANCE
    gaps = [abs(before - after) / max(abs(before), 1e-12) for before, after in training.repeated]
    if not gaps:
        ending = training.repeat_ended or "none were written"
        return Measure(False, f"the second run left no losses: {ending}")
    measured = f"losses of {counted(len(gaps), 'iteration')} differ by at most {max(gaps):.2g} of their value"
    met = not training.repeat_ended and max(gaps) <= allowed
    return Measure(met, measured, required=f"at most {allowed:g}")
