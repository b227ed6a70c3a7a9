"""TORCH_CUDA_ARCH_LIST: as torch reads it, as nvcc compiles it, as the GPU runs it; and what an unset one comes to."""

import pytest

from splatfix.checks import Status
from splatfix.core.step import set_variable
from splatfix.facts import Facts, FatbinGroup
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
