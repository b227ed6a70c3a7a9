"""A fact that is taken away never makes a check crash, and never makes it louder: unknown is not bad."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.checks import Status, run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import EnvironmentFacts, Fact, Facts, MachineFacts
from tests.machines import NAMES, facts_of

PARTS = [
    ("machine", field.name)
    for field in dataclasses.fields(MachineFacts)
    if field.name not in ("system", "machine")
]
PARTS += [("environment", field.name) for field in dataclasses.fields(EnvironmentFacts)]


def without(facts: Facts, part: str, field: str) -> Facts:
    """The facts with one field as an older splatfix, or a probe that failed, leaves it."""
    owner = getattr(facts, part)
    blank = next(item for item in dataclasses.fields(owner) if item.name == field)
    default = blank.default if blank.default is not dataclasses.MISSING else blank.default_factory()  # type: ignore[misc]
    lost = Fact(None, "", "the probe failed") if isinstance(default, Fact) else default
    return dataclasses.replace(facts, **{part: dataclasses.replace(owner, **{field: lost})})


def loud(facts: Facts) -> set[tuple[str, str]]:
    return {
        (item.code, item.status.value)
        for item in run_checks(make_context(facts, Goal()))
        if item.status in (Status.FAIL, Status.WARN, Status.CRASH)
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_fact_adds_no_alarm(name: str) -> None:
    facts = facts_of(name)
    before = loud(facts)
    # an interpreter that does not answer, and a torch whose files are there but cannot be read, are findings themselves
    expected = {
        ("environment", "interpreter"): {("interpreter-broken", "fail")},
        ("environment", "torch"): {("torch-missing", "fail")},
    }
    worse = {}
    for part, field in PARTS:
        added = loud(without(facts, part, field)) - before - expected.get((part, field), set())
        if added:
            worse[field] = added
    assert not worse


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "targets", [("sm_120",), ("sm_90",), ("sm_75",), ("sm_120", "sm_61"), ("sm_120f",)], ids=" ".join
)
def test_no_goal_breaks_a_check(name: str, targets: tuple[str, ...]) -> None:
    assert not [
        item
        for item in run_checks(make_context(facts_of(name), Goal(targets)))
        if item.status is Status.CRASH
    ]


def test_nothing_known_at_all(rtx_5080: Facts) -> None:
    bare = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")
    found = run_checks(make_context(bare, Goal(("sm_120",))))
    assert not [item for item in found if item.status in (Status.CRASH, Status.WARN)]
    assert [item.code for item in found if item.status is Status.FAIL] == ["interpreter-broken"]


@pytest.mark.parametrize("text", ["", "(", "unknown", "12", "\u00e9", "1.2.3.4.5"])
def test_what_is_no_version_and_no_architecture_breaks_no_check(rtx_5080: Facts, text: str) -> None:
    """A self-built torch, a driver or a toolkit newer than anything may name itself in ways that nobody foresaw."""
    machine, environment = rtx_5080.machine, rtx_5080.environment
    (gpu,), (toolkit,) = machine.gpus.value or (), machine.toolkits.value or ()
    torch = environment.torch.value
    assert torch is not None and machine.driver.value is not None
    strange = [
        {"gpus": Fact((dataclasses.replace(gpu, cc=text),), "NVML")},
        {"toolkits": Fact((dataclasses.replace(toolkit, version=text),), "PATH")},
        {"driver": Fact(dataclasses.replace(machine.driver.value, version=text, cuda=text), "NVML")},
        {"torch": Fact(dataclasses.replace(torch, version=text), "")},
        {"torch": Fact(dataclasses.replace(torch, cuda=text), "")},
        {"torch": Fact(dataclasses.replace(torch, knows_archs=(text, "9.0")), "")},
    ]
    for change in strange:
        part = "environment" if "torch" in change else "machine"
        owner = dataclasses.replace(getattr(rtx_5080, part), **change)
        facts = dataclasses.replace(rtx_5080, **{part: owner})
        assert not [
            item for item in run_checks(make_context(facts, Goal())) if item.status is Status.CRASH
        ], change
