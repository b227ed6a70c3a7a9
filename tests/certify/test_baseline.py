"""Beside a baseline: like is held against like, and what cannot be compared is shown and not judged."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Certificate, Outcome, SceneRun, Suite, Verdict, certify
from splatfix.certify.baseline import SHORT_QUALITY_TOLERANCE, compare
from splatfix.certify.levels import reproduces
from splatfix.certify.model import Comparison, SceneComparison
from splatfix.core.proof import Rung
from splatfix.core.step import Command
from splatfix.knowledge.published import methods
from splatfix.model import Facts
from splatfix.report.view import SPREAD
from tests.certify.conftest import (
    RESULT,
    RecordedTrainer,
    failed_criteria,
    place_of,
    record_of,
    result,
    subject,
)
from tests.conftest import ROOT
from tests.tables import data

TABLES, METHODS = data(__file__), methods()
RUN = SceneRun("figurine", (), 7.0, record_of(RESULT))
EARLIER = Certificate(
    verdict=Verdict.CERTIFIED,
    summary="",
    reasons=(),
    suite="quick",
    renderer="torch",
    device="cpu",
    proof=(),
    kernels=(),
    scenes=(),
    environment={},
    repeat=Command(()),
    issued="2026-11-28T06:00:00+00:00",
    seconds=1.0,
)


def baseline(earlier: dict[str, Any], scene: str = "figurine") -> Certificate:
    """An earlier certificate with this result of one scene."""
    return replace(EARLIER, scenes=(SceneRun(scene, (), 7.0, record_of(earlier)),))


def stored(**factors: float) -> Certificate:
    """A baseline whose measurements are so many times those of the recorded result, by path."""
    earlier = result()
    for path, factor in factors.items():
        place, key = place_of(earlier, path)
        place[key] = type(place[key])(factor * place[key])
    return baseline(earlier)


def garden(**changes: Any) -> SceneRun:
    """A training of a public scene under the conditions of the paper; 185 views, of which every 8th is held out."""
    same: dict[str, Any] = {"iterations": 30_000, "config__resolution": 4, "config__strategy": "default"}
    same |= {"split__train": [f"{number}.jpg" for number in range(161)]}
    same |= {"split__test": [f"held-{number}.jpg" for number in range(24)]}
    same |= {"heldout__psnr": 27.41, "heldout__ssim": 0.868, "heldout__lpips": 0.103}
    return SceneRun("garden", (), 7.0, record_of(result(**{**same, **changes})))


def only(found: Comparison) -> SceneComparison:
    (scene,) = found.scenes
    return scene


def outcomes(scene: SceneComparison) -> dict[str, Outcome]:
    return {item.name: item.outcome for item in scene.measures}


def rung(run: SceneRun, published: str) -> Rung:
    return reproduces(compare((run,), METHODS[published]), ())


@pytest.mark.parametrize(("factors", "outcome"), TABLES["factors"])
def test_regression_beyond_tolerance(factors: dict[str, float], outcome: str) -> None:
    assert only(compare((RUN,), stored(**factors))).outcome.value == outcome


@pytest.mark.parametrize(
    ("iterations", "cuda", "outcome"),
    [(200, True, Outcome.MET), (200, False, Outcome.FAILED), (30_000, True, Outcome.FAILED)],
)
def test_short_runs_on_a_gpu_differ_by_themselves(iterations: int, cuda: bool, outcome: Outcome) -> None:
    """Sums there are made in an order that changes, so that one seed gives results that are some percent apart."""
    peak = {"train": {"allocated": 1 << 30}} if cuda else None
    same = {"iterations": iterations, "memory__cuda": peak}
    now, earlier = result(**same), result(**same, heldout__psnr=1.04 * RESULT["heldout"]["psnr"])
    run = replace(RUN, record=record_of(now))
    assert only(compare((run,), baseline(earlier))).outcome is outcome


def test_the_tolerance_of_short_runs_was_measured() -> None:
    record = json.loads((ROOT / "tests" / "records" / "seed_spread.json").read_text(encoding="utf-8"))
    widest = dict.fromkeys(SPREAD, 0.0)
    for scene in record["scenes"].values():
        for name in SPREAD:
            values = [run[name.lower()] for run in scene]
            widest[name] = max(widest[name], (max(values) - min(values)) / values[0])
    assert 0.8 * SHORT_QUALITY_TOLERANCE < max(widest.values()) < SHORT_QUALITY_TOLERANCE
    assert {name: round(share, 3) for name, share in widest.items()} == SPREAD, "what reports say of it"


@pytest.mark.parametrize("changes", TABLES["trainings"])
def test_baseline_of_another_training_is_not_comparable(changes: dict[str, Any]) -> None:
    """Which fails: whoever gives a certificate asks for that comparison."""
    scene = only(compare((RUN,), baseline(result(**changes, heldout__psnr=1.0))))
    assert scene.outcome is Outcome.FAILED and scene.why.startswith("not comparable: ")


@pytest.mark.parametrize("earlier", [EARLIER, baseline({}), baseline(result(), "another")])
def test_baseline_without_the_scene(earlier: Certificate) -> None:
    scene = only(compare((RUN,), earlier))
    assert (scene.outcome, scene.why) == (Outcome.FAILED, "not in the baseline")


@pytest.mark.parametrize(("changes", "outcome"), TABLES["quality"])
def test_published_quality_within_half_a_percent(changes: dict[str, Any], outcome: str) -> None:
    run = garden(**changes)
    assert only(compare((run,), METHODS["inria-2023"])).outcome.value == outcome
    assert rung(run, "inria-2023").reached is (outcome == "met")


@pytest.mark.parametrize(("changes", "why"), TABLES["conditions"])
def test_other_conditions_than_published_are_not_judged(changes: dict[str, Any], why: str) -> None:
    """Far too low a quality is no failure then, and a high one no success."""
    for psnr in (10.0, 40.0):
        run = garden(**changes, heldout__psnr=psnr)
        scene = only(compare((run,), METHODS["inria-2023"]))
        assert scene.outcome is Outcome.NOT_MEASURED and scene.why == why
        assert set(outcomes(scene).values()) == {Outcome.NOT_MEASURED}
        found = rung(run, "inria-2023")
        assert found.reached is None and found.shown_by == f"garden: not comparable: {why}"


def test_a_run_without_quality_is_worse() -> None:
    for published in ("inria-2023", "gsplat-30k"):
        scene = only(compare((garden(heldout__psnr=None),), METHODS[published]))
        assert (scene.outcome, scene.why) == (Outcome.FAILED, "no measurement")


def test_other_scenes_and_methods_are_named() -> None:
    attic = replace(garden(), scene="attic")
    scene = only(compare((attic,), METHODS["inria-2023"]))
    assert scene.why == "inria-2023 has no figures of it" and scene.measures[3].now == 27.41
    for name in ("mip-splatting", "3dgs-mcmc", "taming-3dgs"):
        scene = only(compare((garden(),), METHODS[name]))
        assert scene.outcome is Outcome.NOT_MEASURED and scene.why == METHODS[name].differs


@pytest.mark.parametrize(("gpu", "renderer", "judged"), TABLES["published_times"])
def test_published_times_count_on_a_like_gpu_and_renderer_only(
    gpu: str | None, renderer: str, judged: bool
) -> None:
    cuda = {"train": {"allocated": 30 << 30}, "eval": {"allocated": 1 << 30}}  # three times the source's
    run = garden(machine__gpu=gpu, config__renderer=renderer, memory__cuda=cuda, iterations_per_second=1.0)
    scene = only(compare((run,), METHODS["gsplat-30k"]))
    expected = Outcome.FAILED if judged else Outcome.NOT_MEASURED
    found = outcomes(scene)
    assert (found["speed"], found["train-memory"]) == (expected, expected)
    assert found["psnr"] is Outcome.MET
    # its LPIPS is another network's
    assert next(item for item in scene.measures if item.name == "lpips").baseline is None
    assert scene.outcome is (Outcome.FAILED if judged else Outcome.MET)


@pytest.mark.parametrize(("machine", "gpu", "like"), TABLES["machines"])
def test_speed_and_memory_of_another_machine_are_not_judged(
    machine: dict[str, Any], gpu: str | None, like: bool
) -> None:
    """They are shown beside each other all the same."""
    earlier = result(**{"iterations_per_second": 100.0, "memory__rss": 1, **machine})
    scene = only(compare((replace(RUN, record=record_of(result(machine__gpu=gpu))),), baseline(earlier)))
    found = outcomes(scene)
    assert (found["speed"] is Outcome.FAILED) is like and (found["train-memory"] is Outcome.FAILED) is like
    assert scene.outcome is (Outcome.FAILED if like else Outcome.MET)
    speed = scene.measures[0]
    assert speed.baseline == 100.0 and speed.change is not None and speed.change < -0.9
    assert speed.why.startswith("another machine ") is not like


@pytest.mark.parametrize(("psnr", "verdict"), [(27.41, Verdict.CERTIFIED), (25.0, Verdict.NOT_CERTIFIED)])
def test_a_certificate_held_against_published_figures(
    tmp_path: Path, known: Facts, psnr: float, verdict: Verdict
) -> None:
    """The trainings are the method's, and quality below its figures refuses the certificate for that alone."""
    same = asdict(garden(heldout__psnr=psnr, training_views__psnr=psnr, config__psnr_floor=None).record)
    same["config"]["iterations"], same["heldout"]["views"] = 30_000, 24
    for part in same["implementations"].values():
        part["calls"] = 30_000
    trainer = RecordedTrainer(garden=same)
    suite = Suite("data", ("garden",), 60.0, 30_000, None, tmp_path, strategy="default")
    request = subject(suite, tmp_path / "out", baseline=METHODS["inria-2023"])
    found = certify(request, facts=known, runner=trainer)
    assert trainer.calls[0][trainer.calls[0].index("--strategy") + 1] == "default"
    assert not failed_criteria(found) and found.verdict is verdict
    assert [reason[:17] for reason in found.reasons] == (
        ["level: reproduces"] if verdict is Verdict.NOT_CERTIFIED else []
    )
