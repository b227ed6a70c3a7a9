"""Whether a stack's own trainer learned, as far as can be observed: loss, quality, gradients, densification, what it saved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from splatfix.certify.criteria import MAX_ZERO_STEPS, REQUIRED_GROUPS, judge_learning, judge_trend
from splatfix.certify.measured import criterion, get, number, unless_short
from splatfix.certify.model import Criterion, Outcome
from splatfix.core.words import counted

_OF_ANCHORS = ("anchor", "offset", "anchor_feat", "scaling", "means", "opacities", "scales", "quats", "sh0")
"""What Scaffold-GS, whose networks make the rest, and gsplat's trainers must train."""
_HARMONICS = ("f_rest", "features_rest", "shN", "sh_rest")
"""Groups whose gradients are zero until the degree of the harmonics rises, every 1,000 iterations in Inria's family."""
LONG = 1000
"""Iterations from which on a stranger's trainer must have learned as much as splatfix's own on the sample scenes."""
LEAST_GAIN_DB = 0.5
"""Held-out PSNR that counts as learning in a shorter run."""


def judge_training(result: Mapping[str, Any]) -> tuple[Criterion, ...]:
    """The criteria of a run that came to iterations; ``result`` as of :func:`splatfix.certify.stack_result.result_of`."""
    return (
        *(_unless_slow(item, result) for item in judge_learning(result)),
        *_gradients(result),
        _densified(result),
        _saved(result),
    )


def _unless_slow(judged: Criterion, result: Mapping[str, Any]) -> Criterion:
    """A trainer that learns, and slower than ours, is not refused for a short run: how far is for a longer one to show."""
    if judged.outcome is not Outcome.FAILED or (result.get("iterations") or 0) >= LONG:
        return judged
    before, after = (number(get(result, name, "psnr")) for name in ("initial_heldout", "heldout"))
    learns = {
        "loss-falls": judge_trend(result).outcome is Outcome.MET,
        "held-out-psnr-rises": before is not None and after is not None and after >= before + LEAST_GAIN_DB,
    }
    if not learns.get(judged.code):
        return judged
    why = "It learns, though less than a run of this length shows with splatfix's own trainer: more iterations decide it."
    return replace(judged, outcome=Outcome.UNDETERMINED, why=why, advice="Give it more with --iterations.")


def _gradients(result: Mapping[str, Any]) -> list[Criterion]:
    judged: list[Criterion] = []
    needed = REQUIRED_GROUPS if "xyz" in (result.get("gradients") or {}) else _OF_ANCHORS
    for name, row in (result.get("gradients") or {}).items():
        steps, zero, largest = number(row["steps"]) or 0.0, number(row["zero_steps"]), number(row["max"])
        code = f"gradients-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}"
        required = f"zero in at most {MAX_ZERO_STEPS:.0%} of the steps"
        if name in _HARMONICS and not get(result, "config", "sh_degree"):
            why = "the degree of the harmonics stayed 0: the trainer raises it later than this run is long"
            judged.append(Criterion(code, Outcome.NOT_MEASURED, why, required))
            continue
        if name not in needed and row["none_steps"] == row["steps"]:
            why = "it is no part of what was differentiated" + (
                "" if row["trained"] else ": requires_grad is off"
            )
            judged.append(Criterion(code, Outcome.NOT_MEASURED, why, required))
            continue
        if not any(size for shape in row["shape"] or () for size in shape):
            judged.append(Criterion(code, Outcome.NOT_MEASURED, "the group has no parameters", required))
            continue
        last, passes = int(number(row.get("last_step")) or 0), int(number(get(result, "iterations")) or 0)
        # zero in all that followed, and before only in as many steps as are allowed: cut off by something that happened then
        cut = 0 < last < passes and passes - last > MAX_ZERO_STEPS * steps
        after = f", none after iteration {last}" if cut else ""
        one = criterion(
            code,
            zero is not None and bool(largest) and zero <= MAX_ZERO_STEPS * steps,
            f"zero or none in {zero or 0:.0f} of {counted(steps, 'step')}{after}, largest norm {largest or 0:.3g}",
            required,
            f"From iteration {last + 1} on no gradient reached {name}: training goes on without this part of the scene."
            if cut
            else f"No gradient reaches {name}: training runs, but never changes this part of the scene."
            if not largest
            else f"Gradients reach {name} in some steps only.",
            "field report: gsplat on a T4, 30,000 iterations with all gradients zero",
        )
        judged.append(unless_short(one, result, zero is not None))
    return judged


def _densified(result: Mapping[str, Any]) -> Criterion:
    counts = result.get("gaussians") or {}
    known = {name: number(counts.get(name)) for name in ("initial", "final", "added", "removed")}
    judged = criterion(
        "densification-works",
        bool(known["added"]) and bool(known["final"]),
        ", ".join(f"{name} {value:.0f}" for name, value in known.items() if value is not None)
        or "not recorded",
        "Gaussians are added, and some remain",
        "The screen-space gradient that drives densification is missing, or its schedule never started.",
        "Kerbl et al. 2023, section 5.2; which were cloned and which split is not seen from outside",
    )
    return unless_short(judged, result, bool(known["initial"] and known["final"]))


def _saved(result: Mapping[str, Any]) -> Criterion:
    saves = result.get("saves") or {}
    wanted = str(get(result, "config", "iterations"))
    final, last = number(get(saves, wanted, "count")), number(get(result, "gaussians", "final"))
    bad = [
        name
        for name, row in saves.items()
        if row.get("error") or row.get("non_finite") or row.get("whole") is False
    ]
    words = [
        f"iteration {name}: {row.get('error') or counted(row.get('count') or 0, 'Gaussian')}"
        + (f", {counted(row['non_finite'], 'non-finite value')}" if row.get("non_finite") else "")
        for name, row in saves.items()
    ]
    return criterion(
        "point-cloud-saved",
        final is not None and not bad and (last is None or final == last),
        ", ".join(words) or "no point_cloud.ply was found",
        f"a PLY file of iteration {wanted} with every Gaussian, all values finite",
        "What was trained was not saved whole.",
        "the trainer's own folder point_cloud/iteration_N",
    )
