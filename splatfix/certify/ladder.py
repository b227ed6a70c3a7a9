"""The ladder of proof: which rungs a certification reached, which it did not, and on what evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from splatfix.certify.model import KernelCheck, Outcome, SceneRun
from splatfix.checks import Finding, Status
from splatfix.core.proof import Rung, RungName

if TYPE_CHECKING:
    from splatfix.certify.run import Request

_RESOLVING = (
    "interpreter-answers",
    "torch-installed",
    "driver-too-old",
    "torch-arch-unsupported",
    "gpu-without-driver",
    "driver-library-missing",
    "driver-library-mismatch",
)

QUALITY_TOLERANCE = 0.005
"""Relative: held-out PSNR and SSIM within half a percent, the tolerance field reports use."""
SPEED_TOLERANCE = 0.25
"""Relative: iterations per second may fall by a quarter on a shared machine before it counts."""
MEMORY_TOLERANCE = 0.1
"""Relative: peak memory may grow by a tenth (allocator and library versions move it) before it counts."""


def climb(
    findings: tuple[Finding, ...],
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    baseline: Mapping[str, Any] | None,
    renderer: str,
) -> tuple[Rung, ...]:
    """All rungs, lowest first."""
    return (
        _resolved(findings),
        _built(findings, plain=renderer == "torch" or _drew_in_torch(scenes)),
        _loads(kernels, scenes),
        _computes(kernels),
        _trains(scenes),
        _reproduces(scenes, baseline),
    )


def claim(
    proof: tuple[Rung, ...],
    request: Request,
    runs: tuple[SceneRun, ...],
    *,
    refused: bool,
    idle_gpu: str = "",
) -> str:
    """One sentence that says what was shown, and no more."""
    highest = None
    for rung in proof:
        if rung.reached:
            highest = rung.name
        elif rung.reached is False:
            break
    where = "on the CPU" if request.device == "cpu" else f"on {request.device}"
    trained = next(rung.reached for rung in proof if rung.name is RungName.TRAINS)
    if refused and trained and highest in (RungName.TRAINS, RungName.REPRODUCES):
        return (
            f"Refused: this environment trained 3D Gaussians {where}, but does not hold against the baseline."
        )
    shown = f"the highest rung shown is {highest.value!r}" if highest else "no rung was shown"
    if refused:
        return f"Refused: this environment was not shown to train 3D Gaussians {where}; {shown}."
    unreadable = [run.scene for run in runs if run.unreadable]
    if unreadable:
        return (
            f"Whether this environment trains 3D Gaussians {where} on these scenes could not be determined: "
            f"{', '.join(unreadable)} cannot be read. That says nothing about the environment; {shown}."
        )
    limit = " Nothing was shown about CUDA or any GPU." if request.device == "cpu" else ""
    limit += f" {idle_gpu}" if idle_gpu else ""
    by = f"the {request.renderer} renderer"
    if request.renderer != "torch" and _drew_in_torch(runs):
        by = "splatfix's own drop-in for diff_gaussian_rasterization"
    return (
        f"This environment trained {len(runs)} scene(s) of 3D Gaussians {where} with {by}, "
        f"with healthy gradients, densification and {_quality_shown(runs)}.{_left_out(request)}{limit}"
    )


def _quality_shown(runs: tuple[SceneRun, ...]) -> str:
    """Only a scene with a documented floor shows how good the result is; any other that it got better."""
    unknown = without_floor(runs)
    if not unknown:
        return "held-out quality"
    return f"rising held-out PSNR; how good it should be is not known for {', '.join(unknown)}"


def without_floor(runs: tuple[SceneRun, ...]) -> list[str]:
    """The scenes whose held-out quality was measured but could not be judged."""
    return [
        run.scene
        for run in runs
        if any(
            item.code == "held-out-quality" and item.outcome is Outcome.NOT_MEASURED for item in run.criteria
        )
    ]


def _left_out(request: Request) -> str:
    count = len(request.suite.skipped)
    return f" {count} scene(s) were looked for and skipped: they are listed." if count else ""


def _resolved(findings: tuple[Finding, ...]) -> Rung:
    looked = [item for item in findings if item.code in _RESOLVING]
    bad = [item for item in looked if item.status in (Status.FAIL, Status.CRASH)]
    if bad:
        return Rung(RungName.RESOLVED, False, "; ".join(item.summary for item in bad))
    shown = "; ".join(item.summary for item in looked if item.status is Status.PASS)
    return Rung(RungName.RESOLVED, True, shown or "Python and torch are there")


def _drew_in_torch(runs: tuple[SceneRun, ...]) -> bool:
    """Every renderer that ran was plain PyTorch, whatever the name it was asked for by."""
    ran = [run.result.get("implementations", {}).get("renderer", {}).get("engine", "") for run in runs]
    return bool(ran) and all(str(engine).startswith("torch-") for engine in ran)


def _built(findings: tuple[Finding, ...], *, plain: bool) -> Rung:
    judged = [item for item in findings if item.code in ("no-kernel-image", "ptx-newer-than-driver")]
    bad = [item for item in judged if item.status is Status.FAIL]
    if bad:
        return Rung(RungName.BUILT, False, "; ".join(item.summary for item in bad))
    good = [item for item in judged if item.status is Status.PASS]
    if good:
        return Rung(RungName.BUILT, True, "; ".join(item.summary for item in good))
    if plain:
        return Rung(
            RungName.BUILT, None, "not needed: every part that ran is plain PyTorch, nothing native was built"
        )
    return Rung(RungName.BUILT, None, "no GPU here to judge the native extensions for")


def _loads(kernels: tuple[KernelCheck, ...], scenes: tuple[SceneRun, ...]) -> Rung:
    trained = [run for run in scenes if run.result.get("implementations")]
    if trained:
        parts = ", ".join(sorted(trained[0].result["implementations"]))
        return Rung(RungName.LOADS, True, f"imported in a child of the target environment: {parts}")
    if any(item.implementation for item in kernels):
        return Rung(RungName.LOADS, True, "the kernels were imported in a child of the target environment")
    return Rung(RungName.LOADS, False, "the trainer's parts could not be imported in the target environment")


def _computes(kernels: tuple[KernelCheck, ...]) -> Rung:
    bad = [item for item in kernels if item.outcome is Outcome.FAILED]
    good = [item for item in kernels if item.outcome is Outcome.MET]
    if bad or not good:
        words = [
            f"{item.name} ({item.implementation}): {item.detail or 'outside its tolerance'}" for item in bad
        ]
        return Rung(RungName.COMPUTES, False, "; ".join(words) or "nothing was checked")
    worst = ", ".join(
        f"{item.implementation} {item.value_error:.1e}"
        + (f" (gradient {item.gradient_error:.1e})" if item.gradient_error is not None else "")
        for item in good
        if item.value_error is not None
    )
    idle = [item.implementation for item in kernels if item.native_not_run]
    rest = f"; not run: {', '.join(idle)} (CUDA extensions; they run only on a GPU)" if idle else ""
    return Rung(RungName.COMPUTES, True, f"forward and gradient agree with float64 references: {worst}{rest}")


def _trains(scenes: tuple[SceneRun, ...]) -> Rung:
    bad = [run.scene for run in scenes if not run.passed]
    if bad or not scenes:
        return Rung(
            RungName.TRAINS, False, f"criteria failed for {', '.join(bad)}" if bad else "no scene was trained"
        )
    readable = tuple(run for run in scenes if not run.unreadable)
    words = ", ".join(f"{run.scene} {run.result['heldout']['psnr']:.2f} dB" for run in readable)
    unknown = without_floor(scenes)
    limit = f" (no floor known for {', '.join(unknown)})" if unknown else ""
    if len(readable) < len(scenes):
        others = f"; every criterion met on the others; held-out PSNR: {words}{limit}" if readable else ""
        return Rung(RungName.TRAINS, None, f"{_not_read(scenes)}{others}")
    return Rung(RungName.TRAINS, True, f"every criterion met on every scene; held-out PSNR: {words}{limit}")


def _not_read(scenes: tuple[SceneRun, ...]) -> str:
    return f"{', '.join(run.scene for run in scenes if run.unreadable)} cannot be read"


def _reproduces(scenes: tuple[SceneRun, ...], baseline: Mapping[str, Any] | None) -> Rung:
    if baseline is None:
        return Rung(RungName.REPRODUCES, None, "no stored baseline was given (--baseline)")
    stored = baseline.get("scenes", ())
    earlier = {
        run["scene"]: run.get("result", {}) for run in stored if isinstance(run, Mapping) and "scene" in run
    }
    problems: list[str] = []
    compared: list[str] = []
    readable = tuple(run for run in scenes if not run.unreadable)
    for run in readable:
        now, then = _measures(run.result), _measures(earlier.get(run.scene, {}))
        if not now or not then:
            problems.append(f"{run.scene}: {'no measurement' if then else 'not in the baseline'}")
            continue
        trained, before = _conditions(run.result), _conditions(earlier[run.scene])
        if trained != before:
            problems.append(f"{run.scene}: not comparable: {trained}, the baseline {before}")
            continue
        problems += [f"{run.scene}: {problem}" for problem in _worse(now, then)]
        compared.append(
            f"{run.scene} {now['psnr']:.2f} dB against {then['psnr']:.2f}, {now['speed']:.2f} it/s against {then['speed']:.2f}"
        )
    if problems:
        return Rung(RungName.REPRODUCES, False, "; ".join(problems))
    if len(readable) < len(scenes):
        return Rung(RungName.REPRODUCES, None, "; ".join([_not_read(scenes), *compared]))
    return Rung(RungName.REPRODUCES, True, "; ".join(compared))


def _conditions(result: Mapping[str, Any]) -> str:
    """How long, how large and by which strategy a scene trained: only equal ones can be held against each other."""
    asked = result.get("asked")
    strategy = asked.get("strategy") if isinstance(asked, Mapping) else None
    return (
        f"{result.get('iterations')} iterations at size {result.get('resolution')} with strategy {strategy}"
    )


def _measures(result: Mapping[str, Any]) -> dict[str, float]:
    """What is compared, from a trainer's result; empty when any of it is missing."""
    try:
        peak = (
            result["peaks"]["cuda"]["train"]["allocated"]
            if result["peaks"].get("cuda")
            else result["peaks"]["rss"]
        )
        return {
            "psnr": float(result["heldout"]["psnr"]),
            "ssim": float(result["heldout"]["ssim"]),
            "speed": float(result["iterations_per_second"]),
            "memory": float(peak),
        }
    except (KeyError, TypeError, ValueError):
        return {}


def _worse(now: Mapping[str, float], then: Mapping[str, float]) -> list[str]:
    problems = [
        f"held-out {name} {now[name]:.4g} below the baseline's {then[name]:.4g} (tolerance {QUALITY_TOLERANCE:.1%})"
        for name in ("psnr", "ssim")
        if now[name] < then[name] * (1 - QUALITY_TOLERANCE)
    ]
    if now["speed"] < then["speed"] * (1 - SPEED_TOLERANCE):
        problems.append(
            f"{now['speed']:.2f} it/s, the baseline had {then['speed']:.2f} "
            f"(tolerance {SPEED_TOLERANCE:.0%}; other work on the machine counts too)"
        )
    if now["memory"] > then["memory"] * (1 + MEMORY_TOLERANCE):
        problems.append(
            f"peak memory {now['memory'] / 2**20:.0f} MiB, the baseline had {then['memory'] / 2**20:.0f} "
            f"(tolerance {MEMORY_TOLERANCE:.0%})"
        )
    return problems
