"""The kernel probe: wrong kernels fail their check, and drop-ins are known by their manifests."""

from __future__ import annotations

import importlib.metadata
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from splatfix.certify import kernel_probe  # noqa: E402
from splatfix.kernels import knn, rasterizer, ssim  # noqa: E402

NAME = "splatfix.kernels.changed"
"""Kernels of that package are held to the contract of plain PyTorch."""


def distribution(folder: Path, name: str, manifest: str | None) -> importlib.metadata.Distribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if manifest is not None:
        (info / "splatfix.json").write_text(manifest)
    return importlib.metadata.Distribution.at(info)


def test_manifests_are_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = [
        distribution(tmp_path, "plain", None),
        distribution(tmp_path, "damaged", '{"kind": "swa'),
        distribution(tmp_path, "odd", '["drop-in"]'),
        distribution(tmp_path, "built", '{"kind": "build", "replaces": "simple_knn"}'),
        distribution(tmp_path, "mine", '{"kind": "drop-in", "replaces": "fused_ssim"}'),
    ]
    scans = []

    def scan() -> list[importlib.metadata.Distribution]:
        scans.append(1)
        return there

    monkeypatch.setattr(importlib.metadata, "distributions", scan)
    kernel_probe.dropins.cache_clear()
    try:
        names = ("fused_ssim", "fused_ssim.part", "simple_knn._C", "diff_gaussian_rasterization", "damaged")
        assert [kernel_probe.is_dropin(name) for name in names] == [True, True, False, False, False]
        assert len(scans) == 1
    finally:
        kernel_probe.dropins.cache_clear()


def halved_gradients(color: torch.Tensor) -> torch.Tensor:
    return color.detach() + 0.5 * (color - color.detach())


class HalvedGradients(rasterizer.GaussianRasterizer):
    def forward(self, *args: Any, **options: Any) -> Any:
        color, *rest = super().forward(*args, **options)
        return (halved_gradients(color), *rest)


class Detached(rasterizer.GaussianRasterizer):
    def forward(self, *args: Any, **options: Any) -> Any:
        color, *rest = super().forward(*args, **{**options, "means2D": options["means2D"].detach()})
        return (color, *rest)


def module(**members: Any) -> types.ModuleType:
    found = types.ModuleType(NAME)
    vars(found).update(members)
    return found


SETTINGS = {"GaussianRasterizationSettings": rasterizer.GaussianRasterizationSettings}


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (
            kernel_probe.check_ssim,
            ssim,
            module(fused_ssim=lambda *a, **k: ssim.fused_ssim(*a, **k) * 1.01),  # 1 % off
        ),
        (
            kernel_probe.check_knn,
            knn,
            module(distCUDA2=lambda points: knn.distCUDA2(points) * 1.2),  # as a search inside batches gives
        ),
        (
            kernel_probe.check_rasterizer,
            rasterizer,
            module(GaussianRasterizer=HalvedGradients, **SETTINGS),
        ),
        (
            kernel_probe.check_rasterizer,
            rasterizer,
            module(GaussianRasterizer=Detached, **SETTINGS),
        ),
    ],
    ids=["ssim", "knn", "rasterizer", "means2d"],
)
def test_wrong_kernel_fails(check: Any, right: types.ModuleType, wrong: types.ModuleType) -> None:
    assert check(right, "cpu")["outcome"] == "met"
    assert check(wrong, "cpu")["outcome"] == "failed"


def test_unknown_settings_are_not_measured() -> None:
    class Settings(NamedTuple):
        image_height: int
        warp: float

    with pytest.raises(kernel_probe.NotMeasured, match="warp"):
        kernel_probe.check_rasterizer(module(GaussianRasterizationSettings=Settings), "cpu")


def test_exception_of_a_kernel_is_its_result() -> None:
    def crash(kernel: Any, device: str) -> Any:
        raise RuntimeError("illegal memory access")

    row = kernel_probe.run_check("ssim", crash, "splatfix.kernels.ssim", True, "cpu")
    assert (row["outcome"], row["detail"]) == ("failed", "RuntimeError: illegal memory access")
