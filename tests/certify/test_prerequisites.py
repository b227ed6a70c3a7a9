"""Packages, devices and GPUs that a certification needs, and what is said where they are missing."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.certify import SUITES, certify, device_for, idle_gpu, require_gpu, verify
from splatfix.certify.prerequisites import VERIFY_NEEDS, require_packages
from splatfix.facts import Distribution, EnvironmentFacts, Fact, Facts, Gpu, MachineFacts, Torch, gather
from tests.certify.conftest import subject
from tests.plan.machines import INTERPRETER, machine, refused

CARD = Gpu(0, "NVIDIA GeForce RTX 5080", "nvidia", "12.0")
SECOND = Gpu(1, "NVIDIA GeForce RTX 3090", "nvidia", "8.6")
RADEON = Gpu(0, "AMD Radeon RX 7900 XTX", "amd", None)
CUDA = Torch("2.11.0+cu130", "13.0", None, "")
CPU = Torch("2.13.0+cpu", None, None, "")
ROCM = Torch("2.11.0+rocm7.0", None, "7.0", "")


def facts(*gpus: Gpu, torch: Torch | None = CUDA, visible: str | None = None, dropin: str = "") -> Facts:
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    installed = (Distribution(dropin, "0", "site-packages", made_by_splatfix="drop-in"),) if dropin else ()
    return Facts(
        MachineFacts("linux", "x86_64", gpus=Fact(gpus, "nvidia-smi"), variables=variables),
        EnvironmentFacts(torch=Fact(torch, "files"), distributions=Fact(installed, "metadata")),
        splatfix="0.1.0",
    )


@pytest.mark.parametrize(
    ("found", "device"),
    [
        (facts(CARD), "cuda"),
        (facts(CARD, SECOND, visible="1"), "cuda"),
        (facts(CARD, visible=""), "cpu"),
        (facts(CARD, visible="-1"), "cpu"),
        (facts(CARD, torch=CPU), "cpu"),
        (facts(CARD, torch=ROCM), "cpu"),
        (facts(CARD, torch=None), "cpu"),
        (facts(RADEON), "cpu"),
        (facts(), "cpu"),
    ],
)
def test_auto_takes_a_gpu_that_torch_is_built_for(found: Facts, device: str) -> None:
    assert device_for("auto", found) == device
    assert (device_for("cpu", found), device_for("cuda", found)) == ("cpu", "cuda"), "what was asked wins"


@pytest.mark.parametrize(
    ("found", "device", "named"),
    [
        (facts(CARD), "cuda", False),
        (facts(), "cpu", False),
        (facts(RADEON), "cpu", False),
        (facts(CARD, visible=""), "cpu", False),
        (facts(CARD), "cpu", True),
        (facts(CARD, torch=CPU), "cpu", True),
    ],
)
def test_idle_gpu_is_named_with_the_reason(found: Facts, device: str, named: bool) -> None:
    said = idle_gpu(found, device)
    assert bool(said) is named
    assert (CARD.name in said) is named
    assert (CPU.version in said) is (found.environment.torch.value is CPU)


@pytest.mark.parametrize(
    ("renderer", "device", "found", "runs"),
    [
        ("torch", "cpu", facts(), True),
        ("gsplat", "cuda", facts(CARD), True),
        ("inria", "cpu", facts(dropin="diff_gaussian_rasterization"), True),
        ("gsplat", "cpu", facts(dropin="diff_gaussian_rasterization"), False),
        ("inria", "cpu", facts(), False),
        ("inria", "cpu", facts(dropin="simple-knn"), False),
        ("inria", "cpu", facts(CARD, torch=CPU), False),
    ],
)
def test_renderers_that_need_a_gpu(renderer: str, device: str, found: Facts, runs: bool) -> None:
    if runs:
        require_gpu(renderer, device, found)
        return
    error = refused(require_gpu, renderer, device, found)
    assert (error.code, int(error.exit_code)) == ("renderer-needs-gpu", 2)


def test_missing_packages_are_listed(empty_venv: Path, tmp_path: Path) -> None:
    python = str(empty_venv)
    asked = subject(python=python, suite=SUITES["quick"], out=tmp_path / "out")
    errors = (refused(verify, python, "cpu"), refused(certify, asked, gather(python)))
    for error in errors:
        assert (error.code, int(error.exit_code)) == ("environment-not-ready", 3)
    told = [error.todo[0].command for error in errors]
    assert all(command and "install" in command.argv and python in command.argv for command in told)
    packages = [command.argv[-count:] for command, count in zip(told, (1, 3), strict=True) if command]
    assert packages == [("torch",), ("torch", "numpy", "pillow")]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("python", [sys.executable, "/env/bin/python"])
def test_own_environment_is_suggested_last(python: str) -> None:
    bare = EnvironmentFacts(
        interpreter=Fact(replace(INTERPRETER, executable=python), "test"),
        distributions=Fact((), "test"),
        torch_installed=Fact(False, "test"),
    )
    error = refused(require_packages, replace(machine(), environment=bare), python, VERIFY_NEEDS)
    programs = [item.command.argv[0] for item in error.todo if item.command]
    assert programs == (["splatfix", python] if python == sys.executable else [python, "splatfix"])
