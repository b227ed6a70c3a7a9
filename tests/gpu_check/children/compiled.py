"""Our own CUDA kernels beside the PyTorch ones in float64 on the CPU, as JSON: compiled.py cuda|emulated.

On a GPU the code is compiled by torch's NVRTC and timed, and gswarp's beside it where it is installed; emulated, the same
calls run on the CPU (tests/kernels/cuda).
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable

import torch
from kernels.cuda.compare import SURFELS, in_precision, pulled
from kernels.rasterizer_compare import cloud, look_at

from splatfix.kernels import (
    contributions,
    contributions_cuda,
    knn,
    knn_cuda,
    nvrtc,
    on_warp,
    rasterizer,
    rasterizer_cuda,
    ssim,
    ssim_cuda,
    surfels,
    surfels_cuda,
)

EMULATED = sys.argv[1] == "emulated"
DEVICE = "cpu" if EMULATED else "cuda"


def worst(results: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of any, relative to the largest number of its tensor."""
    errors = []
    for result, exact in zip(results, expected, strict=True):
        difference = (result.cpu().double() - exact).abs().max()
        errors.append(float(difference / exact.abs().max().clamp_min(1e-12)))
    return max(errors)


def timed(work: Callable[[], object]) -> float:
    """Seconds of the fastest of five, after one that does not count."""
    if EMULATED:
        return 0.0
    best = float("inf")
    for _ in range(6):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best


def images(
    render: Callable[..., object], device: str, dtype: torch.dtype, **options: object
) -> list[torch.Tensor]:
    """Color, depths and alpha of a scene, and every gradient."""
    scene = cloud(400, size=(0.02, 0.2))
    return all_of(pulled(render, look_at(90, 70, **options), scene, dtype, device=device))


def discs(
    render: Callable[..., tuple[torch.Tensor, ...]], device: str, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Color and maps of surfels, and every gradient; of the maps not the median's, which jumps."""

    def without_median(*arguments: object) -> tuple[torch.Tensor, ...]:
        color, radii, maps = render(*arguments)
        return (color, radii, *maps[:5], maps[6])

    scene = cloud(25, 1)
    scene["scales"] = scene["scales"][:, :2].contiguous()
    return all_of(pulled(without_median, look_at(60, 50), scene, dtype, names=SURFELS, device=device))


def all_of(results: tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Images and gradients, without the radii."""
    (color, _, *others), gradients = results
    return [tensor.detach() for tensor in (color, *others, *gradients.values())]


def summed(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """What each Gaussian contributes: by our kernels in single precision, by PyTorch in double."""
    settings, inputs = in_precision(look_at(60, 50), dtype, device), cloud(60)
    names = ("means3D", "opacities", "scales", "rotations")
    arguments = [inputs[name].to(dtype).to(device) for name in names]
    if dtype == torch.float32:
        pixels, _, share, distance = contributions_cuda.sums(settings, *arguments).unbind(1)
    else:
        pixels, _, share, distance = contributions.contributions(settings, *arguments)
    return [pixels.double(), share, distance]


def gswarp() -> dict[str, object]:
    """Error and seconds of a peer that gives no inverse depth."""

    def without_inverse(render: Callable[..., tuple[object, ...]]) -> Callable[..., tuple[object, ...]]:
        def called(*given: object) -> tuple[object, ...]:
            color, radii, _, *others = render(*given)
            return color, radii, *others

        return called

    try:
        theirs = without_inverse(on_warp.rasterize)
        drawn = images(theirs, DEVICE, torch.float32)
        exact = images(without_inverse(rasterizer.rasterize), "cpu", torch.float64)
        seconds = timed(lambda: images(theirs, DEVICE, torch.float32))
    except (ImportError, RuntimeError, ValueError) as error:  # a failure of the peer is none of ours
        return {"gswarp": f"{type(error).__name__}: {error}"}
    return {"gswarp rasterizer": worst(drawn, exact), "frame_by_gswarp_s": seconds}


def main() -> None:
    if EMULATED:
        from kernels.cuda.emulator import emulated_module

        for file in (ssim_cuda, knn_cuda, rasterizer_cuda, surfels_cuda, contributions_cuda):
            file.module = emulated_module
    generator = torch.Generator().manual_seed(0)
    answer: dict[str, object] = {}
    for name, options in (
        ("v1", {}),
        ("antialiasing", {"antialiasing": True}),
        ("mip", {"kernel_size": 0.1}),
        ("upstream gradients", {"kernel_size": 0.1, "upstream_gradients": True}),
        ("FastGS", {"compact_box": 0.5}),
    ):
        drawn = images(rasterizer_cuda.rasterize, DEVICE, torch.float32, **options)
        exact = images(rasterizer.rasterize, "cpu", torch.float64, **options)
        answer[f"rasterizer {name}"] = worst(drawn, exact)
    drawn = discs(surfels_cuda.rasterize, DEVICE, torch.float32)
    answer["surfels"] = worst(drawn, discs(surfels.rasterize_surfels, "cpu", torch.float64))
    answer["contributions"] = worst(summed(DEVICE, torch.float32), summed("cpu", torch.float64))
    first, second = (torch.rand(1, 3, 96, 128, generator=generator, dtype=torch.float64) for _ in range(2))
    leaf, exact_leaf = first.float().to(DEVICE).requires_grad_(), first.clone().requires_grad_()
    mean = ssim_cuda.mean_ssim(leaf, second.float().to(DEVICE), "same")
    exact_mean = ssim.fused_ssim(exact_leaf, second)
    slope, exact_slope = torch.autograd.grad(mean, leaf)[0], torch.autograd.grad(exact_mean, exact_leaf)[0]
    answer["ssim"] = worst([mean.detach(), slope], [exact_mean.detach(), exact_slope])
    points = torch.rand(5_000, 3, generator=generator)
    answer["knn"] = worst([knn_cuda.mean_of_three(points.to(DEVICE))], [knn.distCUDA2(points.double())])
    answer["nvrtc"] = "" if EMULATED else ".".join(map(str, nvrtc.find_compiler().version))
    answer["frame_s"] = timed(lambda: images(rasterizer_cuda.rasterize, DEVICE, torch.float32))
    if not EMULATED and importlib.util.find_spec("gswarp"):
        answer |= gswarp()
    answer["frame_by_torch_s"] = timed(lambda: images(rasterizer.rasterize, DEVICE, torch.float32))
    print(json.dumps(answer))


main()
