"""The levels of proof: which of them a certification verified, on what evidence, and the summary that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splatfix.certify.model import KernelCheck, Outcome, Request, SceneRun, Verdict
from splatfix.checks import Finding, Status
from splatfix.core.proof import Rung, RungName
from splatfix.core.words import counted

QUALITY_TOLERANCE = 0.005
"""Relative: held-out PSNR and SSIM may fall by half a percent. On the CPU two runs of one seed are equal; of full trainings
on a GPU it is what several seeds are said to differ by, which was not measured here."""
SHORT_QUALITY_TOLERANCE = 0.05
"""The same for short runs on a GPU. Atomics add gradients in an order that changes, and densification, which compares them
with a threshold, carries that on: with noise of that size runs of the quick suite and one seed lay up to 4.5 % apart in PSNR
and 2.1 % in SSIM (tests/records/seed_spread.json)."""
_SHORT = 1000
"""Iterations; the samples' presets have 200 and 300."""
SPEED_TOLERANCE = 0.25
"""Relative: iterations per second may fall by a quarter on a shared machine."""
MEMORY_TOLERANCE = 0.1
"""Relative: peak memory may grow by a tenth (allocator and library versions change it)."""

_RESOLVED_BY = (
    "interpreter-broken",
    "torch-missing",
    "driver-too-old",
    "torch-arch-unsupported",
    "gpu-without-driver",
    "driver-library-missing",
    "driver-library-mismatch",
    "cuda-does-not-start",
    "forward-compat-on-geforce",
    "no-gpu-visible",
)
_OF_ANY_DEVICE = ("interpreter-broken", "torch-missing")
"""What a training on the CPU needs of the above: a GPU that is not used refuses nothing."""
_BUILT_BY = ("no-kernel-image", "ptx-newer-than-driver")


def evaluate(
    findings: tuple[Finding, ...],
    kernels: tuple[KernelCheck, ...],
    scenes: tuple[SceneRun, ...],
    baseline: Mapping[str, Any] | None,
    renderer: str,
    device: str,
) -> tuple[Rung, ...]:
    """All levels, lowest first; ``findings`` are those for the GPU that ``device`` means."""
    cpu = device == "cpu"
    return (
        _resolved(findings, _OF_ANY_DEVICE if cpu else _RESOLVED_BY),
        _built(() if cpu else findings, plain=renderer == "torch" or _rendered_in_torch(scenes)),
        _loads(kernels, scenes),
        _computes(kernels),
        _trains(scenes),
        _reproduces(scenes, baseline),
    )


def failures(
    kernels: tuple[KernelCheck, ...], scenes: tuple[SceneRun, ...], proof: tuple[Rung, ...]
) -> tuple[str, ...]:
    """Why an environment is not certified: failed kernels and criteria, and where none failed, failed levels."""
    reasons = [
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
) -> str:
    """What was verified and what was not, in a sentence or two."""
    where = "on the CPU" if request.device == "cpu" else f"on {request.device}"
    levels = {rung.name: rung.reached for rung in proof}
    highest = _highest(proof)
    level = f"highest level verified: {highest.value if highest else 'none'}"
    if verdict is Verdict.NOT_CERTIFIED:
        if levels[RungName.TRAINS] and highest in (RungName.TRAINS, RungName.REPRODUCES):
            return f"This environment trains 3D Gaussians {where}, but regressed against the baseline."
        return f"Training 3D Gaussians {where} was not verified; {level}."
    if verdict is Verdict.UNDETERMINED:
        unread, short = _unread(runs), _short(runs)
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
    noted = [run.scene for run in runs if run.result.get("notes")]
    sentences = [
        f"This environment trained {counted(len(runs), 'scene')} of 3D Gaussians {where} with {renderer}, "
        f"with healthy gradients, densification and {quality}.",
        f"Skipped: {counted(skipped, 'scene')}." if skipped else "",
        f"With reservations: {', '.join(noted)}." if noted else "",
        "CUDA and GPUs were not verified." if request.device == "cpu" else "",
        idle_gpu,
    ]
    return " ".join(filter(None, sentences))


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


def _resolved(findings: tuple[Finding, ...], codes: Sequence[str]) -> Rung:
    judged = [item for item in findings if item.code in codes]
    bad = [item.summary for item in judged if item.status in (Status.FAIL, Status.CRASH)]
    if bad:
        return Rung(RungName.RESOLVED, False, "; ".join(bad))
    good = [item.summary for item in judged if item.status is Status.PASS]
    return Rung(RungName.RESOLVED, True, "; ".join(good) or "Python and torch are installed")


def _built(findings: tuple[Finding, ...], *, plain: bool) -> Rung:
    judged = [item for item in findings if item.code in _BUILT_BY]
    bad = [item.summary for item in judged if item.status is Status.FAIL]
    if bad:
        return Rung(RungName.BUILT, False, "; ".join(bad))
    good = [item.summary for item in judged if item.status is Status.PASS]
    if good:
        return Rung(RungName.BUILT, True, "; ".join(good))
    if plain:
        return Rung(RungName.BUILT, None, "not needed: everything that ran is plain PyTorch")
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
    not_run = [f"{item.implementation} ({item.detail})" for item in kernels if item.native_not_measured]
    rest = f"; not measured: {', '.join(not_run)}" if not_run else ""
    return Rung(
        RungName.COMPUTES, True, f"forward and gradient agree with float64 references: {errors}{rest}"
    )


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


def _reproduces(scenes: tuple[SceneRun, ...], baseline: Mapping[str, Any] | None) -> Rung:
    if baseline is None:
        return Rung(RungName.REPRODUCES, None, "no baseline was given (--baseline)")
    stored = {
        run["scene"]: run.get("result", {})
        for run in baseline.get("scenes", ())
        if isinstance(run, Mapping) and "scene" in run
    }
    problems: list[str] = []
    compared: list[str] = []
    for run in scenes:
        if run.unreadable:
            continue
        earlier = stored.get(run.scene, {})
        now, then = _measures(run.result), _measures(earlier)
        if not now or not then:
            problems.append(f"{run.scene}: {'no measurement' if then else 'not in the baseline'}")
        elif _conditions(run.result) != _conditions(earlier):
            problems.append(
                f"{run.scene}: not comparable: {_conditions(run.result)}, the baseline {_conditions(earlier)}"
            )
        else:
            allowed = quality_tolerance(run.result)
            problems += [f"{run.scene}: {problem}" for problem in _regressions(now, then, allowed)]
            compared.append(
                f"{run.scene} {now['psnr']:.2f} dB (baseline {then['psnr']:.2f}), "
                f"{now['speed']:.2f} it/s ({then['speed']:.2f})"
            )
    if problems:
        return Rung(RungName.REPRODUCES, False, "; ".join(problems))
    if unread := _unread(scenes):
        return Rung(RungName.REPRODUCES, None, "; ".join([f"cannot be read: {unread}", *compared]))
    return Rung(RungName.REPRODUCES, True, "; ".join(compared))


def _conditions(result: Mapping[str, Any]) -> str:
    """Length, size and strategy of a training: only equal ones can be compared."""
    asked = result.get("config")
    strategy = asked.get("strategy") if isinstance(asked, Mapping) else None
    return f"{counted(result.get('iterations') or 0, 'iteration')} at size {result.get('resolution')} with strategy {strategy}"


def _measures(result: Mapping[str, Any]) -> dict[str, float]:
    """What is compared, from a trainer's result; empty when any of it is missing."""
    try:
        cuda = result["memory"].get("cuda")
        return {
            "psnr": float(result["heldout"]["psnr"]),
            "ssim": float(result["heldout"]["ssim"]),
            "speed": float(result["iterations_per_second"]),
            "memory": float(cuda["train"]["allocated"] if cuda else result["memory"]["rss"]),
        }
    except (KeyError, TypeError, ValueError):
        return {}


def quality_tolerance(result: Mapping[str, Any]) -> float:
    """How far PSNR and SSIM of a run may lie below those of an equal one, relative."""
    short = result["iterations"] < _SHORT and result["memory"].get("cuda")
    return SHORT_QUALITY_TOLERANCE if short else QUALITY_TOLERANCE


def _regressions(now: Mapping[str, float], then: Mapping[str, float], allowed: float) -> list[str]:
    problems = [
        f"held-out {name} {now[name]:.4g}, baseline {then[name]:.4g} (tolerance {allowed:.1%})"
        for name in ("psnr", "ssim")
        if now[name] < then[name] * (1 - allowed)
    ]
    if now["speed"] < then["speed"] * (1 - SPEED_TOLERANCE):
        problems.append(
            f"{now['speed']:.2f} it/s, baseline {then['speed']:.2f} "
            f"(tolerance {SPEED_TOLERANCE:.0%}; other load on the machine counts too)"
        )
    if now["memory"] > then["memory"] * (1 + MEMORY_TOLERANCE):
        problems.append(
            f"peak memory {now['memory'] / 2**20:.0f} MiB, baseline {then['memory'] / 2**20:.0f} MiB "
            f"(tolerance {MEMORY_TOLERANCE:.0%})"
        )
    return problems
