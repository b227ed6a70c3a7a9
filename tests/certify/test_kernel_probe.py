"""Which modules of an environment are drop-ins of splatfix's: their manifests are read once, damaged ones claim nothing."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

pytest.importorskip("torch")

from splatfix.certify import kernel_probe


def distribution(folder: Path, name: str, manifest: str | None) -> importlib.metadata.Distribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if manifest is not None:
        (info / "splatfix.json").write_text(manifest)
    return importlib.metadata.Distribution.at(info)


def test_every_distribution_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = [
        distribution(tmp_path, "plain", None),
        distribution(tmp_path, "damaged", '{"kind": "swa'),
        distribution(tmp_path, "odd", '["swap"]'),
        distribution(tmp_path, "built", '{"kind": "build", "replaces": "simple_knn"}'),
        distribution(tmp_path, "swap", '{"kind": "swap", "replaces": "fused_ssim"}'),
    ]
    scans = []

    def scan() -> list[importlib.metadata.Distribution]:
        scans.append(1)
        return there

    monkeypatch.setattr(importlib.metadata, "distributions", scan)
    kernel_probe.swapped.cache_clear()
    try:
        names = ("fused_ssim", "fused_ssim.part", "simple_knn._C", "diff_gaussian_rasterization", "damaged")
        assert [kernel_probe.is_swap(name) for name in names] == [True, True, False, False, False]
        assert len(scans) == 1
    finally:
        kernel_probe.swapped.cache_clear()
