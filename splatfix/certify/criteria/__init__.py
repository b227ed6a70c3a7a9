"""The criteria of a certificate: small functions from what a trainer recorded to met, failed or not measured.

Each exists because without it a broken stack looked fine: a run that "finished" with zero gradients, that never
densified, that had no test split and reported the quality of its training views, or that used a slow fallback.
"""

from __future__ import annotations

from msgspec.structs import replace

from splatfix.certify.advice import end_of, explained

# the order in which a certificate shows them
from splatfix.certify.criteria import running, learning, resources  # isort: skip
from splatfix.certify.criteria.criterion import REGISTERED, SHORTEST, STACK, Measure, Registered, Training
from splatfix.certify.model import Criterion
from splatfix.core.words import counted


def judge(training: Training) -> tuple[Criterion, ...]:
    """Judge one training by all criteria of its trainer.

    A measurement that is missing fails its criterion, and a run that is too short leaves what it cannot show undetermined.
    """
    ending = end_of(training.record.error, training.done)
    criteria: list[Criterion] = []
    for item in REGISTERED:
        of_another = item.of and (item.of == STACK) is not training.stack
        if of_another or not (training.record.iterations or item.without_result):
            continue
        measures = item.judge(training)
        if isinstance(measures, Measure):
            measures = [measures]
        for measure in measures or ():
            judged = item.criterion(_as_far_as_seen(item, measure, training))
            criteria.append(explained(judged, training.output, ending))
    return tuple(criteria)


def _as_far_as_seen(item: Registered, measure: Measure, training: Training) -> Measure:
    """Leave a failure open that a longer run may not have, or that another criterion tells the cause of: the training or its
    rendering ended, or was not observed."""
    iterations = training.record.iterations or 0
    if measure.met is not False or measure.undetermined:
        return measure
    if item.learning and iterations < SHORTEST and not measure.missing:
        length = counted(iterations, "iteration")
        why = f"A run of {length} is too short to judge this: {SHORTEST} or more decide it."
        return replace(measure, undetermined=True, why=why)
    if not training.stack:
        return measure
    ended = training.scripts.get(running.RENDER) if item.after == "rendering" else training.done
    if item.after and not (ended and ended.ok):
        text = f"{measure.text}: the {item.after} did not end well"
        return replace(measure, met=None, text=text, why="", advice="")
    # no failure is one of the trainer's where a hook is missing; what had to be mended was seen without
    if item.code != running.MENDS and running.observed(training).undetermined:
        return replace(measure, undetermined=True, why="It was not observed as a whole.")
    return measure
