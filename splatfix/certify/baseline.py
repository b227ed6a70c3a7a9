"""Each scene beside a baseline: an earlier certificate, or published figures. Only like is held against like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from splatfix.certify.measured import get, number
from splatfix.certify.model import Compared, Comparison, Outcome, SceneComparison, SceneRun
from splatfix.core.words import counted
from splatfix.knowledge.published import Method, methods, public_scenes

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
_PARTS = (
    ("speed", "it/s"),
    ("train-memory", "B"),
    ("eval-memory", "B"),
    ("psnr", "dB"),
    ("ssim", ""),
    ("lpips", ""),
)
_NEEDED = ("speed", "train-memory", "psnr", "ssim")
"""A run without one of these measured nothing that can be compared."""
_NOT_JUDGED = {
    "lpips": "shown only: how far seeds lie apart was not measured",
    "eval-memory": "shown only: the criterion evaluation-memory judges it",
}


def compare(
    scenes: Sequence[SceneRun], baseline: Mapping[str, Any] | None, published: str = ""
) -> Comparison | None:
    """What was trained beside an earlier certificate, or beside published figures; None without either.

    Args:
        baseline: the JSON document of an earlier certificate.
        published: the name of published figures, which wins.

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
    stored = {
        run["scene"]: run.get("result", {})
        for run in baseline.get("scenes", ())
        if isinstance(run, Mapping) and "scene" in run
    }
    issued = str(baseline.get("issued", "at an unknown time"))
    rows = tuple(_beside_earlier(run, stored.get(run.scene, {})) for run in readable)
    return Comparison("", f"an earlier certificate, issued {issued}", rows)


def _beside_earlier(run: SceneRun, earlier: Mapping[str, Any]) -> SceneComparison:
    now, then = _measures(run.result), _measures(earlier)
    if any(now[name] is None for name in _NEEDED):
        why = "no measurement"
    elif any(then[name] is None for name in _NEEDED):
        why = "not in the baseline"
    elif _conditions(run.result) != _conditions(earlier):
        why = f"not comparable: {_conditions(run.result)}, the baseline {_conditions(earlier)}"
    else:
        return _judged(run.scene, now, then, quality_tolerance(run.result), _unlike(run.result, earlier))
    # whoever gives a certificate asks for that comparison: that it cannot be made is a failure
    return SceneComparison(run.scene, Outcome.FAILED, _shown(now, then, why), why)


def _beside_published(run: SceneRun, method: Method) -> SceneComparison:
    figures, now = method.scenes.get(run.scene), _measures(run.result)
    if figures is None:
        why = f"{method.name} has no figures of it"
        return SceneComparison(run.scene, Outcome.NOT_MEASURED, _shown(now, {}, why), why)
    then = {
        "speed": method.iterations / figures.seconds if figures.seconds else None,
        "train-memory": figures.train_gb * _GB if figures.train_gb else None,
        "eval-memory": None,
        "psnr": figures.psnr,
        "ssim": figures.ssim,
        "lpips": figures.lpips if method.lpips == "vgg" else None,
    }
    if why := _other_conditions(run, method):
        return SceneComparison(run.scene, Outcome.NOT_MEASURED, _shown(now, then, why), why)
    if now["psnr"] is None:
        return SceneComparison(run.scene, Outcome.FAILED, _shown(now, then, ""), "no measurement")
    gpu, renderer = get(run.result, "machine", "gpu"), get(run.result, "config", "renderer")
    unlike = "" if gpu == method.gpu else f"another machine: {gpu or 'no GPU'}, the source's {method.gpu}"
    if not unlike and renderer != method.renderer:
        unlike = f"another renderer: {renderer}, the source's {method.renderer}"
    return _judged(run.scene, now, then, QUALITY_TOLERANCE, unlike)


def _other_conditions(run: SceneRun, method: Method) -> str:
    """Why a training cannot be held against a method's figures; "" where it can."""
    if method.differs:
        return method.differs
    result = run.result
    train, test = (len(get(result, "split", part) or ()) for part in ("train", "test"))
    config = {name: get(result, "config", name) for name in ("resolution", "strategy")}
    divisor = public_scenes()[run.scene]
    differences = [
        f"{words}, the source {theirs}"
        for words, theirs, same in (
            (
                counted(result.get("iterations") or 0, "iteration"),
                str(method.iterations),
                result.get("iterations") == method.iterations,
            ),
            (f"--resolution {config['resolution']}", str(divisor), config["resolution"] == divisor),
            (f"strategy {config['strategy']}", method.strategy, config["strategy"] == method.strategy),
            (
                f"{test} of {counted(train + test, 'view')} held out",
                f"every {HELD_OUT_EVERY}th",
                test == -(-(train + test) // HELD_OUT_EVERY),
            ),
        )
        if not same
    ]
    return "; ".join(differences)


def _judged(
    scene: str,
    now: Mapping[str, float | None],
    then: Mapping[str, float | None],
    quality: float,
    unlike: str,
) -> SceneComparison:
    """Every measure with its verdict.

    Args:
        quality: relative tolerance of PSNR and SSIM.
        unlike: why speed and memory are not judged; "" where the machines are alike.
    """
    allowed = {
        "psnr": (quality, ""),
        "ssim": (quality, ""),
        "speed": (SPEED_TOLERANCE, unlike),
        "train-memory": (MEMORY_TOLERANCE, unlike),
    }
    measures = []
    for name, unit in _PARTS:
        new, old = now[name], then[name]
        tolerance, why = allowed.get(name, (0.0, _NOT_JUDGED.get(name, "")))
        if new is None or old is None:
            why = "not measured" if new is None else "the baseline does not have it"
        if why or new is None or old is None:
            measures.append(Compared(name, unit, new, old, Outcome.NOT_MEASURED, None, why))
            continue
        worse = new > old * (1 + tolerance) if name == "train-memory" else new < old * (1 - tolerance)
        outcome = Outcome.FAILED if worse else Outcome.MET
        why = _regression(name, new, old, tolerance) if worse else ""
        measures.append(Compared(name, unit, new, old, outcome, tolerance, why))
    failed = [item.why for item in measures if item.outcome is Outcome.FAILED]
    outcome = Outcome.FAILED if failed else Outcome.MET
    return SceneComparison(scene, outcome, tuple(measures), "; ".join(failed))


def _shown(
    now: Mapping[str, float | None], then: Mapping[str, float | None], why: str
) -> tuple[Compared, ...]:
    """Measures beside each other, none judged."""
    return tuple(
        Compared(name, unit, now[name], then.get(name), Outcome.NOT_MEASURED, None, why)
        for name, unit in _PARTS
    )


def _regression(name: str, now: float, then: float, tolerance: float) -> str:
    if name == "speed":
        return (
            f"{now:.2f} it/s, baseline {then:.2f} "
            f"(tolerance {tolerance:.0%}; other load on the machine counts too)"
        )
    if name == "train-memory":
        return (
            f"peak memory {now / 2**20:.0f} MiB, baseline {then / 2**20:.0f} MiB (tolerance {tolerance:.0%})"
        )
    return f"held-out {name} {now:.4g}, baseline {then:.4g} (tolerance {tolerance:.1%})"


def _conditions(result: Mapping[str, Any]) -> str:
    """Length, size and strategy of a training: only equal ones can be compared."""
    strategy = get(result, "config", "strategy")
    return f"{counted(result.get('iterations') or 0, 'iteration')} at size {result.get('resolution')} with strategy {strategy}"


def _unlike(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Why speed and memory of two runs say nothing about each other; "" where the machines are alike.

    Alike is the same GPU, or for runs on the CPU the same model with as many cores.
    """
    names = []
    for result in (now, then):
        gpu = get(result, "machine", "gpu")
        cores = get(result, "machine", "cores")
        cpu = get(result, "machine", "cpu")
        names.append(str(gpu or (f"{cpu}, {counted(cores, 'core')}" if cpu and cores else "")))
    if names[0] == names[1] and names[0]:
        return ""
    return f"another machine: {names[0] or 'not known'}, the baseline's {names[1] or 'not known'}"


def _measures(result: Mapping[str, Any]) -> dict[str, float | None]:
    """What is compared, from a trainer's result; memory in bytes, allocated on the GPU or resident."""
    cuda = isinstance(get(result, "memory", "cuda"), Mapping)
    train = ("cuda", "train", "allocated") if cuda else ("rss",)
    evaluation = ("cuda", "eval", "allocated") if cuda else ("host", "eval")
    found = {
        "speed": get(result, "iterations_per_second"),
        "train-memory": get(result, "memory", *train),
        "eval-memory": get(result, "memory", *evaluation),
        **{name: get(result, "heldout", name) for name in ("psnr", "ssim", "lpips")},
    }
    return {name: number(value) for name, value in found.items()}


def quality_tolerance(result: Mapping[str, Any]) -> float:
    """How far PSNR and SSIM of a run may lie below those of an equal one, relative."""
    short = result["iterations"] < _SHORT and result["memory"].get("cuda")
    return SHORT_QUALITY_TOLERANCE if short else QUALITY_TOLERANCE
