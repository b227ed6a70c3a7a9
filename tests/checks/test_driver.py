"""The driver: its version against torch, its halves, and what only the driver decides."""

import dataclasses
from collections.abc import Callable

import pytest

from splatfix.checks import Status
from splatfix.core.step import commands
from splatfix.facts import Adapter, Compiler, Driver, Fact, Facts, Gpu, Torch

from .conftest import Changer, extension, of, ptx


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
    codes = ("no-kernel-image", "ptx-newer-than-driver")
    (said,) = (item for code in codes for item in of(facts, code))
    assert said.status.value == status
    if status == "fail":
        assert said.evidence[1].value.endswith("(CUDA 12.2)") and "PTX of CUDA 12.4" in said.summary


def test_headers_of_installed_packages_become_a_command(changed: Changer, rtx_5080: Facts) -> None:
    whole = (rtx_5080.machine.toolkits.value or ())[0]
    site = "/env/lib/python3.11/site-packages/nvidia"
    partial = dataclasses.replace(
        whole,
        missing=("include/cublas_v2.h", "include/cusparse.h"),
        elsewhere={"cublas_v2.h": f"{site}/cublas/include", "cusparse.h": f"{site}/cusparse/include"},
    )
    (finding,) = of(changed(toolkits=Fact((partial,), "PATH")), "cuda-headers-missing")
    assert [item.line() for item in finding.remedy if item.command] == [
        f'export CPATH="{site}/cublas/include:{site}/cusparse/include${{CPATH:+:$CPATH}}"'
    ]
    rest = dataclasses.replace(partial, missing=(*partial.missing, "lib64/libcudart.so"))
    (finding,) = of(changed(toolkits=Fact((rest,), "PATH")), "cuda-headers-missing")
    assert "lib64/libcudart.so" in finding.remedy[-1].line()
    assert not finding.remedy[-1].command


def test_a_renderer_in_software_is_no_help(changed: Changer) -> None:
    adapters = (Adapter("Radeon (RADV)", "vulkan", "discrete"), Adapter("llvmpipe", "vulkan", "cpu"))
    facts = changed(
        gpus=Fact((Gpu(0, "AMD Radeon RX 7900 XTX", "amd"),), "PCI"),
        driver=Fact(None, "", "none"),
        adapters=Fact(adapters, "vulkaninfo"),
    )
    (finding,) = of(facts, "nvidia-gpu-missing")
    assert finding.status is Status.SKIP and "AMD Radeon RX 7900 XTX" in finding.summary
    assert "Radeon (RADV) (vulkan)" in finding.summary and "llvmpipe" not in finding.summary


def test_a_compiler_below_torchs_bound_needs_a_newer_one(
    changed: Changer, torch_with: Callable[..., Fact[Torch]]
) -> None:
    """torch's table has a lower end as well; what it then offers must not be the old compiler again."""
    old, new = (
        Compiler("g++", f"/usr/bin/g++{name}", version, ("PATH",))
        for name, version in (("", "4.8.5"), ("-9", "9.5.0"))
    )
    torch = torch_with(version="2.11.0+cu128")
    facts = changed(compilers=Fact((old, new), "PATH"), torch=torch)
    (finding,) = of(facts, "host-compiler-refused-by-torch")
    assert finding.status is Status.FAIL
    assert ("CXX", "/usr/bin/g++-9") in commands(finding.remedy)[0].env
    (alone,) = of(changed(compilers=Fact((old,), "PATH"), torch=torch), "host-compiler-refused-by-torch")
    assert not alone.remedy[0].command
