"""Every criterion, on the recorded result of a real run and on changed copies of it; and a record, however broken."""

from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Outcome
from splatfix.certify.certificate import reasons_of
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import SHORTEST
from splatfix.certify.criteria.learning import REQUIRED_GROUPS
from splatfix.certify.model import SceneRun
from tests.certify.conftest import RESULT, record_of, result, trained
from tests.certify.test_baseline import stored


def failed(document: dict[str, Any]) -> set[str]:
    return {item.code for item in judge(trained(document)) if item.outcome is Outcome.FAILED}


def test_recorded_run_meets_every_criterion() -> None:
    criteria = judge(trained())
    assert [item.code for item in criteria if item.outcome is not Outcome.MET or not item.source] == []
    assert [item for item in judge(trained({})) if item.outcome is Outcome.MET] == []
    assert len(criteria) == len({item.code for item in criteria}) >= 14


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("iterations", 150, "training-finishes"),
        ("status", "interrupted", "training-finishes"),
        ("implementations__renderer__kind", "gsplat", "renderer-as-asked"),
        ("split__test", [], "held-out-views"),
        ("split__test", RESULT["split"]["train"][:3], "held-out-views"),
        ("heldout__views", 1, "held-out-views"),
        ("gradients__xyz__non_finite_steps", 1, "finite-values"),
        ("gradients__f_rest__non_finite_steps", 1, "finite-values"),
        ("train_loss__last", None, "finite-values"),
        ("train_loss__last", RESULT["train_loss"]["first"], "loss-falls"),
        ("gaussians__final", 0, "densification-works"),
        ("updates__opacity__moved", 2, "parameters-move"),
        ("updates", {}, "parameters-move"),
        ("heldout__psnr", RESULT["initial_heldout"]["psnr"] + 1.9, "held-out-psnr-rises"),
        ("heldout__psnr", RESULT["config"]["psnr_floor"] - 0.01, "held-out-quality"),
        ("training_views__psnr", RESULT["heldout"]["psnr"] + 13.0, "held-out-near-training"),
        ("ply__round_trip_difference", 0.01, "ply-round-trip"),
    ],
)
def test_each_change_fails_its_criterion(path: str, value: Any, code: str) -> None:
    assert code in failed(result(**{path: value}))


@pytest.mark.parametrize("group", REQUIRED_GROUPS)
def test_zero_gradients_of_any_group(group: str) -> None:
    """The T4 field report: 30,000 iterations, all gradients zero, and it looked fine."""
    code = f"gradients-{group.replace('_', '-')}"
    steps = RESULT["iterations"]
    assert failed(result(**{f"gradients__{group}__zero_steps": steps})) == {code}
    assert failed(result(**{f"gradients__{group}__max": 0.0})) == {code}
    assert failed(result(**{f"gradients__{group}__zero_steps": int(0.04 * steps)})) == set()


def test_a_scene_without_higher_harmonics_has_no_gradient_of_them() -> None:
    document = result()
    document["gradients"]["f_rest"].update(steps=0, zero_steps=0, max=None)
    assert failed(document) == {"gradients-f-rest"}
    document["config"]["sh_degree"] = 0
    assert failed(document) == set()
    outcomes = {item.code: item.outcome for item in judge(trained(document))}
    assert outcomes["gradients-f-rest"] is Outcome.NOT_MEASURED


def test_a_short_run_leaves_learning_undetermined() -> None:
    document = result(train_loss__last=RESULT["train_loss"]["first"], config__psnr_floor=None)
    document["heldout"]["psnr"] = document["initial_heldout"]["psnr"]
    document["gaussians"].update(cloned=0, split=0)
    document["gradients"]["f_rest"].update(steps=0, zero_steps=0, max=None)
    document["seconds"]["train"] = 1.2 * document["seconds"]["train"]
    codes = {"loss-falls", "held-out-psnr-rises", "densification-works", "gradients-f-rest", "time-by-phase"}
    assert failed(document) == codes
    document["iterations"] = document["config"]["iterations"] = SHORTEST - 1
    judged = judge(trained(document))
    assert {item.code for item in judged if item.outcome is Outcome.UNDETERMINED} == codes
    assert not [item for item in judged if item.outcome is Outcome.FAILED]
    document["gradients"]["xyz"]["zero_steps"] = SHORTEST - 1
    assert failed(document) == {"gradients-xyz"}


MEASURED = "heldout initial_heldout split gradients gaussians train_loss ply implementations"


@pytest.mark.parametrize("key", MEASURED.split())
def test_missing_measurement_never_passes(key: str) -> None:
    assert failed({name: part for name, part in RESULT.items() if name != key})


def test_a_reason_is_told_once_for_all_its_scenes_and_the_most_specific_first() -> None:
    document = result(train_loss__last=RESULT["train_loss"]["first"])
    document["gradients"]["xyz"].update(zero_steps=200, max=0.0)
    runs = tuple(SceneRun(name, judge(trained(document)), 1.0, record_of(document)) for name in ("a", "b"))
    first, second = reasons_of(replace(stored(), scenes=runs))
    assert first.startswith(
        "a, b: gradients-xyz: zero or none in 200 of 200 steps, largest norm 0. No gradient"
    )
    assert second.startswith("a, b: loss-falls: ")


def test_calls_of_an_extension_are_told_by_function() -> None:
    record = record_of({"implementations": {"a": {"calls": {"forward": 3}}, "b": {"calls": 4}}})
    assert (record.implementations["a"].calls, record.implementations["b"].calls) == ({"forward": 3}, 4)
