"""The driver against torch's runtime where libcuda and kernel module are of different ages: cuda-compat, Jetson."""

from __future__ import annotations

import pytest

from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.facts import Driver, Fact, Facts, FatbinGroup, Gpu

from .conftest import Changer, TorchWith, extension, ptx, sass
from .test_checks import loud

COMPAT = ("/usr/local/cuda-13.0/compat/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")


def status_of(facts: Facts) -> str:
    (found,) = [item for item in run_checks(make_context(facts, Goal())) if item.code == "driver-too-old"]
    return found.status.value


@pytest.mark.parametrize(
    ("driver", "torch_cuda", "status"),
    [
        # driver 550 serves CUDA 12.4; with the libcuda of cuda-compat-13-0 it serves torch's 13.0
        (Driver("550.144.03", "13.0", False, "550.144.03"), "13.0", "pass"),
        (Driver("550.144.03", "12.4", False, "550.144.03"), "13.0", "fail"),
        # a GeForce refuses such a libcuda: 804, forward compatibility was attempted on non supported HW
        (Driver("550.144.03", "13.0", False, "550.144.03", cuda_error=804), "13.0", "fail"),
        # JetPack 5 numbers its kernel module by L4T's release
        (Driver("35.4.1", "11.4", True), "11.4", "pass"),
        (Driver("35.4.1", "11.4", True), "12.6", "fail"),
        (Driver("470.82.01", None, False, "470.82.01"), "12.8", "fail"),
        (Driver("570.86.10", "12.8", True, "570.86.10"), "12.9", "pass"),
    ],
)
def test_newer_libcuda_decides_over_the_kernel_module(
    changed: Changer, torch_with: TorchWith, driver: Driver, torch_cuda: str, status: str
) -> None:
    facts = changed(
        driver=Fact(driver, "NVML"), torch=torch_with(cuda=torch_cuda), libcuda=Fact(COMPAT, "ld.so")
    )
    assert status_of(facts) == status
    assert ("driver-too-old" in loud(facts)) == (status == "fail")


@pytest.mark.parametrize(
    ("driver", "status"),
    [
        (Driver("535.183.01", None), "fail"),
        (Driver("575.57.08", None), "pass"),
        (Driver("999.1", None), "unknown"),
        (Driver(None, None), "unknown"),
        (Driver("575.57.08", "12.2"), "fail"),
    ],
)
def test_driver_known_from_proc_alone_judges_ptx(changed: Changer, driver: Driver, status: str) -> None:
    """PTX 8.4 is CUDA 12.4's; branch 535 is 12.2, branch 575 is 12.9."""
    leans = extension("leans", ptx("sm_90", (8, 4)))
    facts = changed(driver=Fact(driver, "/proc/driver/nvidia/version"), extensions=Fact((leans,), ""))
    found = {
        item.code: item
        for item in run_checks(make_context(facts, Goal()))
        if item.code in ("no-kernel-image", "ptx-newer-than-driver")
    }
    (said,) = found.values()
    assert said.status.value == status
    if status == "fail":
        assert said.evidence[1].value.endswith("(CUDA 12.2)") and "PTX of CUDA 12.4" in said.summary


def test_this_driver_says_nothing_of_a_gpu_elsewhere(changed: Changer) -> None:
    """A GPU that is not in this machine has a driver of its own, which knows it."""
    leans = extension("leans", sass("sm_86"), ptx("sm_90", (8, 7)))
    both = extension("both", FatbinGroup((*sass("sm_86").entries, *ptx("sm_90", (8, 7)).entries), 1))
    here = changed(
        gpus=Fact((Gpu(0, "RTX 3090", cc="8.6"),), "NVML"),
        driver=Fact(Driver("535.183.01", "12.2"), "NVML"),
        extensions=Fact((both,), ""),
    )
    assert "ptx-newer-than-driver" not in {
        item.code for item in run_checks(make_context(here, Goal(("sm_120",))))
    }
    old = changed(
        gpus=Fact((Gpu(0, "RTX 5080", cc="12.0"),), "NVML"),
        driver=Fact(Driver("570.1", "12.2"), "NVML"),
        extensions=Fact((both,), ""),
    )
    assert "ptx-newer-than-driver" in {item.code for item in run_checks(make_context(old, Goal(("sm_120",))))}
    missing = changed(extensions=Fact((leans,), ""))
    assert "no-kernel-image" in loud(missing, "sm_120"), "one fatbin without anything is enough"
