"""TORCH_CUDA_ARCH_LIST: as torch reads it, as nvcc compiles it, as the GPU runs it; and what an unset one comes to."""

from __future__ import annotations

import pytest

from splatfix.checks import Status
from splatfix.core.step import set_variable, unset_variable
from splatfix.facts import Fact, Facts, FatbinGroup, Gpu
from splatfix.knowledge.cpp_extension import ArchList, expand_arch_list

from .conftest import Changer, TorchWith, loud, of, only, ptx, sass
from .test_checkout import source, with_checkout


def listed(changed: Changer, text: str, **values: object) -> Facts:
    return changed(variables={"TORCH_CUDA_ARCH_LIST": text}, **values)


@pytest.mark.parametrize(
    ("text", "words", "mended"),
    [
        ("8.6；12.0", "full-width", "8.6;12.0"),
        ("8.6,12.0", "separates by", "8.6;12.0"),
        ("12.0;", "empty", "12.0"),
        ("8.6  12.0", "empty", "8.6;12.0"),
        ("sm_120", "not written as", "12.0"),
        ("86", "not written as", "8.6"),
        ("8.6;17.0", "not one that this torch knows", "8.6"),
    ],
)
def test_a_list_that_stops_torch(changed: Changer, text: str, words: str, mended: str) -> None:
    facts = listed(changed, text)
    finding = loud(facts)["arch-list-malformed"]
    assert finding.status is Status.FAIL
    assert words in finding.summary
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", f"{mended}")
    assert isinstance(expand_arch_list(mended, "2.9.1"), ArchList), "what is offered must be what torch takes"


def test_nonsense_has_only_one_way_out(changed: Changer) -> None:
    (finding,) = of(listed(changed, "blackwell"), "arch-list-malformed")
    assert finding.remedy[0] == unset_variable("TORCH_CUDA_ARCH_LIST")


@pytest.mark.parametrize("text", ["12.0", "8.6;12.0+PTX", "Ampere;Hopper;12.0", "8.6 12.0", ""])
def test_a_list_that_torch_reads(changed: Changer, text: str) -> None:
    assert not loud(listed(changed, text))


def test_an_arch_that_only_the_installed_torch_knows(changed: Changer, torch_with: TorchWith) -> None:
    """A nightly's own list counts for more than the table's last row."""
    facts = listed(changed, "14.0", torch=torch_with(version="2.99.0", knows_archs=("12.0", "14.0")))
    assert not of(facts, "arch-list-malformed")
    named = listed(changed, "Feynman", torch=torch_with(version="2.99.0"))
    assert not of(named, "arch-list-malformed"), "a torch newer than the tables may know the name"
    assert of(listed(changed, "Feynman"), "arch-list-malformed"), "torch 2.9 does not"


def test_plain_numbers_where_a_source_reads_them(rtx_5080: Facts, changed: Changer) -> None:
    ssim = source("fused_ssim2", flags=("-arch=sm_75",), reads=("CUDA_ARCHITECTURES",))
    wrong = with_checkout(changed(variables={"CUDA_ARCHITECTURES": "8.6;12.0+PTX"}), sources=(ssim,))
    finding = of(wrong, "arch-list-malformed")[0]
    assert finding.status is Status.FAIL
    assert finding.remedy[0] == set_variable("CUDA_ARCHITECTURES", "86;120")
    right = with_checkout(changed(variables={"CUDA_ARCHITECTURES": "86;120"}), sources=(ssim,))
    assert not of(right, "arch-list-malformed")
    assert not of(changed(variables={"CUDA_ARCHITECTURES": "native"}), "arch-list-malformed"), (
        "CMake's own, for others"
    )


def test_clamping(changed: Changer, torch_with: TorchWith) -> None:
    """A torch of sm_90 with PTX runs on an RTX 5080; what it builds there would be for 9.0+PTX."""
    entries = (*sass("sm_80", "sm_90").entries, *ptx("sm_90", (8, 0)).entries)
    clamped = torch_with(code=(FatbinGroup(entries, 400),))
    finding = only(changed(torch=clamped), "arch-clamped")
    assert finding.status is Status.WARN
    assert "9.0+PTX" in finding.summary
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", "12.0")
    assert not of(listed(changed, "12.0", torch=clamped), "arch-clamped"), "a list that is set is not clamped"


def test_a_minor_that_is_clamped_to_code_it_runs_is_no_alarm(changed: Changer) -> None:
    spark = changed(gpus=Fact((Gpu(0, "NVIDIA GB10", cc="12.1"),), "NVML"))
    assert not of(spark, "arch-clamped"), "12.1 is clamped to 12.0, whose machine code it runs"


def test_single_kernels_do_not_count_as_torchs_arch_list(changed: Changer, torch_with: TorchWith) -> None:
    hopper = Fact((Gpu(0, "NVIDIA H200", cc="9.0"),), "NVML")
    some = (sass("sm_80", "sm_90", count=400), sass("sm_80", "sm_90", "sm_90a", count=4))
    assert not of(changed(gpus=hopper, torch=torch_with(code=some, version="2.6.0")), "arch-clamped")
    every = (sass("sm_80", "sm_90", "sm_90a", count=400),)
    finding = of(changed(gpus=hopper, torch=torch_with(code=every, version="2.6.0")), "arch-clamped")[0]
    assert finding.status is Status.FAIL, "torch before 2.7 cannot read sm_90a in its own list"
    assert not of(changed(gpus=hopper, torch=torch_with(code=every, version="2.9.1")), "arch-clamped")
    unknown = torch_with(version="2.6.0")  # it does not know 12.0 at all, which arch-unknown-to-torch tells
    assert not of(changed(torch=unknown), "arch-clamped")
