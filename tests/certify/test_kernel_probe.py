"""The kernel probe: wrong kernels fail their check, wrong calls do not; drop-ins are known by their manifests."""

import builtins
import importlib.metadata
import json
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from splatfix.certify import KernelCheck, Outcome, kernel_calls, kernel_probe  # noqa: E402
from splatfix.certify.levels import computes  # noqa: E402
from splatfix.core.codec import from_json  # noqa: E402
from splatfix.core.runner import Runner  # noqa: E402
from splatfix.kernels import knn, rasterizer, ssim  # noqa: E402
from splatfix.knowledge.dropins import DROPINS  # noqa: E402
from tests.certify.conftest import put_dropin  # noqa: E402
from tests.tables import data  # noqa: E402

NAME = "splatfix.kernels.changed"
"""Kernels of that package are held to the contract of plain PyTorch."""


def test_a_dropin_is_known_by_its_manifest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built, there = '{"kind": "build", "replaces": "simple_knn"}', []
    for number, manifest in enumerate(("", built, '{"kind": "drop-in", "replaces": "fused_ssim"}')):
        info = tmp_path / f"p{number}-1.0.dist-info"
        info.mkdir()
        if manifest:
            (info / "splatfix.json").write_text(manifest)
        there.append(importlib.metadata.Distribution.at(info))
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: there)
    names = ("fused_ssim", "simple_knn", "diff_gaussian_rasterization")
    assert [kernel_probe.is_dropin(name) for name in names] == [True, False, False]


def halved_gradients(color: torch.Tensor) -> torch.Tensor:
    return color.detach() + 0.5 * (color - color.detach())


def halved_of_many(scales: torch.Tensor) -> torch.Tensor:
    return halved_gradients(scales) if len(scales) > 1000 else scales


def module(**members: Any) -> types.ModuleType:
    found = types.ModuleType(NAME)
    vars(found).update(members)
    return found


def rasterizer_with(color: Any = None, **wrong: Any) -> types.ModuleType:
    """Our rasterizer with something wrong in its color, or in an argument of that name."""

    class Wrong(rasterizer.GaussianRasterizer):
        def forward(self, *args: Any, **options: Any) -> Any:
            for name, change in wrong.items():
                options[name] = change(options[name])
            drawn, *rest = super().forward(*args, **options)
            return (color(drawn) if color else drawn, *rest)

    settings = rasterizer.GaussianRasterizationSettings
    return module(GaussianRasterizer=Wrong, GaussianRasterizationSettings=settings)


def ssim_of_small_images(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    found = ssim.fused_ssim(first, second)
    return found if first.shape[-1] <= 256 else 0.0 * found + 0.5


def distances_of_a_hundred_thousand(points: torch.Tensor) -> torch.Tensor:
    return torch.cat([knn.distCUDA2(points[:100_000]), torch.ones(max(0, len(points) - 100_000))])


@pytest.mark.parametrize(
    ("kernel", "wrong", "size"),
    [
        ("ssim", module(fused_ssim=lambda *a, **k: ssim.fused_ssim(*a, **k) * 1.01), "at 61 x 45"),
        ("ssim", module(fused_ssim=ssim_of_small_images), "at 259 x 131"),
        # as a search inside batches gives
        ("knn", module(distCUDA2=lambda points: knn.distCUDA2(points) * 1.2), "of 700 points"),
        ("knn", module(distCUDA2=distances_of_a_hundred_thousand), "of 100003 points"),
        ("rasterizer", rasterizer_with(color=halved_gradients), "of 30 Gaussians at 16 x 16"),
        ("rasterizer", rasterizer_with(means2D=torch.Tensor.detach), "of 30 Gaussians at 16 x 16; means2D"),
        ("rasterizer", rasterizer_with(scales=halved_of_many), "of 1025 Gaussians at 129 x 67"),
    ],
)
def test_wrong_kernel_fails(kernel: str, wrong: types.ModuleType, size: str) -> None:
    found = kernel_calls.check(kernel, wrong, "cpu", True)
    assert found["outcome"] == "failed" and found["detail"].startswith(size)


def test_unknown_settings_are_not_measured() -> None:
    class Settings(NamedTuple):
        image_height: int
        warp: float

    kernel = rasterizer.GaussianRasterizer
    variant = module(GaussianRasterizationSettings=Settings, GaussianRasterizer=kernel)
    with pytest.raises(kernel_calls.NotMeasured, match="has unknown settings: warp"):
        kernel_calls.check("rasterizer", variant, "cpu", True)


@pytest.mark.parametrize(
    ("said", "kind", "text"), [(said, *row) for said, rows in data(__file__).items() for row in rows]
)
def test_a_wrong_call_is_no_wrong_result(
    monkeypatch: pytest.MonkeyPatch, said: str, kind: str, text: str
) -> None:
    error: Exception = getattr(builtins, kind)(text)

    def raises(kernel: Any, device: str, plain: bool) -> Any:
        raise error

    monkeypatch.setitem(kernel_calls.CHECKS, "ssim", raises)
    native = kernel_probe.run_check("ssim", "splatfix.kernels.ssim", "native", "cpu")
    assert native["outcome"] == ("failed" if said == "failed" else "not-measured")
    assert text in native["detail"]
    # our call of our kernel: no excuse
    ours = kernel_probe.run_check("ssim", "splatfix.kernels.ssim", "ours", "cpu")
    assert ours["outcome"] == ("not-measured" if said == "busy" else "failed")
    imported = not isinstance(error, ImportError)
    assert native.get("imported", True) is ours.get("imported", True) is imported


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:1", 1)])
def test_the_gpu_is_chosen_as_torch_wants_it(
    device: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.cuda.set_device` refuses "cuda" without a number: on an H200 nothing was certified."""
    chosen: list[int] = []
    index_of = torch.cuda._utils._get_device_index
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(index_of(device)))
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    kernel_calls.start_cuda(device)
    assert chosen == [index]


@pytest.mark.parametrize("available", [False, True])
def test_a_cuda_that_does_not_start_fails_no_kernel(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what torch warns of is why it finds no GPU."""

    def is_available() -> bool:
        warnings.warn("CUDA initialization: Error 802: system not yet initialized", stacklevel=1)
        return available

    def busy(device: Any) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "set_device", busy)
    result = kernel_probe.run_check("ssim", "splatfix.kernels.ssim", "ours", "cuda")
    assert result["outcome"] == "not-measured"
    assert ("does not start" if available else "Error 802") in result["detail"]


@pytest.mark.parametrize(
    ("kernel", "name", "ran", "words"),
    [
        ("knn", "simple_knn._C", {}, ""),
        ("knn", "simple_knn._C", {"knn": "nvrtc"}, "its CUDA kernels ran"),
        ("knn", "simple_knn._C", {"knn": "torch: no driver"}, "pure PyTorch ran: no driver"),
        ("rasterizer", "diff_surfel_rasterization", {"surfels": "nvrtc"}, "its CUDA kernels ran"),
    ],
)
def test_a_drop_in_says_which_of_its_kernels_ran(
    kernel: str, name: str, ran: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = f"{name.partition('.')[0]}._nvrtc"
    monkeypatch.setitem(sys.modules, compiler, types.SimpleNamespace(ran=ran))
    monkeypatch.setattr(kernel_probe, "find_module", lambda name: name == compiler)
    assert kernel_probe.half_that_ran(kernel, name, "cuda") == {"detail": words}


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        pytest.param("pure", "", marks=pytest.mark.slow),
        ("nvrtc", "in its PyTorch half: no GPU ran its CUDA code"),
    ],
)
def test_on_a_cpu_only_the_pytorch_half_of_a_drop_in_runs(backend: str, words: str, tmp_path: Path) -> None:
    """And the level says so. In the environment of a drop-in as it is installed, by the probe's own process."""
    (dropin,) = (item for item in DROPINS if item.module == "simple_knn")
    compiled = {} if backend == "nvrtc" else None
    put_dropin(dropin, tmp_path, compiled=compiled)
    argv = [sys.executable, str(Path(kernel_probe.__file__)), "knn", "simple_knn._C", "--device", "cpu"]
    paths = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    done = Runner().run(argv, timeout=60, env={**os.environ, "PYTHONPATH": paths})
    found = from_json(KernelCheck, json.loads(done.stdout.splitlines()[-1]))
    assert (found.outcome, found.kind, found.detail) == (Outcome.MET, "drop-in", words), done.stderr
    said = "; of simple_knn._C only their PyTorch half: no GPU ran their CUDA code"
    assert (said in computes((found,)).shown_by) is bool(words)
