"""Packages, devices and GPUs that a certification needs, and what is said where they are missing."""

from pathlib import Path

import pytest

from splatfix.certify import SUITES, certify, device_for, renderer_for
from splatfix.facts import gather
from splatfix.knowledge.stacks import variants
from splatfix.model import Distribution, EnvironmentFacts, Fact, Facts, Gpu, MachineFacts, SplatPackage, Torch
from tests.certify.conftest import subject
from tests.plan.machines import refused
from tests.tables import data

CARDS = {
    "NVIDIA GeForce RTX 5080": Gpu(0, "NVIDIA GeForce RTX 5080", "nvidia", "12.0"),
    "NVIDIA GeForce RTX 3090": Gpu(1, "NVIDIA GeForce RTX 3090", "nvidia", "8.6"),
    "AMD Radeon RX 7900 XTX": Gpu(0, "AMD Radeon RX 7900 XTX", "amd", None),
}
CARD = "NVIDIA GeForce RTX 5080"
CUDA = Torch("2.11.0+cu130", "13.0", None, "")
BUILDS = {"cuda": CUDA, "cpu": Torch("2.13.0+cpu", None, None, "")}
BUILDS["rocm"] = Torch("2.11.0+rocm7.0", None, "7.0", "")
TABLES = data(__file__)


def facts(
    *gpus: str,
    torch: str = "cuda",
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
    cards = tuple(CARDS[name] for name in gpus)
    machine = MachineFacts("linux", "x86_64", gpus=Fact(cards, "nvidia-smi"), variables=variables)
    environment = EnvironmentFacts(
        torch=Fact(BUILDS.get(torch), "files"),
        distributions=Fact(installed, "metadata"),
        packages=Fact(packages, "files"),
        modules=Fact(tuple(modules.split()), "files"),
    )
    return Facts(machine, environment, splatfix="0.1.0")


@pytest.mark.parametrize(("gpus", "made", "device"), TABLES["devices"])
def test_auto_takes_a_gpu_that_torch_is_built_for(
    gpus: tuple[str, ...], made: dict[str, str], device: str
) -> None:
    found = facts(*gpus, **made)
    assert device_for("auto", found) == device
    assert (device_for("cpu", found), device_for("cuda", found)) == ("cpu", "cuda"), "what was asked wins"


@pytest.mark.parametrize(("asked", "device", "gpus", "made", "trains"), TABLES["renderers"])
def test_whose_rasterizer_trains(
    asked: str, device: str, gpus: tuple[str, ...], made: dict[str, str], trains: str
) -> None:
    found = facts(*gpus, **made)
    if trains:
        assert renderer_for(asked, device, found) == trains
        return
    error = refused(renderer_for, asked, device, found)
    assert (error.code, int(error.exit_code)) == ("renderer-needs-gpu", 2)


def test_missing_packages_are_listed(empty_venv: Path, tmp_path: Path) -> None:
    python = str(empty_venv)
    asked = subject(python=python, suite=SUITES["quick"], out=tmp_path / "out")
    error = refused(certify, asked, gather(python))
    assert (error.code, int(error.exit_code)) == ("environment-not-ready", 3)
    command = error.todo[0].command
    assert command and "install" in command.argv and python in command.argv
    assert command.argv[-3:] == ("torch", "numpy", "pillow")
    assert not (tmp_path / "out").exists()
