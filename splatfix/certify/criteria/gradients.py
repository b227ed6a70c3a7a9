"""Whether gradients reach every group of parameters, and move it: of the smoke trainer, and of trainers with other groups."""

import re
from collections.abc import Iterator

from splatfix.certify.criteria.criterion import criterion, not_measured, unless_short
from splatfix.certify.criteria.resources import used_share
from splatfix.certify.model import Criterion, Outcome
from splatfix.certify.record import GroupGradients, TrainingRecord
from splatfix.core.data import replace
from splatfix.core.words import counted

REQUIRED_GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
"""Every one must get gradients. Those of f_rest are counted from the first step that uses a degree above 0."""
MAX_ZERO_STEPS = 0.05
"""Maximum share of steps in which a parameter group has a zero gradient (a view may see nothing)."""

MAX_UPDATE_ERROR = 1e-3
"""Of a step beside its formula in float64, relative to the largest of its elements; Adam's own kernels are within 1e-6."""

LEAST_SLOPE, MOST_SLOPE = 0.5, 1.9
"""Of a loss along its gradient. Right ones had 0.85 to 1.25 on six scenes, and 1.6 where another group was not trained: the step
is no small one, and what is faint is cut; after three steps positions had 0.63 and 0.68, so that a short run is refused for none.
Gradients of another photo had less in some group, half of one has 2."""

NEARLY_FULL = 0.8
"""Of all memory: what a training took of it must be more where measuring slopes after it, as a step does, finds no room."""

_OF_ANCHORS = ("anchor", "offset", "anchor_feat", "scaling", "means", "opacities", "scales", "quats", "sh0")
"""What Scaffold-GS, whose networks make the rest, and gsplat's trainers must train."""
_HARMONICS = ("f_rest", "features_rest", "shN", "sh_rest")
"""Groups whose gradients are zero until the degree of the harmonics rises, every 1,000 iterations in Inria's family."""


def groups_of(record: TrainingRecord) -> tuple[str, ...]:
    """The parameter groups that must have gradients."""
    if record.config.groups:  # of a stack's own trainer
        return record.config.groups
    if record.config.sh_degree == 0:  # no harmonics above the constant one
        return tuple(name for name in REQUIRED_GROUPS if name != "f_rest")
    return REQUIRED_GROUPS


def of_every_group(record: TrainingRecord) -> Iterator[Criterion]:
    """One criterion for each group of the smoke trainer."""
    for name in groups_of(record):
        group = record.gradients.get(name, GroupGradients())
        steps = record.iterations or 0
        if name == "f_rest":  # trained from the first rise of the degree on, every other group in every step
            steps = group.steps or 0
        zero, largest = group.zero_steps, group.max or 0.0
        measured = "no gradient recorded"
        if zero is not None:
            measured = f"zero in {zero} of {counted(steps, 'step')}, largest norm {largest:.3g}"
        item = _reached("gradients", name, group, steps, measured)
        yield unless_short(item, record, measured=zero is not None and steps == 0)


def of_any_trainer(record: TrainingRecord) -> Iterator[Criterion]:
    """One criterion for each group of a stack's own trainer, whatever its groups are called."""
    needed = REQUIRED_GROUPS if "xyz" in record.gradients else _OF_ANCHORS
    for name, group in record.gradients.items():
        if reason := _not_judged(name, group, record, needed=name in needed):
            yield not_measured(_code(name), reason, _reached("gradients", name, group, 0, "").required)
            continue
        steps, last, done = group.steps or 0, group.last_step or 0, record.iterations or 0
        row, after = "gradients/some", ""
        # Zero in all that followed, and before in no more steps than are allowed: something that happened then cut it off.
        if 0 < last < done and done - last > MAX_ZERO_STEPS * steps:
            row, after = "gradients/cut", f", none after iteration {last}"
        elif not group.max:
            row = "gradients"
        zero = f"zero or none in {group.zero_steps or 0} of {counted(steps, 'step')}"
        measured = f"{zero}{after}, largest norm {group.max or 0.0:.3g}"
        item = _reached(row, name, group, steps, measured)
        yield unless_short(item, record, measured=group.zero_steps is not None)


def parameters_move(record: TrainingRecord) -> Criterion:
    """The optimizer moved every group as its gradients and its rate say, where it was computed again."""
    if not record.updates:
        of_a_stack = bool(record.config.groups)
        reason = "no step was computed again"
        if of_a_stack:
            reason += ": the optimizer is none of Adam's family"
        return criterion("parameters-move", None if of_a_stack else False, reason, most=MAX_UPDATE_ERROR)
    wrong, followed, largest = [], [], 0.0
    for name, group in record.updates.items():
        if not group.steps:  # no gradient, which is a criterion of its own
            continue
        steps = counted(group.steps, "step")
        error, moments = group.error, group.moments_error
        if error is None or error > MAX_UPDATE_ERROR:
            moved = "not a number" if group.moved is None else f"{group.moved:.3g}"
            wrong.append(f"{name} moved by {moved} of what Adam's formula says ({steps} computed again)")
        elif moments is None or moments > MAX_UPDATE_ERROR:
            amount = "no number" if moments is None else f"off by {moments:.2g}"
            wrong.append(f"Adam's moments of {name} are {amount} ({steps} computed again)")
        else:
            largest = max(largest, error, moments)
            followed.append(name)
    measured = "; ".join(wrong)
    if not wrong:
        measured = f"{', '.join(followed) or 'no group'} moved as Adam's formula says, to {largest:.1g}"
    return criterion(
        "parameters-move", not wrong if wrong or followed else None, measured, most=MAX_UPDATE_ERROR
    )


def loss_follows(record: TrainingRecord) -> Criterion:
    """At the end of the training the loss changes along the gradient of each group as that says; where memory ran out meanwhile
    this was not measured, and where there had been room it is undetermined."""
    wrong = []
    for name, share in record.slopes.items():
        if share is None or not LEAST_SLOPE <= share <= MOST_SLOPE:
            told = "a number that is none" if share is None else f"{share:.2g} times as much"
            wrong.append(f"along the gradient of {name} the loss changes by {told}")
    measured = "; ".join(wrong) or "no group had a gradient"
    shares = [share for share in record.slopes.values() if share is not None]
    if shares and not wrong:
        measured = f"{min(shares):.2g} to {max(shares):.2g} times as much in {counted(len(shares), 'group')}"
    met: bool | None = not wrong
    if not record.slopes:
        met = None if record.has("slopes") else False
    memory_ran_out = bool(record.slopes_note) and not wrong
    if memory_ran_out:
        met, measured = None, f"not judged: {record.slopes_note}"
    item = criterion("loss-follows-gradients", met, measured, least=LEAST_SLOPE, most=MOST_SLOPE)
    if not memory_ran_out:
        return unless_short(item, record, measured=bool(record.slopes))
    share = used_share(record)
    if share is None or share >= NEARLY_FULL:
        return replace(item, advice="Certify again where more memory is free: then it is judged.")
    why = f"Memory ran out after the training, which left {1 - share:.0%} of it free."
    return replace(
        item,
        outcome=Outcome.UNDETERMINED,
        why=why,
        advice="Certify again while nothing else uses the memory.",
    )


def _reached(row: str, name: str, group: GroupGradients, steps: int, measured: str) -> Criterion:
    zero = group.zero_steps
    met = zero is not None and (group.max or 0.0) > 0 and steps > 0 and zero <= MAX_ZERO_STEPS * steps
    cut = (group.last_step or 0) + 1
    return criterion(row, met, measured, code=_code(name), name=name, share=MAX_ZERO_STEPS, cut=cut)


def _code(group: str) -> str:
    return f"gradients-{re.sub('[^a-z0-9]+', '-', group.lower()).strip('-')}"


def _not_judged(name: str, group: GroupGradients, record: TrainingRecord, *, needed: bool) -> str:
    """Why a group of a stranger's trainer may have no gradients; "" where it must."""
    if name in _HARMONICS and not record.config.sh_degree:
        return "the degree of the harmonics stayed 0: the trainer raises it later than this run is long"
    if not needed and group.none_steps == group.steps:
        if group.trained:
            return "it is no part of what was differentiated"
        return "it is no part of what was differentiated: requires_grad is off"
    if not any(size for shape in group.shape for size in shape):
        return "the group has no parameters"
    return ""
