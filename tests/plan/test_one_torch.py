"""Findings and ways out name one and the same torch build, by one and the same command."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

import pytest

from splatfix.checks import Status, run_checks, select
from splatfix.context import Goal, make_context
from splatfix.facts import Fact, Facts
from splatfix.plan import Road, find_ways
from splatfix.plan.ways import InstallTorch
from tests.machines import NAMES, facts_of
from tests.plan.machines import CUDA_12, INTERPRETER, machine
from tests.plan.test_ways_grid import GRID, build_machine

TORCH_CHECKS = select(("torch",), ())


def advised(facts: Facts, targets: tuple[str, ...]) -> set[str]:
    """The commands by which failing checks of torch would install one."""
    return {
        step.line(windows=facts.machine.system == "windows")
        for item in run_checks(make_context(facts, Goal(targets)), TORCH_CHECKS)
        if item.status is Status.FAIL
        for step in item.remedy
        if step.command
        and re.search(r"install .*torch==", step.line(windows=facts.machine.system == "windows"))
    }


def planned(facts: Facts, targets: tuple[str, ...]) -> str:
    """The command of the road of another torch; "" where it is shut."""
    ways = find_ways(Goal(targets), facts)
    steps = (step for way in ways.plans if way.road is Road.OTHER_TORCH for step in way.steps)
    return next((step.command for step in steps if isinstance(step, InstallTorch)), "")


def sick() -> Iterator[tuple[Facts, tuple[str, ...]]]:
    """Machines whose torch serves nothing, or that have none, over the grid of the ways."""
    for torch, driver, toolkits, compiler, gpu, elsewhere in GRID[::31]:
        if torch in ("none", "cpu", "1.13.1+cu117", "2.5.1+cu124"):
            yield build_machine(torch, driver, toolkits, compiler, gpu), elsewhere


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
    assert advised(facts, ("sm_120",)) == {planned(facts, ("sm_120",))} != {""}


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({}, "/env/bin/python -m pip install "),
        ({"kind": "uv"}, "uv pip install --python /env/bin/python "),
        ({"externally_managed": True}, "FOLDER/bin/python -m pip install "),
    ],
)
def test_every_command_is_the_environments_own(changes: dict[str, object], starts: str) -> None:
    interpreter = dataclasses.replace(INTERPRETER, **changes)  # type: ignore[arg-type]
    facts = machine(torch=None, interpreter=interpreter, packages={})
    assert planned(facts, ("sm_120",)).startswith(starts)
    environment = dataclasses.replace(facts.environment, torch_installed=Fact(True, "test"))
    facts = dataclasses.replace(facts, environment=environment)
    for item in run_checks(make_context(facts, Goal(("sm_120",)))):
        for step in item.remedy:
            assert not re.search(r"(?<!-m )(?<!uv )\bpip install \S*torch", step.text), step.text
