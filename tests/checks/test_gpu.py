"""GPUs passed to containers, and the libcuda that programs load there."""

from __future__ import annotations

from splatfix.checks import Status
from splatfix.core.step import prepend_variable
from splatfix.facts import Driver, Fact, Gpu

from .conftest import Changer, of, only


def libcuda(*paths: str) -> Fact[tuple[str, ...]]:
    return Fact(paths, "the loader's folders")


def test_a_linux_driver_inside_wsl2(changed: Changer) -> None:
    own, linux = "/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.575.57.08"
    finding = only(changed(wsl=True, libcuda=libcuda(linux, own)), "wsl-wrong-libcuda")
    assert finding.status is Status.FAIL
    assert finding.remedy[-1] == prepend_variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib")
    assert of(changed(wsl=True, libcuda=libcuda(own, linux)), "wsl-wrong-libcuda")[0].status is Status.PASS
    drivers_store = "/usr/lib/wsl/drivers/nvlt.inf_amd64_1/libcuda.so.1.1"
    assert of(changed(wsl=True, libcuda=libcuda(drivers_store)), "wsl-wrong-libcuda")[0].status is Status.PASS
    for quiet in (changed(libcuda=libcuda(linux)), changed(wsl=True, libcuda=libcuda()), changed(wsl=True)):
        assert not of(quiet, "wsl-wrong-libcuda")


def test_the_toolkits_stub_before_the_driver(changed: Changer) -> None:
    stub, real = (
        "/usr/local/cuda-12.9/lib64/stubs/libcuda.so",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.575.57.08",
    )
    assert only(changed(libcuda=libcuda(stub, real)), "stub-libcuda-loaded").status is Status.FAIL
    assert not of(changed(libcuda=libcuda(real, stub)), "stub-libcuda-loaded")
    assert not of(changed(libcuda=libcuda(stub)), "stub-libcuda-loaded"), "a build machine without a driver"


def test_forward_compatibility_on_a_geforce(changed: Changer) -> None:
    compat = libcuda("/usr/local/cuda-13.0/compat/libcuda.so.580.65.06")
    assert only(changed(libcuda=compat), "forward-compat-on-geforce").status is Status.FAIL
    datacentre = Fact((Gpu(0, "NVIDIA H200", cc="12.0"),), "NVML")
    assert not of(changed(libcuda=compat, gpus=datacentre), "forward-compat-on-geforce")
    assert not of(changed(libcuda=libcuda("/usr/lib/libcuda.so.575.57.08")), "forward-compat-on-geforce")
    refused = Fact(Driver("535.183.01", "13.0", False, None, cuda_error=804), "libcuda")
    assert of(changed(driver=refused), "forward-compat-on-geforce")[0].status is Status.FAIL
