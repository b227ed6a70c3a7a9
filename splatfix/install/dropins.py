"""Makes drop-in wheels: our pure-PyTorch kernels under the name, module and signatures of a CUDA extension.

The templates hold what stands beside the copied kernels: the original's names, signatures and errors.
"""

from __future__ import annotations

from pathlib import Path

from splatfix import __version__
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.resources import kernels_folder
from splatfix.core.step import run
from splatfix.install.wheels import MANIFEST_VERSION, add_manifest, write_wheel
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.stacks import Variant, variant

_HEAD = '"""{what} in plain PyTorch: a drop-in by splatfix {version} for the CUDA extension."""\n'

_FUSED_SSIM = '''
from ._ssim import fused_ssim as _fused_ssim
from ._ssim import fused_ssim3d as _fused_ssim3d

allowed_padding = ["same", "valid"]


def fused_ssim(img1, img2, padding="same", train=True):
    """Mean SSIM of [B, C, H, W] images as a scalar; the gradient goes to img1."""
    assert padding in allowed_padding
    return _fused_ssim(img1, img2, padding, train)


def fused_ssim3d(img1, img2, padding="same", train=True):
    """Mean SSIM of [B, C, D, H, W] volumes as a scalar; the gradient goes to img1."""
    assert padding in allowed_padding
    return _fused_ssim3d(img1, img2, padding, train)
'''

_SIMPLE_KNN = """
from ._knn import distCUDA2

__all__ = ["distCUDA2"]
"""

# Types of settings fields, as the originals declare them.
_TYPES = {
    "image_height": "int",
    "image_width": "int",
    "tanfovx": "float",
    "tanfovy": "float",
    "bg": "torch.Tensor",
    "scale_modifier": "float",
    "viewmatrix": "torch.Tensor",
    "projmatrix": "torch.Tensor",
    "sh_degree": "int",
    "campos": "torch.Tensor",
    "prefiltered": "bool",
    "debug": "bool",
    "antialiasing": "bool",
    "kernel_size": "float",
    "subpixel_offset": "torch.Tensor",
}

_RASTERIZER = '''
import os
from typing import NamedTuple

import torch
from torch import nn

from . import _C
from ._rasterizer import GaussianRasterizationSettings as _Settings
from ._rasterizer import rasterize as _rasterize
@imports@

class GaussianRasterizationSettings(NamedTuple):
    """One camera and its options, field for field as in the original."""

@fields@


def cpu_deep_copy_tuple(input_tuple):
    """The same values with every tensor copied to the CPU."""
    return tuple(value.cpu().clone() if torch.is_tensor(value) else value for value in input_tuple)


def _given(tensor):
    """The original's callers write "absent" as None or as an empty vector."""
    return None if tensor is None or (tensor.dim() == 1 and tensor.numel() == 0) else tensor


def rasterize_gaussians(
    means3D, means2D, @dc@sh, colors_precomp, opacities, scales, rotations, cov3Ds_precomp, raster_settings
):
    """The function behind GaussianRasterizer; gradients come from autograd. Returns @returns@."""
    if means3D.dim() != 2 or means3D.shape[1] != 3:
        raise RuntimeError("means3D must have dimensions (num_points, 3)")
    upstream = os.environ.get("SPLATFIX_UPSTREAM_GRADIENTS") == "1"
    settings = _Settings(**raster_settings._asdict(), upstream_gradients=upstream)
    sh, colors = _given(sh), _given(colors_precomp)
@join@    scales, rotations, covariances = _given(scales), _given(rotations), _given(cov3Ds_precomp)
    rendered = _rasterize(settings, means3D, means2D, opacities, sh, colors, scales, rotations, covariances)
    return @results@


class GaussianRasterizer(nn.Module):
    """The rasterizer of one camera."""

    def __init__(self, raster_settings):
        super().__init__()
        self.raster_settings = raster_settings

    def markVisible(self, positions):
        """[P, 3] positions -> [P] bool: in front of the near plane."""
        with torch.no_grad():
            settings = self.raster_settings
            return _C.mark_visible(positions, settings.viewmatrix, settings.projmatrix)

    def forward(
        self,
@parameters@
    ):
        """Returns @returns@."""
        if (shs is None) == (colors_precomp is None):
            raise Exception("Please provide excatly one of either SHs or precomputed colors!")
        pair, either = scales is not None and rotations is not None, scales is not None or rotations is not None
        if (not pair and cov3D_precomp is None) or (either and cov3D_precomp is not None):
            raise Exception(
                "Please provide exactly one of either scale/rotation pair or precomputed 3D covariance!"
            )
        return rasterize_gaussians(
            means3D, means2D, @dc@shs, colors_precomp, opacities, scales, rotations, cov3D_precomp, self.raster_settings
        )
'''

_JOIN_DC = """    if _given(dc) is not None and sh is not None:
        sh = torch.cat([dc, sh], dim=1)  # the original keeps the constant band apart
"""

_IS_USED = '''

def _is_used(settings, means3D, opacities, scales, rotations, covariances):
    """[P] int32: 1 where a Gaussian took part in the colour of any pixel (the sum of its weights is its gradient)."""
    with torch.enable_grad():
        one = torch.zeros(means3D.shape[0], 1, dtype=means3D.dtype, device=means3D.device, requires_grad=True)
        inputs = [None if item is None else item.detach() for item in (opacities, scales, rotations, covariances)]
        settings = settings._replace(bg=torch.zeros(1, dtype=means3D.dtype, device=means3D.device))
        image = _rasterize(settings, means3D.detach(), None, inputs[0], None, one, *inputs[1:]).color
        weights = torch.autograd.grad(image.sum(), one, allow_unused=True)[0] if image.requires_grad else None
    return (one.detach() if weights is None else weights).reshape(-1).gt(0).to(torch.int32)


def compute_relocation(opacity_old, scale_old, N, binoms, n_max):
    """Opacity and scale that N copies of each Gaussian need to render as it did (MCMC)."""
    return _C.compute_relocation(opacity_old, scale_old, N.int(), binoms, n_max)
'''

_VISIBLE_FILTER = '''
    def visible_filter(self, means3D, scales=None, rotations=None, cov3D_precomp=None):
        """[P] int32 radii in pixels, 0 where culled; nothing is drawn."""
        empty = torch.Tensor([])
        given = [empty if item is None else item for item in (scales, rotations, cov3D_precomp)]
        with torch.no_grad():
            nothing = means3D.new_zeros(means3D.shape[0], 1)  # at opacity 0 a Gaussian has its radius and no pixel
            colors = means3D.new_zeros(means3D.shape[0], 3)
            return rasterize_gaussians(
                means3D, torch.zeros_like(means3D), empty, colors, nothing, *given, self.raster_settings
            )[1]
'''

_COMPILED_HALF = '''
@imports@

def mark_visible(means3D, viewmatrix, projmatrix):
    """[P, 3] positions -> [P] bool: in front of the near plane, the only thing the original culls by."""
    view = viewmatrix.detach().to(means3D)
    return means3D.detach() @ view[:3, 2] + view[3, 2] > 0.2


def rasterize_gaussians(*args):
    """The compiled forward pass, which this drop-in does not have."""
    raise NotImplementedError(_ABSENT)


def rasterize_gaussians_backward(*args):
    """The compiled backward pass, which this drop-in does not have."""
    raise NotImplementedError(_ABSENT)


_ABSENT = (
    "This diff_gaussian_rasterization is a pure-PyTorch drop-in by splatfix: it has no compiled passes to call "
    "directly. Call GaussianRasterizer or rasterize_gaussians of the package; autograd brings the gradients."
)
'''

_ADAM_UPDATE = '''

def adamUpdate(param, grad, exp_avg, exp_avg_sq, visible, lr, b1, b2, eps, N, M):
    """One Adam step in place on the visible ones of N rows of M numbers, without bias correction."""
    rows = [tensor.view(N, M) for tensor in (param, grad, exp_avg, exp_avg_sq)]
    _sparse_adam_step(*rows, visible.view(-1), lr, b1, b2, eps)
'''


def make_dropin_wheel(dropin: Dropin, version: str, folder: Path) -> Path:
    """Write the wheel of a drop-in into ``folder``.

    Raises:
        SplatfixError: ``splatfix-incomplete`` when this installation of splatfix lacks a kernel.
    """
    folder.mkdir(parents=True, exist_ok=True)
    head = _HEAD.format(what=dropin.name, version=__version__)
    files = {path: (head + text).encode() for path, text in _templates(dropin).items()}
    files.setdefault(f"{dropin.module}/__init__.py", head.encode())
    for kernel in dropin.kernels:
        files[f"{dropin.module}/_{kernel}"] = _kernel(kernel)
    summary = f"Drop-in for {dropin.name} in plain PyTorch, by splatfix"
    path = write_wheel(folder, dropin.distribution, version, files, summary)
    manifest = {
        "schema_version": MANIFEST_VERSION,
        "kind": "drop-in",
        "splatfix": __version__,
        "replaces": dropin.module,
        "variant": dropin.variant,
        "note": dropin.note,
    }
    add_manifest(path, manifest)
    return path


def _kernel(name: str) -> bytes:
    path = kernels_folder() / name
    try:
        return path.read_bytes()
    except OSError as error:
        raise SplatfixError(
            "splatfix-incomplete",
            f"splatfix's own {path} cannot be read: {error.strerror or error}.",
            meaning="Nothing was changed.",
            todo=(run("pip", "install", "--force-reinstall", "splatfix", text="Reinstall splatfix"),),
            exit_code=Exit.UNDETERMINED,
        ) from error


def _templates(dropin: Dropin) -> dict[str, str]:
    """Files of the drop-in beside its kernels and manifest, by path: their Python source without the first docstring."""
    if dropin.distribution == "fused-ssim":
        return {dropin.api: _FUSED_SSIM}
    if dropin.distribution == "simple-knn":
        return {dropin.api: _SIMPLE_KNN}
    row = variant(dropin.serves[0])
    assert row is not None
    return {dropin.api: _rasterizer_package(row), f"{dropin.module}/_C.py": _compiled_half(row)}


def _rasterizer_package(row: Variant) -> str:
    """The package of one variant, from its fingerprint: settings fields, parameters of forward, results."""
    assert row.settings is not None and row.forward is not None and row.returns is not None
    results = {
        "color": "rendered.color",
        "radii": "rendered.radii",
        "invdepths": "rendered.invdepth",
        "is_used": "_is_used(settings, means3D, opacities, scales, rotations, covariances)",
    }
    dc = "dc" in row.forward
    optional = row.forward[3:]  # after means3D, means2D, opacities
    adam = "SparseGaussianAdam" in row.extra_classes
    text = _RASTERIZER
    for mark, value in {
        "fields": "\n".join(f"    {name}: {_TYPES[name]}" for name in row.settings),
        "parameters": "\n".join(
            [f"        {name}," for name in row.forward[:3]] + [f"        {name}=None," for name in optional]
        ),
        "returns": ", ".join(row.returns),
        "results": ", ".join(results[name] for name in row.returns),
        "dc": "dc, " if dc else "",
        "join": _JOIN_DC if dc else "",
        "imports": "from ._helpers import SparseGaussianAdam\n" if adam else "",
    }.items():
        text = text.replace(f"@{mark}@", value)
    if "visible_filter" in row.methods:
        text += _VISIBLE_FILTER
    return text + (_IS_USED if "is_used" in row.returns else "")


def _compiled_half(row: Variant) -> str:
    """The module ``_C``: what callers use of it works, the passes that only a compiler makes say what they are."""
    helpers = {
        "adamUpdate": "from ._helpers import sparse_adam_step as _sparse_adam_step\n",
        "compute_relocation": "from ._helpers import compute_relocation\n",
    }
    imports = "".join(line for name, line in helpers.items() if name in row.exports)
    text = _COMPILED_HALF.replace("@imports@", imports)
    if "rasterize_aussians_filter" in row.exports:  # Scaffold's spelling
        text += '\n\ndef rasterize_aussians_filter(*args):\n    """The compiled filter."""\n'
        text += "    raise NotImplementedError(_ABSENT)\n"
    return text + (_ADAM_UPDATE if "adamUpdate" in row.exports else "")
