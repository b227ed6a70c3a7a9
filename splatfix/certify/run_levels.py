"""The run levels of ``certify --level``, in the manner of ``dcgmi diag -r``: each holds what the ones below it hold, and more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from splatfix.certify.model import Criterion, KernelCheck, Outcome, Request
from splatfix.certify.prerequisites import CERTIFY_NEEDS, VERIFY_NEEDS
from splatfix.checks import Finding, Status, check_named
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted

LEVELS = {
    1: "",
    2: ", and kernels against float64 references",
    3: ", kernels, and the quick suite",
    4: ", kernels, and the {scenes}",
}
"""What each run level runs, behind the diagnosis."""
TRAINS_FROM = 3
FULL = 4
FULL_ITERATIONS = 30_000
"""Of each public scene at the full level: what the papers publish."""
NEEDS = {1: (), 2: VERIFY_NEEDS, 3: CERTIFY_NEEDS, 4: CERTIFY_NEEDS}
"""The distributions that each needs in the environment."""
NOT_PART = {
    1: (RungName.LOADS, RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES),
    2: (RungName.TRAINS, RungName.REPRODUCES),
}
"""The levels of proof that a run level cannot reach."""

_OUTCOMES = {
    Status.PASS: Outcome.MET,
    Status.WARN: Outcome.NOT_MEASURED,
    Status.FAIL: Outcome.FAILED,
    Status.CRASH: Outcome.FAILED,
    Status.UNKNOWN: Outcome.UNDETERMINED,
}


def diagnosed(findings: Sequence[Finding], device: str) -> tuple[Criterion, ...]:
    """Every finding that matters for the device as a criterion; what the checks skip is left out.

    A warning is not judged, with the warning as its measurement. On a CPU the checks of GPUs do not matter.
    """
    relevant = (item for item in findings if device != "cpu" or not check_named(item.code).needs_gpu)
    return tuple(
        Criterion(
            item.code,
            _OUTCOMES[item.status],
            f"{'warning: ' if item.status is Status.WARN else ''}{item.summary}",
            check_named(item.code).title,
            advice=f"splatfix checks show {item.code} explains it, and splatfix diagnose names the fix."
            if _OUTCOMES[item.status] in (Outcome.FAILED, Outcome.UNDETERMINED)
            else "",
        )
        for item in relevant
        if item.status is not Status.SKIP
    )


def only_of_level(proof: Sequence[Rung], level: int | None) -> tuple[Rung, ...]:
    """The levels of proof, those that the run level does not include as not verified."""
    left_out = NOT_PART.get(level or 0, ())
    found = [
        replace(rung, reached=None, shown_by=f"not part of run level {level}")
        if rung.name in left_out
        else rung
        for rung in proof
    ]
    return tuple(
        replace(rung, shown_by="no CUDA extension was judged", needed=True)
        if left_out and rung.name is RungName.BUILT and rung.reached is None
        else rung
        for rung in found
    )


def left_open(
    request: Request, diagnosis: Sequence[Criterion], kernels: Sequence[KernelCheck]
) -> tuple[str, ...]:
    """What a run level includes and could not be judged, in words: a certificate of a level skips nothing of it."""
    if request.level is None:
        return ()
    unknown = [item.code for item in diagnosis if item.outcome is Outcome.UNDETERMINED]
    unproven = [item.implementation for item in kernels if item.native_not_measured]
    absent = [item.scene for item in request.suite.skipped] if request.level == FULL else []
    return tuple(
        f"{words}: {', '.join(names)}"
        for words, names in (
            ("checks that could not be determined", unknown),
            ("kernels that were not measured", unproven),
            ("scenes that were not trained", absent),
        )
        if names
    )


def told(request: Request, diagnosis: Sequence[Criterion], passed: bool | None) -> str:
    """The first sentences of a summary: the run level, what it includes, and below the training ones what it does not show.

    Args:
        passed: whether the level was; None where that is undetermined.
    """
    level = request.level
    if level is None:
        return ""
    result = {True: "passed", False: "was not passed", None: "is undetermined"}[passed]
    warned = sum(item.outcome is Outcome.NOT_MEASURED for item in diagnosis)
    checked = counted(len(diagnosis), "check") + (f", {counted(warned, 'warning')}" if warned else "")
    where = (
        "" if level >= TRAINS_FROM else " on the CPU" if request.device == "cpu" else f" on {request.device}"
    )
    scenes = "standard suite" if request.suite.data is None else "thirteen public scenes"
    ran = f"the diagnosis ({checked}){LEVELS[level].format(scenes=scenes)}"
    first = f"Run level {level} of {FULL} {result}{where}: {ran}."
    limits = {1: "Nothing was computed: no kernel ran and no scene was trained.", 2: "No scene was trained."}
    return f"{first} {limits.get(level, '')}".rstrip()
