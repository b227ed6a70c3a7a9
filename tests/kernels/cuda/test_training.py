"""A whole training, densification included, on the emulated CUDA kernels, beside the same on the PyTorch ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from smoke_trainer.train import train
from splatfix.kernels import knn, rasterizer, ssim
from splatfix.kernels.knn_cuda import mean_of_three
from splatfix.kernels.rasterizer_cuda import rasterize
from splatfix.kernels.ssim_cuda import mean_ssim
from tests.smoke_trainer.conftest import short_run_in  # noqa: F401


def test_it_learns_the_same(
    short_run_in: Callable[[Path], Callable[..., Any]],  # noqa: F811
    emulated: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.set_num_threads(1)
    plain = train(short_run_in(tmp_path)(20, out="plain"))
    calls = {"rasterizer": 0, "ssim": 0, "knn": 0}

    def counted(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return run(*arguments)

        return call

    def drawn(settings: Any, inputs: Any, _used: Any) -> Any:
        return rasterizer.Rendered(*rasterize(settings, *inputs))

    monkeypatch.setattr(rasterizer, "_by_cuda_kernels", counted("rasterizer", drawn))
    monkeypatch.setattr(ssim, "_by_cuda_kernels", counted("ssim", mean_ssim))
    monkeypatch.setattr(knn, "_by_cuda_kernels", counted("knn", mean_of_three))
    result = train(short_run_in(tmp_path)(20, out="emulated"))
    assert calls["rasterizer"] > 20 and calls["ssim"] >= 20 and calls["knn"] == 1
    assert result.status == plain.status == "ok"
    ours, theirs = (lines(tmp_path / out) for out in ("emulated", "plain"))
    until = next(k for k, line in enumerate(theirs) if line["gaussians"] > theirs[0]["gaussians"])
    assert until >= 6
    assert [line["loss"] for line in ours[:until]] == pytest.approx(
        [line["loss"] for line in theirs[:until]], abs=1e-4
    )
    assert ours[until]["gaussians"] == pytest.approx(theirs[until]["gaussians"], rel=0.02)
    # a Gaussian at the threshold may fall to either side, and then other random numbers follow: from there on, roughly
    assert result.gaussians.cloned + result.gaussians.split > 0
    assert result.gaussians.final == pytest.approx(plain.gaussians.final, rel=0.05)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
