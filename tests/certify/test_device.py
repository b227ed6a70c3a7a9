"""Where a certification runs when nobody says, and what it says of a GPU that it did not use."""

from __future__ import annotations

import dataclasses
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import Outcome, Request, certify, device_for, idle_gpu, require_gpu, verify
from splatfix.certify.stage import stage
from splatfix.certify.suites import Suite
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.facts import Distribution, EnvironmentFacts, Fact, Facts, Gpu, MachineFacts, Torch
from splatfix.install.swap_wheels import make_swap_wheel
from splatfix.plan.swap_table import SWAPS

CARD = Gpu(0, "NVIDIA GeForce RTX 5080", "nvidia", "12.0")
SECOND = Gpu(1, "NVIDIA GeForce RTX 3090", "nvidia", "8.6")
RADEON = Gpu(0, "AMD Radeon RX 7900 XTX", "amd", None)
CUDA = Torch("2.11.0+cu130", "13.0", None, "")
CPU = Torch("2.13.0+cpu", None, None, "")
ROCM = Torch("2.11.0+rocm7.0", None, "7.0", "")


def facts(
    *gpus: Gpu, torch: Torch | None = CUDA, variables: dict[str, str] | None = None, swap: str = ""
) -> Facts:
    installed = (Distribution(swap, "0", "site-packages", made_by_splatfix="swap"),) if swap else ()
    return Facts(
        MachineFacts("linux", "x86_64", gpus=Fact(gpus, "nvidia-smi"), variables=variables or {}),
        EnvironmentFacts(torch=Fact(torch, "files"), distributions=Fact(installed, "metadata")),
        splatfix="0.1.0",
    )


@pytest.mark.parametrize(
    ("found", "device"),
    [
        (facts(CARD), "cuda"),
        (facts(CARD, SECOND, variables={"CUDA_VISIBLE_DEVICES": "1"}), "cuda"),
        (facts(CARD, variables={"CUDA_VISIBLE_DEVICES": ""}), "cpu"),
        (facts(CARD, variables={"CUDA_VISIBLE_DEVICES": "-1"}), "cpu"),
        (facts(CARD, torch=CPU), "cpu"),
        (facts(CARD, torch=ROCM), "cpu"),
        (facts(CARD, torch=None), "cpu"),
        (facts(RADEON), "cpu"),
        (facts(), "cpu"),
    ],
)
def test_a_gpu_is_used_where_torch_is_built_for_it(found: Facts, device: str) -> None:
    assert device_for("auto", found) == device
    assert (device_for("cpu", found), device_for("cuda", found)) == ("cpu", "cuda"), "what was asked for wins"


@pytest.mark.parametrize(
    ("found", "device", "said"),
    [
        (facts(CARD), "cuda", ""),
        (facts(), "cpu", ""),
        (facts(RADEON), "cpu", ""),
        (facts(CARD, variables={"CUDA_VISIBLE_DEVICES": ""}), "cpu", ""),
        (
            facts(CARD),
            "cpu",
            "The NVIDIA GeForce RTX 5080 here was not used: the CPU was asked for (--device cpu).",
        ),
        (
            facts(CARD, torch=CPU),
            "cpu",
            "The NVIDIA GeForce RTX 5080 here was not used: torch 2.13.0+cpu is a CPU build.",
        ),
    ],
)
def test_a_gpu_that_stays_idle_is_named_with_the_reason(found: Facts, device: str, said: str) -> None:
    assert idle_gpu(found, device) == said


def test_only_our_own_rasterizer_draws_on_a_cpu() -> None:
    require_gpu("torch", "cpu", facts())
    require_gpu("gsplat", "cuda", facts(CARD))
    require_gpu("inria", "cpu", facts(swap="diff_gaussian_rasterization"))
    for renderer, found in (
        ("gsplat", facts(swap="diff_gaussian_rasterization")),
        ("inria", facts()),
        ("inria", facts(swap="simple-knn")),
    ):
        with pytest.raises(SplatfixError) as caught:
            require_gpu(renderer, "cpu", found)
        assert (caught.value.code, int(caught.value.exit_code)) == ("renderer-needs-gpu", 2)
    with pytest.raises(SplatfixError, match="is a CPU build"):
        require_gpu("inria", "cpu", facts(CARD, torch=CPU))


def drop_in(folder: Path) -> Path:
    """The staged trainer with splatfix's drop-in for Inria's rasterizer beside it, metadata and all."""
    path = stage(folder)
    swap = next(item for item in SWAPS if item.distribution == "diff-gaussian-rasterization")
    with zipfile.ZipFile(make_swap_wheel(swap, "0+test", folder / "wheels")) as wheel:
        wheel.extractall(path)
    return path


def test_what_is_trained_with_a_drop_in_says_so(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    kernels = verify(sys.executable, "cpu", put_in_place=drop_in)
    (found,) = [item for item in kernels if item.implementation == "diff_gaussian_rasterization"]
    assert (found.kind, found.outcome) == ("swap", Outcome.MET)
    short = Suite("quick", "one scene, a few steps", ("figurine",), 600.0, iterations=40)
    asked = Request(python=sys.executable, suite=short, out=tmp_path, renderer="inria")
    certificate, _ = certify(asked, put_in_place=drop_in)
    ran: dict[str, Any] = certificate.scenes[0].result["implementations"]["renderer"]
    assert (ran["kind"], ran["name"], ran["engine"]) == ("inria", "diff_gaussian_rasterization", "torch-cpu")
    built = next(rung for rung in certificate.proof if rung.name is RungName.BUILT)
    assert built.reached is None and "plain PyTorch" in built.shown_by
    assert certificate.granted, certificate.reasons
    assert "with splatfix's own drop-in for diff_gaussian_rasterization" in certificate.claim


def test_an_extension_that_was_not_run_leaves_verify_undetermined() -> None:
    from splatfix.app.verify import exit_code_of
    from splatfix.certify import KernelCheck

    ours = KernelCheck("knn", "splatfix.kernels.knn", Outcome.MET, 1e-7, 1e-5, None, None, kind="ours")
    theirs = KernelCheck(
        "knn", "simple_knn._C", Outcome.NOT_MEASURED, None, 0.0, None, None, "GPU only", "native"
    )
    assert int(exit_code_of((ours,))) == 0
    assert int(exit_code_of((ours, theirs))) == 3
    assert int(exit_code_of((ours, dataclasses.replace(theirs, kind="")))) == 0, "not installed"
    assert int(exit_code_of((ours, theirs, dataclasses.replace(ours, outcome=Outcome.FAILED)))) == 1
