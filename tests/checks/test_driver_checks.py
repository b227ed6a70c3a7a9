"""The driver against torch's runtime where libcuda and kernel module are of different ages: cuda-compat, Jetson."""

from __future__ import annotations

import pytest

from splatfix.checks import Goal, run
from splatfix.facts import Driver, Fact, Facts

from .conftest import Changer, TorchWith
from .test_checks import loud

COMPAT = ("/usr/local/cuda-13.0/compat/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")


def status_of(facts: Facts) -> str:
    (found,) = [item for item in run(facts, Goal()) if item.code == "driver-too-old"]
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
def test_libcuda_decides_where_it_is_newer_than_the_kernel_module(
    changed: Changer, torch_with: TorchWith, driver: Driver, torch_cuda: str, status: str
) -> None:
    facts = changed(
        driver=Fact(driver, "NVML"), torch=torch_with(cuda=torch_cuda), libcuda=Fact(COMPAT, "ld.so")
    )
    assert status_of(facts) == status
    assert ("driver-too-old" in loud(facts)) == (status == "fail")
