"""What a certificate says in a few sentences: what was verified, and what was not."""

from collections.abc import Sequence

from splatfix.certify.levels import rendered_in_torch, too_short, unreadable, without_floor
from splatfix.certify.model import OF_RESOURCES, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.certify.run_levels import TRAINS_FROM, on
from splatfix.certify.subject import SmokeSubject
from splatfix.core.proof import Rung, RungName

MODULES = {"inria": "diff_gaussian_rasterization", "gsplat": "gsplat"}
"""The package that each renderer calls; ``torch`` calls splatfix's own."""
_OPENINGS = {
    Verdict.CERTIFIED: "This environment trains 3D Gaussians {where} with {renderer}: gradients, densification and held-out "
    "views are as they must be.",
    Verdict.NOT_CERTIFIED: "Training 3D Gaussians {where} was not verified.",
    Verdict.UNDETERMINED: "Training 3D Gaussians {where} is undetermined.",
}
_TRAINS_ALL_THE_SAME = (
    "This environment trains 3D Gaussians {where}, but something else of it failed: {failed}."
)


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
    reached = {rung.name: rung.reached for rung in proof}
    facts: dict[str, str] = {"Left open": "; ".join(left_open)}
    opening = ""
    if (subject.request.level or TRAINS_FROM) >= TRAINS_FROM:
        opening = _OPENINGS[verdict]
        failed = [rung.name for rung in proof if rung.reached is False]
        beside = "what is installed, and did not train"
        if RungName.REPRODUCES in failed:
            beside = "speed, memory or quality beside the baseline"
        if (
            verdict is Verdict.NOT_CERTIFIED
            and reached[RungName.TRAINS]
            and not set(failed) - {RungName.REPRODUCES}
        ):
            opening = _TRAINS_ALL_THE_SAME
        facts |= {
            "Levels reached": ", ".join(rung.name.value for rung in proof if rung.reached) or "none",
            "Cannot be read, which says nothing about the environment": unreadable(runs),
            "Too short to judge": too_short(runs),
            "Failed, of time and memory alone": _of_resources(runs),
            "Scenes that met every criterion": _good(runs),
            "No reference PSNR": ", ".join(without_floor(runs)),
            "Skipped": ", ".join(item.scene for item in subject.suite.skipped),
            "With reservations": ", ".join(run.scene for run in runs if run.record.notes),
            "Installed, and not trained": ", ".join(_not_trained(subject, kernels)),
        }
        where = on(subject.device)
        opening = opening.format(where=where, renderer=_renderer(subject, runs), failed=beside)
    if built is not None and built.reached:
        targets = ", ".join(arch.sm for arch in subject.targets)
        facts[f"CUDA extensions are built for {targets}"] = "not run"
    elif opening and subject.device == "cpu":
        facts["Not verified"] = "CUDA and GPUs"
    if subject.published and reached[RungName.REPRODUCES] is None:
        facts["Not held against"] = f"{subject.published}, whose conditions differ"
    sentences = [f"{name}: {value}." for name, value in facts.items() if value]
    return " ".join(filter(None, [opening, *sentences, idle_gpu]))


def _renderer(subject: SmokeSubject, runs: Sequence[SceneRun]) -> str:
    module = MODULES.get(subject.request.renderer)
    if module is None:
        return "splatfix's own rasterizer in plain PyTorch"
    if rendered_in_torch(runs):
        return f"splatfix's drop-in for {module}"
    return f"the installed {module}"


def _good(runs: Sequence[SceneRun]) -> str:
    return ", ".join(run.scene for run in runs if run.passed is True and not run.unreadable)


def _of_resources(runs: Sequence[SceneRun]) -> str:
    """Return what failed where that is nothing of what was learned, and all else was judged."""
    failed = {run.scene: [item.code for item in run.failed] for run in runs}
    codes = {code for scene in failed.values() for code in scene}
    outcomes = {item.outcome for run in runs for item in run.criteria}
    if not codes or not codes <= OF_RESOURCES or Outcome.UNDETERMINED in outcomes or unreadable(runs):
        return ""
    return "; ".join(f"{scene}: {', '.join(its)}" for scene, its in failed.items() if its)


def _not_trained(subject: SmokeSubject, kernels: Sequence[KernelCheck]) -> dict[str, None]:
    """Return the installed rasterizers beside the one that trained."""
    drawing = [item for item in kernels if item.name in ("rasterizer", "gsplat")]
    modules = [item.implementation.partition(".")[0] for item in drawing if item.kind not in ("", "ours")]
    return dict.fromkeys(name for name in modules if name != MODULES.get(subject.request.renderer))
