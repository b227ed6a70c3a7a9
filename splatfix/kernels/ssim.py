"""Differentiable SSIM with the contract of the `fused_ssim` CUDA extension, in plain PyTorch.

Contract (fused-ssim by Rahul Goel, as of 2026-01):

* 11-tap separable Gaussian window, sigma 1.5, zero padding outside the image, every channel on its own;
* per pixel  ``(2 m1 m2 + C1)(2 s12 + C2) / ((m1^2 + m2^2 + C1)(s1^2 + s2^2 + C2))``  with C1 = 0.01^2, C2 = 0.03^2,
  ``s^2 = E[x^2] - m^2``; variances are clamped to >= 0 and the map to [-1, 1], with no gradient where the map was clamped
  (in exact arithmetic neither clamp ever acts: both only catch rounding; here the two variances are clamped as one sum);
* ``padding="same"`` averages the whole map, ``"valid"`` the same map without its 5 outermost pixels on each side;
* the gradient goes to the first image only.

Algorithm. The map needs four blurs: x, y, x^2 + y^2 and xy. Its gradient needs three more, of the derivatives with respect
to E[x], E[x^2 + y^2] and E[xy]. Value and gradient are computed together, in strips of rows, and only the gradient is kept
for backward. A strip and its halo fit the CPU cache, and rows shared by two strips are computed once.

Works on CPU, CUDA and MPS, in float32 and float64; float32 on CUDA by the kernels of ssim_cuda.py where they can be had.
Under `torch.compile` the same formula is written without strips, for the compiler to fuse. This file needs torch >= 1.13 and
nothing else.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, ContextManager, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["fused_ssim", "fused_ssim3d"]

C1 = 0.01**2
C2 = 0.03**2
HALO = 5
SHIFT = 0.5
"""Taken off both images before they are squared. Variances do not change (outside the image 0 becomes -0.5), but in single
precision E[x^2] - E[x]^2 loses far fewer digits for values centered on 0; the means get it back where they are needed."""
_UNNORMALISED = [math.exp(-((i - HALO) ** 2) / (2 * 1.5**2)) for i in range(2 * HALO + 1)]
WINDOW: tuple[float, ...] = tuple(v / sum(_UNNORMALISED) for v in _UNNORMALISED)
"""The 11 weights of the window: 0.00102838, 0.00759876, 0.03600077, 0.10936069, 0.21300553, 0.26601171, and back."""

# One output block of the horizontal pass: 16 pixels are one AVX-512 register (see _horizontal_blocks).
_BLOCK = 16
# Numbers in one map of a strip. On a CPU a strip's dozen maps should fit the last-level cache; a GPU wants few launches.
_STRIP_NUMBERS_CPU = 1 << 18
_STRIP_NUMBERS_GPU = 1 << 23
_MIN_STRIP_ROWS = 32


def fused_ssim(
    img1: Tensor,
    img2: Tensor,
    padding: str = "same",
    train: bool = True,
) -> Tensor:
    """Mean SSIM of two images with values in [0, 1], as a scalar tensor (1 for equal images).

    Args:
        img1: [B, C, H, W], float32 or float64; receives the gradient.
        img2: the same shape, dtype and device; receives no gradient.
        padding: "same" (the Inria loss) or "valid" (drops 5 pixels per side; needs H and W of at least 11).
        train: False skips the gradient even if `img1` requires one, as in the extension.

    Raises:
        ValueError: wrong shapes or padding; the message says what to change.
        TypeError: wrong dtypes.
    """
    _check(img1, img2, padding, dims=2)
    if not (train and torch.is_grad_enabled()):
        img1 = img1.detach()
    on_gpu = _by_cuda_kernels(img1, img2, padding)
    if on_gpu is not None:
        return on_gpu
    return _MeanSSIM.apply(img1, img2.detach(), padding)  # type: ignore[no-any-return, no-untyped-call]


def fused_ssim3d(img1: Tensor, img2: Tensor, padding: str = "same", train: bool = True) -> Tensor:
    """Mean SSIM of two volumes [B, C, D, H, W] with an 11x11x11 window; otherwise as `fused_ssim`.

    "valid" drops 5 voxels on each of the six sides and needs at least 11 voxels along every axis.
    """
    _check(img1, img2, padding, dims=3)
    if not (train and torch.is_grad_enabled()):
        img1 = img1.detach()
    return _MeanSSIM.apply(img1, img2.detach(), padding)  # type: ignore[no-any-return, no-untyped-call]


def _by_cuda_kernels(img1: Tensor, img2: Tensor, padding: str) -> Optional[Tensor]:
    """The same by CUDA kernels, where they lie beside this file and serve these tensors; else None."""
    if not img1.is_cuda or _is_compiling():
        return None
    try:
        from splatfix.kernels.nvrtc import by_kernels
        from splatfix.kernels.ssim_cuda import mean_ssim
    except ImportError:  # a copy of this file alone
        return None
    similarity: Optional[Tensor] = by_kernels("ssim", img1, lambda: mean_ssim(img1, img2, padding))
    return similarity


class _MeanSSIM(torch.autograd.Function):
    """Forward: mean of the map. Backward: the gradient computed in the same pass, times the incoming scalar."""

    @staticmethod
    def forward(ctx: Any, img1: Tensor, img2: Tensor, padding: str) -> Tensor:
        wants_gradient: bool = ctx.needs_input_grad[0]
        if _is_compiling():
            total, grad = _whole(img1, img2, padding, img1.dim() - 2, wants_gradient)
        elif img1.dim() == 4:
            total, grad = _by_strips(img1, img2, padding, wants_gradient)
        else:
            total, grad = _by_volumes(img1, img2, padding, wants_gradient)
        count = img1.shape[0] * img1.shape[1]
        for size in img1.shape[2:]:
            count *= size - 2 * _cropped(padding)
        ctx.scale = 1.0 / count
        if grad is not None:
            ctx.save_for_backward(grad)
        mean_ssim: Tensor = total * ctx.scale
        return mean_ssim

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Optional[Tensor], None, None]:
        if not ctx.saved_tensors:
            return None, None, None
        return ctx.saved_tensors[0] * (upstream * (2 * ctx.scale)), None, None


# ---------------------------------------------------------------------------------------------------------------------
# The formula
# ---------------------------------------------------------------------------------------------------------------------


def _map_and_derivatives(
    mu1: Tensor, mu2: Tensor, b: Tensor, d: Tensor, out: Optional[Sequence[Tensor]]
) -> Tensor:
    """The SSIM map from the blurred x, y, x^2 + y^2 and 2xy of images minus `SHIFT`; the last two are overwritten.

    Writes to the three tensors of `out`, unless it is None, the derivatives with respect to E[x], E[x^2 + y^2] with its
    sign turned, and E[2xy], all halved.
    """
    # S = cd / (ab) with c and a made of the full means, d and b of the shifted ones. C2 joins last: added before the blur it
    # would spare two passes, but round flat regions differently in b and d, at four times the error.
    b.addcmul_(mu1, mu1, value=-1).addcmul_(mu2, mu2, value=-1).clamp_(min=0).add_(C2)
    d.addcmul_(mu1, mu2, value=-2).add_(C2)
    full1, full2 = mu1 + SHIFT, mu2 + SHIFT
    c1 = torch.full((), C1, dtype=mu1.dtype, device=mu1.device)
    a = torch.addcmul(c1, full1, full1).addcmul_(full2, full2)
    c = torch.addcmul(c1, full1, full2, value=2)
    inverse = (a * b).reciprocal_()
    ssim = (c * d).mul_(inverse)
    if out is None:
        return ssim.clamp_(-1, 1)
    # Every derivative has the factor 1/(ab): zeroing it zeroes those of clamped pixels.
    beyond = 1 + torch.finfo(ssim.dtype).eps
    inverse = torch.ops.aten.hardtanh_backward(inverse, ssim, -beyond, beyond)
    ssim.clamp_(-1, 1)
    # dS/dm1 = 2 (full2 d - m2 c - S (full1 b - m1 a)) / (ab), dS/dE[x^2 + y^2] = -S/b, dS/dE[2xy] = c/(ab).
    half_dmu = full2.mul_(d).addcmul_(mu2, c, value=-1)
    half_dmu.addcmul_(full1.mul_(b).addcmul_(mu1, a, value=-1), ssim, value=-1)
    torch.mul(half_dmu, inverse, out=out[0])
    torch.mul(a.mul_(ssim), inverse, out=out[1])
    torch.mul(c, inverse, out=out[2])
    return ssim


_OUTSIDE = [-SHIFT, -SHIFT, 2 * SHIFT * SHIFT, 2 * SHIFT * SHIFT]
"""The maps to blur, x, y, x^2 + y^2, 2xy of the shifted images, where the image is zero, beyond its border."""


# ---------------------------------------------------------------------------------------------------------------------
# Strips of rows
# ---------------------------------------------------------------------------------------------------------------------


def _by_strips(
    img1: Tensor, img2: Tensor, padding: str, wants_gradient: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """Sum of the map and, if needed, its gradient [B, C, H, W] for img1, a few planes and rows at a time."""
    height, width = img1.shape[-2:]
    blur = _Blur(img1, width)
    budget = _STRIP_NUMBERS_CPU if img1.device.type == "cpu" else _STRIP_NUMBERS_GPU
    x, y = (image.detach().reshape(-1, height, width) for image in (img1, img2))
    grad = torch.empty_like(x, memory_format=torch.contiguous_format) if wants_gradient else None
    planes = max(1, min(x.shape[0], budget // (blur.columns * 2 * _MIN_STRIP_ROWS)))
    total = torch.zeros((), dtype=blur.sum_type, device=x.device)
    precision: ContextManager[Any] = contextlib.nullcontext()
    if img1.device.type in ("cpu", "cuda"):
        # autocast rounds convolutions to half, which E[x^2] - E[x]^2 does not survive
        precision = torch.autocast(img1.device.type, enabled=False)
    with precision:
        for start in range(0, x.shape[0], planes):
            group = slice(start, start + planes)
            total += _sweep(
                blur,
                x[group],
                y[group],
                _cropped(padding),
                None if grad is None else grad[group],
                budget,
            )
    if grad is not None:
        grad = grad.view(img1.shape)
    return total.to(x.dtype), grad


def _sweep(
    blur: _Blur,
    x: Tensor,
    y: Tensor,
    crop: int,
    grad: Optional[Tensor],
    budget: int,
) -> Tensor:
    """Sum of the map over planes [P, H, W] swept from top to bottom; fills `grad`, which lags the map by 5 rows.

    Two rolling buffers hold the rows that a vertical blur reads: what goes into the map, and the map's derivatives.
    At each step their last 10 rows become their first 10, and `rows` new rows are written below.
    """
    planes, height, width = x.shape
    steps = max(1, -(-(height + HALO) * planes * blur.columns // budget))
    rows = max(2 * HALO, -(-(height + HALO) // steps))
    # filled there: a tensor of these numbers would have to reach the GPU first
    outside = torch.stack([x.new_full((1, 1, 1), value) for value in _OUTSIDE])
    maps = outside.repeat(1, planes, rows + 2 * HALO, blur.columns)
    derivatives = None
    if grad is not None:
        derivatives = x.new_zeros(3, planes, rows + 2 * HALO, blur.columns)
    total = torch.zeros((), dtype=blur.sum_type, device=x.device)
    _load_rows(maps[:, :, HALO : 2 * HALO], x, y, 0, outside)
    for top in range(0, height + HALO, rows):
        _load_rows(maps[:, :, 2 * HALO :], x, y, top + HALO, outside)
        # Of these rows, those that count; the derivatives of the others are zero.
        first = min(max(top, crop), top + rows)
        bottom = max(first, min(height - crop, top + rows))
        slots = None
        if derivatives is not None:
            fresh = derivatives[:, :, 2 * HALO :]
            fresh[:, :, : first - top] = 0
            fresh[:, :, bottom - top :] = 0
            slots = fresh[:, :, first - top : bottom - top, HALO + crop : HALO + width - crop].unbind(0)
        if first < bottom:
            blurred = blur(maps)[:, :, first - top : bottom - top, crop : width - crop]
            mu1, mu2, squares, product = blurred.unbind(0)
            total += _map_and_derivatives(mu1, mu2, squares, product, slots).sum()
        if grad is not None and derivatives is not None:
            centered = maps[:2, :, :rows, HALO : HALO + width]
            # rows of the gradient (halved): blurred d/dE[x] + x d/dE[x^2 + y^2] + y d/dE[2xy], in that order
            start, stop = max(0, top - HALO), min(height, top - HALO + rows)
            if start < stop:
                here = slice(start - top + HALO, stop - top + HALO)
                dmu, dsquares, dxy = blur(derivatives)[:, :, here, :width]
                torch.addcmul(dmu, dsquares, centered[0][:, here], value=-1, out=grad[:, start:stop])
                grad[:, start:stop].addcmul_(dxy, centered[1][:, here])
            derivatives[:, :, : 2 * HALO] = derivatives[:, :, rows:].clone()
        maps[:, :, : 2 * HALO] = maps[:, :, rows:].clone()
    return total


def _load_rows(maps: Tensor, x: Tensor, y: Tensor, top: int, outside: Tensor) -> None:
    """Fill the given rows of the map buffer from image row `top` on; rows below the image are outside."""
    height, width = x.shape[-2:]
    count = max(0, min(maps.shape[2], height - top))
    if count:
        first, second, squares, product = maps[:, :, :count, HALO : HALO + width].unbind(0)
        torch.sub(x[:, top : top + count], SHIFT, out=first)
        torch.sub(y[:, top : top + count], SHIFT, out=second)
        torch.mul(first, first, out=squares)
        squares.addcmul_(second, second)
        torch.mul(first, second, out=product).mul_(2)
    maps[:, :, count:] = outside


# ---------------------------------------------------------------------------------------------------------------------
# Blurs
# ---------------------------------------------------------------------------------------------------------------------


class _Blur:
    """The fastest exact 11x11 Gaussian for this device and dtype, over maps with their borders in place.

    Maps [M, P, rows + 10, columns] hold 5 columns of border, the image, and border up to `columns`; the result is
    [M, P, rows, >= width]. Three ways:

    * oneDNN (float32 on most CPUs): see `_vertical_channels` and `_horizontal_blocks`;
    * CUDA: two depthwise convolutions, which never go through TF32;
    * anywhere else (float64 on a CPU, no oneDNN, MPS): eleven shifted additions per direction.
    """

    def __init__(self, like: Tensor, width: int) -> None:
        self.columns = width + 2 * HALO
        self.sum_type = torch.float64
        if like.device.type == "mps":  # which has no float64
            self.sum_type = like.dtype
        self._width = width
        weights = torch.tensor(WINDOW, dtype=like.dtype)
        if like.is_cuda:  # from pinned memory, so that the GPU is not waited for
            weights = weights.pin_memory()
        self._weights = weights.to(like.device, non_blocking=True)
        self._way = _way_to_blur(like)
        if self._way == "onednn":
            # the halo and whole blocks of 16, off the strides that collide in a CPU's cache
            self.columns = -(-width // _BLOCK) * _BLOCK + _BLOCK
            if self.columns % 256 == 0:
                self.columns += _BLOCK
            self._vertical = self._weights.view(1, 1, 1, -1).repeat(self.columns, 1, 1, 1)
            self._toeplitz = _toeplitz(self._weights)

    def __call__(self, maps: Tensor) -> Tensor:
        count, planes, rows, columns = maps.shape
        if self._way == "shifts":
            return _shifted_sums(_shifted_sums(maps, 2), 3)
        if self._way == "onednn":
            flat = maps.view(count * planes, rows, columns)
            flat = _horizontal_blocks(_vertical_channels(flat, self._vertical), self._toeplitz)
            return flat.view(count, planes, rows - 2 * HALO, -1)
        channels = count * planes
        flat = maps.view(1, channels, rows, columns)
        weights = self._weights.expand(channels, 1, -1)
        flat = F.conv2d(flat, weights.unsqueeze(3), groups=channels)
        flat = F.conv2d(flat, weights.unsqueeze(2), groups=channels)
        return flat.view(count, planes, rows - 2 * HALO, self._width)


def _way_to_blur(like: Tensor) -> str:
    if like.device.type == "cuda":
        return "depthwise"
    # Built in, and not switched off by torch.backends.mkldnn.flags(); without it the convolutions are 30 times slower.
    built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    has_onednn = built_in and getattr(torch._C, "_get_mkldnn_enabled", lambda: True)()
    if like.device.type == "cpu" and like.dtype == torch.float32 and has_onednn:
        return "onednn"
    return "shifts"


def _vertical_channels(maps: Tensor, weights: Tensor) -> Tensor:
    """[M, rows + 10, W] -> [M, rows, W]. A row is read as the channels of one pixel: a depthwise channels-last
    convolution of height 11, which runs along contiguous memory and needs no copy."""
    count, rows, columns = maps.shape
    pixels = maps.view(count, 1, rows, columns).permute(0, 3, 1, 2)
    blurred = F.conv2d(pixels, weights, groups=columns)
    return blurred.permute(0, 2, 3, 1).reshape(count, rows - 2 * HALO, columns)


def _horizontal_blocks(maps: Tensor, toeplitz: Tensor) -> Tensor:
    """[M, rows, W + padding] -> [M, rows, whole blocks]. Each step of 16 pixels reads 26 and writes 16 channels, which in
    channels-last order are the 16 pixels themselves: a matrix product in place of a narrow stencil, and no copy."""
    count, rows, columns = maps.shape
    lines = count * rows
    # The channels-last strides are spelled out: with one channel torch would call this tensor plain contiguous.
    one_channel = maps.as_strided((1, 1, lines, columns), (lines * columns, 1, columns, 1))
    out = F.conv2d(one_channel, toeplitz, stride=(1, _BLOCK))
    return out.permute(0, 2, 3, 1).reshape(count, rows, -1)


def _toeplitz(weights: Tensor) -> Tensor:
    """[16, 1, 1, 26]: output pixel i of a block takes the window from its i-th input on."""
    matrix = weights.new_zeros(_BLOCK, _BLOCK + 2 * HALO)
    for i in range(_BLOCK):
        matrix[i, i : i + 2 * HALO + 1] = weights
    return matrix.view(_BLOCK, 1, 1, -1)


def _shifted_sums(maps: Tensor, dim: int) -> Tensor:
    """The window along one dimension, without padding: its length shrinks by 10."""
    length = maps.shape[dim] - 2 * HALO
    out = maps.narrow(dim, HALO, length) * WINDOW[HALO]
    for shift in range(2 * HALO + 1):
        if shift != HALO:
            out = out.add_(maps.narrow(dim, shift, length), alpha=WINDOW[shift])
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Whole images and volumes
# ---------------------------------------------------------------------------------------------------------------------


def _blur_whole(image: Tensor, dims: int, outside: float = 0.0) -> Tensor:
    """The Gaussian over the last `dims` dimensions, with a constant border."""
    out = F.pad(image, [HALO, HALO] * dims, value=outside)
    for dim in range(-dims, 0):
        out = _shifted_sums(out, image.dim() + dim)
    return out


def _whole(
    img1: Tensor, img2: Tensor, padding: str, dims: int, wants_gradient: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """Sum of the map and its halved gradient without strips: for compilers, which fuse it, and for volumes."""
    x, y = img1.detach() - SHIFT, img2.detach() - SHIFT
    maps = [x, y, x * x + y * y, 2 * x * y]
    mu1, mu2, squares, product = (_blur_whole(m, dims, value) for m, value in zip(maps, _OUTSIDE))
    derivatives = [torch.empty_like(x) for _ in range(3)] if wants_gradient else None
    ssim = _map_and_derivatives(mu1, mu2, squares, product, derivatives)
    if padding == "valid":
        ssim = _inner(ssim, dims)
    if derivatives is None:
        return ssim.sum(), None
    if padding == "valid":
        derivatives = [F.pad(_inner(values, dims), [HALO, HALO] * dims) for values in derivatives]
    dmu, dsquares, dxy = (_blur_whole(values, dims) for values in derivatives)
    return ssim.sum(), dmu - x * dsquares + y * dxy


def _inner(values: Tensor, dims: int) -> Tensor:
    for dim in range(-dims, 0):
        values = values.narrow(dim, HALO, values.shape[dim] - 2 * HALO)
    return values


def _by_volumes(
    img1: Tensor, img2: Tensor, padding: str, wants_gradient: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """`_whole` for one [D, H, W] at a time, which bounds the memory by a dozen volumes."""
    shape = img1.shape
    total = torch.zeros((), dtype=img1.dtype, device=img1.device)
    grads: list[Tensor] = []
    for x, y in zip(img1.reshape(-1, *shape[2:]), img2.reshape(-1, *shape[2:])):
        value, grad = _whole(x, y, padding, 3, wants_gradient)
        total = total + value
        if grad is not None:
            grads.append(grad)
    if not grads:
        return total, None
    return total, torch.stack(grads).view(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Helpers
# ---------------------------------------------------------------------------------------------------------------------


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)  # torch 2.1 and later
    return bool(compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling())


def _cropped(padding: str) -> int:
    """Pixels that are left out at each border."""
    return HALO if padding == "valid" else 0


def _check(img1: Tensor, img2: Tensor, padding: str, dims: int) -> None:
    """Raise ValueError or TypeError for invalid arguments."""
    layout = "[B, C, H, W]" if dims == 2 else "[B, C, D, H, W]"
    if img1.dim() != dims + 2:
        hint = ""
        if img1.dim() == dims + 1:
            hint = " Add a batch dimension with image.unsqueeze(0)."
        raise ValueError(f"SSIM takes images of shape {layout}, not {tuple(img1.shape)}.{hint}")
    if img1.shape != img2.shape:
        raise ValueError(
            f"SSIM compares images of one shape, but img1 is {tuple(img1.shape)} and img2 is {tuple(img2.shape)}. "
            "Resize or crop one of them; nothing is broadcast."
        )
    if img1.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"SSIM needs float32 or float64, not {img1.dtype}: half precision cannot hold the variances. "
            "Call .float() on both images first."
        )
    if img1.dtype != img2.dtype or img1.device != img2.device:
        raise TypeError(
            f"Both images must have one dtype and device: img1 is {img1.dtype} on {img1.device}, "
            f"img2 is {img2.dtype} on {img2.device}."
        )
    if padding not in ("same", "valid"):
        raise ValueError(f'padding is "same" or "valid", not {padding!r}.')
    if img1.numel() == 0:
        raise ValueError(f"SSIM of an empty image {tuple(img1.shape)} is not defined.")
    if padding == "valid" and min(img1.shape[2:]) < 2 * HALO + 1:
        raise ValueError(
            f'padding="valid" needs at least 11 pixels along every axis, not {tuple(img1.shape[2:])}; use padding="same".'
        )
