"""The option of another torch: what rules it out, and what it takes from GPUs that were not asked for."""

import dataclasses

import pytest

from splatfix.context import Goal
from splatfix.facts import Fact, Facts, Gpu
from splatfix.plan import OptionKind
from splatfix.plan.steps import InstallTorch
from tests.archs import goal
from tests.plan.machines import (
    CUDA_12,
    INTERPRETER,
    NEW_DRIVER,
    RTX_4090,
    RTX_5080,
    TORCH_118,
    TORCH_128,
    changed,
    find_options,
    machine,
    plan,
    step_of,
    why_not,
)

GTX_1080 = Gpu(1, "NVIDIA GeForce GTX 1080 Ti", cc="6.1")
A100 = Gpu(0, "NVIDIA A100", cc="8.0")
TITLE = "is then not served by torch"


def lost(facts: Facts, *targets: str) -> list[str]:
    """What the plan says of GPUs that were not asked for."""
    option = plan(find_options(goal(*targets), facts), OptionKind.OTHER_TORCH)
    return [reason.text for reason in option.reasons if TITLE in reason.text]


@pytest.mark.parametrize("target", ["sm_120", "sm_120a"])
def test_a_gpu_that_loses_its_torch_is_named(target: str) -> None:
    """CUDA 13 has no Pascal: serving the new card takes torch from the old one beside it."""
    facts = machine(torch=TORCH_118, gpus=(RTX_5080, GTX_1080), driver=NEW_DRIVER)
    (text,) = lost(facts, target)
    assert text.startswith("this machine's own sm_61 is then not served by torch: torch 2.")
    assert "has no code for it; an environment of its own" in text and "sm_120" not in text


def test_a_build_the_own_driver_cannot_start_is_noted() -> None:
    facts = machine(torch=None, gpus=(A100,), driver=("550.90.07", "12.4"))
    option = plan(find_options(goal("sm_120"), facts), OptionKind.OTHER_TORCH)
    assert step_of(option, InstallTorch).tag.startswith("cu13")
    (text,) = lost(facts, "sm_120")
    assert "own sm_80" in text and "driver 550.90.07 is too old for CUDA 13.0" in text


@pytest.mark.parametrize("other", [dataclasses.replace(RTX_4090, index=1), Gpu(1, "NVIDIA PCI device 2b85")])
def test_nothing_is_lost_where_every_gpu_is_served_or_not_known(other: Gpu) -> None:
    facts = machine(torch=TORCH_118, gpus=(RTX_5080, other), driver=NEW_DRIVER)
    assert lost(facts, "sm_120") == []


def without_torch(python: str = "3.11.7", driver: str = "580.95.05") -> Facts:
    interpreter = dataclasses.replace(INTERPRETER, version=python)
    return machine(
        torch=None, toolkits=(), gpus=(RTX_5080,), interpreter=interpreter, driver=(driver, "13.0")
    )


def why_no_torch(facts: Facts, *targets: str) -> str:
    return why_not(find_options(goal(*targets), facts), OptionKind.OTHER_TORCH)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (without_torch("3.8.10"), "torch 2.15 cu132 has wheels for Python 3.11 to 3.14, not for 3.8"),
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
    assert "driver" not in why_no_torch(machine(torch=TORCH_118, gpus=(future,), driver=("620.10", "14.0")))


def test_gpus_that_no_one_build_serves_are_served_one_at_a_time() -> None:
    facts = machine(torch=TORCH_128, gpus=(RTX_5080, GTX_1080), toolkits=(CUDA_12,), driver=NEW_DRIVER)
    reason = why_no_torch(facts)
    assert "sm_120 by torch 2.8.0+cu128, which is installed, sm_61 by torch 2." in reason
    assert "--target" in reason
    assert "one" not in why_no_torch(facts, "sm_120")
    assert find_options(goal(), facts).notes[0].startswith("no native option covers sm_120, sm_61 together")


def test_which_python_it_is_for_is_open_where_that_is_not_known() -> None:
    lost_python = {"interpreter": Fact(None, "", "no such file"), "torch_installed": Fact(None)}
    options = find_options(Goal(), changed(without_torch(), **lost_python))
    assert "the target Python cannot be used (no such file)" in why_not(options, OptionKind.KEEP)
    assert any("which Python" in text for text in plan(options, OptionKind.OTHER_TORCH).unsure)
