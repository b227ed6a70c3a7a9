"""The kernel probe: wrong kernels fail their check, and drop-ins are known by their manifests."""

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
from splatfix.certify.levels import evaluate  # noqa: E402
from splatfix.core.codec import from_json  # noqa: E402
from splatfix.core.proof import RungName  # noqa: E402
from splatfix.core.runner import ProcessRunner  # noqa: E402
from splatfix.kernels import knn, rasterizer, ssim  # noqa: E402
from splatfix.knowledge.dropins import DROPINS  # noqa: E402
from tests.certify.conftest import put_dropin  # noqa: E402

NAME = "splatfix.kernels.changed"
"""Kernels of that package are held to the contract of plain PyTorch."""


def distribution(folder: Path, name: str, manifest: str | None) -> importlib.metadata.Distribution:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if manifest is not None:
        (info / "splatfix.json").write_text(manifest)
    return importlib.metadata.Distribution.at(info)


def test_a_dropin_is_known_by_its_manifest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = [
        distribution(tmp_path, "plain", None),
        distribution(tmp_path, "damaged", '{"kind": "swa'),
        distribution(tmp_path, "odd", '["drop-in"]'),
        distribution(tmp_path, "built", '{"kind": "build", "replaces": "simple_knn"}'),
        distribution(tmp_path, "mine", '{"kind": "drop-in", "replaces": "fused_ssim"}'),
    ]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: there)
    kernel_probe.dropins.cache_clear()
    try:
        names = ("fused_ssim", "fused_ssim.part", "simple_knn._C", "diff_gaussian_rasterization", "damaged")
        assert [kernel_probe.is_dropin(name) for name in names] == [True, True, False, False, False]
        assert kernel_probe.dropins.cache_info().misses == 1, "environments can be large"
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


class HalvedScalesOfMany(rasterizer.GaussianRasterizer):
    def forward(self, *args: Any, **options: Any) -> Any:
        if len(options["scales"]) > 1000:
            options["scales"] = halved_gradients(options["scales"])
        return super().forward(*args, **options)


def ssim_of_small_images(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    found = ssim.fused_ssim(first, second)
    return found if first.shape[-1] <= 256 else 0.0 * found + 0.5


def distances_of_a_hundred_thousand(points: torch.Tensor) -> torch.Tensor:
    return torch.cat([knn.distCUDA2(points[:100_000]), torch.ones(max(0, len(points) - 100_000))])


@pytest.mark.parametrize(
    ("check", "wrong", "size"),
    [
        (
            kernel_calls.check_ssim,
            module(fused_ssim=lambda *a, **k: ssim.fused_ssim(*a, **k) * 1.01),
            "at 61 x 45",
        ),
        (kernel_calls.check_ssim, module(fused_ssim=ssim_of_small_images), "at 259 x 131"),
        # as a search inside batches gives
        (
            kernel_calls.check_knn,
            module(distCUDA2=lambda points: knn.distCUDA2(points) * 1.2),
            "of 700 points",
        ),
        (kernel_calls.check_knn, module(distCUDA2=distances_of_a_hundred_thousand), "of 100003 points"),
        (kernel_calls.check_rasterizer, module(GaussianRasterizer=HalvedGradients, **SETTINGS), ""),
        (
            kernel_calls.check_rasterizer,
            module(GaussianRasterizer=Detached, **SETTINGS),
            "means2D got no gradient",
        ),
        (
            kernel_calls.check_rasterizer,
            module(GaussianRasterizer=HalvedScalesOfMany, **SETTINGS),
            "of 1025 Gaussians at 257 x 131",
        ),
    ],
)
def test_wrong_kernel_fails(check: Any, wrong: types.ModuleType, size: str) -> None:
    found = check(wrong, "cpu", True)
    assert found["outcome"] == "failed" and found["detail"].startswith(size)


def test_unknown_settings_are_not_measured() -> None:
    class Settings(NamedTuple):
        image_height: int
        warp: float

    with pytest.raises(kernel_calls.NotMeasured, match="warp"):
        kernel_calls.check_rasterizer(
            module(GaussianRasterizationSettings=Settings, GaussianRasterizer=rasterizer.GaussianRasterizer),
            "cpu",
            True,
        )


def outcomes_of(error: Exception, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the probe says where the call of an installed kernel, and that of our own, raises an exception."""

    def raises(kernel: Any, device: str, plain: bool) -> Any:
        raise error

    monkeypatch.setitem(kernel_calls.CHECKS, "ssim", raises)
    kinds = ("native", "ours")
    return [kernel_probe.run_check("ssim", "splatfix.kernels.ssim", kind, "cpu") for kind in kinds]


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (TypeError("rasterize_gaussians(): incompatible function arguments."), False),
        (TypeError("forward() missing 1 required positional argument: 'scores'"), False),
        (RuntimeError("means3D must have dimensions (num_points, 3)"), False),
        (RuntimeError("colors must be a CUDA tensor"), False),
        (RuntimeError("Expected all tensors to be on the same device, but found cuda:0 and cpu!"), False),
        (ValueError("not enough values to unpack (expected 8, got 6)"), False),
        (NameError("name 'fusedssim' is not defined"), False),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 131060.00 GiB."), True),
        (RuntimeError("Trying to create tensor with negative dimension -1847382: [-1847382]"), True),
        # gsplat imports its compiled module, and packaging, when something is first drawn
        (ModuleNotFoundError("No module named 'packaging'"), True),
    ],
)
def test_a_wrong_call_is_no_wrong_result(
    monkeypatch: pytest.MonkeyPatch, error: Exception, failed: bool
) -> None:
    native, ours = outcomes_of(error, monkeypatch)
    assert native["outcome"] == ("failed" if failed else "not-measured")
    assert str(error).partition("\n")[0] in native["detail"]
    assert ours["outcome"] == "failed", "our call of our kernel: no excuse"
    assert native["imported"] is ours["imported"] is not isinstance(error, ImportError)


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 5 MiB is free.",
        "CUDA error: all CUDA-capable devices are busy or unavailable",
        "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8388608 bytes.",
    ],
)
def test_a_gpu_that_others_fill_fails_no_kernel(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    for row in outcomes_of(RuntimeError(said), monkeypatch):
        assert row["outcome"] == "not-measured"


def test_a_cuda_that_does_not_start_fails_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(device: Any) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")

    monkeypatch.setattr(kernel_probe, "no_gpu", lambda: "")
    monkeypatch.setattr(torch.cuda, "set_device", busy)
    result = kernel_probe.run_check("ssim", "splatfix.kernels.ssim", "native", "cuda")
    assert result["outcome"] == "not-measured" and "does not start" in result["detail"]


@pytest.mark.parametrize(("device", "index"), [("cuda", 0), ("cuda:1", 1)])
def test_the_gpu_is_chosen_as_torch_wants_it(
    device: str, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.cuda.set_device` refuses "cuda" without a number: on an H200 nothing was certified."""
    chosen: list[int] = []
    index_of = torch.cuda._utils._get_device_index
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(index_of(device)))
    monkeypatch.setattr(torch, "zeros", lambda *_, **__: None)
    kernel_probe.make_current(device)
    assert chosen == [index]


def test_what_torch_warns_is_why_it_finds_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_available() -> bool:
        warnings.warn("CUDA initialization: Error 802: system not yet initialized", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    kernel_probe.no_gpu.cache_clear()
    for _ in range(2):  # it warns once, and every kernel tells it
        found = kernel_probe.run_check("ssim", "splatfix.kernels.ssim", "ours", "cuda")
        assert found["outcome"] == "not-measured"
        assert "Error 802" in found["detail"]
    kernel_probe.no_gpu.cache_clear()


@pytest.mark.parametrize(
    ("ran", "words"),
    [
        ({}, ""),
        ({"knn": "nvrtc"}, "its CUDA kernels ran"),
        ({"knn": "torch: no driver"}, "pure PyTorch ran: no driver"),
    ],
)
def test_a_drop_in_says_which_of_its_kernels_ran(
    ran: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = types.ModuleType("simple_knn")
    monkeypatch.setitem(sys.modules, "simple_knn", package)
    monkeypatch.setitem(sys.modules, "simple_knn._C", knn)
    monkeypatch.setitem(sys.modules, "simple_knn._nvrtc", types.SimpleNamespace(ran=ran))
    monkeypatch.setattr(kernel_probe, "library_of", lambda _: None)
    found = kernel_probe.run_check("knn", "simple_knn._C", "drop-in", "cpu")
    assert (found["outcome"], found["detail"]) == ("met", words)


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
    done = ProcessRunner().run(argv, timeout=60, env={**os.environ, "PYTHONPATH": paths})
    row = json.loads(done.stdout.splitlines()[-1])
    assert row.pop("word") in done.stdout.partition(row["implementation"])[2]
    found = from_json(KernelCheck, row)
    assert (found.outcome, found.kind, found.detail) == (Outcome.MET, "drop-in", words), done.stderr
    (rung,) = (
        one for one in evaluate((), (found,), (), None, "torch", "cpu") if one.name is RungName.COMPUTES
    )
    said = "; of simple_knn._C only their PyTorch half: no GPU ran their CUDA code"
    assert (said in rung.shown_by) is bool(words)
