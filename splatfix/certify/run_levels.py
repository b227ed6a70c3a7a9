"""The run levels of ``certify --level``, in the manner of ``dcgmi diag -r``: each holds what the ones below it hold, and more."""

from collections.abc import Sequence

from msgspec.structs import replace

from splatfix.certify.model import Criterion, KernelCheck, Outcome, Verdict
from splatfix.certify.prerequisites import CERTIFY_NEEDS, VERIFY_NEEDS
from splatfix.certify.scenes import Suite
from splatfix.checks import check_named
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.model import Finding, Status

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
_RESULTS = {
    Verdict.CERTIFIED: "passed",
    Verdict.NOT_CERTIFIED: "was not passed",
    Verdict.UNDETERMINED: "is undetermined",
}
_LIMITS = {1: "Nothing was computed: no kernel ran and no scene was trained.", 2: "No scene was trained."}


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


def only_of_level(proof: Sequence[Rung], level: int | None) -> tuple[Rung, ...]:
    """The levels of proof, those that the run level does not include as not verified."""
    left_out = NOT_PART.get(level or 0, ())
    if not left_out:
        return tuple(proof)
    rungs = []
    for rung in proof:
        if rung.name in left_out:
            rung = replace(rung, reached=None, shown_by=f"not part of run level {level}")
        elif rung.name is RungName.BUILT and rung.reached is None:
            rung = replace(rung, shown_by="no CUDA extension was judged", needed=True)
        rungs.append(rung)
    return tuple(rungs)


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


def opening(
    level: int | None, device: str, suite: Suite, diagnosis: Sequence[Criterion], verdict: Verdict
) -> str:
    """The first sentences of a summary: the run level, what it includes, and below the training ones what it does not show."""
    if level is None:
        return ""
    warned = sum(item.outcome is Outcome.NOT_MEASURED for item in diagnosis)
    checked = counted(len(diagnosis), "check")
    if warned:
        checked += f", {counted(warned, 'warning')}"
    where, scenes = "", "standard suite"
    if level < TRAINS_FROM:  # the summary of a training says where it was
        where = f" {on(device)}"
    if suite.data is not None:
        scenes = "thirteen public scenes"
    ran = f"the diagnosis ({checked}){LEVELS[level].format(scenes=scenes)}"
    first = f"Run level {level} of {FULL} {_RESULTS[verdict]}{where}: {ran}."
    return f"{first} {_LIMITS.get(level, '')}".rstrip()
