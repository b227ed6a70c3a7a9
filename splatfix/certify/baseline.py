"""Each scene beside a baseline: an earlier certificate, or published figures. Only like is held against like.

``certify --baseline`` and ``report diff`` both ask here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from smoke_trainer.data.find import PUBLIC_SCENES
from smoke_trainer.record import TrainingRecord
from splatfix.certify.model import Certificate, Compared, Comparison, Outcome, SceneComparison, SceneRun
from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
from splatfix.knowledge.published import Method

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
_Values: TypeAlias = Mapping[str, float | None]
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
        raise SplatfixError.of("certify.another-baseline", path=path)
    if (earlier.renderer, earlier.device) != (renderer, device):
        then, asked = f"{earlier.renderer} on {earlier.device}", f"{renderer} on {device}"
        raise SplatfixError.of("certify.unlike-baseline", path=path, earlier=then, asked=asked)


def compare(scenes: Sequence[SceneRun], baseline: Certificate | Method) -> Comparison:
    """Compare what was trained with an earlier certificate, or with published figures."""
    readable = [run for run in scenes if not run.unreadable]
    if isinstance(baseline, Method):
        # other conditions than the source's are nobody's failure
        rows = [_beside(run, *_published(run, baseline), Outcome.NOT_MEASURED) for run in readable]
        return Comparison(baseline.name, f"{baseline.title}: {baseline.source}", tuple(rows))
    stored = {run.scene: run.record for run in baseline.scenes}
    # whoever gives a certificate asks for that comparison: that it cannot be made is a failure
    rows = [_beside(run, *_earlier(run, stored.get(run.scene)), Outcome.FAILED) for run in readable]
    return Comparison("", f"an earlier certificate, issued {baseline.issued}", tuple(rows))


def _earlier(run: SceneRun, earlier: TrainingRecord | None) -> tuple[_Values, str, str]:
    """Return an earlier run's measures, why nothing can be judged by them, and why speed and memory cannot; "" where they can."""
    then = _measures(earlier or TrainingRecord())
    if earlier is None or any(then[name] is None for name in _NEEDED):
        return then, "not in the baseline", ""
    now = run.record
    differences = _differences(
        ("iterations", now.iterations, earlier.iterations),
        ("size", now.resolution, earlier.resolution),
        ("strategy", now.config.strategy, earlier.config.strategy),
    )
    obstacle = f"not comparable: {differences}" if differences else ""
    # on the CPU speed and memory say something on the same model with as many cores only
    return then, obstacle, _differences(("machine", _machine(now), _machine(earlier)))


def _published(run: SceneRun, method: Method) -> tuple[_Values, str, str]:
    """Return the same of published figures."""
    figures, record = method.scenes.get(run.scene), run.record
    if figures is None:
        return {}, f"{method.name} has no figures of it", ""
    values = {
        "speed": figures.seconds and method.iterations / figures.seconds,
        "train-memory": figures.train_gb and figures.train_gb * _GB,
        "psnr": figures.psnr,
        "ssim": figures.ssim,
        # LPIPS of another network is another measure
        "lpips": figures.lpips if method.lpips == "vgg" else None,
    }
    held_out, views = len(record.split.test), len(record.split.train) + len(record.split.test)
    differences = _differences(
        ("iterations", record.iterations, method.iterations),
        ("--resolution", record.config.resolution, PUBLIC_SCENES[run.scene].divisor),
        ("strategy", record.config.strategy, method.strategy),
        ("held-out views", held_out, -(-views // HELD_OUT_EVERY)),
    )
    gpu, renderer = record.machine.gpu, record.config.renderer
    unlike = _differences(("machine", gpu, method.gpu), ("renderer", renderer, method.renderer))
    return values, method.differs or differences, unlike


def _differences(*conditions: tuple[str, object, object]) -> str:
    """Return in which conditions two trainings differ: only equal ones can be compared."""
    texts = [
        f"{name} {now or 'not known'}, the baseline's {then or 'not known'}"
        for name, now, then in conditions
        if now != then or now is None
    ]
    return "; ".join(texts)


def _machine(record: TrainingRecord) -> str | None:
    machine = record.machine
    if machine.gpu or not machine.cpu or not machine.cores:
        return machine.gpu
    return f"{machine.cpu}, {counted(machine.cores, 'core')}"


def _beside(run: SceneRun, then: _Values, obstacle: str, unlike: str, not_judged: Outcome) -> SceneComparison:
    """Judge every measure of a scene; with an obstacle none is, and the scene's outcome is ``not_judged``."""
    now, measures = _measures(run.record), []
    if any(now[name] is None for name in _NEEDED):
        obstacle, not_judged = "no measurement", Outcome.FAILED
    tolerances = {"speed": SPEED_TOLERANCE, "train-memory": MEMORY_TOLERANCE}
    tolerances |= dict.fromkeys(("psnr", "ssim"), quality_tolerance(run.record))
    open_for = dict(_NOT_JUDGED)
    if unlike:
        open_for |= dict.fromkeys(("speed", "train-memory"), f"another {unlike}")
    for name, unit in _UNITS.items():
        new, old = now[name], then.get(name)
        outcome, tolerance, why = Outcome.NOT_MEASURED, None, obstacle or open_for.get(name, "")
        if not obstacle and (new is None or old is None):
            why = "not measured in both"
        elif not why and new is not None and old is not None:
            tolerance, outcome = tolerances[name], Outcome.MET
            # of memory, less is better
            worse = new > old * (1 + tolerance) if unit == "B" else new < old * (1 - tolerance)
            if worse:
                form = "{:.0f} MiB" if unit == "B" else "{:.4g}"
                shown = [form.format(value / 2**20 if unit == "B" else value) for value in (new, old)]
                why = f"{name} {shown[0]}, baseline {shown[1]} (tolerance {tolerance:.1%})"
                outcome = Outcome.FAILED
        measures.append(Compared(name, unit, new, old, outcome, tolerance, why))
    regressions = [item.why for item in measures if item.outcome is Outcome.FAILED]
    outcome = Outcome.FAILED if regressions else Outcome.MET
    if obstacle:
        outcome = not_judged
    return SceneComparison(run.scene, outcome, tuple(measures), obstacle or "; ".join(regressions))


def _measures(record: TrainingRecord) -> _Values:
    """What is compared, from a trainer's result; memory in bytes, allocated on the GPU or resident."""
    memory, quality = record.memory, record.heldout
    train, evaluation = memory.peaks
    return {
        "speed": record.iterations_per_second,
        "train-memory": train if memory.cuda else memory.rss,
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
