"""The ladder: each rung, and what keeps a certificate from climbing it."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import KernelCheck, Outcome, SceneRun
from splatfix.certify.ladder import climb
from splatfix.checks import Finding, Status
from splatfix.core.proof import Rung, RungName

RECORDED = json.loads(Path(__file__).with_name("figurine_result.json").read_text(encoding="utf-8"))
GOOD = KernelCheck("ssim", "splatfix.kernels.ssim", Outcome.MET, 1e-7, 1e-5, 1e-6, 1e-4)
RUN = SceneRun("figurine", (), 7.0, RECORDED)


def ladder(
    findings: tuple[Finding, ...] = (),
    kernels: tuple[KernelCheck, ...] = (GOOD,),
    runs: tuple[SceneRun, ...] = (RUN,),
    baseline: dict[str, Any] | None = None,
    renderer: str = "torch",
) -> dict[RungName, Rung]:
    return {rung.name: rung for rung in climb(findings, kernels, runs, baseline, renderer)}


def stored(**changes: Any) -> dict[str, Any]:
    """A baseline certificate whose result differs by a factor: ``stored(psnr=1.1)``."""
    result = copy.deepcopy(RECORDED)
    for name, factor in changes.items():
        if name in ("psnr", "ssim"):
            result["heldout"][name] *= factor
        elif name == "memory":
            result["peaks"]["rss"] = int(result["peaks"]["rss"] * factor)
        else:
            result["iterations_per_second"] *= factor
    return {"scenes": [{"scene": "figurine", "result": result}]}


def test_the_same_again_reproduces() -> None:
    assert ladder(baseline=stored())[RungName.REPRODUCES].reached is True


@pytest.mark.parametrize(
    ("changes", "reached"),
    [
        ({"psnr": 1.01}, False),
        ({"psnr": 1.004}, True),
        ({"ssim": 1.01}, False),
        ({"speed": 1.5}, False),
        ({"speed": 1.2}, True),
        ({"memory": 0.8}, False),
        ({"memory": 0.95}, True),
        ({"psnr": 0.5, "speed": 0.1, "memory": 3.0}, True),
    ],
)
def test_what_is_worse_than_the_baseline_does_not(changes: dict[str, float], reached: bool) -> None:
    assert ladder(baseline=stored(**changes))[RungName.REPRODUCES].reached is reached


@pytest.mark.parametrize(
    ("key", "value"),
    [("iterations", 7), ("resolution", [64, 64]), ("asked", {"strategy": "mcmc"}), ("asked", 3)],
)
def test_a_baseline_of_another_length_size_or_strategy_is_not_comparable(key: str, value: Any) -> None:
    baseline = stored(psnr=0.5)  # worse in itself
    baseline["scenes"][0]["result"][key] = value
    rung = ladder(baseline=baseline)[RungName.REPRODUCES]
    assert rung.reached is False and "figurine: not comparable: " in rung.shown_by


@pytest.mark.parametrize(
    "baseline", [{}, {"scenes": []}, {"scenes": [3]}, {"scenes": [{"scene": "figurine"}]}]
)
def test_a_baseline_without_the_scene_shows_nothing(baseline: dict[str, Any]) -> None:
    assert ladder(baseline=baseline)[RungName.REPRODUCES].reached is False


def test_without_a_baseline_it_is_not_shown() -> None:
    assert ladder()[RungName.REPRODUCES].reached is None


@pytest.mark.parametrize("code", ["torch-installed", "driver-too-old", "torch-arch-unsupported"])
def test_versions_that_do_not_fit_are_not_resolved(code: str) -> None:
    rung = ladder((Finding(code, Status.FAIL, "no good"),))[RungName.RESOLVED]
    assert (rung.reached, rung.shown_by) == (False, "no good")


def test_an_extension_for_another_gpu_is_not_built() -> None:
    assert ladder((Finding("no-kernel-image", Status.FAIL, "sm_80 only"),))[RungName.BUILT].reached is False
    assert ladder((Finding("no-kernel-image", Status.PASS, "runs"),))[RungName.BUILT].reached is True
    assert ladder()[RungName.BUILT].reached is None
    assert ladder(renderer="gsplat")[RungName.BUILT].reached is None


def test_one_wrong_kernel_is_enough_and_unmeasured_ones_prove_nothing() -> None:
    wrong = dataclasses.replace(GOOD, outcome=Outcome.FAILED)
    unmeasured = dataclasses.replace(GOOD, outcome=Outcome.NOT_MEASURED)
    assert ladder(kernels=(GOOD, wrong))[RungName.COMPUTES].reached is False
    assert ladder(kernels=(unmeasured,))[RungName.COMPUTES].reached is False
    assert ladder(kernels=(GOOD, unmeasured))[RungName.COMPUTES].reached is True


def test_no_scene_is_no_training() -> None:
    assert ladder(runs=())[RungName.TRAINS].reached is False


def test_a_scene_that_cannot_be_read_leaves_training_open_and_is_not_held_against_the_baseline() -> None:
    unread = SceneRun("attic", (), 1.0, {"error": {}}, unreadable="cameras.bin ends too early.")
    alone = ladder(runs=(unread,), baseline=stored())
    assert alone[RungName.LOADS].reached is True and alone[RungName.COMPUTES].reached is True
    for name in (RungName.TRAINS, RungName.REPRODUCES):
        assert (alone[name].reached, alone[name].shown_by) == (None, "attic cannot be read")
    beside = ladder(runs=(RUN, unread), baseline=stored())
    assert beside[RungName.TRAINS].reached is None and "figurine" in beside[RungName.TRAINS].shown_by
    assert beside[RungName.REPRODUCES].reached is None
    assert ladder(runs=(RUN, unread), baseline=stored(psnr=1.1))[RungName.REPRODUCES].reached is False
