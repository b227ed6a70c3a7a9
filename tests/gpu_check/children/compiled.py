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
from kernels.rasterizer_compare import ARGUMENTS, cloud, look_at

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
DEVICE = torch.device("cpu" if EMULATED else "cuda")


def worst(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of any, relative to the largest number of its tensor."""
    pairs = zip(found, expected, strict=True)
    return max(float((f.cpu().double() - e).abs().max() / e.abs().max().clamp_min(1e-12)) for f, e in pairs)


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
    render: Callable[..., object], device: torch.device, dtype: torch.dtype, **options: object
) -> list[torch.Tensor]:
    """Color, depths and alpha of a scene, and every gradient."""
    settings = look_at(90, 70, **options)
    moved = {k: v.to(device, dtype) for k, v in settings._asdict().items() if isinstance(v, torch.Tensor)}
    leaves = {k: v.to(dtype).to(device).requires_grad_() for k, v in cloud(400, size=(0.02, 0.2)).items()}
    leaves["means2D"] = torch.zeros(400, 3, dtype=dtype, device=device, requires_grad=True)
    color, _, *extras = render(settings._replace(**moved), *(leaves.get(name) for name in ARGUMENTS))
    found = [color, *extras]
    loss = sum((image * (k + 1)).square().sum() for k, image in enumerate(found))
    return [item.detach() for item in (*found, *torch.autograd.grad(loss, list(leaves.values())))]


def discs(
    render: Callable[..., tuple[torch.Tensor, ...]], device: torch.device, dtype: torch.dtype
) -> list[torch.Tensor]:
    """Color and maps of surfels, and every gradient; of the maps not the median's, which jumps."""
    settings = look_at(60, 50)
    moved = {k: v.to(device, dtype) for k, v in settings._asdict().items() if isinstance(v, torch.Tensor)}
    leaves = {k: v.to(dtype).to(device) for k, v in cloud(25, 1).items()}
    leaves = {k: (v[:, :2].contiguous() if k == "scales" else v).requires_grad_() for k, v in leaves.items()}
    leaves["means2D"] = torch.zeros(25, 3, dtype=dtype, device=device, requires_grad=True)
    given = [*(leaves.get(name) for name in ARGUMENTS[:-1]), None]
    color, _, maps = render(settings._replace(**moved), *given)
    kept = [color, *maps[:5], maps[6]]
    loss = sum((image * (k + 1)).square().sum() for k, image in enumerate(kept))
    return [item.detach() for item in (*kept, *torch.autograd.grad(loss, list(leaves.values())))]


def summed(device: torch.device, dtype: torch.dtype) -> list[torch.Tensor]:
    """What each Gaussian contributes: by our kernels in single precision, by PyTorch in double."""
    settings = look_at(60, 50)
    moved = {k: v.to(device, dtype) for k, v in settings._asdict().items() if isinstance(v, torch.Tensor)}
    inputs = cloud(60)
    given = [inputs[name].to(dtype).to(device) for name in ("means3D", "opacities", "scales", "rotations")]
    ours = dtype == torch.float32
    sums = contributions_cuda.sums if ours else contributions.contributions
    found = sums(settings._replace(**moved), *given)
    return [found[:, k] if ours else found[k].double() for k in (0, 2, 3)]


def gswarp() -> dict[str, object]:
    """Error and seconds of a peer that gives no inverse depth."""

    def without_inverse(render: Callable[..., tuple[object, ...]]) -> Callable[..., tuple[object, ...]]:
        def called(*given: object) -> tuple[object, ...]:
            color, radii, _, *others = render(*given)
            return color, radii, *others

        return called

    try:
        theirs = without_inverse(on_warp.rasterize)
        found = images(theirs, DEVICE, torch.float32)
        exact = images(without_inverse(rasterizer.rasterize), torch.device("cpu"), torch.float64)
        seconds = timed(lambda: images(theirs, DEVICE, torch.float32))
    except (ImportError, RuntimeError, ValueError) as error:  # a failure of the peer is none of ours
        return {"gswarp": f"{type(error).__name__}: {error}"}
    return {"gswarp rasterizer": worst(found, exact), "frame_by_gswarp_s": seconds}


def main() -> None:
    if EMULATED:
        from kernels.cuda.emulator import emulated_module

        for file in (ssim_cuda, knn_cuda, rasterizer_cuda, surfels_cuda, contributions_cuda):
            file.module = emulated_module
    generator = torch.Generator().manual_seed(0)
    said: dict[str, object] = {}
    for name, options in (
        ("v1", {}),
        ("antialiasing", {"antialiasing": True}),
        ("mip", {"kernel_size": 0.1}),
        ("upstream gradients", {"kernel_size": 0.1, "upstream_gradients": True}),
        ("FastGS", {"compact_box": 0.5}),
    ):
        found = images(rasterizer_cuda.rasterize, DEVICE, torch.float32, **options)
        expected = images(rasterizer.rasterize, torch.device("cpu"), torch.float64, **options)
        said[f"rasterizer {name}"] = worst(found, expected)
    found = discs(surfels_cuda.rasterize, DEVICE, torch.float32)
    said["surfels"] = worst(found, discs(surfels.rasterize_surfels, torch.device("cpu"), torch.float64))
    said["contributions"] = worst(summed(DEVICE, torch.float32), summed(torch.device("cpu"), torch.float64))
    pair = [torch.rand(1, 3, 96, 128, generator=generator, dtype=torch.float64) for _ in range(2)]
    first, wanted = pair[0].float().to(DEVICE).requires_grad_(), pair[0].clone().requires_grad_()
    value, exact = (
        ssim_cuda.mean_ssim(first, pair[1].float().to(DEVICE), "same"),
        ssim.fused_ssim(wanted, pair[1]),
    )
    slopes = [torch.autograd.grad(value, first)[0], torch.autograd.grad(exact, wanted)[0]]
    said["ssim"] = worst([value.detach(), slopes[0]], [exact.detach(), slopes[1]])
    points = torch.rand(5_000, 3, generator=generator)
    said["knn"] = worst([knn_cuda.mean_of_three(points.to(DEVICE))], [knn.distCUDA2(points.double())])
    said["nvrtc"] = "" if EMULATED else ".".join(map(str, nvrtc.find_compiler().version))
    said["frame_s"] = timed(lambda: images(rasterizer_cuda.rasterize, DEVICE, torch.float32))
    if not EMULATED and importlib.util.find_spec("gswarp"):
        said |= gswarp()
    said["frame_by_torch_s"] = timed(lambda: images(rasterizer.rasterize, DEVICE, torch.float32))
    print(json.dumps(said))


main()
