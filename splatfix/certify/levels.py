"""The levels of proof: which of them a certification verified, and on what evidence."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from splatfix.certify.model import Comparison, KernelCheck, Outcome, SceneComparison, SceneRun
from splatfix.checks import check_named, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.knowledge import Arch
from splatfix.model import Facts, Finding, Status


def evaluate(
    findings: Sequence[Finding],
    kernels: Sequence[KernelCheck],
    scenes: Sequence[SceneRun],
    comparison: Comparison | None,
    renderer: str,
    device: str,
    built: Rung | None = None,
) -> tuple[Rung, ...]:
    """Return all levels of the smoke trainer, lowest first: of what trained, where anything did."""
    if built is None or scenes:
        # an extension that did not train is no evidence; that it cannot run here refuses the environment all the same
        apart = renderer == "torch" and bool(scenes)
        judged = [item for item in findings if item.status is Status.FAIL or not apart]
        plain = bool(scenes) and (renderer == "torch" or rendered_in_torch(scenes))
        built = _built(judged if device != "cpu" else (), plain=plain)
    return (
        level_resolved(findings, device),
        built,
        _loads(kernels, scenes),
        _computes(kernels),
        _trains(scenes),
        reproduces(scenes, comparison),
    )


def left_out(
    proof: Sequence[Rung], names: Collection[RungName], why: str, *, unless_failed: bool = False
) -> tuple[Rung, ...]:
    """Return the levels with those of these names open, for a reason; with ``unless_failed`` a failure stays."""
    rungs = []
    for rung in proof:
        if rung.name in names and not (unless_failed and rung.reached is False):
            rung = replace(rung, reached=None, shown_by=why)
        rungs.append(rung)
    return tuple(rungs)


def level_resolved(findings: Sequence[Finding], device: str) -> Rung:
    """The lowest level, by the findings for the GPU that ``device`` means."""
    relevant = _bearing_on(RungName.RESOLVED, findings)
    if device == "cpu":  # a GPU that is not used refuses nothing
        relevant = [item for item in relevant if not check_named(item.code).needs_gpu]
    bad = [item.summary for item in relevant if item.status in (Status.FAIL, Status.CRASH)]
    if bad:
        return Rung(RungName.RESOLVED, False, "; ".join(bad))
    good = [item.summary for item in relevant if item.status is Status.PASS]
    shown_by = "; ".join(good) or "Python and torch are installed"
    if device == "cpu":
        shown_by += "; on the CPU no GPU, driver or toolkit is asked for"
    return Rung(RungName.RESOLVED, True, shown_by)


def _bearing_on(rung: RungName, findings: Sequence[Finding]) -> list[Finding]:
    return [item for item in findings if check_named(item.code).bears_on is rung]


def built_for(facts: Facts, targets: Sequence[Arch], device: str) -> Rung | None:
    """Whether the installed extensions carry code for GPUs that are not here; None where none were named, or one is used."""
    if device != "cpu" or not targets:
        return None
    findings = run_checks(make_context(facts, Goal(tuple(targets))))
    # a drop-in that NVRTC would compile at its first call is not built
    rung = _built(findings, plain=False, bad=(Status.FAIL, Status.WARN))
    names = ", ".join(arch.sm for arch in targets)
    if rung.reached is None:
        return replace(rung, shown_by=f"no CUDA extension was found to judge for {names}")
    if rung.reached:
        return replace(rung, shown_by=f"{rung.shown_by}; built for {names}, not run: no GPU was used")
    return rung


def _built(findings: Sequence[Finding], *, plain: bool, bad: tuple[Status, ...] = (Status.FAIL,)) -> Rung:
    summaries: dict[Status, list[str]] = {}
    failed = []
    for item in _bearing_on(RungName.BUILT, findings):
        summary = item.summary.rstrip(".")
        summaries.setdefault(item.status, []).append(summary)
        if item.status in bad:
            failed.append(summary)
    if failed:
        return Rung(RungName.BUILT, False, "; ".join(failed))
    if Status.PASS in summaries:
        return Rung(RungName.BUILT, True, "; ".join(summaries[Status.PASS]))
    if Status.WARN in summaries:  # it is built at its first call
        return Rung(RungName.BUILT, None, "; ".join(summaries[Status.WARN]))
    if plain:
        return Rung(RungName.BUILT, None, "everything that ran is plain PyTorch", needed=False)
    return Rung(RungName.BUILT, None, "no CUDA extension was judged: no GPU was used")


def rendered_in_torch(scenes: Sequence[SceneRun]) -> bool:
    """Every renderer that ran was plain PyTorch, whatever its name."""
    for run in scenes:
        renderer = run.record.implementations.get("renderer")
        if renderer is None or not (renderer.engine or "").startswith("torch-"):
            return False
    return bool(scenes)


def _loads(kernels: Sequence[KernelCheck], scenes: Sequence[SceneRun]) -> Rung:
    for run in scenes:
        if run.record.implementations:
            parts = ", ".join(sorted(run.record.implementations))
            return Rung(RungName.LOADS, True, f"imported in the target environment: {parts}")
    if any(item.implementation for item in kernels):
        return Rung(RungName.LOADS, True, "the kernels were imported in the target environment")
    return Rung(RungName.LOADS, False, "the trainer could not be imported in the target environment")


def _computes(kernels: Sequence[KernelCheck]) -> Rung:
    failed = [item for item in kernels if item.outcome is Outcome.FAILED]
    met = [item for item in kernels if item.outcome is Outcome.MET]
    if failed or not met:
        reasons = "; ".join(item.sentence for item in failed)
        return Rung(RungName.COMPUTES, False, reasons or "no kernel was checked")
    errors, halves, not_run = [], [], []
    for item in met:
        if item.value_error is not None:
            text = f"{item.implementation} {item.value_error:.1e}"
            if item.gradient_error is not None:
                text += f" (gradient {item.gradient_error:.1e})"
            errors.append(text)
        if item.pytorch_half:
            halves.append(item.implementation)
    for item in kernels:
        if item.native_not_measured:
            not_run.append(f"{item.implementation} ({item.detail})")
    text = f"forward and gradient agree with float64 references: {', '.join(errors)}"
    if halves:
        text += f"; of {', '.join(halves)} only their PyTorch half: no GPU ran their CUDA code"
    if not_run:
        text += f"; not measured: {', '.join(not_run)}"
    return Rung(RungName.COMPUTES, True, text)


def _trains(scenes: Sequence[SceneRun]) -> Rung:
    failed = [run.scene for run in scenes if run.passed is False]
    if failed:
        return Rung(RungName.TRAINS, False, f"criteria failed for {', '.join(failed)}")
    if not scenes:
        return Rung(RungName.TRAINS, False, "no scene was trained")
    if short := too_short(scenes):
        return Rung(RungName.TRAINS, None, f"too short to judge: {short}")
    readable = [run for run in scenes if not run.unreadable]
    psnr = ", ".join(f"{run.scene} {run.record.heldout.psnr or 0.0:.2f} dB" for run in readable)
    limits = ""
    if unknown := without_floor(scenes):
        limits += f" (no reference PSNR for {', '.join(unknown)})"
    if len(readable) == len(scenes):
        return Rung(RungName.TRAINS, True, f"all criteria met on all scenes; held-out PSNR: {psnr}{limits}")
    shown_by = f"cannot be read: {unreadable(scenes)}"
    if readable:
        shown_by += f"; all criteria met on the others; held-out PSNR: {psnr}{limits}"
    return Rung(RungName.TRAINS, None, shown_by)


def without_floor(runs: Sequence[SceneRun]) -> list[str]:
    """The scenes whose held-out quality was measured, but has no reference to compare with."""
    scenes = []
    for run in runs:
        for item in run.criteria:
            if item.code == "held-out-quality" and item.outcome is Outcome.NOT_MEASURED:
                scenes.append(run.scene)
    return scenes


def unreadable(scenes: Sequence[SceneRun]) -> str:
    """The names of scenes that could not be read."""
    return ", ".join(run.scene for run in scenes if run.unreadable)


def too_short(scenes: Sequence[SceneRun]) -> str:
    """The scenes whose runs were too short to judge, with their length."""
    short = [run for run in scenes if run.passed is None]
    return ", ".join(f"{run.scene} ({counted(run.record.iterations or 0, 'iteration')})" for run in short)


def reproduces(scenes: Sequence[SceneRun], comparison: Comparison | None) -> Rung:
    """Return the level that a comparison with a baseline reaches."""
    if comparison is None:
        return Rung(RungName.REPRODUCES, None, "no baseline was given (--baseline)")
    by_outcome: dict[Outcome, list[SceneComparison]] = {outcome: [] for outcome in Outcome}
    for item in comparison.scenes:
        by_outcome[item.outcome].append(item)
    if worse := by_outcome[Outcome.FAILED]:
        return Rung(RungName.REPRODUCES, False, "; ".join(f"{item.scene}: {item.why}" for item in worse))
    not_shown = []
    if names := unreadable(scenes):
        not_shown.append(f"cannot be read: {names}")
    for item in by_outcome[Outcome.NOT_MEASURED]:
        not_shown.append(f"{item.scene}: not comparable: {item.why}")
    held = []
    for item in by_outcome[Outcome.MET]:
        met = [one for one in item.measures if one.outcome is Outcome.MET and one.unit != "B"]
        figures = (f"{one.name} {one.now:.4g} (baseline {one.baseline:.4g})" for one in met)
        held.append(f"{item.scene} {', '.join(figures)}")
    evidence = "; ".join([*not_shown, *held]) or "no scene was trained"
    reached = None if not_shown or not held else True
    return Rung(RungName.REPRODUCES, reached, evidence)
