"""Diagnose, options and installer name the same targets, driver level, toolkit and compiler; the torch: tests/plan."""

import pytest

from splatfix.context import Context, make_context
from splatfix.core.errors import Rejected
from splatfix.knowledge import Arch
from splatfix.model import Fact, Facts
from splatfix.model.steps import BuildWheel
from splatfix.plan import Case, OptionKind, Request, rank
from splatfix.plan.tools import tools_for_request
from tests.archs import goal
from tests.machines import NAMES, facts_of
from tests.plan.machines import changed, step_of

GOALS = [(), ("sm_120",), ("sm_86",), ("sm_90", "sm_120"), ("auto", "sm_75")]


def hiding(facts: Facts, value: str) -> Facts:
    variables = {**facts.machine.variables, "CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # CUDA's own list was made without them
    return changed(facts, variables=variables, cuda=Fact())


@pytest.fixture(scope="module")
def machines() -> dict[str, Facts]:
    found = {name: facts_of(name) for name in NAMES}
    both = found["rtx-3090-and-5090"]
    return {**found, "first-visible": hiding(both, "0"), "second-visible": hiding(both, "1")}


def install_tools(context: Context) -> tuple[tuple[Arch, ...], str, str] | str:
    """What the installer takes: targets, toolkit and compiler; or the code of its error."""
    tools = tools_for_request(Request(targets=context.goal.targets), context)
    if isinstance(tools, Rejected):
        return tools.code
    assert tools.compilers
    return context.archs, tools.chosen.toolkit.root, tools.compilers.cxx


@pytest.mark.parametrize("targets", GOALS, ids=lambda item: ",".join(item) or "none")
@pytest.mark.parametrize("name", [*NAMES, "first-visible", "second-visible"])
def test_one_answer(machines: dict[str, Facts], name: str, targets: tuple[str, ...]) -> None:
    context = make_context(machines[name], goal(*targets))
    own = context.archs
    options = rank(Case(context=context))
    assert not options.targets or options.targets == own
    installed = install_tools(context)
    toolkit, compilers = context.toolkit.value, context.compilers.value
    if not isinstance(installed, str):
        assert toolkit is not None and compilers is not None
        assert installed == (own, toolkit.toolkit.root, compilers.cxx)
    elif installed in ("no-matching-toolkit", "arch-unknown-to-torch", "arch-dropped-by-cuda"):
        assert context.toolkit.problem is not None and context.toolkit.problem.code == installed
    for option in options.available:
        if option.kind is OptionKind.REBUILD:
            step = step_of(option, BuildWheel)
            assert toolkit is not None
            assert step.targets == own and step.variables["CUDA_HOME"] == toolkit.toolkit.root
            assert step.variables.get("CXX", "") == (compilers.cxx if compilers else "")
