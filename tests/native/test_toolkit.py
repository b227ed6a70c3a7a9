"""A CUDA toolkit from PyPI wheels, for real: downloaded, and an extension built and proven with it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.proof import RungName
from splatfix.facts import gather
from splatfix.install import execute
from splatfix.install.environment import Environment
from splatfix.model import Fact
from splatfix.plan import BuildWheel, ProvideToolkit
from tests.archs import request_for
from tests.plan.machines import changed, make_plan

pytestmark = [pytest.mark.native, pytest.mark.slow]
PROBE = Path(__file__).parents[1] / "fixtures" / "splat_probe"


def test_an_extension_is_built_with_a_toolkit_from_wheels(native: Environment) -> None:
    """More than 1 GB is downloaded; the machine's own toolkits are hidden from the plan."""
    facts = gather(native.python)
    torch = facts.environment.torch.value
    if torch is None or not (torch.cuda or "").startswith("13."):
        pytest.skip("wheels make a compiler for CUDA 13 only")
    bare = changed(facts, toolkits=Fact((), "hidden"))
    request = request_for((str(PROBE),), ("sm_120",), provide_toolkit=True)
    plan = make_plan(request, bare)
    assert isinstance(plan.steps[0], ProvideToolkit)
    outcome = execute(plan, bare)
    (item,) = outcome.items
    reached = {rung.name for rung in item.proof if rung.reached}
    assert {RungName.BUILT, RungName.LOADS} <= reached

    again = make_plan(replace(request, provide_toolkit=False), bare)
    first = again.steps[0]
    assert isinstance(first, BuildWheel) and first.variables["CUDA_HOME"] == plan.steps[0].root
