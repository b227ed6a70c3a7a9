"""Linkage, C++ runtime and companions: loud on what the loader would refuse, quiet on what it takes."""

import dataclasses
from typing import Any

import pytest

from splatfix.checks import Status
from splatfix.facts import (
    BuildRecord,
    Distribution,
    Fact,
    RuntimeCopy,
)

from .conftest import Changer, extension, linked, loud, of, only, sass

GONE = "_ZN3c1010TensorImpl4goneEv"


@pytest.mark.parametrize(
    "wrong", [{"torch_missing": (GONE,)}, {"cxx11_abi": False}, {"unresolved": ("libtorch_gone.so",)}]
)
def test_a_library_that_nothing_loads_is_a_warning(changed: Changer, wrong: dict[str, Any]) -> None:
    """open3d brings libraries for torch's operators, of an older torch's ABI and CUDA, for two devices."""
    needed = ("libtorch.so", "libcudart.so.11.0")
    item = dataclasses.replace(linked(**wrong), optional=True, needed=needed, code=(sass("sm_90"),))
    other = dataclasses.replace(item, path="dgr/cuda/dgr_ops.so")
    facts = changed(extensions=Fact((item, other), ""))
    found = loud(facts)
    assert {code: one.status for code, one in found.items()} == {"torch-abi-mismatch": Status.WARN}
    assert found["torch-abi-mismatch"].subject == "dgr"


def test_torchvision_is_not_rebuilt_but_replaced(changed: Changer) -> None:
    item = dataclasses.replace(linked(torch_missing=(GONE,)), distribution="torchvision")
    finding = only(changed(extensions=Fact((item,), "")), "torch-abi-mismatch")
    assert "Install the torchvision" in finding.remedy[0].line()


def test_a_library_for_another_machine_is_no_alarm(changed: Changer) -> None:
    """torchcodec ships one library for each FFmpeg; all but one of them lack theirs, and that is how it is meant."""
    of_other = linked(unresolved=("libavutil.so.56",), own_missing=("av_log",))
    item = dataclasses.replace(of_other, path="torchcodec/libtorchcodec_core4.so")
    assert not loud(changed(extensions=Fact((item,), "")))


def test_another_cuda_major_is_told_once(changed: Changer) -> None:
    runtime = "libcudart.so.11.0"
    item = dataclasses.replace(linked(unresolved=(runtime,)), needed=("libc10.so", runtime))
    assert set(loud(changed(extensions=Fact((item,), "")))) == {"cuda-runtime-mismatch"}


def built(**record: Any) -> Fact[tuple[Distribution, ...]]:
    """The distribution of the extension, as splatfix built it."""
    return Fact((Distribution("dgr", "1.0", "/site", built=BuildRecord(**record)),), "metadata")


@pytest.mark.parametrize(
    ("torch", "status"),
    [
        ("2.9.0+cu128 12.8", Status.PASS),  # a patch keeps the classes
        ("2.8.0+cu128 12.8", Status.WARN),
        ("2.9.1+cu130 13.0", Status.WARN),
        ("", Status.PASS),
    ],
)
def test_a_build_against_another_torch_with_all_symbols(changed: Changer, torch: str, status: Status) -> None:
    facts = changed(extensions=Fact((linked(),), ""), distributions=built(built_with=(("torch", torch),)))
    (finding,) = of(facts, "torch-abi-mismatch")
    assert finding.status is status
    assert bool(finding.remedy) is (status is Status.WARN)


def test_a_forced_build_is_no_clean_one(changed: Changer) -> None:
    words = "toolkit 13.0, torch was built with CUDA 12.8"
    facts = changed(extensions=Fact((linked(),), ""), distributions=built(cuda_mismatch=words))
    (finding,) = of(facts, "cuda-runtime-mismatch")
    assert finding.status is Status.WARN and words in finding.summary
    assert not of(changed(extensions=Fact((linked(),), ""), distributions=built()), "cuda-runtime-mismatch")
    # where its file shows it, that is told, and told once
    item = dataclasses.replace(linked(), needed=("libcudart.so.13",))
    facts = changed(extensions=Fact((item,), ""), distributions=built(cuda_mismatch=words))
    assert [one.status for one in of(facts, "cuda-runtime-mismatch")] == [Status.FAIL]


def test_a_wheel_with_its_own_libc10(changed: Changer) -> None:
    own = tuple(RuntimeCopy(name, f"torch/lib/{name}.so", "", False) for name in ("libc10", "libtorch"))
    old_style = RuntimeCopy("libcudart", "torch/lib/libcudart-d0da41ae.so.11.0", "11.0", True)
    assert not loud(changed(runtime_copies=Fact((*own, old_style), "")))
    foreign = RuntimeCopy("libc10", "gaussian_splatting.libs/libc10-1a2b3c4d.so", "", True)
    finding = only(changed(runtime_copies=Fact((*own, foreign), "")), "duplicate-runtimes")
    assert finding.status is Status.WARN and finding.subject == "gaussian_splatting"


def test_a_file_that_names_its_architecture(changed: Changer) -> None:
    """torchao brings a module for sm_90a beside those for every GPU; one without a number in its name has no such excuse."""
    hopper = dataclasses.replace(extension("torchao", sass("sm_90a")), path="torchao/_C_cutlass_90a.abi3.so")
    assert not loud(changed(extensions=Fact((hopper,), "")))
    for name in ("_C.abi3.so", "_C_120.abi3.so"):  # the second is meant for this very GPU
        plain = dataclasses.replace(hopper, path=f"torchao/{name}")
        assert only(changed(extensions=Fact((plain,), "")), "no-kernel-image")
