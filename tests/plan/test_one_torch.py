"""Findings and options out name one and the same torch build, by one and the same command."""

import re

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import make_context
from splatfix.core.step import Command, commands
from splatfix.model import Fact, Facts, Status
from splatfix.model.steps import InstallTorch
from splatfix.plan import OptionKind
from tests.archs import goal
from tests.machines import NAMES, facts_of
from tests.plan.machines import CUDA_12, INTERPRETER, changed, find_options, machine, step_of
from tests.plan.test_grid import GRID, build_machine

TORCH_CHECKS = select(("torch",), ())


def advised(facts: Facts, targets: tuple[str, ...]) -> set[Command]:
    """The commands by which failing checks of torch would install one."""
    return {
        command
        for item in run_checks(make_context(facts, goal(*targets)), TORCH_CHECKS)
        if item.status is Status.FAIL
        for command in commands(item.remedy)
        if any(word.startswith("torch==") for word in command.argv)
    }


def planned(facts: Facts, targets: tuple[str, ...]) -> Command | None:
    """The command of the option of another torch; None where it is rejected."""
    options = find_options(goal(*targets), facts)
    found = (option for option in options.available if option.kind is OptionKind.OTHER_TORCH)
    return next((step_of(option, InstallTorch).command for option in found), None)


@pytest.mark.slow
def test_over_the_grid_both_name_the_same_build() -> None:
    """On machines whose torch serves nothing, or that have none."""
    compared = 0
    for torch, driver, toolkits, compiler, gpu, targets in GRID[::31]:
        if torch not in ("none", "cpu", "1.13.1+cu117", "2.5.1+cu124"):
            continue
        facts = build_machine(torch, driver, toolkits, compiler, gpu)
        of_checks, of_option = advised(facts, targets), planned(facts, targets)
        if of_checks and of_option:
            compared += 1
            assert of_checks == {of_option}, (targets, facts.machine.driver, facts.machine.toolkits)
    assert compared > 100


@pytest.mark.parametrize("name", NAMES)
def test_on_every_simulated_machine_too(name: str) -> None:
    for targets in ((), ("sm_120",), ("sm_61",), ("sm_90", "sm_75"), ("auto", "sm_75")):
        of_checks, of_option = advised(facts_of(name), targets), planned(facts_of(name), targets)
        assert not of_checks or not of_option or of_checks == {of_option}


@pytest.mark.parametrize("toolkits", [(), (CUDA_12,)])
def test_an_empty_environment_without_the_newest_toolkit(toolkits: tuple[object, ...]) -> None:
    facts = machine(torch=None, toolkits=toolkits)  # type: ignore[arg-type]
    assert advised(facts, ("sm_120",)) == {planned(facts, ("sm_120",))} != {None}


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({}, ("/env/bin/python", "-m", "pip", "install")),
        ({"kind": "uv"}, ("uv", "pip", "install", "--python", "/env/bin/python")),
        ({"externally_managed": True}, (".venv/bin/python", "-m", "pip", "install")),
    ],
)
def test_every_command_is_the_environments_own(changes: dict[str, object], starts: tuple[str, ...]) -> None:
    interpreter = replace(INTERPRETER, **changes)  # type: ignore[arg-type]
    facts = machine(torch=None, interpreter=interpreter, packages={})
    command = planned(facts, ("sm_120",))
    assert command and command.argv[: len(starts)] == starts
    facts = changed(facts, torch_installed=Fact(True, "test"))
    for item in run_checks(make_context(facts, goal("sm_120"))):
        for step in item.remedy:
            assert not re.search(r"(?<!-m )(?<!uv )\bpip install \S*torch", step.line()), step.line()
