"""The road of another torch: what it costs the machine, and what it takes from GPUs that were not asked for."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.context import Goal
from splatfix.facts import Fact, Facts, Gpu
from splatfix.plan import OptionKind
from splatfix.plan.steps import InstallTorch
from tests.archs import goal
from tests.plan.machines import CUDA_12, INTERPRETER, find_options, machine, step_of
from tests.plan.test_options import RTX_5080, TORCH_118, TORCH_128, plan, why_not, with_driver

GTX_1080 = Gpu(1, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
TITLE = "is then not served by torch"


def lost(facts: Facts, *targets: str) -> list[str]:
    """What the plan says of GPUs that were not asked for."""
    option = plan(find_options(goal(*targets), facts), OptionKind.OTHER_TORCH)
    return [reason.text for reason in option.reasons if TITLE in reason.text]


@pytest.mark.parametrize("target", ["sm_120", "sm_120a"])
def test_a_gpu_that_loses_its_torch_is_named(target: str) -> None:
    """CUDA 13 has no Pascal: serving the new card takes torch from the old one beside it."""
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080, GTX_1080)), "580.95.05", "13.0")
    (text,) = lost(facts, target)
    assert text.startswith("this machine's own sm_61 is then not served by torch: torch 2.")
    assert "has no code for it; an environment of its own" in text and "sm_120" not in text


def test_a_build_the_own_driver_cannot_start_is_noted() -> None:
    facts = with_driver(machine(torch=None, gpus=(Gpu(0, "NVIDIA A100", cc="8.0"),)), "550.90.07", "12.4")
    option = plan(find_options(goal("sm_120"), facts), OptionKind.OTHER_TORCH)
    assert step_of(option, InstallTorch).tag.startswith("cu13")
    (text,) = lost(facts, "sm_120")
    assert (
        "own sm_80" in text and "driver 550.90.07 is too old for CUDA 13.0, which needs 580 or newer;" in text
    )


def test_nothing_is_lost_where_every_gpu_is_served() -> None:
    ada = Gpu(1, "NVIDIA GeForce RTX 4090", cc="8.9")
    facts = with_driver(machine(torch=TORCH_118, gpus=(RTX_5080, ada)), "580.95.05", "13.0")
    assert lost(facts, "sm_120") == [] and lost(facts) == []
    unread = with_driver(
        machine(torch=TORCH_118, gpus=(Gpu(0, "NVIDIA PCI device 2b85"),)), "580.95.05", "13.0"
    )
    assert lost(unread, "sm_120") == [], "a GPU whose architecture is not known is known to lose nothing"


def changed(facts: Facts, **values: object) -> Facts:
    """The same environment on another machine."""
    return dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, **values))  # type: ignore[arg-type]


def without_torch(python: str = "3.11.7", driver: str = "580.95.05") -> Facts:
    interpreter = dataclasses.replace(INTERPRETER, version=python)
    return with_driver(
        machine(torch=None, toolkits=(), gpus=(RTX_5080,), interpreter=interpreter), driver, "13.0"
    )


def why_no_torch(facts: Facts, *targets: str) -> str:
    return why_not(find_options(goal(*targets), facts), "another build")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            without_torch("3.8.10"),
            "with Python 3.8: torch 2.15 cu132 has wheels for Python 3.11 to 3.14, not for 3.8",
        ),
        (changed(without_torch(), glibc="2.17"), "glibc 2.28 or newer; here is 2.17"),
        (without_torch(driver="470.57.02"), "under driver 470.57.02; with 5"),
        (changed(without_torch(), libc=Fact("musl 1.2.5", "ldd")), "no wheel for musl 1.2.5"),
        (changed(without_torch(), system="darwin"), "no CUDA build for darwin"),
    ],
)
def test_what_rules_out_every_build_is_named(facts: Facts, words: str) -> None:
    assert words in why_no_torch(facts)


def test_no_older_driver_is_suggested() -> None:
    """Some build of an old CUDA may run on a GPU of the future, for all the tables know: no driver is what it lacks."""
    future = Gpu(0, "NVIDIA GeForce RTX 6090", cc="13.0")
    facts = with_driver(machine(torch=TORCH_118, gpus=(future,)), "620.10", "14.0")
    assert "driver" not in why_no_torch(facts)


def test_gpus_that_no_one_build_serves_are_served_one_at_a_time() -> None:
    facts = with_driver(
        machine(torch=TORCH_128, gpus=(RTX_5080, GTX_1080), toolkits=(CUDA_12,)), "580.95.05", "13.0"
    )
    why = why_no_torch(facts)
    assert "sm_120 by torch 2.8.0+cu128, which is installed, sm_61 by torch 2." in why and "--target" in why
    assert "one" not in why_no_torch(facts, "sm_120")


def test_which_python_it_is_for_is_open_where_that_is_not_known() -> None:
    facts = without_torch()
    lost_python = dataclasses.replace(
        facts.environment, interpreter=Fact(None, "", "no such file"), torch_installed=Fact(None)
    )
    options = find_options(Goal(), dataclasses.replace(facts, environment=lost_python))
    assert "the target Python cannot be used (no such file)" in why_not(options, "keep")
    assert any("which Python" in text for text in plan(options, OptionKind.OTHER_TORCH).unsure)
