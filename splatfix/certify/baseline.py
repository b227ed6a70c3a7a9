"""Each scene beside a baseline: an earlier certificate, or published figures. Only like is held against like.

``certify --baseline`` and ``report diff`` both ask here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from smoke_trainer.data.find import PUBLIC_SCENES
from smoke_trainer.record import HostPeaks, TrainingRecord
from splatfix.certify.model import (
    Certificate,
    Compared,
    Comparison,
    Outcome,
    SceneComparison,
    SceneRun,
)
from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
from splatfix.knowledge.published import Method, methods

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
HELD_OUT_EVERY = 8
"""Of the views in the order of their names, as in mip-NeRF 360 and in every published figure here."""
_GB = 1 << 30
"""Bytes of what gsplat's benchmark writes as GB (torch's peak divided by 1024 ** 3)."""
_UNITS = {"speed": "it/s", "train-memory": "B", "eval-memory": "B", "psnr": "dB", "ssim": "", "lpips": ""}
"""What is compared, in the order in which it is shown."""
_NEEDED = ("speed", "train-memory", "psnr", "ssim")
"""A run without one of these measured nothing that can be compared."""
_NOT_JUDGED = {
    "lpips": "shown only: how far seeds lie apart was not measured",
    "eval-memory": "shown only: the criterion evaluation-memory judges it",
}


def require_alike(path: Path, earlier: Certificate, renderer: str, device: str) -> None:
    """Refuse a certificate as a baseline that trained no scene, or with another renderer or on another device.

    Raises:
        SplatfixError: ``another-baseline`` (exit code 2).
    """
    if not earlier.scenes:
        reason = "ended before a scene was trained"
        if earlier.level in (1, 2):
            reason = f"is of run level {earlier.level}, which trains nothing"
        raise SplatfixError.of("certify.another-baseline", path=path, reason=reason)
    if (earlier.renderer, earlier.device) != (renderer, device):
        then, asked = f"{earlier.renderer} on {earlier.device}", f"{renderer} on {device}"
        raise SplatfixError.of("certify.unlike-baseline", path=path, earlier=then, asked=asked)


def compare(
    scenes: Sequence[SceneRun], baseline: Certificate | None, published: str = ""
) -> Comparison | None:
    """Compare what was trained with an earlier certificate, or with the published figures of a name, which win; None without
    either.

    Raises:
        KeyError: there are no published figures of that name.
    """
    readable = [run for run in scenes if not run.unreadable]
    if published:
        method = methods()[published]
        rows = tuple(_beside_published(run, method) for run in readable)
        return Comparison(published, f"{method.title}: {method.source}", rows)
    if baseline is None:
        return None
    stored = {run.scene: run.record for run in baseline.scenes}
    rows = tuple(_beside_earlier(run, stored.get(run.scene, TrainingRecord())) for run in readable)
    return Comparison("", f"an earlier certificate, issued {baseline.issued}", rows)


def _beside_earlier(run: SceneRun, earlier: TrainingRecord) -> SceneComparison:
    now, then = _measures(run.record), _measures(earlier)
    if any(now[name] is None for name in _NEEDED):
        obstacle = "no measurement"
    elif any(then[name] is None for name in _NEEDED):
        obstacle = "not in the baseline"
    elif _conditions(run.record) != _conditions(earlier):
        obstacle = f"not comparable: {_conditions(run.record)}, the baseline {_conditions(earlier)}"
    else:
        # speed and memory say something on the same GPU only; on the CPU, on the same model with as many cores
        here, there = _machine(run.record), _machine(earlier)
        unlike = f"another machine: {here or 'not known'}, the baseline's {there or 'not known'}"
        if here and here == there:
            unlike = ""
        return _judged(run.scene, now, then, quality_tolerance(run.record), unlike)
    # whoever gives a certificate asks for that comparison: that it cannot be made is a failure
    return SceneComparison(run.scene, Outcome.FAILED, _shown(now, then, obstacle), obstacle)


def _beside_published(run: SceneRun, method: Method) -> SceneComparison:
    figures, now = method.scenes.get(run.scene), _measures(run.record)
    if figures is None:
        obstacle = f"{method.name} has no figures of it"
        return SceneComparison(run.scene, Outcome.NOT_MEASURED, _shown(now, {}, obstacle), obstacle)
    then = {
        "speed": figures.seconds and method.iterations / figures.seconds,
        "train-memory": figures.train_gb and figures.train_gb * _GB,
        "eval-memory": None,
        "psnr": figures.psnr,
        "ssim": figures.ssim,
        # LPIPS of another network is another measure
        "lpips": figures.lpips if method.lpips == "vgg" else None,
    }
    if obstacle := method.differs or _other_conditions(run, method):
        return SceneComparison(run.scene, Outcome.NOT_MEASURED, _shown(now, then, obstacle), obstacle)
    if now["psnr"] is None:
        return SceneComparison(run.scene, Outcome.FAILED, _shown(now, then, ""), "no measurement")
    gpu, renderer = run.record.machine.gpu, run.record.config.renderer
    unlike = ""
    if gpu != method.gpu:
        unlike = f"another machine: {gpu or 'no GPU'}, the source's {method.gpu}"
    elif renderer != method.renderer:
        unlike = f"another renderer: {renderer}, the source's {method.renderer}"
    return _judged(run.scene, now, then, QUALITY_TOLERANCE, unlike)


def _other_conditions(run: SceneRun, method: Method) -> str:
    """In which conditions a training differs from a method's; "" where in none."""
    config, done = run.record.config, run.record.iterations
    train, test = len(run.record.split.train), len(run.record.split.test)
    divisor = PUBLIC_SCENES[run.scene].divisor
    differences = []
    if done != method.iterations:
        differences.append(f"{counted(done or 0, 'iteration')}, the source {method.iterations}")
    if config.resolution != divisor:
        differences.append(f"--resolution {config.resolution}, the source {divisor}")
    if config.strategy != method.strategy:
        differences.append(f"strategy {config.strategy}, the source {method.strategy}")
    if test != -(-(train + test) // HELD_OUT_EVERY):
        views = counted(train + test, "view")
        differences.append(f"{test} of {views} held out, the source every {HELD_OUT_EVERY}th")
    return "; ".join(differences)


def _judged(
    scene: str,
    now: Mapping[str, float | None],
    then: Mapping[str, float | None],
    quality: float,
    unlike: str,
) -> SceneComparison:
    """Judge every measure; ``quality`` is the relative tolerance of PSNR and SSIM, ``unlike`` says why speed and memory are not
    judged."""
    tolerances = {
        "psnr": quality,
        "ssim": quality,
        "speed": SPEED_TOLERANCE,
        "train-memory": MEMORY_TOLERANCE,
    }
    obstacles = {**_NOT_JUDGED, "speed": unlike, "train-memory": unlike}
    measures = []
    for name, unit in _UNITS.items():
        new, old = now[name], then[name]
        outcome, tolerance, reason = Outcome.NOT_MEASURED, None, obstacles.get(name, "")
        if new is None:
            reason = "not measured"
        elif old is None:
            reason = "the baseline does not have it"
        elif not reason:
            tolerance = tolerances[name]
            reason = _regression(name, new, old, tolerance)
            outcome = Outcome.FAILED if reason else Outcome.MET
        measures.append(Compared(name, unit, new, old, outcome, tolerance, reason))
    regressions = [item.why for item in measures if item.outcome is Outcome.FAILED]
    outcome = Outcome.FAILED if regressions else Outcome.MET
    return SceneComparison(scene, outcome, tuple(measures), "; ".join(regressions))


def _shown(
    now: Mapping[str, float | None], then: Mapping[str, float | None], obstacle: str
) -> tuple[Compared, ...]:
    """Measures beside each other, none judged."""
    return tuple(
        Compared(name, unit, now[name], then.get(name), Outcome.NOT_MEASURED, None, obstacle)
        for name, unit in _UNITS.items()
    )


def _regression(name: str, now: float, then: float, tolerance: float) -> str:
    """How far a measure is worse than tolerated; "" where it is not. Of memory, less is better."""
    if name == "train-memory":
        if now <= then * (1 + tolerance):
            return ""
        sizes = f"peak memory {now / 2**20:.0f} MiB, baseline {then / 2**20:.0f} MiB"
        return f"{sizes} (tolerance {tolerance:.0%})"
    if now >= then * (1 - tolerance):
        return ""
    if name == "speed":
        limit = f"(tolerance {tolerance:.0%}; other load on the machine counts too)"
        return f"{now:.2f} it/s, baseline {then:.2f} {limit}"
    return f"held-out {name} {now:.4g}, baseline {then:.4g} (tolerance {tolerance:.1%})"


def _conditions(record: TrainingRecord) -> str:
    """Length, size and strategy of a training: only equal ones can be compared."""
    size = record.resolution
    length = counted(record.iterations or 0, "iteration")
    return f"{length} at size {size} with strategy {record.config.strategy}"


def _machine(record: TrainingRecord) -> str:
    machine = record.machine
    if machine.gpu:
        return machine.gpu
    if machine.cpu and machine.cores:
        return f"{machine.cpu}, {counted(machine.cores, 'core')}"
    return ""


def _measures(record: TrainingRecord) -> dict[str, float | None]:
    """What is compared, from a trainer's result; memory in bytes, allocated on the GPU or resident."""
    memory, quality = record.memory, record.heldout
    train: float | None = memory.rss
    evaluation: float | None = (memory.host or HostPeaks()).eval
    if memory.cuda:
        train, evaluation = memory.cuda.train.allocated, memory.cuda.eval.allocated
    return {
        "speed": record.iterations_per_second,
        "train-memory": train,
        "eval-memory": evaluation,
        "psnr": quality.psnr,
        "ssim": quality.ssim,
        "lpips": quality.lpips,
    }


def quality_tolerance(record: TrainingRecord) -> float:
    """How far PSNR and SSIM of a run may lie below those of an equal one, relative."""
    if record.memory.cuda is not None and (record.iterations or 0) < _SHORT:
        return SHORT_QUALITY_TOLERANCE
    return QUALITY_TOLERANCE
