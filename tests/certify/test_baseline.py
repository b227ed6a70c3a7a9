"""Beside a baseline: like is held against like, and what cannot be compared is shown and not judged."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import Outcome, SceneRun, Suite, Verdict, certify
from splatfix.certify.baseline import compare
from splatfix.certify.levels import evaluate
from splatfix.certify.model import Comparison, SceneComparison
from splatfix.core.proof import Rung, RungName
from splatfix.facts import Facts
from splatfix.knowledge.published import methods
from tests.certify.conftest import RESULT, RecordedTrainer, subject

GPU = "NVIDIA RTX A6000"


def result(**changes: Any) -> dict[str, Any]:
    """The recorded result with other values, by dotted path."""
    found = copy.deepcopy(RESULT)
    for path, value in changes.items():
        *parts, last = path.split("__")
        place = found
        for part in parts:
            place = place[part]
        place[last] = value
    return found


def garden(**changes: Any) -> SceneRun:
    """A training of a public scene under the conditions of the paper; 185 views, of which every 8th is held out."""
    same = {
        "iterations": 30_000,
        "config__resolution": 4,
        "config__strategy": "default",
        "split__train": [f"{number}.jpg" for number in range(161)],
        "split__test": [f"held-{number}.jpg" for number in range(24)],
        "heldout__psnr": 27.41,
        "heldout__ssim": 0.868,
        "heldout__lpips": 0.103,
    }
    return SceneRun("garden", (), 7.0, result(**{**same, **changes}))


def only(found: Comparison | None) -> SceneComparison:
    assert found is not None
    (scene,) = found.scenes
    return scene


def outcomes(scene: SceneComparison) -> dict[str, Outcome]:
    return {item.name: item.outcome for item in scene.measures}


def rung(run: SceneRun, published: str) -> Rung:
    found = compare((run,), None, published)
    return next(
        one for one in evaluate((), (), (run,), found, "torch", "cpu") if one.name is RungName.REPRODUCES
    )


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.MET),
        ({"heldout__psnr": 27.41 * 0.9951}, Outcome.MET),
        ({"heldout__psnr": 27.41 * 0.9949}, Outcome.FAILED),
        ({"heldout__ssim": 0.868 * 0.9949}, Outcome.FAILED),
        ({"heldout__lpips": 0.9}, Outcome.MET),
        ({"heldout__psnr": 40.0}, Outcome.MET),
    ],
)
def test_published_quality_within_half_a_percent(changes: dict[str, Any], outcome: Outcome) -> None:
    run = garden(**changes)
    assert only(compare((run,), None, "inria-2023")).outcome is outcome
    assert rung(run, "inria-2023").reached is (outcome is Outcome.MET)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iterations": 7000}, "7000 iterations, the source 30000"),
        ({"config__resolution": 2}, "--resolution 2, the source 4"),
        ({"config__strategy": "budget"}, "strategy budget, the source default"),
        ({"split__test": ["1.jpg"] * 10}, "10 of 171 views held out, the source every 8th"),
    ],
)
def test_other_conditions_than_published_are_not_judged(changes: dict[str, Any], why: str) -> None:
    """Far too low a quality is no failure then, and a high one no success."""
    for psnr in (10.0, 40.0):
        run = garden(**changes, heldout__psnr=psnr)
        scene = only(compare((run,), None, "inria-2023"))
        assert scene.outcome is Outcome.NOT_MEASURED and scene.why == why
        assert set(outcomes(scene).values()) == {Outcome.NOT_MEASURED}
        found = rung(run, "inria-2023")
        assert found.reached is None and found.shown_by == f"garden: not comparable: {why}"


def test_a_run_without_quality_is_worse() -> None:
    for published in ("inria-2023", "gsplat-30k"):
        scene = only(compare((garden(heldout__psnr=None),), None, published))
        assert (scene.outcome, scene.why) == (Outcome.FAILED, "no measurement")


def test_other_scenes_and_methods_are_named() -> None:
    attic = dataclasses.replace(garden(), scene="attic")
    scene = only(compare((attic,), None, "inria-2023"))
    assert scene.why == "inria-2023 has no figures of it" and scene.measures[3].now == 27.41
    for name in ("mip-splatting", "3dgs-mcmc", "taming-3dgs"):
        scene = only(compare((garden(),), None, name))
        assert scene.outcome is Outcome.NOT_MEASURED and scene.why == methods()[name].differs
    with pytest.raises(KeyError):
        compare((garden(),), None, "no-such-method")


@pytest.mark.parametrize(
    ("gpu", "renderer", "judged"),
    [
        ("NVIDIA TITAN RTX", "gsplat", True),
        ("NVIDIA TITAN RTX", "torch", False),
        (GPU, "gsplat", False),
        (None, "gsplat", False),
    ],
)
def test_published_times_count_on_a_like_gpu_and_renderer_only(
    gpu: str | None, renderer: str, judged: bool
) -> None:
    cuda = {"train": {"allocated": 30 << 30}, "eval": {"allocated": 1 << 30}}  # three times the source's
    run = garden(machine__gpu=gpu, config__renderer=renderer, memory__cuda=cuda, iterations_per_second=1.0)
    scene = only(compare((run,), None, "gsplat-30k"))
    expected = Outcome.FAILED if judged else Outcome.NOT_MEASURED
    found = outcomes(scene)
    assert (found["speed"], found["train-memory"]) == (expected, expected)
    assert found["psnr"] is Outcome.MET
    # its LPIPS is another network's
    assert next(item for item in scene.measures if item.name == "lpips").baseline is None
    assert scene.outcome is (Outcome.FAILED if judged else Outcome.MET)


@pytest.mark.parametrize(
    ("machine", "like"),
    [
        ({}, True),
        ({"machine__cores": 64}, False),
        ({"machine__cpu": "Another CPU"}, False),
        ({"machine__cpu": None}, False),
        ({"machine__memory": 1}, True),
        ({"machine__gpu": GPU}, False),
        ({"machine": {}}, False),
    ],
)
def test_speed_and_memory_of_another_machine_are_not_judged(machine: dict[str, Any], like: bool) -> None:
    """They are shown beside each other all the same."""
    run = SceneRun("figurine", (), 7.0, RESULT)
    earlier = result(**{"iterations_per_second": 100.0, "memory__rss": 1, **machine})
    scene = only(compare((run,), {"scenes": [{"scene": "figurine", "result": earlier}]}))
    found = outcomes(scene)
    assert (found["speed"] is Outcome.FAILED) is like and (found["train-memory"] is Outcome.FAILED) is like
    assert scene.outcome is (Outcome.FAILED if like else Outcome.MET)
    speed = scene.measures[0]
    assert speed.baseline == 100.0 and speed.change is not None and speed.change < -0.9
    assert speed.why.startswith("another machine: ") is not like


def test_the_same_gpu_is_the_same_machine() -> None:
    run = SceneRun("figurine", (), 7.0, result(machine__gpu=GPU))
    for cpu in ("A", "B"):  # in another computer
        earlier = result(machine__gpu=GPU, machine__cpu=cpu, iterations_per_second=100.0)
        scene = only(compare((run,), {"scenes": [{"scene": "figurine", "result": earlier}]}))
        assert outcomes(scene)["speed"] is Outcome.FAILED


@pytest.mark.parametrize(("psnr", "verdict"), [(27.41, Verdict.CERTIFIED), (25.0, Verdict.NOT_CERTIFIED)])
def test_a_certificate_held_against_published_figures(
    tmp_path: Path, known: Facts, psnr: float, verdict: Verdict
) -> None:
    """The trainings are the method's, and quality below its figures refuses the certificate for that alone."""
    same = dict(garden(heldout__psnr=psnr, training_views__psnr=psnr, config__psnr_floor=None).result)
    same["config"]["iterations"], same["heldout"]["views"] = 30_000, 24
    for part in same["implementations"].values():
        part["calls"] = 30_000
    trainer = RecordedTrainer(garden=same)
    suite = Suite("data", ("garden",), 60.0, 30_000, None, tmp_path, strategy="default")
    request = subject(suite, tmp_path / "out", published="inria-2023")
    found = certify(request, facts=known, runner=trainer)
    assert trainer.calls[0][trainer.calls[0].index("--strategy") + 1] == "default"
    rest = [reason for reason in found.reasons if not reason.startswith("reproduces: ")]
    failed = [
        f"{item.code}: {item.measured}"
        for run in found.scenes
        for item in run.criteria
        if item.outcome is Outcome.FAILED
    ]
    assert not rest and not failed, (rest, failed)
    assert found.verdict is verdict
    assert bool(found.reasons) is (verdict is Verdict.NOT_CERTIFIED)
