"""Linkage, C++ runtime and companions: loud on what the loader would refuse, quiet on what it takes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from splatfix.checks import Status
from splatfix.facts import (
    BuildRecord,
    Distribution,
    Extension,
    Fact,
    Linkage,
    RuntimeCopy,
)

from .conftest import Changer, extension, installed, loud, of, only, sass

GONE = "_ZN3c1010TensorImpl4goneEv"


def linked(**values: Any) -> Fact[tuple[Extension, ...]]:
    linkage = Linkage(**{"torch_symbols": 40, "cxx11_abi": True, **values})
    return Fact((dataclasses.replace(extension("dgr", sass("sm_120")), linkage=linkage),), "site-packages")


@pytest.mark.parametrize(
    "wrong", [{"torch_missing": (GONE,)}, {"cxx11_abi": False}, {"unresolved": ("libtorch_gone.so",)}]
)
def test_a_library_that_nothing_loads_is_a_warning(changed: Changer, wrong: dict[str, Any]) -> None:
    """open3d brings libraries for torch's operators, of an older torch's ABI and CUDA, for two devices."""
    facts = changed(extensions=linked(**wrong))
    item = dataclasses.replace(
        facts.environment.extensions.value[0],  # type: ignore[index]
        optional=True,
        needed=("libtorch.so", "libcudart.so.11.0"),
        code=(sass("sm_90"),),
    )
    other = dataclasses.replace(item, path="dgr/cuda/dgr_ops.so")
    facts = changed(extensions=Fact((item, other), ""))
    found = loud(facts)
    assert {code: one.status for code, one in found.items()} == {"torch-abi-mismatch": Status.WARN}
    assert found["torch-abi-mismatch"].subject == "dgr"


def test_torchvision_is_not_rebuilt_but_replaced(changed: Changer) -> None:
    facts = changed(extensions=linked(torch_missing=(GONE,)))
    item = dataclasses.replace(facts.environment.extensions.value[0], distribution="torchvision")  # type: ignore[index]
    finding = only(changed(extensions=Fact((item,), "")), "torch-abi-mismatch")
    assert "Install the torchvision" in finding.remedy[0].line()


def test_a_library_for_another_machine_is_no_alarm(changed: Changer) -> None:
    """torchcodec ships one library for each FFmpeg; all but one of them lack theirs, and that is how it is meant."""
    facts = changed(extensions=linked(unresolved=("libavutil.so.56",), own_missing=("av_log",)))
    item = dataclasses.replace(
        facts.environment.extensions.value[0], path="torchcodec/libtorchcodec_core4.so"
    )  # type: ignore[index]
    assert not loud(changed(extensions=Fact((item,), "")))


def test_another_cuda_major_is_told_once(changed: Changer) -> None:
    facts = changed(extensions=linked(unresolved=("libcudart.so.11.0",)))
    item = dataclasses.replace(
        facts.environment.extensions.value[0], needed=("libc10.so", "libcudart.so.11.0")
    )  # type: ignore[index]
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
    facts = changed(extensions=linked(), distributions=built(built_with=(("torch", torch),)))
    (finding,) = of(facts, "torch-abi-mismatch")
    assert finding.status is status
    assert bool(finding.remedy) is (status is Status.WARN)


def test_a_forced_build_is_no_clean_one(changed: Changer) -> None:
    words = "toolkit 13.0, torch was built with CUDA 12.8"
    facts = changed(extensions=linked(), distributions=built(cuda_mismatch=words))
    (finding,) = of(facts, "cuda-runtime-mismatch")
    assert finding.status is Status.WARN and words in finding.summary
    assert not of(changed(extensions=linked(), distributions=built()), "cuda-runtime-mismatch")
    # where its file shows it, that is told, and told once
    item = dataclasses.replace(facts.environment.extensions.value[0], needed=("libcudart.so.13",))  # type: ignore[index]
    item = dataclasses.replace(item, distribution="dgr", links_torch=True)
    facts = changed(extensions=Fact((item,), ""), distributions=built(cuda_mismatch=words))
    assert [one.status for one in of(facts, "cuda-runtime-mismatch")] == [Status.FAIL]


def test_a_wheel_with_its_own_libc10(changed: Changer) -> None:
    own = tuple(RuntimeCopy(name, f"torch/lib/{name}.so", "", False) for name in ("libc10", "libtorch"))
    old_style = RuntimeCopy("libcudart", "torch/lib/libcudart-d0da41ae.so.11.0", "11.0", True)
    assert not loud(changed(runtime_copies=Fact((*own, old_style), "")))
    foreign = RuntimeCopy("libc10", "gaussian_splatting.libs/libc10-1a2b3c4d.so", "", True)
    finding = only(changed(runtime_copies=Fact((*own, foreign), "")), "duplicate-runtimes")
    assert finding.status is Status.WARN and finding.subject == "gaussian_splatting"


# --- torch's companions


def with_pins(name: str, version: str, *pins: str, **others: str) -> Fact[tuple[Distribution, ...]]:
    rest = installed(**others).value or ()
    return Fact((Distribution(name, version, "/env", pins=pins), *rest), "site-packages")


def test_triton(changed: Changer) -> None:
    facts = changed(distributions=with_pins("torch", "2.9.1+cu128", "triton==3.5.1", triton="3.4.0"))
    (step,) = only(facts, "torch-companions-mismatch").remedy
    assert step.line() == "/env/bin/python -m pip install triton==3.5.1"
    alone = changed(distributions=with_pins("torch", "2.9.1", "triton==3.5.1"))
    assert not of(alone, "torch-companions-mismatch")


# --- the JIT cache


def test_a_file_that_names_its_architecture(changed: Changer) -> None:
    """torchao brings a module for sm_90a beside those for every GPU; one without a number in its name has no such excuse."""
    hopper = dataclasses.replace(extension("torchao", sass("sm_90a")), path="torchao/_C_cutlass_90a.abi3.so")
    assert not loud(changed(extensions=Fact((hopper,), "")))
    plain = dataclasses.replace(hopper, path="torchao/_C.abi3.so")
    assert set(loud(changed(extensions=Fact((plain,), "")))) == {"no-kernel-image"}
    own = dataclasses.replace(hopper, path="torchao/_C_120.abi3.so")
    assert set(loud(changed(extensions=Fact((own,), "")))) == {"no-kernel-image"}, (
        "it is meant for this very GPU"
    )
