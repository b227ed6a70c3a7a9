"""Every criterion, on the recorded result of a real run and on changed copies of it; and a record, however broken."""

import json
import math
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import Outcome, smoke_training
from splatfix.certify.advice import advised
from splatfix.certify.certificate import failures
from splatfix.certify.criteria import judge
from splatfix.certify.criteria.criterion import SHORTEST
from splatfix.certify.criteria.gradients import REQUIRED_GROUPS
from splatfix.certify.levels import evaluate
from splatfix.certify.model import SceneRun
from splatfix.certify.record import TrainingRecord
from splatfix.certify.smoke_training import SmokeTrainer, busy_gpu
from splatfix.core.proof import RungName
from splatfix.facts.machine.nvml import GpuUse
from splatfix.model import Gpu
from tests.certify.conftest import RESULT, SHORT, RecordedTrainer, result, subject
from tests.machines import facts_of


def failed(document: dict[str, Any]) -> set[str]:
    return {
        item.code for item in judge(TrainingRecord.of(document), "torch") if item.outcome is Outcome.FAILED
    }


def test_recorded_run_meets_every_criterion() -> None:
    criteria = judge(TrainingRecord.of(RESULT), "torch")
    assert [item.code for item in criteria if item.outcome is not Outcome.MET or not item.source] == []
    assert [item for item in judge(TrainingRecord(), "torch") if item.outcome is Outcome.MET] == []
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
        ("train_loss__last", float("nan"), "finite-values"),
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
    codes = [item.code for item in judge(TrainingRecord.of(document), "torch")]
    assert "gradients-f-rest" not in codes


def test_a_short_run_leaves_learning_undetermined() -> None:
    document = result(train_loss__last=RESULT["train_loss"]["first"], config__psnr_floor=None)
    document["heldout"]["psnr"] = document["initial_heldout"]["psnr"]
    document["gaussians"].update(cloned=0, split=0)
    document["gradients"]["f_rest"].update(steps=0, zero_steps=0, max=None)
    document["seconds"]["train"] = 1.2 * document["seconds"]["train"]
    codes = {"loss-falls", "held-out-psnr-rises", "densification-works", "gradients-f-rest", "time-by-phase"}
    assert failed(document) == codes
    document["iterations"] = document["config"]["iterations"] = SHORTEST - 1
    judged = judge(TrainingRecord.of(document), "torch")
    assert {item.code for item in judged if item.outcome is Outcome.UNDETERMINED} == codes
    assert not [item for item in judged if item.outcome is Outcome.FAILED]
    document["gradients"]["xyz"]["zero_steps"] = SHORTEST - 1
    assert failed(document) == {"gradients-xyz"}


MEASURED = "heldout initial_heldout split gradients gaussians train_loss ply implementations"


@pytest.mark.parametrize("key", MEASURED.split())
def test_missing_measurement_never_passes(key: str) -> None:
    assert failed({name: part for name, part in RESULT.items() if name != key})


def test_every_criterion_is_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands" / "certify.md").read_text(encoding="utf-8")
    groups = [f"gradients-{name.replace('_', '-')}" for name in REQUIRED_GROUPS]
    told = {*re.findall(r"`([a-z-]+)`", page), *groups}
    assert [item.code for item in judge(TrainingRecord.of(RESULT), "torch") if item.code not in told] == []
    assert all(f"`-{name.replace('_', '-')}`" in page for name in REQUIRED_GROUPS[1:])


UNSTEADY = {"slow": [], "lost": 0.0, "drift": 1.91, "others": 0.02}


@pytest.mark.parametrize(
    ("others", "device", "gpu_busy", "excuse"),
    [
        (0.02, "cpu", None, ""),
        (0.93, "cpu", None, "other programs kept 0.9 of its cores busy"),
        (None, "cpu", None, "how busy it was is not known"),
        (0.0, "cuda", 0.03, ""),
        (0.0, "cuda", 0.62, "other programs kept the GPU 62% busy"),
        # without NVML nothing excuses it, and a busy CPU neither
        (2.0, "cuda", None, ""),
    ],
)
def test_load_of_other_programs_refuses_nothing(
    others: float | None, device: str, gpu_busy: float | None, excuse: str
) -> None:
    document = result(steadiness={**UNSTEADY, "others": others, "gpu_busy": gpu_busy}, config__device=device)
    (slow,) = (one for one in judge(TrainingRecord.of(document), "torch") if one.code == "throughput-steady")
    judged = advised(slow, "torch", device)
    run = SceneRun("figurine", (judged,), 1.0, document)
    (trains,) = (
        one for one in evaluate((), (), (run,), None, "torch", device) if one.name is RungName.TRAINS
    )
    assert "1.91 times as slow" in judged.measured
    if not excuse:
        assert judged.outcome is Outcome.FAILED and trains.reached is False
        assert ("nvidia-smi" in judged.advice) is (device == "cuda")
        assert judged.advice.startswith("No other program kept") is (device == "cpu")
        return
    assert judged.outcome is Outcome.NOT_MEASURED and run.passed
    assert f"not judged: {excuse}" in judged.measured and "while nothing else runs" in judged.advice
    assert run.notes == (f"throughput-steady: {judged.measured}",)
    assert trains.reached and "throughput-steady not judged for figurine" in trains.shown_by


def test_what_one_cause_leads_to_is_one_reason() -> None:
    """Nine criteria that a backward pass without gradients fails: what reaches no group, and what follows from that."""
    document = result(train_loss__last=RESULT["train_loss"]["first"])
    for quality in ("heldout", "training_views"):
        document[quality]["psnr"] = document["initial_heldout"]["psnr"]
    for group in REQUIRED_GROUPS:
        document["gradients"][group].update(zero_steps=200, max=0.0)
    run = SceneRun("figurine", judge(TrainingRecord.of(document), "torch"), 1.0, document)
    assert len(run.failed) == 9
    groups = ", ".join(item.code for item in run.failed if item.code.startswith("gradients-"))
    assert failures((), (run,), ()) == (
        f"figurine: {groups}: zero in 200 of 200 steps, largest norm 0. No gradient reaches them: training runs without them.",
        "figurine: loss-falls, held-out-psnr-rises, held-out-quality: may follow from that.",
    )
    vague = replace(run, criteria=tuple(item for item in run.failed if "gradients" not in item.code))
    assert len(failures((), (vague,), ())) == 3, "of what nothing tells the cause, each is told"


@pytest.mark.parametrize(
    ("shares", "busy"), [([], None), ([None, 4], None), ([62], 0.62), ([62, 0], 0.62), ([0, 30], 0.0)]
)
@pytest.mark.parametrize("uuid", ["GPU-0", None])
def test_the_gpu_that_trains_counts(shares: list[int | None], busy: float | None, uuid: str | None) -> None:
    """Where it is not known which does, any may."""
    uses = [SimpleNamespace(utilisation=share, uuid=f"GPU-{index}") for index, share in enumerate(shares)]
    meter: Any = SimpleNamespace(read=lambda: tuple(uses))
    if uuid is None:
        busy = max((share / 100 for share in shares if share is not None), default=None)
    assert busy_gpu(Gpu(1, "NVIDIA L4", uuid=uuid), meter, settle=0.0) == busy


@pytest.mark.parametrize(
    ("lost", "train", "outcome"),
    [(0.15, 0.4, Outcome.MET), (0.15, 4.0, Outcome.FAILED), (0.05, 60.0, Outcome.MET)],
)
def test_a_short_stall_is_not_refused(lost: float, train: float, outcome: Outcome) -> None:
    """Of 200 iterations of 2 ms 40 ms are a tenth; of a stall of half a second in a longer run nothing is excused."""
    even = {**UNSTEADY, "lost": lost, "drift": 1.0}
    document = result(steadiness=even, seconds__train=train, seconds__warm_up=0.02, config__device="cuda")
    judged = {item.code: item for item in judge(TrainingRecord.of(document), "torch")}["throughput-steady"]
    assert judged.outcome is outcome, judged.measured


def test_a_gpu_that_became_busy_meanwhile_excuses_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the utilisation of the second of two, which trains; the first is idle."""
    shares = iter((2, 60))
    facts = facts_of("rtx-3090-and-5090")
    _, trains = facts.machine.gpus.value or ()
    idle = GpuUse(0, "NVIDIA L4", None, None, 0, {}, "GPU-0")
    meter = SimpleNamespace(read=lambda: (idle, replace(idle, utilisation=next(shares), uuid=trains.uuid)))
    monkeypatch.setattr(smoke_training, "NvmlMeter", lambda: meter)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    trained = RecordedTrainer(figurine=result(config__device="cuda"))
    trainer = SmokeTrainer(subject(SHORT, tmp_path, device="cuda:1"), facts, trained, tmp_path)
    run = trainer.train("figurine", lambda *_: None, first=False)
    assert run.record.steadiness.gpu_busy == 0.6


def test_the_document_stays_as_it_was_written() -> None:
    record = TrainingRecord.of({**RESULT, "of_a_later_version": 1})
    assert json.dumps(record.document) == json.dumps({**RESULT, "of_a_later_version": 1})


def test_calls_of_an_extension_are_told_by_function() -> None:
    record = TrainingRecord.of({"implementations": {"a": {"calls": {"forward": 3}}, "b": {"calls": 4}}})
    assert (record.implementations["a"].calls, record.implementations["b"].calls) == ({"forward": 3}, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e80, 10**400, True, "12", None, [], {}])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    record = TrainingRecord.of({"heldout": {"psnr": value, "ssim": 0.5}, "gaussians": {"final": value}})
    assert (record.heldout.psnr, record.heldout.ssim, record.gaussians.final) == (None, 0.5, None), "no other"


@pytest.mark.parametrize(
    "value", [None, 1, "text", [], [1, None], {"a": {"b": []}}, {"train": {"allocated": "x"}}]
)
def test_a_document_of_other_types_is_an_empty_record(value: object) -> None:
    record = TrainingRecord.of(dict.fromkeys(RESULT, value))
    assert record.heldout.psnr is None
    assert record.memory.rss is None


def test_a_part_that_was_left_out_is_told_from_one_that_cannot_be_known() -> None:
    record = TrainingRecord.of({"memory": None})
    assert record.has("memory")
    assert not record.has("steadiness")
