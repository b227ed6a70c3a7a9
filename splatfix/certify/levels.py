"""The levels of proof: which of them a certification verified, on what evidence, and the summary that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from splatfix.certify.model import (
    Comparison,
    Criterion,
    KernelCheck,
    Outcome,
    Request,
    SceneComparison,
    SceneRun,
    Verdict,
)
from splatfix.checks import Finding, Status, check_named, run_checks
from splatfix.context import Goal, make_context
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted
from splatfix.facts import Facts
from splatfix.knowledge import Arch

_OF_RESOURCES = frozenset(
    ("evaluation-memory", "memory-growth", "memory-utilisation", "time-by-phase", "throughput-steady")
)
"""Criteria of how a run went: where only these fail, all was learned that had to be."""


def evaluate(
    findings: tuple[Finding, ...],
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    comparison: Comparison | None,
    renderer: str,
    device: str,
    built: Rung | None = None,
) -> tuple[Rung, ...]:
    """All levels, lowest first.

    Args:
        findings: for the GPU that ``device`` means.
        built: what :func:`built_for` says.
    """
    cpu = device == "cpu"
    return (
        level_resolved(findings, device),
        built or _built(() if cpu else findings, plain=renderer == "torch" or _rendered_in_torch(scenes)),
        _loads(kernels, scenes),
        _computes(kernels),
        _trains(scenes),
        _reproduces(scenes, comparison),
    )


def failures(
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    proof: tuple[Rung, ...],
    diagnosis: tuple[Criterion, ...] = (),
) -> tuple[str, ...]:
    """Why an environment is not certified: failed checks, kernels and criteria, and where none failed, failed levels."""
    reasons = [
        f"diagnosis: {item.code}: {item.measured}" for item in diagnosis if item.outcome is Outcome.FAILED
    ]
    reasons += [
        f"kernel {item.name}: {item.detail or f'value error {item.value_error}, gradient error {item.gradient_error}'}"
        for item in kernels
        if item.outcome is Outcome.FAILED
    ]
    for run in scenes:
        reasons += [
            f"{run.scene}: {item.code}: {item.measured.rstrip('.')}. {item.why}".rstrip()
            for item in run.criteria
            if item.outcome is Outcome.FAILED
        ]
    return tuple(
        reasons or [f"{rung.name.value}: {rung.shown_by}" for rung in proof if rung.reached is False]
    )


def summarize(
    verdict: Verdict,
    proof: tuple[Rung, ...],
    request: Request,
    runs: tuple[SceneRun, ...],
    idle_gpu: str = "",
    left_open: tuple[str, ...] = (),
) -> str:
    """What was verified and what was not, in a sentence or two; for requests that train.

    Args:
        idle_gpu: that a GPU is there and was not used.
        left_open: what a run level includes and could not be judged.
    """
    where = "on the CPU" if request.device == "cpu" else f"on {request.device}"
    levels = {rung.name: rung.reached for rung in proof}
    highest = _highest(proof)
    level = f"highest level verified: {highest.value if highest else 'none'}"
    if verdict is Verdict.NOT_CERTIFIED:
        return " ".join(
            filter(None, (_refused(proof, request, runs, where), _targeted(request, levels[RungName.BUILT])))
        )
    if verdict is Verdict.UNDETERMINED:
        unread, short = _unread(runs), _short(runs)
        if left_open:
            return f"It is undetermined, because of {'; '.join(left_open)}. {_trained(runs, where)}"
        if not (unread or short):
            return f"Training 3D Gaussians {where} was not judged; {level}."
        why = [f"scenes cannot be read: {unread}"] if unread else []
        why += [f"runs were too short to judge: {short}"] if short else []
        return (
            f"Training 3D Gaussians {where} is undetermined, because {', and '.join(why)}. "
            f"This says nothing about the environment; {level}."
        )
    renderer = f"the {request.renderer} renderer"
    if request.renderer != "torch" and _rendered_in_torch(runs):
        renderer = "splatfix's drop-in for diff_gaussian_rasterization"
    unknown = without_floor(runs)
    quality = "held-out quality"
    if unknown:
        quality = f"rising held-out PSNR (no reference PSNR for {', '.join(unknown)})"
    skipped = len(request.suite.skipped)
    noted = [run.scene for run in runs if run.notes]
    sentences = [
        f"This environment trained {counted(len(runs), 'scene')} of 3D Gaussians {where} with {renderer}, "
        f"with healthy gradients, densification and {quality}.",
        f"Skipped: {counted(skipped, 'scene')}." if skipped else "",
        f"With reservations: {', '.join(noted)}." if noted else "",
        _unverified(request, levels[RungName.BUILT]),
        f"It was not held against {request.published}, whose conditions differ."
        if request.published and levels[RungName.REPRODUCES] is None
        else "",
        idle_gpu,
    ]
    return " ".join(filter(None, sentences))


def _refused(proof: tuple[Rung, ...], request: Request, runs: Sequence[SceneRun], where: str) -> str:
    """What an environment that is not certified does all the same, and the levels that it reached."""
    levels = {rung.name: rung.reached for rung in proof}
    failed = {
        run.scene: [item.code for item in run.criteria if item.outcome is Outcome.FAILED] for run in runs
    }
    if levels[RungName.TRAINS] and _highest(proof) in (RungName.TRAINS, RungName.REPRODUCES):
        regressed = levels[RungName.REPRODUCES] is False
        but = "regressed against the baseline" if regressed else "its diagnosis found failures"
        return f"This environment trains 3D Gaussians {where}, but {but}."
    reached = f"levels reached: {', '.join(rung.name.value for rung in proof if rung.reached) or 'none'}"
    computes = levels[RungName.COMPUTES]
    if levels[RungName.TRAINS] and computes and request.targets and levels[RungName.BUILT] is False:
        names = ", ".join(request.targets)
        return f"This environment trained 3D Gaussians {where}, but is not built for {names}; {reached}."
    codes = {code for found in failed.values() for code in found}
    judged = not any(run.unreadable or _unjudged(run) for run in runs)
    if computes and judged and codes and codes <= _OF_RESOURCES:
        which = "; ".join(f"{scene}: {', '.join(found)}" for scene, found in failed.items() if found)
        return (
            f"This environment trained {counted(len(runs), 'scene')} of 3D Gaussians {where}, and no criterion of learning "
            f"failed, but some of time and memory did ({which}); {reached}."
        )
    return f"Training 3D Gaussians {where} was not verified; {reached}."


def _unjudged(run: SceneRun) -> bool:
    return any(item.outcome is Outcome.UNDETERMINED for item in run.criteria)


def _targeted(request: Request, built: bool | None) -> str:
    """That the extensions are built for the GPUs that were named; "" where they are not, or none were."""
    if request.device != "cpu" or not request.targets or not built:
        return ""
    return f"Its CUDA extensions are built for {', '.join(request.targets)}, and were not run."


def _unverified(request: Request, built: bool | None) -> str:
    if request.device != "cpu":
        return ""
    return _targeted(request, built) or "CUDA and GPUs were not verified."


def _trained(runs: Sequence[SceneRun], where: str) -> str:
    """How many scenes met their criteria."""
    good = sum(run.passed is True and not run.unreadable for run in runs)
    return f"{good} of {counted(len(runs), 'scene')} trained {where} met all criteria." if runs else ""


def without_floor(runs: Sequence[SceneRun]) -> list[str]:
    """The scenes whose held-out quality was measured, but has no reference to compare with."""
    return [
        run.scene
        for run in runs
        if any(
            item.code == "held-out-quality" and item.outcome is Outcome.NOT_MEASURED for item in run.criteria
        )
    ]


def _highest(proof: tuple[Rung, ...]) -> RungName | None:
    """The highest level below the first failed one."""
    highest = None
    for rung in proof:
        if rung.reached is False:
            break
        if rung.reached:
            highest = rung.name
    return highest


def level_resolved(findings: tuple[Finding, ...], device: str) -> Rung:
    """The lowest level, by the findings for the GPU that ``device`` means."""
    judged = _bearing_on(RungName.RESOLVED, findings)
    if device == "cpu":  # a GPU that is not used refuses nothing
        judged = [item for item in judged if not check_named(item.code).needs_gpu]
    bad = [item.summary for item in judged if item.status in (Status.FAIL, Status.CRASH)]
    if bad:
        return Rung(RungName.RESOLVED, False, "; ".join(bad))
    good = [item.summary for item in judged if item.status is Status.PASS]
    found = "; ".join(good) or "Python and torch are installed"
    limit = "; on the CPU no GPU, driver or toolkit is asked for" if device == "cpu" else ""
    return Rung(RungName.RESOLVED, True, found + limit)


def _bearing_on(rung: RungName, findings: tuple[Finding, ...]) -> list[Finding]:
    return [item for item in findings if check_named(item.code).bears_on is rung]


def built_for(facts: Facts, targets: Sequence[str], device: str) -> Rung | None:
    """Whether the installed extensions carry code for GPUs that are not here; None where none were named, or one is used.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2).
    """
    if device != "cpu" or not targets:
        return None
    # a drop-in that NVRTC would compile at its first call is not built
    found = _built(
        run_checks(make_context(facts, Goal(tuple(map(Arch.parse, targets))))),
        plain=False,
        bad=(Status.FAIL, Status.WARN),
    )
    names = ", ".join(targets)
    if found.reached is None:
        return replace(found, shown_by=f"no CUDA extension was found to judge for {names}")
    if found.reached is False:
        return found
    return replace(found, shown_by=f"{found.shown_by}; built for {names}, not run: no GPU was used")


def _built(findings: tuple[Finding, ...], *, plain: bool, bad: tuple[Status, ...] = (Status.FAIL,)) -> Rung:
    judged = _bearing_on(RungName.BUILT, findings)
    if wrong := [item.summary.rstrip(".") for item in judged if item.status in bad]:
        return Rung(RungName.BUILT, False, "; ".join(wrong))
    good = [item.summary.rstrip(".") for item in judged if item.status is Status.PASS]
    if good:
        return Rung(RungName.BUILT, True, "; ".join(good))
    if later := [item.summary.rstrip(".") for item in judged if item.status is Status.WARN]:
        return Rung(RungName.BUILT, None, "; ".join(later))
    if plain:
        return Rung(RungName.BUILT, None, "everything that ran is plain PyTorch", needed=False)
    return Rung(RungName.BUILT, None, "no GPU to compare the CUDA extensions with")


def _rendered_in_torch(runs: tuple[SceneRun, ...]) -> bool:
    """Every renderer that ran was plain PyTorch, whatever its name."""
    engines = [run.result.get("implementations", {}).get("renderer", {}).get("engine", "") for run in runs]
    return bool(engines) and all(str(engine).startswith("torch-") for engine in engines)


def _loads(kernels: tuple[KernelCheck, ...], scenes: tuple[SceneRun, ...]) -> Rung:
    for run in scenes:
        if parts := run.result.get("implementations"):
            return Rung(
                RungName.LOADS, True, f"imported in the target environment: {', '.join(sorted(parts))}"
            )
    if any(item.implementation for item in kernels):
        return Rung(RungName.LOADS, True, "the kernels were imported in the target environment")
    return Rung(RungName.LOADS, False, "the trainer could not be imported in the target environment")


def _computes(kernels: tuple[KernelCheck, ...]) -> Rung:
    bad = [item for item in kernels if item.outcome is Outcome.FAILED]
    good = [item for item in kernels if item.outcome is Outcome.MET]
    if bad or not good:
        words = [f"{item.name} ({item.implementation}): {item.detail or 'out of tolerance'}" for item in bad]
        return Rung(RungName.COMPUTES, False, "; ".join(words) or "no kernel was checked")
    errors = ", ".join(
        f"{item.implementation} {item.value_error:.1e}"
        + (f" (gradient {item.gradient_error:.1e})" if item.gradient_error is not None else "")
        for item in good
        if item.value_error is not None
    )
    halves = ", ".join(item.implementation for item in good if item.pytorch_half)
    half = f"; of {halves} only their PyTorch half: no GPU ran their CUDA code" if halves else ""
    agree = ", ".join(
        f"{item.implementation} to {_largest(item):.1e}" for item in good if item.own_difference is not None
    )
    together = f"; installed and splatfix's own kernels agree on the same input: {agree}" if agree else ""
    not_run = [f"{item.implementation} ({item.detail})" for item in kernels if item.native_not_measured]
    rest = f"; not measured: {', '.join(not_run)}" if not_run else ""
    return Rung(
        RungName.COMPUTES,
        True,
        f"forward and gradient agree with float64 references: {errors}{half}{together}{rest}",
    )


def _largest(item: KernelCheck) -> float:
    """The larger of a kernel's differences from splatfix's own."""
    return max(item.own_difference or 0.0, item.own_gradient_difference or 0.0)


def _trains(scenes: tuple[SceneRun, ...]) -> Rung:
    bad = [run.scene for run in scenes if run.passed is False]
    if bad:
        return Rung(RungName.TRAINS, False, f"criteria failed for {', '.join(bad)}")
    if not scenes:
        return Rung(RungName.TRAINS, False, "no scene was trained")
    if short := _short(scenes):
        return Rung(RungName.TRAINS, None, f"too short to judge: {short}")
    readable = [run for run in scenes if not run.unreadable]
    psnr = ", ".join(f"{run.scene} {run.result['heldout']['psnr']:.2f} dB" for run in readable)
    unknown = without_floor(scenes)
    limit = f" (no reference PSNR for {', '.join(unknown)})" if unknown else ""
    noted = [run.scene for run in readable if any(note.startswith("throughput-steady") for note in run.notes)]
    limit += f"; throughput-steady not judged for {', '.join(noted)}" if noted else ""
    if len(readable) == len(scenes):
        return Rung(RungName.TRAINS, True, f"all criteria met on all scenes; held-out PSNR: {psnr}{limit}")
    others = f"; all criteria met on the others; held-out PSNR: {psnr}{limit}" if readable else ""
    return Rung(RungName.TRAINS, None, f"cannot be read: {_unread(scenes)}{others}")


def _unread(scenes: Sequence[SceneRun]) -> str:
    return ", ".join(run.scene for run in scenes if run.unreadable)


def _short(scenes: Sequence[SceneRun]) -> str:
    return ", ".join(
        f"{run.scene} ({counted(run.result['iterations'], 'iteration')})"
        for run in scenes
        if run.passed is None
    )


def _reproduces(scenes: tuple[SceneRun, ...], comparison: Comparison | None) -> Rung:
    if comparison is None:
        return Rung(RungName.REPRODUCES, None, "no baseline was given (--baseline)")
    worse, held, open_ = (
        [item for item in comparison.scenes if item.outcome is outcome]
        for outcome in (Outcome.FAILED, Outcome.MET, Outcome.NOT_MEASURED)
    )
    if worse:
        return Rung(RungName.REPRODUCES, False, "; ".join(f"{item.scene}: {item.why}" for item in worse))
    unread = _unread(scenes)
    not_shown = [f"cannot be read: {unread}"] if unread else []
    not_shown += [f"{item.scene}: not comparable: {item.why}" for item in open_]
    words = "; ".join([*not_shown, *map(_beside, held)]) or "no scene was trained"
    return Rung(RungName.REPRODUCES, None if not_shown or not held else True, words)


def _beside(item: SceneComparison) -> str:
    """The judged measures of a scene with the baseline's in brackets."""
    words = ", ".join(
        f"{one.name} {one.now:.4g} (baseline {one.baseline:.4g})"
        for one in item.measures
        if one.outcome is Outcome.MET and one.unit != "B"
    )
    return f"{item.scene} {words}"
