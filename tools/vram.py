"""What ``splatfix vram`` estimates beside what was published and measured: the table of its page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from splatfix.budget.expected import SHORT_DENSIFICATIONS, mcmc_count
from splatfix.budget.memory import FLOAT, card_phases
from splatfix.budget.model import IN_VIEW, Need, Span
from splatfix.budget.rates import allocated, left_out, rates
from splatfix.certify.scenes import SAMPLES
from splatfix.checks.scene.size import read_scene_size
from splatfix.knowledge.tables import table
from splatfix.knowledge.vram import GIB, families, published_runs

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "smoke_memory.json"
OUTDOOR = ("bicycle", "garden", "stump", "flowers", "treehill")
WITHOUT_AUTOGRAD, WITH_AUTOGRAD = 8.05 * GIB, 15.6 * GIB
"""Of an evaluation of mip-splatting on a 16 GB card, in a report that gives neither scene nor count."""
ISSUE_559 = 3000, 1600, 992
ALLOCATED_559 = 53.19 * GIB
"""By the error of gaussian-splatting issue 559, from which loading ended: about so many photos, which the report says."""
NOT_OWN = ("buffers of the kernels", "Python and torch")


class Row(Struct, frozen=True):
    """A figure that was published or measured, and what is foretold."""

    kind: str
    """``gsplat``, ``inria``, ``mcmc``, ``loading``, ``evaluation``, ``smoke held``, ``smoke peak``, ``smoke process``
    or ``smoke count``."""
    name: str
    published: float
    foretold: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.foretold / self.published - 1.0


def compared() -> Sequence[Row]:
    """Every row, the worst first."""
    rows: list[Row] = []
    for name in ("gsplat", "inria"):
        for run, error in left_out(families()[name]):
            rows.append(Row(name, run.name, run.bytes, run.bytes * (1.0 + error)))
    family = families()["gsplat"]
    known = rates(family)
    for run in published_runs()["gsplat-mcmc"]:
        rows.append(Row("mcmc", run.name, run.bytes, allocated(family, run, known.gaussian, known.pixel)))
    phase = card_phases(Need("inria-v1", *ISSUE_559, Span(1, 1, 1)))["loading"]
    assert phase is not None
    kept = next(part.bytes for part in phase.parts if part.name == "photos")
    rows.append(Row("loading", "gaussian-splatting issue 559: photos", ALLOCATED_559, kept))
    return sorted([*rows, *_evaluation(), *_smoke()], key=lambda row: -abs(row.error))


def _evaluation() -> Iterator[Row]:
    for scene in OUTDOOR:
        low, high = 0.0, 1e8
        for _ in range(60):
            middle = (low + high) / 2
            if _of_mip(scene, middle, autograd=False) > WITHOUT_AUTOGRAD:
                high = middle
            else:
                low = middle
        name = f"evaluation of mip-splatting with autograd, as if {scene} with {low / 1e6:.1f} million"
        yield Row("evaluation", name, WITH_AUTOGRAD, _of_mip(scene, low, autograd=True))


def _of_mip(scene: str, count: float, *, autograd: bool) -> float:
    photos, width, height = table("vram")["scenes"][scene]
    need = Need("mip", photos, width, height, Span(count, count, count), autograd=autograd, lpips="vgg")
    phase = card_phases(need)["evaluation"]
    assert phase is not None
    return float(phase.peak_bytes)


def _smoke() -> Iterator[Row]:
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        in_view, size = IN_VIEW, read_scene_size(SAMPLES / row["scene"])
        # as the scene's folder tells it before any run
        if not isinstance(size, str) and size.in_view is not None:
            in_view = Span(size.in_view, size.in_view, size.in_view)
        need = Need(
            stack="smoke",
            photos=row["photos"],
            width=row["width"],
            height=row["height"],
            gaussians=Span(row["final"], row["final"], row["final"]),
            points=row["points"],
            strategy=row["strategy"],
            channels=row["photos_held"] // (row["photos"] * row["width"] * row["height"]),
            in_view=in_view,
        )
        name = f"smoke {row['scene']}, {row['strategy']}"
        own, totals = {}, {}
        for phase, foretold in card_phases(need).items():
            assert foretold is not None
            totals[phase] = foretold.peak_bytes
            own[phase] = {part.name: part.bytes for part in foretold.parts if part.name not in NOT_OWN}
        yield Row("smoke held", f"{name}: loading", row["loading"], sum(own["loading"].values()))
        held = sum(own["evaluation"].values()) - own["evaluation"]["a view"]
        yield Row("smoke held", f"{name}: held in evaluation", row["held"], held)
        gradients = FLOAT * 59 * row["final"]
        training = sum(own["training"].values()) - own["training"]["a view"]
        yield Row("smoke held", f"{name}: held in training", row["held"] + gradients, training)
        measured = {
            "training": (row["view"], row["resident_train"]),
            "evaluation": (row["evaluation"], row["resident_evaluation"]),
        }
        for phase, (view, resident) in measured.items():
            yield Row(
                "smoke peak", f"{name}: tensors in {phase}", row["held"] + view, sum(own[phase].values())
            )
            yield Row("smoke process", f"{name}: process in {phase}", resident, totals[phase])
        # by how much the other scenes grew after two densifications
        others = [
            other for other in rows if other["strategy"] == "default" and other["scene"] != row["scene"]
        ]
        count = row["early"] * fmean(other["final"] / other["early"] for other in others)
        if row["strategy"] == "mcmc":
            count = mcmc_count(row["points"], SHORT_DENSIFICATIONS)
        yield Row("smoke count", f"{name}: Gaussians", row["final"], count)


def markdown() -> str:
    """The table, the worst first."""
    lines = ["| run | published or measured | estimated | error |", "|---|---|---|---|"]
    for row in compared():
        lines.append(
            f"| {row.name} | {_figure(row, row.published)} | {_figure(row, row.foretold)} | {row.error:+.1%} |"
        )
    return "\n".join(lines)


def _figure(row: Row, value: float) -> str:
    if row.kind == "smoke count":
        return f"{value:,.0f}"
    if row.kind.startswith("smoke"):
        return f"{value / 1e6:.2f} MB"
    return f"{value / GIB:.2f} GiB"
