"""The criteria of a certificate: small functions from what a trainer recorded to met, failed or not measured.

Each exists because without it a broken stack looked fine: a run that "finished" with zero gradients, that never
densified, that had no test split and reported the quality of its training views, or that used a slow fallback.
"""

from __future__ import annotations

from splatfix.certify.criteria import gradients, learning, resources, running
from splatfix.certify.model import Criterion
from splatfix.certify.record import TrainingRecord


def judge(record: TrainingRecord, renderer: str, iterations: int | None = None) -> tuple[Criterion, ...]:
    """Judge a run of the smoke trainer by all criteria, for the renderer and the length that were asked for; without a length by
    that of the preset, which the record repeats.

    A measurement that is missing fails its criterion, and a run that is too short leaves what it cannot show undetermined.
    """
    return (
        running.finished(record, iterations),
        running.renderer_as_asked(record, renderer),
        learning.held_out_views(record),
        learning.finite_values(record),
        *gradients.of_every_group(record),
        gradients.parameters_move(record),
        learning.gaussians_reached(record),
        learning.loss_falls(record),
        learning.densification(record),
        learning.heldout_gain(record),
        learning.heldout_quality(record),
        learning.heldout_not_above_training(record),
        learning.heldout_near_training(record),
        running.ply_round_trip(record),
        resources.evaluation_memory(record),
        resources.memory_growth(record),
        resources.memory_utilisation(record),
        *resources.memory_spill(record),
        resources.time_by_phase(record),
        resources.throughput_steady(record),
        running.implementations_identified(record),
    )
