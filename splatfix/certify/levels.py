"""The levels of proof: which of them a certification verified, and on what evidence; and what each run level runs.

The run levels of ``certify --level`` are in the manner of ``dcgmi diag -r``: each holds what the ones below it hold, and more.
"""

from collections.abc import Sequence

from splatfix.certify.model import Comparison, KernelCheck, Outcome, SceneRun, reason_of
from splatfix.checks import check_named
from splatfix.context.commands import TRAINING_NEEDS
from splatfix.core.proof import Rung, RungName
from splatfix.model import Finding, Status

RUN_LEVELS = {
    1: "the diagnosis. Nothing was computed: no kernel ran and no scene was trained",
    2: "the diagnosis, and kernels against float64 references. No scene was trained",
    3: "the diagnosis, kernels, and the quick suite",
    4: "the diagnosis, kernels, and every scene",
}
TRAINS_FROM, FULL = 3, 4
FULL_ITERATIONS = 30_000
"""Of each public scene at the full level: what the papers publish."""
NEEDS = {1: (), 2: ("torch",), 3: TRAINING_NEEDS, 4: TRAINING_NEEDS}
"""The distributions that each needs in the environment."""


def resolved(findings: Sequence[Finding], device: str) -> Rung:
    """Judge the lowest level by the findings for the GPU that ``device`` means."""
    if bad := told(RungName.RESOLVED, findings, Status.FAIL, Status.CRASH):
        return Rung(RungName.RESOLVED, False, bad)
    shown_by = told(RungName.RESOLVED, findings, Status.PASS) or "Python and torch are installed"
    if device == "cpu":
        shown_by += "; on the CPU no GPU, driver or toolkit is asked for"
    return Rung(RungName.RESOLVED, True, shown_by)


def told(rung: RungName, findings: Sequence[Finding], *statuses: Status) -> str:
    """Return what findings of these statuses say of a level."""
    chosen = [
        item for item in findings if item.status in statuses and check_named(item.code).bears_on is rung
    ]
    return "; ".join(item.summary.rstrip(".") for item in chosen)


def built(findings: Sequence[Finding], *, plain: bool = False) -> Rung:
    """Judge extensions by the findings about them; ``plain`` says that all that ran was plain PyTorch."""
    if failed := told(RungName.BUILT, findings, Status.FAIL):
        return Rung(RungName.BUILT, False, failed)
    if good := told(RungName.BUILT, findings, Status.PASS):
        return Rung(RungName.BUILT, True, good)
    if later := told(RungName.BUILT, findings, Status.WARN):  # it is built at its first call
        return Rung(RungName.BUILT, None, later)
    if plain:
        return Rung(RungName.BUILT, None, "everything that ran is plain PyTorch", needed=False)
    return Rung(RungName.BUILT, None, "no CUDA extension was judged")


def loads(kernels: Sequence[KernelCheck], scenes: Sequence[SceneRun]) -> Rung:
    """Take what was imported: by a training, else by a check of kernels."""
    parts = {name for run in scenes for name, part in run.record.implementations.items() if part.module}
    if parts:
        return Rung(RungName.LOADS, True, f"imported in the target environment: {', '.join(sorted(parts))}")
    if any(item.implementation for item in kernels):
        return Rung(RungName.LOADS, True, "the kernels were imported in the target environment")
    # of a trainer that was not observed nothing is said
    reached = False if any(run.passed is False for run in scenes) else None
    return Rung(RungName.LOADS, reached, "nothing was seen that a trainer imported and called")


def computes(kernels: Sequence[KernelCheck]) -> Rung:
    """Take what was held against float64 references."""
    if not kernels:
        text = "kernels were not compared with references; splatfix certify --level 2 does that"
        return Rung(RungName.COMPUTES, None, text)
    failed = [item for item in kernels if item.outcome is Outcome.FAILED]
    met = [item for item in kernels if item.outcome is Outcome.MET]
    if failed or not met:
        reasons = "; ".join(item.sentence for item in failed)
        return Rung(RungName.COMPUTES, False, reasons or "no kernel was checked")
    text = f"forward and gradient agree with float64 references: {', '.join(item.implementation for item in met)}"
    halves = [item.implementation for item in met if item.pytorch_half]
    if halves:
        text += f"; of {', '.join(halves)} only their PyTorch half: no GPU ran their CUDA code"
    not_run = [f"{item.implementation} ({item.detail})" for item in kernels if item.native_not_measured]
    if not_run:
        text += f"; not measured: {', '.join(not_run)}"
    return Rung(RungName.COMPUTES, True, text)


def trains(scenes: Sequence[SceneRun], left_open: Sequence[str], name: RungName = RungName.TRAINS) -> Rung:
    """Take the criteria of all scenes; ``left_open`` says what they do not show, or why not all were trained. ``name`` is that
    of a rehearsal where CUDA had no part in it."""
    failed = [run.scene for run in scenes if run.passed is False]
    if failed:
        return Rung(name, False, f"criteria failed for {', '.join(failed)}")
    shown = list(left_open)
    reached = None if shown or not scenes else True
    for run in scenes:
        psnr = run.record.heldout.psnr
        if run.passed and not run.unreadable:
            quality = "not measured" if psnr is None else f"{psnr:.2f} dB"
            shown.append(f"{run.scene} met every criterion that was measured, held-out PSNR {quality}")
    return Rung(name, reached, "; ".join(shown) or "no scene was trained")


def open_of(scenes: Sequence[SceneRun]) -> list[str]:
    """Return each scene that says nothing, or not enough, with the first reason."""
    texts = []
    for run in scenes:
        undetermined = [item for item in run.criteria if item.outcome is Outcome.UNDETERMINED]
        if run.unreadable:
            texts.append(f"{run.scene} cannot be read (splatfix scenes check says what it lacks)")
        elif run.passed is None:
            texts.append(f"{run.scene}: {reason_of(undetermined[0])}".rstrip("."))
    return texts


def reproduces(comparison: Comparison | None, left_open: Sequence[str]) -> Rung:
    """Return the level that a comparison with a baseline reaches, above all that is left open of the training."""
    if comparison is None:
        return Rung(RungName.REPRODUCES, None, "no baseline was given (--baseline)")
    worse = [f"{item.scene}: {item.why}" for item in comparison.scenes if item.outcome is Outcome.FAILED]
    if worse:
        return Rung(RungName.REPRODUCES, False, "; ".join(worse))
    not_shown, held = list(left_open), []
    for item in comparison.scenes:
        if item.outcome is Outcome.MET:
            held.append(item.scene)
        else:
            not_shown.append(f"{item.scene}: not comparable: {item.why}")
    if not_shown or not held:
        return Rung(RungName.REPRODUCES, None, "; ".join(not_shown) or "no scene was trained")
    return Rung(RungName.REPRODUCES, True, f"all that is judged is within tolerance: {', '.join(held)}")
