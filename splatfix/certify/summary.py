"""What a certificate says in a sentence or two: what was verified, and what was not."""

from collections.abc import Sequence

from splatfix.certify.levels import highest_of, rendered_in_torch, too_short, unreadable, without_floor
from splatfix.certify.model import OF_RESOURCES, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.certify.run_levels import TRAINS_FROM, on
from splatfix.certify.subject import SmokeSubject
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted

MODULES = {"inria": "diff_gaussian_rasterization", "gsplat": "gsplat"}
"""The package that each renderer calls; ``torch`` calls splatfix's own."""


def summarize(
    verdict: Verdict,
    proof: Sequence[Rung],
    subject: SmokeSubject,
    runs: tuple[SceneRun, ...],
    kernels: tuple[KernelCheck, ...] = (),
    built: Rung | None = None,
    idle_gpu: str = "",
    left_open: tuple[str, ...] = (),
) -> str:
    """Sum up a run of the smoke trainer; ``built`` is of GPUs that are not here, ``left_open`` what could not be judged."""
    where = on(subject.device)
    reached = {rung.name: rung.reached for rung in proof}
    if (subject.request.level or TRAINS_FROM) < TRAINS_FROM:  # its opening has said the rest
        why = _because(left_open) if verdict is Verdict.UNDETERMINED else ""
        return f"{why} {idle_gpu}".strip()
    if verdict is Verdict.NOT_CERTIFIED:
        sentences = [_refused(proof, runs, where), _built_for(subject, built)]
    elif verdict is Verdict.UNDETERMINED:
        sentences = [_undetermined(proof, runs, where, left_open)]
    else:
        module = MODULES.get(subject.request.renderer)
        renderer = f"the installed {module}"
        if module is None:
            renderer = "splatfix's own rasterizer in plain PyTorch"
        elif rendered_in_torch(runs):
            renderer = f"splatfix's drop-in for {module}"
        quality = "held-out quality"
        if unknown := without_floor(runs):
            quality = f"rising held-out PSNR (no reference PSNR for {', '.join(unknown)})"
        sentences = [
            f"This environment trained {counted(len(runs), 'scene')} of 3D Gaussians {where} with {renderer}, "
            f"with healthy gradients, densification and {quality}."
        ]
        skipped = len(subject.suite.skipped)
        if skipped:
            sentences.append(f"Skipped: {counted(skipped, 'scene')}.")
        if noted := [run.scene for run in runs if run.record.notes]:
            sentences.append(f"With reservations: {', '.join(noted)}.")
        drawing = [item for item in kernels if item.name in ("rasterizer", "gsplat")]
        modules = [item.implementation.partition(".")[0] for item in drawing if item.kind not in ("", "ours")]
        if names := dict.fromkeys(name for name in modules if name != module):
            sentences.append(f"Installed, and not trained: {', '.join(names)}.")
        if subject.device == "cpu":
            sentences.append(_built_for(subject, built) or "CUDA and GPUs were not verified.")
        if subject.published and reached[RungName.REPRODUCES] is None:
            sentences.append(f"It was not held against {subject.published}, whose conditions differ.")
        sentences.append(idle_gpu)
    return " ".join(filter(None, sentences))


def _undetermined(
    proof: Sequence[Rung], runs: tuple[SceneRun, ...], where: str, left_open: tuple[str, ...]
) -> str:
    if left_open:
        met = ""
        if runs:
            good = sum(run.passed is True and not run.unreadable for run in runs)
            met = f" {good} of {counted(len(runs), 'scene')} trained {where} met all criteria."
        return f"{_because(left_open)}{met}"
    level = "highest level verified: none"
    if highest := highest_of(proof):
        level = f"highest level verified: {highest.value}"
    reasons = []
    if names := unreadable(runs):
        reasons.append(f"scenes cannot be read: {names}")
    if short := too_short(runs):
        reasons.append(f"runs were too short to judge: {short}")
    if not reasons:
        return f"Training 3D Gaussians {where} was not judged; {level}."
    return (
        f"Training 3D Gaussians {where} is undetermined, because {', and '.join(reasons)}. "
        f"This says nothing about the environment; {level}."
    )


def _because(left_open: tuple[str, ...]) -> str:
    return f"It is undetermined, because of {'; '.join(left_open)}."


def _refused(proof: Sequence[Rung], runs: Sequence[SceneRun], where: str) -> str:
    """What an environment that is not certified does all the same, and the levels that it reached."""
    reached = {rung.name: rung.reached for rung in proof}
    trains, computes = reached[RungName.TRAINS], reached[RungName.COMPUTES]
    if trains and highest_of(proof) in (RungName.TRAINS, RungName.REPRODUCES):
        but = "not all that is installed is right"
        if reached[RungName.REPRODUCES] is False:
            but = "regressed against the baseline"
        return f"This environment trains 3D Gaussians {where}, but {but}."
    names = ", ".join(rung.name.value for rung in proof if rung.reached)
    levels = f"levels reached: {names or 'none'}"
    failed = {run.scene: [item.code for item in run.failed] for run in runs}
    codes = {code for scene in failed.values() for code in scene}
    outcomes = {item.outcome for run in runs for item in run.criteria}
    judged = Outcome.UNDETERMINED not in outcomes and not unreadable(runs)
    if computes and codes and codes <= OF_RESOURCES and judged:
        listed = "; ".join(f"{scene}: {', '.join(its)}" for scene, its in failed.items() if its)
        return (
            f"This environment trained {counted(len(runs), 'scene')} of 3D Gaussians {where}, and no criterion of learning "
            f"failed, but some of time and memory did ({listed}); {levels}."
        )
    return f"Training 3D Gaussians {where} was not verified; {levels}."


def _built_for(subject: SmokeSubject, built: Rung | None) -> str:
    """That the extensions are built for the GPUs that were named; "" where they are not, or none were."""
    if built is None or not built.reached:
        return ""
    targets = ", ".join(arch.sm for arch in subject.targets)
    return f"Its CUDA extensions are built for {targets}, and were not run."
