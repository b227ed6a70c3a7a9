"""Every criterion, against the recorded result of a real run and against that result sabotaged."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import Outcome
from splatfix.certify.criteria import REQUIRED_GROUPS, Asked, judge

# result.json of `python -m smoke_trainer figurine --preset quick`, torch 2.13.0+cpu
RECORDED = json.loads(Path(__file__).with_name("figurine_result.json").read_text(encoding="utf-8"))
ASKED = Asked("torch")


def failed(result: dict[str, Any]) -> set[str]:
    return {item.code for item in judge(result, ASKED) if item.outcome is Outcome.FAILED}


def sabotaged(*path: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(RECORDED)
    place = result
    for key in path[:-1]:
        place = place[key]
    assert path[-1] in place, "the sabotage must hit something that is there"
    place[path[-1]] = value
    return result


def test_the_recorded_run_meets_every_criterion() -> None:
    criteria = judge(RECORDED, ASKED)
    assert {item.outcome for item in criteria} == {Outcome.MET}, [
        i for i in criteria if i.outcome is not Outcome.MET
    ]
    assert len(criteria) == len({item.code for item in criteria}) >= 14


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("iterations",), 150, "training-finishes"),
        (("status",), "interrupted", "training-finishes"),
        (("implementations", "renderer", "kind"), "gsplat", "renderer-as-asked"),
        (("split", "test"), [], "held-out-views"),
        (("split", "test"), RECORDED["split"]["train"][:3], "held-out-views"),
        (("heldout", "views"), 1, "held-out-views"),
        (("gradients", "xyz", "non_finite_steps"), 1, "finite-values"),
        (("train_loss", "last"), float("nan"), "finite-values"),
        (("train_loss", "last"), RECORDED["train_loss"]["first"], "loss-falls"),
        (("gaussians", "final"), 0, "densification-works"),
        (("heldout", "psnr"), RECORDED["initial_heldout"]["psnr"] + 1.9, "held-out-psnr-rises"),
        (("heldout", "psnr"), RECORDED["asked"]["psnr_floor"] - 0.01, "held-out-quality"),
        (("ply", "round_trip_difference"), 0.01, "ply-round-trip"),
    ],
)
def test_each_sabotage_is_seen(path: tuple[str, ...], value: Any, code: str) -> None:
    assert code in failed(sabotaged(*path, value=value))


@pytest.mark.parametrize("group", REQUIRED_GROUPS)
def test_zero_gradients_of_any_group_are_seen(group: str) -> None:
    """The T4 field report: 30,000 iterations, all gradients zero, and it looked fine."""
    code = f"gradients-{group.replace('_', '-')}"
    steps = RECORDED["iterations"]
    assert failed(sabotaged("gradients", group, "zero_steps", value=steps)) == {code}
    assert failed(sabotaged("gradients", group, "max", value=0.0)) == {code}
    assert failed(sabotaged("gradients", group, "zero_steps", value=int(0.04 * steps))) == set()


def test_no_densification_is_seen() -> None:
    result = sabotaged("gaussians", "cloned", value=0)
    result["gaussians"]["split"] = 0
    assert failed(result) == {"densification-works"}


@pytest.mark.parametrize(
    "key",
    ["heldout", "initial_heldout", "split", "gradients", "gaussians", "train_loss", "ply", "implementations"],
)
def test_a_missing_measurement_never_passes(key: str) -> None:
    result = copy.deepcopy(RECORDED)
    del result[key]
    assert failed(result)


def test_an_empty_result_meets_nothing() -> None:
    assert not [item for item in judge({}, ASKED) if item.outcome is Outcome.MET]
