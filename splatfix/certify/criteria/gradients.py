"""Whether gradients reach every group of parameters, and move it: of the smoke trainer, and of trainers with other groups."""

import re
from collections.abc import Iterator

from splatfix.certify.criteria.criterion import criterion, not_measured, unless_short
from splatfix.certify.model import Criterion
from splatfix.certify.record import GroupGradients, TrainingRecord
from splatfix.core.words import counted

REQUIRED_GROUPS = ("xyz", "f_dc", "f_rest", "opacity", "scaling", "rotation")
"""Every one must get gradients. Those of f_rest are counted from the first step that uses a degree above 0."""
MAX_ZERO_STEPS = 0.05
"""Maximum share of steps in which a parameter group has a zero gradient (a view may see nothing)."""

MIN_MOVED = 0.5
"""Of the steps that were looked at. A learning rate may have decayed to nothing at the end, or be raised from it at the start."""

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
    """Compare where every group is before and after some steps of the optimizer."""
    if not record.updates:
        of_a_stack = bool(record.config.groups)
        reason = "no step of an optimizer was looked at"
        return criterion("parameters-move", None if of_a_stack else False, reason, least=MIN_MOVED)
    looked_at = {name: group for name, group in record.updates.items() if group.steps}
    still = []
    for name, group in looked_at.items():
        moved, steps = group.moved or 0, group.steps or 0
        if moved < MIN_MOVED * steps:
            still.append(f"{name} moved in {moved} of {counted(steps, 'step')} with a gradient")
    if not looked_at:  # which is a criterion of its own
        return criterion("parameters-move", None, "no group had a gradient", least=MIN_MOVED)
    measured = "; ".join(still) or f"{', '.join(looked_at)} moved"
    return criterion("parameters-move", not still, measured, least=MIN_MOVED)


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
