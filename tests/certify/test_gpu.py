"""Which GPU a certificate is about: judged and recorded for the one that trained."""

from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.certify import SceneRun, Suite
from splatfix.certify.certificate import Measured, conclude
from splatfix.certify.environment import gpu_record
from splatfix.core.proof import RungName
from splatfix.model import CudaDevice, Fact, Facts
from tests.certify.conftest import subject
from tests.certify.test_baseline import RUN
from tests.certify.test_levels import GOOD
from tests.machines import facts_of

MIXED = facts_of("rtx-3090-and-5090")  # its extensions carry code for one of the two


def changed(**values: Any) -> Facts:
    return replace(MIXED, machine=replace(MIXED.machine, **values))


def rungs(device: str, tmp_path: Any, facts: Facts = MIXED) -> dict[RungName, bool | None]:
    asked = subject(Suite("quick", ("figurine",), 60.0), tmp_path, device=device, renderer="inria")
    proof = conclude(asked, facts, Measured(kernels=(GOOD,), runs=(RUN,))).proof
    return {rung.name: rung.reached for rung in proof}


def test_a_second_gpu_refuses_no_certificate(tmp_path: Any) -> None:
    built = {device: rungs(device, tmp_path)[RungName.BUILT] for device in ("cuda:0", "cuda:1")}
    assert set(built.values()) == {True, False}
    assert rungs("cpu", tmp_path)[RungName.BUILT] is None


def test_the_gpu_that_trained_is_recorded() -> None:
    gpus = tuple(
        replace(gpu, max_clocks=(2100, 9751), power_limit=280_000, default_power_limit=350_000)
        for gpu in MIXED.machine.gpus.value or ()
    )
    found = gpu_record(changed(gpus=Fact(gpus)), "cuda:1", ())
    assert found["GPU"] == "NVIDIA GeForce RTX 3090 (cuda:1)"
    assert found["GPU power limit"] == "280 W of 350 W"
    assert found["GPU clocks"] == "at most 2100 MHz, memory 9751 MHz"
    assert found["other GPUs"] == "NVIDIA GeForce RTX 5090"
    assert found["driver"] == "580.95.05"
    assert gpus[1].uuid and gpus[1].uuid not in str(found) and found["GPU id"].startswith("sha256:")


@pytest.mark.parametrize(("cuda", "certain"), [(None, False), (("5090", "3090"), True)])
def test_details_only_of_a_certain_gpu(cuda: tuple[str, ...] | None, certain: bool) -> None:
    devices = tuple(CudaDevice(f"NVIDIA GeForce RTX {name}") for name in cuda) if cuda else None
    without_bus = tuple(replace(gpu, bus_id=None) for gpu in MIXED.machine.gpus.value or ())
    facts = changed(cuda=Fact(devices), gpus=Fact(without_bus))
    assert ("GPU id" in gpu_record(facts, "cuda", ())) is certain


def test_the_name_is_torchs_own_and_none_on_the_cpu() -> None:
    told = SceneRun("figurine", (), 7.0, {"machine": {"gpu": "NVIDIA Test"}})
    assert gpu_record(MIXED, "cuda", (told,))["GPU"] == "NVIDIA Test (cuda)"
    found = gpu_record(MIXED, "cpu", (RUN,))
    assert found["GPU"] == "none used" and "GPU id" not in found
