"""The rasterizers' drop-ins: what stands beside the copied kernels, made from the fingerprint of each variant."""

from __future__ import annotations

from splatfix.knowledge.stacks import Variant

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
    "pixel_weights": "torch.Tensor",
    "mult": "float",
    "get_flag": "bool",
    "metric_map": "torch.Tensor",
}

_RASTERIZER = '''
import os
from typing import NamedTuple

import torch
from torch import nn

from . import _C
from ._rasterizer import GaussianRasterizationSettings as _Settings
from ._@kernel@ as _rasterize
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
    given = raster_settings._asdict()
@own@    settings = _Settings(**given, upstream_gradients=upstream)
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

_OWN = {
    "taming": '    pixel_weights = given.pop("pixel_weights")\n',
    "fastgs": '    metric_map, get_flag = given.pop("metric_map"), given.pop("get_flag")\n'
    '    given["compact_box"] = given.pop("mult")\n',
}

_TAMING = '''

def _sums(settings, pixel_weights, means3D, radii, *gaussians):
    """countBuffer to accum_dist. The original writes nothing into the first four; its sums want two weights at least."""
    none, given = means3D.new_empty(0), 0 if pixel_weights is None else pixel_weights.shape[0]
    size = (settings.image_height, settings.image_width) if given else (0,)
    counts = torch.zeros(size, dtype=torch.int32, device=means3D.device)
    centers, depths = _screen_positions(settings, means3D, radii)
    first = (counts, none.int(), none, none.clone(), centers, depths, radii.clone())
    if given < 2:
        return (*first, none.clone(), none.int(), none.clone(), none.clone())
    count, weight, blend, distance = _contributions(settings, means3D, *gaussians, pixel_weights)
    return (*first, weight, count, blend, distance)
'''

_FASTGS = '''

def _marked(settings, get_flag, metric_map, *gaussians):
    """[P] int32: how many pixels that the map marks by 1 each Gaussian contributes to; empty unless asked for."""
    if not get_flag:
        return torch.empty(0, dtype=torch.int32, device=gaussians[0].device)
    return _contributions(settings, *gaussians, metric_map == 1).weight.round().int()
'''

_IS_USED = '''

def _is_used(settings, *gaussians):
    """[P] int32: 1 where a Gaussian took part in the colour of any pixel."""
    return _contributions(settings, *gaussians).pixels.clamp_max(1)


def compute_relocation(opacity_old, scale_old, N, binoms, n_max):
    """Opacity and scale that N copies of each Gaussian need to render as it did (MCMC)."""
    return _C.compute_relocation(opacity_old, scale_old, N.int(), binoms, n_max)
'''

# What comes back beside image, radii and inverse depth, by the first of its names.
_EXTRAS = {"countBuffer": _TAMING, "accum_metric_counts": _FASTGS, "is_used": _IS_USED}

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
    "This @module@ is a drop-in by splatfix: it has no compiled passes to call "
    "directly. Call GaussianRasterizer or rasterize_gaussians of the package; autograd brings the gradients."
)
'''

_ADAM_UPDATE = '''

def adamUpdate(param, grad, exp_avg, exp_avg_sq, visible, lr, b1, b2, eps, N, M):
    """One Adam step in place on the visible ones of N rows of M numbers, without bias correction."""
    rows = [tensor.view(N, M) for tensor in (param, grad, exp_avg, exp_avg_sq)]
    _sparse_adam_step(*rows, visible.view(-1), lr, b1, b2, eps)
'''


def rasterizer_package(row: Variant) -> str:
    """The package of one variant, from its fingerprint: settings fields, parameters of forward, results."""
    # the variants that drop-ins serve have all three; tests/knowledge holds it
    assert row.settings is not None and row.forward is not None and row.returns is not None
    gaussians = "opacities, scales, rotations, covariances"
    results = {
        "color": "rendered.color",
        "radii": "rendered.radii",
        "invdepths": "rendered.invdepth",
        "is_used": f"_is_used(settings, means3D, {gaussians})",
        "allmap": "rendered.allmap",
        "countBuffer": f"*_sums(settings, pixel_weights, means3D, rendered.radii, {gaussians})",
        "accum_metric_counts": f"_marked(settings, get_flag, metric_map, means3D, {gaussians})",
    }
    returned = [results[name] for name in row.returns if name in results]
    own = ""
    for name, template in _EXTRAS.items():
        if name in row.returns:
            own = template
            break

    imports = ""
    if "SparseGaussianAdam" in row.extra_classes:
        imports += "from ._helpers import SparseGaussianAdam\n"
    if own:
        imports += "from ._contributions import contributions as _contributions\n"
    if own == _TAMING:
        imports += "from ._contributions import screen_positions as _screen_positions\n"

    # means3D, means2D and opacities must be given, the rest may be left out
    parameters = [f"        {name}," for name in row.forward[:3]]
    parameters += [f"        {name}=None," for name in row.forward[3:]]
    kernel = "rasterizer import rasterize"
    if "allmap" in row.returns:
        kernel = "surfels import rasterize_surfels"
    dc, join = "", ""
    if "dc" in row.forward:
        dc, join = "dc, ", _JOIN_DC

    text = _RASTERIZER
    replacements = {
        "fields": "\n".join(f"    {name}: {_TYPES[name]}" for name in row.settings),
        "parameters": "\n".join(parameters),
        "returns": ", ".join(row.returns),
        "results": ", ".join(returned),
        "own": _OWN.get(row.key, ""),
        "kernel": kernel,
        "dc": dc,
        "join": join,
        "imports": imports,
    }
    for mark, value in replacements.items():
        text = text.replace(f"@{mark}@", value)
    if "visible_filter" in row.methods:
        text += _VISIBLE_FILTER
    return text + own


def compiled_half(row: Variant) -> str:
    """The module ``_C``: what callers use of it works, the passes that only a compiler makes say what they are."""
    helpers = {
        "adamUpdate": "from ._helpers import sparse_adam_step as _sparse_adam_step\n",
        "compute_relocation": "from ._helpers import compute_relocation\n",
    }
    imports = "".join(line for name, line in helpers.items() if name in row.exports)
    text = _COMPILED_HALF.replace("@imports@", imports).replace("@module@", row.module)
    if "rasterize_aussians_filter" in row.exports:  # Scaffold's spelling
        text += '\n\ndef rasterize_aussians_filter(*args):\n    """The compiled filter."""\n'
        text += "    raise NotImplementedError(_ABSENT)\n"
    if "adamUpdate" in row.exports:
        text += _ADAM_UPDATE
    return text
