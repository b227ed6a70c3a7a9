"""The road of another torch: what it costs the machine, and what it takes from GPUs that were not asked for."""

from __future__ import annotations

import pytest

from splatfix.facts import Facts, Gpu
from splatfix.resolve import Aim, Road, find_ways
from splatfix.resolve.ways import InstallTorch
from tests.resolve.machines import machine
from tests.resolve.test_ways import RTX_5080, TORCH_118, plan, with_driver

GTX_1080 = Gpu(1, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
TITLE = "is then not served by torch"


def lost(facts: Facts, *targets: str) -> list[str]:
    """What the plan says of GPUs that were not asked for."""
    way = plan(find_ways(Aim(targets), facts), Road.OTHER_TORCH)
    return [reason.text for reason in way.reasons if TITLE in reason.text]


@pytest.mark.parametrize("target", ["sm_120", "sm_120a"])
def test_a_gpu_that_loses_its_torch_is_named(target: str) -> None:
    """CUDA 13 has no Pascal: serving the new card takes torch from the old one beside it."""
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080, GTX_1080)), "580.95.05", "13.0")
    (text,) = lost(facts, target)
    assert text.startswith("this machine's own sm_61 is then not served by torch: torch 2.")
    assert text.endswith("has no code for it") and "sm_120" not in text


def test_a_build_that_the_own_driver_does_not_start_is_told_for_a_target_elsewhere() -> None:
    facts = with_driver(machine(torch=None, gpus=(Gpu(0, "NVIDIA A100", cc="8.0"),)), "550.90.07", "12.4")
    way = plan(find_ways(Aim(("sm_120",)), facts), Road.OTHER_TORCH)
    assert next(step for step in way.steps if isinstance(step, InstallTorch)).tag.startswith("cu13")
    (text,) = lost(facts, "sm_120")
    assert "own sm_80" in text and text.endswith(
        "driver 550.90.07 is too old for CUDA 13.0, which needs 580 or newer"
    )


def test_nothing_is_lost_where_the_build_serves_every_gpu_or_all_were_asked_for() -> None:
    ada = Gpu(1, "NVIDIA GeForce RTX 4090", cc="8.9")
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080, ada)), "580.95.05", "13.0")
    assert lost(facts, "sm_120") == [] and lost(facts) == []
    unread = with_driver(
        machine(torch=TORCH_118, gpus=(Gpu(0, "NVIDIA PCI device 2b85"),)), "580.95.05", "13.0"
    )
    assert lost(unread, "sm_120") == [], "a GPU whose architecture is not known is known to lose nothing"
