"""Packages, devices and GPUs that a certification needs, and what is said where they are missing."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from splatfix.certify import SUITES, certify, device_for, idle_gpu, renderer_for, verify
from splatfix.certify.prerequisites import VERIFY_NEEDS, packages_obstacle
from splatfix.facts import gather
from splatfix.knowledge.stacks import variants
from splatfix.model import Distribution, EnvironmentFacts, Fact, Facts, Gpu, MachineFacts, SplatPackage, Torch
from tests.certify.conftest import subject
from tests.plan.machines import INTERPRETER, machine, refused

CARD = Gpu(0, "NVIDIA GeForce RTX 5080", "nvidia", "12.0")
SECOND = Gpu(1, "NVIDIA GeForce RTX 3090", "nvidia", "8.6")
RADEON = Gpu(0, "AMD Radeon RX 7900 XTX", "amd", None)
CUDA = Torch("2.11.0+cu130", "13.0", None, "")
CPU = Torch("2.13.0+cpu", None, None, "")
ROCM = Torch("2.11.0+rocm7.0", None, "7.0", "")


def facts(
    *gpus: Gpu,
    torch: Torch | None = CUDA,
    visible: str | None = None,
    dropin: str = "",
    variant: str = "",
    modules: str = "",
) -> Facts:
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    installed = (Distribution(dropin, "0", "site-packages", made_by_splatfix="drop-in"),) if dropin else ()
    packages = tuple(
        SplatPackage(row.module, row.module, settings=row.settings, forward=row.forward)
        for row in variants()
        if row.key == variant
    )
    return Facts(
        MachineFacts("linux", "x86_64", gpus=Fact(gpus, "nvidia-smi"), variables=variables),
        EnvironmentFacts(
            torch=Fact(torch, "files"),
            distributions=Fact(installed, "metadata"),
            packages=Fact(packages, "files"),
            modules=Fact(tuple(modules.split()), "files"),
        ),
        splatfix="0.1.0",
    )


@pytest.mark.parametrize(
    ("found", "device", "named"),
    [
        (facts(CARD), "cuda", ""),
        (facts(CARD, SECOND, visible="1"), "cuda", ""),
        (facts(CARD, visible=""), "cpu", ""),
        (facts(CARD, visible="-1"), "cpu", ""),
        (facts(CARD, torch=CPU), "cpu", CPU.version),
        (facts(CARD, torch=ROCM), "cpu", ROCM.version),
        (facts(CARD, torch=None), "cpu", "torch could not be read"),
        (facts(RADEON), "cpu", ""),
        (facts(), "cpu", ""),
    ],
)
def test_auto_takes_a_gpu_that_torch_is_built_for(found: Facts, device: str, named: str) -> None:
    """And names one that is idle, with the reason."""
    assert device_for("auto", found) == device
    assert (device_for("cpu", found), device_for("cuda", found)) == ("cpu", "cuda"), "what was asked wins"
    said = idle_gpu(found, device)
    assert bool(said) is (CARD.name in said) is bool(named) and named in said
    assert CARD.name in idle_gpu(facts(CARD), "cpu"), "it was asked for"


@pytest.mark.parametrize(
    ("asked", "device", "found", "trains"),
    [
        ("torch", "cpu", facts(), "torch"),
        ("gsplat", "cuda", facts(CARD), "gsplat"),
        ("inria", "cpu", facts(dropin="diff_gaussian_rasterization"), "inria"),
        ("gsplat", "cpu", facts(dropin="diff_gaussian_rasterization"), ""),
        ("inria", "cpu", facts(), ""),
        ("inria", "cpu", facts(dropin="simple-knn"), ""),
        ("inria", "cpu", facts(CARD, torch=CPU), ""),
        # what is installed, where it runs on the device and the trainer knows how to call it
        ("auto", "cuda", facts(), "torch"),
        ("auto", "cuda", facts(variant="mip"), "inria"),
        ("auto", "cuda", facts(variant="mip", modules="gsplat"), "inria"),
        ("auto", "cuda", facts(modules="torch gsplat"), "gsplat"),
        ("auto", "cuda", facts(variant="stopthepop"), "torch"),
        ("auto", "cuda", facts(variant="stopthepop", modules="gsplat"), "gsplat"),
        ("auto", "cuda", facts(variant="2dgs-surfel"), "torch"),
        ("auto", "cpu", facts(variant="mip", modules="gsplat"), "torch"),
        ("auto", "cpu", facts(variant="mip", dropin="diff_gaussian_rasterization"), "inria"),
        ("auto", "cpu", facts(modules="gsplat", dropin="splatfix_gsplat_csrc"), "gsplat"),
        ("auto", "cpu", facts(modules="gsplat", dropin="simple-knn"), "torch"),
    ],
)
def test_whose_rasterizer_trains(asked: str, device: str, found: Facts, trains: str) -> None:
    if trains:
        assert renderer_for(asked, device, found) == trains
        return
    error = refused(renderer_for, asked, device, found)
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
    error = refused(packages_obstacle, replace(machine(), environment=bare), python, VERIFY_NEEDS)
    programs = [item.command.argv[0] for item in error.todo if item.command]
    assert programs == (["splatfix", python] if python == sys.executable else [python, "splatfix"])
