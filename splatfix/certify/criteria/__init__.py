"""The criteria of a certificate: small functions from what a trainer recorded to met, failed or not measured.

Each exists because without it a broken stack looked fine: a run that "finished" with zero gradients, that never
densified, that had no test split and reported the quality of its training views, or that used a slow fallback.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from splatfix.certify.advice import end_of, explained

# the order in which a certificate shows them
from splatfix.certify.criteria import stack, running, learning, resources, code  # isort: skip
from splatfix.certify.criteria.criterion import REGISTERED, SMOKE, STACK, Measure, StackRun, Training
from splatfix.certify.model import Criterion, Outcome
from splatfix.core.runner import Completed

_OF_RENDERINGS = ("held-out-views", "held-out-psnr-rises", "held-out-not-above-training")
_OF_MODELS = (
    "gaussians-reached",
    "loss-falls",
    "held-out-quality",
    "densification-works",
    "point-cloud-saved",
)
"""What cannot be met where a stack's rendering, or its training, failed: it is told there, and not again."""
_OWN_ADVICE = ("cuda-oom-runtime",)
"""Classes whose cure is an option of the smoke trainer, which other trainers do not have."""


def judge(training: Training) -> tuple[Criterion, ...]:
    """Judge one training by all criteria of its trainer.

    A measurement that is missing fails its criterion, and a run that is too short leaves what it cannot show undetermined.
    """
    kind = STACK if training.stack else SMOKE
    criteria: list[Criterion] = []
    for item in REGISTERED:
        if kind not in item.of or not (training.record.iterations or item.without_result):
            continue
        measures = item.judge(training)
        if isinstance(measures, Measure):
            measures = [measures]
        criteria += (item.criterion(measure, training) for measure in measures or ())
    if training.stack:
        criteria = _as_far_as_seen(criteria, training, training.stack.scripts)
    failed = [item.code for item in criteria if item.outcome is Outcome.FAILED]
    if not training.record.iterations and kind == SMOKE and "no-cuda-error" in failed:
        criteria = [item for item in criteria if item.code != "training-finishes"]  # it says the same
    return tuple(_with_its_cause(item, training) for item in criteria)


def _with_its_cause(item: Criterion, training: Training) -> Criterion:
    error = training.record.error
    if training.stack is None:
        message = f"{error.message} {error.note} {error.hint}" if error else ""
        return explained(item, f"{training.output}\n{message}", own=_OWN_ADVICE)
    message = ending = end_of(error, training.done)
    if error is not None:
        message = ending = f"{error.type}: {error.message}"
    return explained(item, f"{training.output}\n{message}", error=ending)


def _as_far_as_seen(
    criteria: list[Criterion], training: Training, scripts: Mapping[str, Completed]
) -> list[Criterion]:
    """Leave open what another criterion tells the failure of: that the training or its rendering ended, or was not observed."""
    rendering = scripts.get(stack.RENDERING)
    cut = not_rendered = ""
    if not training.done.ok:
        cut = not_rendered = "the training did not end well"
    elif rendering is None:
        not_rendered = "it has no render.py"
    elif not rendering.ok:
        not_rendered = "its test views were not rendered"
    obstacles = {**dict.fromkeys(_OF_MODELS, cut), **dict.fromkeys(_OF_RENDERINGS, not_rendered)}
    unobserved = any(item.code == stack.OBSERVED and item.outcome is not Outcome.MET for item in criteria)
    seen = []
    for item in criteria:
        if item.outcome is Outcome.FAILED and (obstacle := obstacles.get(item.code)):
            measured = f"{item.measured}: {obstacle}"
            item = replace(item, outcome=Outcome.NOT_MEASURED, measured=measured, why="")
        # no failure is one of the trainer's where a hook is missing; what had to be mended was seen without
        if unobserved and item.outcome is Outcome.FAILED and item.code != stack.MENDS:
            why = "It was not observed as a whole."
            item = replace(item, outcome=Outcome.UNDETERMINED, why=why)
        seen.append(item)
    return seen
