"""Linkage, C++ runtime and companions: loud on what the loader would refuse, quiet on what it takes."""

from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.checks import Status
from splatfix.facts import Fact

from .conftest import Changer, linked, loud, sass

GONE = "_ZN3c1010TensorImpl4goneEv"


@pytest.mark.parametrize(
    "wrong", [{"torch_missing": (GONE,)}, {"cxx11_abi": False}, {"unresolved": ("libtorch_gone.so",)}]
)
def test_a_library_that_nothing_loads_is_a_warning(changed: Changer, wrong: dict[str, Any]) -> None:
    """open3d brings libraries for torch's operators, of an older torch's ABI and CUDA, for two devices."""
    needed = ("libtorch.so", "libcudart.so.11.0")
    item = replace(linked(**wrong), optional=True, needed=needed, code=(sass("sm_90"),))
    other = replace(item, path="dgr/cuda/dgr_ops.so")
    facts = changed(extensions=Fact((item, other), ""))
    found = loud(facts)
    assert {code: one.status for code, one in found.items()} == {"torch-abi-mismatch": Status.WARN}
    assert found["torch-abi-mismatch"].subject == "dgr"


def test_another_cuda_major_is_told_once(changed: Changer) -> None:
    runtime = "libcudart.so.11.0"
    item = replace(linked(unresolved=(runtime,)), needed=("libc10.so", runtime))
    assert set(loud(changed(extensions=Fact((item,), "")))) == {"cuda-runtime-mismatch"}
