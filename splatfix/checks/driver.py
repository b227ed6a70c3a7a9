"""Checks of the NVIDIA driver against torch's CUDA runtime and against itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from splatfix.checks._common import has_nvidia_gpu, numbers, torch_cuda, torch_of
from splatfix.checks.model import Evidence, Finding, Goal, Remedy, Status, prose
from splatfix.checks.registry import check
from splatfix.facts import Facts
from splatfix.knowledge import drivers


@check("driver-too-old", "driver", "The driver against torch's CUDA runtime")
def driver_too_old(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """Every CUDA major has an oldest driver on which its runtime starts at all (minor-version compatibility). Below it,
    torch says that the NVIDIA driver is too old. Above it machine code runs; PTX may still be too new."""
    driver, cuda, torch = facts.machine.driver.value, torch_cuda(facts), torch_of(facts)
    if not has_nvidia_gpu(facts) or torch is None or cuda is None:
        return
    if driver is None or driver.version is None:
        yield Finding(
            "driver-too-old", Status.UNKNOWN, "The driver's version is not known.",
            evidence=(Evidence("driver", "unknown", facts.machine.driver.error),),
        )  # fmt: skip
        return
    platform: Literal["linux", "windows"] = "windows" if facts.machine.system == "windows" else "linux"
    floor = drivers.runtime_floor(cuda, platform)
    evidence = (
        Evidence("driver", driver.version, facts.machine.driver.found_via),
        Evidence("torch", f"{torch.version} (CUDA {torch.cuda})", facts.environment.torch.found_via),
    )
    if floor is None:
        yield Finding(
            "driver-too-old", Status.UNKNOWN, f"The oldest driver for CUDA {torch.cuda} is not in the tables.",
            evidence=evidence,
        )  # fmt: skip
        return
    words = ".".join(str(part) for part in floor)
    if numbers(driver.version) < floor:
        yield Finding(
            "driver-too-old", Status.FAIL,
            f"Driver {driver.version} is too old for torch's CUDA {torch.cuda}, which needs {words} or newer.",
            evidence=evidence,
            remedy=(
                prose(f"Upgrade the NVIDIA driver to {words} or newer (on WSL2: the Windows driver), then reboot."),
                prose("Or install a torch build for an older CUDA and rebuild the extensions."),
            ),
            link="https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html",
        )  # fmt: skip
    else:
        yield Finding(
            "driver-too-old",
            Status.PASS,
            f"Driver {driver.version} runs CUDA {torch.cuda} (needs {words}).",
            evidence=evidence,
        )


@check("driver-library-mismatch", "driver", "Kernel module and user-mode driver agree")
def driver_library_mismatch(facts: Facts, goal: Goal) -> Iterator[Finding]:
    """After a driver upgrade without a reboot the old kernel module is still loaded; NVML then fails with error 18 and
    CUDA with error 803."""
    driver = facts.machine.driver.value
    said = facts.machine.driver.found_via + facts.machine.driver.error + facts.machine.gpus.found_via
    different = bool(
        driver and driver.version and driver.library_version and driver.version != driver.library_version
    )
    if different or "Driver/library version mismatch" in said:
        versions = (
            f"{driver.version} and {driver.library_version}" if different and driver else "different versions"
        )
        yield Finding(
            "driver-library-mismatch", Status.FAIL,
            f"The loaded kernel module and the driver's libraries have {versions}: the driver was upgraded without a reboot.",
            evidence=(Evidence("driver", versions, facts.machine.driver.found_via),),
            remedy=(prose("Reboot the machine."), Remedy("nvidia-smi")),
        )  # fmt: skip
