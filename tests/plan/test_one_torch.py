"""Findings and options out name one and the same torch build, by one and the same command."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from splatfix.checks import Status, run_checks, select
from splatfix.context import make_context
from splatfix.core.step import Command, commands
from splatfix.facts import Fact, Facts
from splatfix.plan import OptionKind
from splatfix.plan.steps import InstallTorch
from tests.archs import goal
from tests.machines import NAMES, facts_of
from tests.plan.machines import CUDA_12, INTERPRETER, find_options, machine, step_of
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


def sick() -> Iterator[tuple[Facts, tuple[str, ...]]]:
    """Machines whose torch serves nothing, or that have none, over the grid of the options."""
    for torch, driver, toolkits, compiler, gpu, elsewhere in GRID[::31]:
        if torch in ("none", "cpu", "1.13.1+cu117", "2.5.1+cu124"):
            yield build_machine(torch, driver, toolkits, compiler, gpu), elsewhere


@pytest.mark.slow
def test_over_the_grid_both_name_the_same_build() -> None:
    compared = 0
    for facts, targets in sick():
        said, road = advised(facts, targets), planned(facts, targets)
        if said and road:
            compared += 1
            assert said == {road}, (targets, facts.machine.driver, facts.machine.toolkits)
    assert compared > 100


@pytest.mark.parametrize("name", NAMES)
def test_on_every_simulated_machine_too(name: str) -> None:
    for targets in ((), ("sm_120",), ("sm_61",), ("sm_90", "sm_75")):
        said, road = advised(facts_of(name), targets), planned(facts_of(name), targets)
        assert not said or not road or said == {road}


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
    interpreter = dataclasses.replace(INTERPRETER, **changes)  # type: ignore[arg-type]
    facts = machine(torch=None, interpreter=interpreter, packages={})
    command = planned(facts, ("sm_120",))
    assert command and command.argv[: len(starts)] == starts
    environment = dataclasses.replace(facts.environment, torch_installed=Fact(True, "test"))
    facts = dataclasses.replace(facts, environment=environment)
    for item in run_checks(make_context(facts, goal("sm_120"))):
        for step in item.remedy:
            assert not re.search(r"(?<!-m )(?<!uv )\bpip install \S*torch", step.line()), step.line()
