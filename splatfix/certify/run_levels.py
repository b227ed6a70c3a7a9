"""The run levels of ``certify --level``, in the manner of ``dcgmi diag -r``: each holds what the ones below it hold, and more."""

from collections.abc import Sequence

from splatfix.certify.model import Criterion, KernelCheck, Outcome, Verdict
from splatfix.certify.prerequisites import CERTIFY_NEEDS, VERIFY_NEEDS
from splatfix.certify.scenes import Suite
from splatfix.checks import check_named
from splatfix.core.proof import RungName
from splatfix.model import Finding, Status

LEVELS = {
    1: "the diagnosis. Nothing was computed: no kernel ran and no scene was trained",
    2: "the diagnosis, and kernels against float64 references. No scene was trained",
    3: "the diagnosis, kernels, and the quick suite",
    4: "the diagnosis, kernels, and every scene",
}
"""What each run level runs."""
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
_RESULTS = {
    Verdict.CERTIFIED: "passed",
    Verdict.NOT_CERTIFIED: "was not passed",
    Verdict.UNDETERMINED: "is undetermined",
}


def diagnosed(findings: Sequence[Finding], device: str) -> tuple[Criterion, ...]:
    """Return every finding that matters for the device as a criterion: not what the checks skip, nor on a CPU those of GPUs. A
    warning is not judged."""
    criteria = []
    for item in findings:
        check = check_named(item.code)
        if item.status is Status.SKIP or (device == "cpu" and check.needs_gpu):
            continue
        outcome = _OUTCOMES[item.status]
        advice, measured = "", item.summary
        if outcome in (Outcome.FAILED, Outcome.UNDETERMINED):
            explain = f"splatfix diagnose --explain {item.code}"
            advice = f"{explain} explains it, and splatfix diagnose names the fix."
        elif item.status is Status.WARN:
            measured = f"warning: {item.summary}"
        criteria.append(Criterion(item.code, outcome, measured, check.title, advice=advice))
    return tuple(criteria)


def on(device: str) -> str:
    """``on the CPU``, ``on cuda:0``."""
    if device == "cpu":
        return "on the CPU"
    return f"on {device}"


def left_open(
    level: int | None, suite: Suite, diagnosis: Sequence[Criterion], kernels: Sequence[KernelCheck]
) -> tuple[str, ...]:
    """What a run level includes and could not be judged, in words: a certificate of a level skips nothing of it."""
    if level is None:
        return ()
    left = []
    if unknown := [item.code for item in diagnosis if item.outcome is Outcome.UNDETERMINED]:
        left.append(f"checks that could not be determined: {', '.join(unknown)}")
    if unproven := [item.implementation for item in kernels if item.native_not_measured]:
        left.append(f"kernels that were not measured: {', '.join(unproven)}")
    if level == FULL and suite.skipped:
        left.append(f"scenes that were not trained: {', '.join(item.scene for item in suite.skipped)}")
    return tuple(left)


def opening(level: int | None, device: str, diagnosis: Sequence[Criterion], verdict: Verdict) -> str:
    """Return the first sentences of a summary: the run level and what it includes; "" without one."""
    if level is None:
        return ""
    warned = sum(item.outcome is Outcome.NOT_MEASURED for item in diagnosis)
    checks = f"Checks: {len(diagnosis)}, warnings: {warned}."
    return f"Run level {level} of {FULL} {_RESULTS[verdict]} {on(device)}: {LEVELS[level]}. {checks}"
