"""Runs in an environment with drop-ins of --backend warp: what they compute on Warp's CPU device, as JSON.

gswarp wants CUDA tensors; here single-precision ones say that they are, and blocks run as fibers (Warp 1.19 and newer).
"""

import importlib
import json
import sys
from types import SimpleNamespace

import torch
import warp

warp.config.log_level = warp.LOG_WARNING
warp.config.enable_cpu_blocks = True
warp.is_cuda_available = lambda: True
torch.Tensor.is_cuda = property(
    lambda tensor: tensor.dtype is not torch.float64
)  # double precision stays with PyTorch

import diff_gaussian_rasterization as dgr  # noqa: E402
import fused_ssim  # noqa: E402
import gswarp  # noqa: E402, F401
from diff_gaussian_rasterization import _nvrtc as chosen  # noqa: E402
from simple_knn._C import distCUDA2  # noqa: E402

stream = SimpleNamespace(
    device=torch.device("cpu"), device_index=0, stream_handle=0, workspace_key=("cpu", 0), warp_stream=None
)
importlib.import_module("gswarp.fused_ssim").current_execution_context = lambda *_: stream


def worst(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    pairs = zip(found, exact, strict=True)
    return max(
        float((f.detach().double() - e.detach()).abs().max() / e.detach().abs().max()) for f, e in pairs
    )


def draw(
    dtype: torch.dtype, *, count: int = 300, opaque: bool = True
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Image, radii; gradients of everything."""
    seed = torch.Generator().manual_seed(1)
    width, height, tan = 70, 50, 0.5
    view = torch.eye(4, dtype=dtype)
    view[3, 2] = 4.0  # transposed, as trainers pass it
    projection = torch.zeros(4, 4, dtype=dtype)
    projection[0, 0], projection[1, 1] = 1 / tan, width / (tan * height)
    projection[2, 2], projection[2, 3], projection[3, 2] = 1.0, 1.0, -0.01
    settings = dgr.GaussianRasterizationSettings(
        image_height=height,
        image_width=width,
        tanfovx=tan,
        tanfovy=tan * height / width,
        bg=torch.tensor([0.2, 0.5, 0.9], dtype=dtype),
        scale_modifier=1.0,
        viewmatrix=view.T.contiguous().T,
        projmatrix=view @ projection,
        sh_degree=2,
        campos=torch.tensor([0.0, 0.0, -4.0], dtype=dtype),
        prefiltered=False,
        debug=False,
    )
    random = [torch.rand(count, size, generator=seed) for size in (3, 1, 27, 3, 4)]
    means, opacities, shs, scales, rotations = (
        (2.4 * random[0] - 1.2),
        random[1] * opaque,
        random[2].view(count, 9, 3) - 0.5,
        0.02 + 0.2 * random[3],
        torch.nn.functional.normalize(random[4] - 0.5),
    )
    leaves = [item.to(dtype).requires_grad_() for item in (means, opacities, shs, scales, rotations)]
    points = torch.zeros(count, 3, dtype=dtype, requires_grad=True)
    means, opacities, shs, scales, rotations = leaves
    image, radii = dgr.GaussianRasterizer(settings)(
        means3D=means, means2D=points, opacities=opacities, shs=shs, scales=scales, rotations=rotations
    )
    weights = torch.rand(image.shape, generator=seed).to(dtype)
    return [image, radii.double()], list(torch.autograd.grad((image * weights).sum(), [*leaves, points]))


def ssim(dtype: torch.dtype, padding: str) -> list[torch.Tensor]:
    seed = torch.Generator().manual_seed(2)
    first, second = (torch.rand(1, 3, 37, 29, generator=seed).to(dtype) for _ in range(2))
    first = (0.5 * first + 0.5 * second).requires_grad_()
    value = fused_ssim.fused_ssim(first, second, padding)
    return [value, *torch.autograd.grad(value, first)]


cloud = torch.rand(3_000, 3, generator=torch.Generator().manual_seed(3))
found, exact = draw(torch.float32), draw(torch.float64)
hidden = [draw(dtype, opaque=False)[0][1] for dtype in (torch.float32, torch.float64)]
nothing, background = draw(torch.float32, count=0)[0][0], torch.tensor([0.2, 0.5, 0.9]).view(3, 1, 1)
said = {
    "radii at opacity 0": worst(hidden[:1], hidden[1:]),  # Scaffold-GS filters by them
    "no Gaussian": worst([nothing], [background.expand_as(nothing).double()]),
    "image": worst(found[0], exact[0]),
    "gradients": worst(found[1], exact[1]),
    "ssim": max(worst(ssim(torch.float32, name), ssim(torch.float64, name)) for name in ("same", "valid")),
    "knn": worst([distCUDA2(cloud)], [distCUDA2(cloud.double())]),
    "ran": {
        **chosen.ran,
        **sys.modules["fused_ssim._nvrtc"].ran,
        **sys.modules["simple_knn._nvrtc"].ran,
    },
}
print(json.dumps(said))
