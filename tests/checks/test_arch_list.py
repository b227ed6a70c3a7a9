"""TORCH_CUDA_ARCH_LIST: as torch reads it, as nvcc compiles it, as the GPU runs it; and what an unset one comes to."""

from __future__ import annotations

import pytest

from splatfix.checks import Status
from splatfix.core.step import set_variable, unset_variable
from splatfix.facts import Driver, Fact, Facts, FatbinGroup, Gpu, Toolkit, ToolkitChoice
from splatfix.knowledge.cpp_extension import ArchList, expand_arch_list

from .conftest import Changer, TorchWith, installed, loud, of, only, ptx, sass
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


def with_toolkit(changed: Changer, version: str, *archs: str, **values: object) -> Facts:
    toolkit = Toolkit("/opt/cuda", version, ("/opt/cuda",), "/opt/cuda/bin/nvcc", archs, 15, 19)
    choice = ToolkitChoice("/opt/cuda", "CUDA_HOME", "/opt/cuda/bin/nvcc", None, True)
    return changed(toolkits=Fact((toolkit,), "PATH"), toolkit_choice=Fact(choice), **values)


@pytest.mark.parametrize(
    ("text", "version", "archs", "left"),
    [("6.1;12.0", "12.9.1", ("sm_75", "sm_120"), "12.0"), ("8.6;12.0", "12.9.1", ("sm_75", "sm_86"), "8.6")],
)
def test_an_entry_that_nvcc_does_not_know(
    changed: Changer, text: str, version: str, archs: tuple[str, ...], left: str
) -> None:
    facts = with_toolkit(changed, version, *archs, variables={"TORCH_CUDA_ARCH_LIST": text})
    finding = of(facts, "arch-list-unbuildable")[0]
    assert finding.status is Status.FAIL
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", f"{left}")
    fine = with_toolkit(changed, version, *archs, variables={"TORCH_CUDA_ARCH_LIST": left})
    assert not of(fine, "arch-list-unbuildable")


@pytest.mark.parametrize(
    ("text", "misses"), [("8.6", True), ("8.6+PTX", False), ("12.0", False), ("9.0;8.0", True)]
)
def test_a_list_for_another_gpu(changed: Changer, text: str, misses: bool) -> None:
    found = of(listed(changed, text), "arch-list-misses-gpu")
    assert bool(found) is misses
    if misses:
        assert found[0].status is Status.WARN
        assert found[0].remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", "12.0")


def test_ptx_of_a_toolkit_that_is_newer_than_the_driver(changed: Changer) -> None:
    old = Fact(Driver("570.124.06", "12.8", True, "570.124.06"), "NVML")
    assert of(listed(changed, "8.6+PTX", driver=old), "arch-list-misses-gpu"), (
        "PTX 8.8 of CUDA 12.9, a driver of 12.8"
    )
    assert not of(listed(changed, "12.0", driver=old), "arch-list-misses-gpu"), "machine code does not ask"


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


def test_no_gpu_while_building(changed: Changer) -> None:
    bare = changed(gpus=Fact((), "NVML and PCI"), driver=Fact(None, "PCI", "no NVIDIA driver", absent=True))
    assert of(bare, "no-gpu-at-build")[0].status is Status.SKIP, "nothing is to be built"
    building = with_checkout(bare, sources=(source("other"),))
    finding = of(building, "no-gpu-at-build", "sm_120")[0]
    assert finding.status is Status.WARN
    assert finding.remedy[0] == set_variable("TORCH_CUDA_ARCH_LIST", "12.0")
    assert not of(building, "no-gpu-at-build")[0].remedy[0].command, "nobody said for which GPU"


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"variables": {"TORCH_CUDA_ARCH_LIST": "12.0"}, "gpus": Fact((), "PCI")},
        {"gpus": Fact(None, "", "NVML: not answered")},
        {"driver": Fact(None, "", "NVML: it did not answer in time")},
        {"gpus": Fact((), "PCI"), "toolkits": Fact((), "PATH"), "toolkit_choice": Fact(None)},
        {"driver": Fact(Driver("540.4.0", "12.6", True, None, nvml_error=12), "libcuda")},
    ],
)
def test_where_torch_knows_for_whom_to_build(changed: Changer, values: dict[str, object]) -> None:
    assert not of(with_checkout(changed(**values), sources=(source("other"),)), "no-gpu-at-build")


@pytest.mark.parametrize(
    ("gsplat", "text", "left"),
    [
        ("1.5.3", "6.1;7.5;12.0+PTX", "7.5;12.0+PTX"),
        ("1.5.3", "7.5;12.0", None),
        ("0.1.11", "6.1;12.0", None),
        (None, "6.1;12.0", None),
    ],
)
def test_a_list_with_a_gpu_that_gsplat_cannot_serve(
    changed: Changer, gsplat: str | None, text: str, left: str | None
) -> None:
    have = installed(gsplat=gsplat) if gsplat else installed()
    found = of(listed(changed, text, distributions=have), "arch-list-below-minimum")
    expected = [set_variable("TORCH_CUDA_ARCH_LIST", left)] if left else []
    assert [item.remedy[0] for item in found] == expected
