"""A failing diagnosis ends with what cures its failures, and never with a way that leaves them as they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from splatfix.checks import Status, run_checks, select
from splatfix.context import Goal, make_context
from splatfix.facts import Checkout, Distribution, Fact, Facts, RenderCall, ToolkitChoice
from splatfix.knowledge.stacks import variant
from splatfix.plan import Request, Road, Ways, aim_at, find_ways, ways_out_of
from splatfix.plan.ways import ByHand, Rebuild
from tests.machines import NAMES, facts_of
from tests.plan.machines import CUDA_12, CUDA_13
from tests.plan.test_condemned import NAME, package, with_rasterizer
from tests.plan.test_ways import healthy

WRAPPED = ToolkitChoice(
    "/usr/local", "the folder above nvcc", "/usr/local/bin/nvcc", real_root=CUDA_13.root, has_headers=False
)


def diagnosed(facts: Facts, *targets: str) -> Ways:
    checks = select()
    findings = run_checks(make_context(facts, Goal(targets)), checks)
    assert any(item.status is Status.FAIL for item in findings)
    return ways_out_of(findings, {item.code: item.family for item in checks}, Goal(targets), facts)


def wrapped(facts: Facts) -> Facts:
    """torch would take the folder of a wrapper script for its toolkit."""
    environment = dataclasses.replace(facts.environment, toolkit_choice=Fact(WRAPPED, "test"))
    return dataclasses.replace(facts, environment=environment)


def calling(facts: Facts, unpacks: int) -> Facts:
    """A checkout that takes so many results of Mip-Splatting's rasterizer, which gives two."""
    row = variant("mip")
    assert row and row.settings and row.forward
    call = RenderCall(
        "r.py",
        1,
        "render",
        NAME,
        settings=row.settings,
        settings_positional=0,
        forward=row.forward,
        unpacks=unpacks,
    )
    return dataclasses.replace(facts, checkout=Fact(Checkout("/src", (), calls=(call,)), "test"))


def test_a_wrong_cuda_home_is_answered_in_one_sentence_where_what_is_installed_serves() -> None:
    advice = diagnosed(wrapped(with_rasterizer(package("mip")))).advice
    assert advice and advice.plan is None
    (said,) = advice.besides
    assert (
        "cuda-home-wrong matters only when CUDA code is built; what is installed serves as it is" in said.text
    )
    assert "splatfix install sets this itself" in said.text
    assert said.commands == (f'export CUDA_HOME="{CUDA_13.root}"',)


def test_a_wrong_cuda_home_is_part_of_the_rebuild_where_something_must_be_built() -> None:
    for facts in (wrapped(healthy()), wrapped(calling(with_rasterizer(package("mip")), 3))):
        advice = diagnosed(facts).advice
        assert advice and advice.plan and advice.plan.road is Road.REBUILD
        assert advice.besides == ()


def test_a_call_that_does_not_fit_is_answered_by_a_rebuild_of_that_part() -> None:
    facts = calling(with_rasterizer(package("mip")), 3)
    aim = Goal(extensions=(NAME,))
    checks = select()
    ways = ways_out_of(
        run_checks(make_context(facts, Goal()), checks), {i.code: i.family for i in checks}, aim, facts
    )
    assert ways.advice and ways.advice.plan and ways.advice.plan.road is Road.REBUILD
    step = next(item for item in ways.advice.plan.steps if isinstance(item, Rebuild))
    assert step.subjects == (NAME,)


def test_install_is_not_said_to_set_what_it_cannot() -> None:
    facts = with_rasterizer(package("mip"))
    facts = dataclasses.replace(
        facts, machine=dataclasses.replace(facts.machine, toolkits=Fact((CUDA_12,), "t"))
    )
    advice = diagnosed(facts).advice
    assert advice and advice.plan is None
    (said,) = advice.besides
    assert said.text.startswith("cuda-torch-mismatch matters only when CUDA code is built")
    assert "sets this itself" not in said.text


def test_what_no_way_out_cures_is_answered_by_the_findings_own_words() -> None:
    facts = with_rasterizer(package("mip"))
    environment = facts.environment
    vision = Distribution("torchvision", "0.22.0", "/x", pins=("torch==2.7.0",))
    found = (*(environment.distributions.value or ()), vision)
    environment = dataclasses.replace(environment, distributions=Fact(found, "test"))
    ways = diagnosed(dataclasses.replace(facts, environment=environment))
    assert ways.advice and ways.advice.plan is None
    (said,) = ways.advice.besides
    assert said.text.startswith("torch-companions: Install the torchvision of torch")
    assert Road.KEEP not in [item.road for item in ways.plans], "an import of torchvision fails there"


AILING = [
    name
    for name in NAMES
    if any(i.status is Status.FAIL for i in run_checks(make_context(facts_of(name), Goal())))
]


@pytest.mark.parametrize("name", AILING)
def test_on_no_simulated_machine_keeping_is_the_answer_to_what_it_does_not_cure(name: str) -> None:
    facts, checks = facts_of(name), select()
    findings = run_checks(make_context(facts, Goal()), checks)
    advice = ways_out_of(findings, {item.code: item.family for item in checks}, Goal(), facts).advice
    assert advice and (advice.plan or advice.besides)
    if advice.plan and advice.plan.road is Road.KEEP:
        assert isinstance(advice.plan.steps[0], ByHand) and advice.plan.title.startswith("do the first step")


def test_a_checkout_that_lacks_its_submodules_gets_them_before_it_is_built(tmp_path: Path) -> None:
    (tmp_path / "submodules" / "simple-knn").mkdir(parents=True)
    (tmp_path / ".gitmodules").write_text("\tpath = submodules/simple-knn\n")
    ways = find_ways(aim_at(Request((str(tmp_path),)), healthy(), source="HERE"), healthy())
    first = next(item for item in ways.plans if item.road is Road.REBUILD).steps[0]
    assert isinstance(first, ByHand) and "submodules/simple-knn is missing or empty" in first.text
    assert first.commands == (f"git -C {tmp_path} submodule update --init --recursive",)


def test_one_remedy_is_said_once() -> None:
    facts = with_rasterizer(package("mip"))
    ways = diagnosed(facts, "sm_61", "sm_120")
    assert ways.advice
    texts = [item.text.partition(": ")[2] for item in ways.advice.besides]
    assert len(texts) == len(set(texts))
