"""The table of a baseline: each scene's speed, memory and quality beside the baseline's, for every form of a certificate."""

from __future__ import annotations

from splatfix.certify.model import Compared, Comparison, Outcome, SceneComparison

HEADERS = ("scene", "speed", "change", "train memory", "eval memory", "PSNR", "SSIM", "LPIPS", "verdict")
TITLE = "Beside the baseline"
VERDICTS = {Outcome.MET: "holds", Outcome.FAILED: "worse", Outcome.NOT_MEASURED: "not comparable"}
_NAMES = {
    "train-memory": "train memory",
    "eval-memory": "eval memory",
    "psnr": "PSNR",
    "ssim": "SSIM",
    "lpips": "LPIPS",
}
_MEMORY = ("train-memory", "eval-memory")


def caption(comparison: Comparison) -> str:
    """What is compared with what, in a sentence."""
    name = f"{comparison.baseline}, " if comparison.baseline else ""
    return f"This run, and in brackets the baseline: {name}{comparison.source}."


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row for each scene, a cell for each of HEADERS: ``3.02 (2.90)`` is this run and the baseline; – was not measured."""
    return [_row(item) for item in comparison.scenes]


def remarks(comparison: Comparison) -> list[str]:
    """Why each scene is worse or not comparable, and what of it was not judged: one line for each reason."""
    found: dict[str, list[str]] = {}
    for item in comparison.scenes:
        if item.why:
            found.setdefault(f"{VERDICTS.get(item.outcome, '')}: {item.why}", []).append(item.scene)
        open_: dict[str, list[str]] = {}
        for measure in item.measures:
            if measure.outcome is Outcome.NOT_MEASURED and measure.why not in ("", item.why):
                open_.setdefault(measure.why, []).append(_NAMES.get(measure.name, measure.name))
        for why, names in open_.items():
            found.setdefault(f"{', '.join(names)} not judged: {why}", []).append(item.scene)
    every = [item.scene for item in comparison.scenes]
    return [
        f"{'all scenes' if names == every and len(names) > 1 else ', '.join(names)}: {why}"
        for why, names in found.items()
    ]


def _row(item: SceneComparison) -> tuple[str, ...]:
    by_name = {measure.name: measure for measure in item.measures}
    speed = by_name.get("speed")
    change = "–" if speed is None or speed.change is None else f"{speed.change:+.0%}"
    cells = [
        _cell(by_name.get(name)) for name in ("speed", "train-memory", "eval-memory", "psnr", "ssim", "lpips")
    ]
    return (item.scene, cells[0], change, *cells[1:], VERDICTS.get(item.outcome, item.outcome.value))


def _cell(measure: Compared | None) -> str:
    if measure is None or (measure.now is None and measure.baseline is None):
        return "–"
    worse = " ✗" if measure.outcome is Outcome.FAILED else ""
    return f"{_number(measure, measure.now)} ({_number(measure, measure.baseline)}){worse}"


def _number(measure: Compared, value: float | None) -> str:
    if value is None:
        return "–"
    if measure.name in _MEMORY:
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:.4f}" if measure.name in ("ssim", "lpips") else f"{value:.2f} {measure.unit}"
