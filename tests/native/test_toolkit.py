"""For real: a CUDA toolkit from PyPI wheels builds an extension, and the symbols of a CUDA torch are read."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.core.proof import RungName
from splatfix.core.runner import Runner
from splatfix.facts import System, gather
from splatfix.facts.environment import probe as environment
from splatfix.install import execute
from splatfix.install.environment import Environment
from splatfix.model import Fact
from splatfix.plan import BuildWheel, ProvideToolkit
from tests.archs import request_for
from tests.facts.environment.native_files import NEW_ABI, extension
from tests.plan.machines import changed, make_plan

PROBE = Path(__file__).parents[1] / "fixtures" / "splat_probe"


@pytest.mark.slow
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


pytestmark = pytest.mark.native


def test_symbols_of_a_real_torch(native: Environment, cuda_site: Path) -> None:
    lib = cuda_site / "torch" / "lib"
    # names that libc10 really exports, taken from its own table by binutils
    listed = Runner().run(["nm", "-D", "--defined-only", lib / "libc10.so"], timeout=120)
    assert listed.ok, listed.why()
    real = sorted({line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if " T _ZN" in line})
    own = [name for name in real if name.startswith("_ZN3c10")][:300]
    assert len(own) == 300
    extension(native.purelib, [*own, NEW_ABI], lib / "libc10.so")
    result = environment.probe(System(), str(native.python))
    (linkage,) = (item.linkage for item in result.extensions.value or () if item.path.startswith("pkg"))
    assert linkage is not None and linkage.torch_symbols == len({*own, NEW_ABI})
    assert linkage.torch_missing == ()
    assert linkage.cxx11_abi is True


def test_one_library_of_each_kind(native: Environment) -> None:
    """A healthy environment has no second runtime and bundles nothing."""
    result = environment.probe(System(), str(native.python))
    copies = [item for item in result.runtime_copies.value or () if item.library in ("libc10", "libcudart")]
    assert sorted(item.library for item in copies) == ["libc10", "libcudart"]
    assert not any(item.bundled for item in copies)
