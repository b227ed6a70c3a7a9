"""SSIM, nearest neighbors and the rasterizer by the PyPI package `gswarp` (Apache-2.0): kernels in NVIDIA Warp.

A drop-in that was installed with --backend warp carries this file in place of the callers of our own CUDA kernels; what those
do not serve, and what gswarp 1.1 takes and ignores, is refused here and runs in pure PyTorch with a warning. Warp compiles
gswarp's kernels at their first call, for tens of seconds, and keeps them in its own cache. `python on_warp.py FOLDER ...`
compiles them ahead of time, without a GPU, to show that there is code for one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

from torch import Tensor

MODULES = {
    "ssim": ("gswarp.fused_ssim",),
    "knn": ("gswarp.knn",),
    "rasterizer": tuple(
        f"gswarp._internal.backends.warp.{part}_kernels"
        for part in ("preprocess", "binning", "render", "backward")
    ),
}
"""Where gswarp 1.1 has its kernels."""


def _gswarp(module: str) -> Any:
    """A module of gswarp, on a Warp that finds the driver.

    Raises:
        NoKernels: it is not there, or Warp cannot use this driver.
    """
    from splatfix.kernels.nvrtc import NoKernels

    try:
        warp: Any = importlib.import_module("warp")
        # its banners are not the trainer's output
        warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise NoKernels(
            f"gswarp cannot be imported ({error}): install the drop-in again with --backend warp."
        ) from None
    if not warp.is_cuda_available():
        raise NoKernels(
            f"Warp {warp.__version__} finds no driver that it can use: 1.18 and newer need R580, 1.17 needs R525; install the "
            "drop-in again with --backend warp, which chooses."
        )
    return loaded


def mean_ssim(img1: Tensor, img2: Tensor, padding: str) -> Tensor:
    """Mean SSIM of checked images [B, C, H, W], float32 on one GPU; the gradient goes to `img1`."""
    gswarp = _gswarp("gswarp.fused_ssim")
    mean: Tensor = gswarp.fused_ssim(img1, img2.detach(), padding, img1.requires_grad)
    return mean


def mean_of_three(points: Tensor) -> Tensor:
    """[P] mean squared distance to the 3 nearest others of at least 4 finite points [P, 3], float32 on a GPU."""
    distances: Tensor = _gswarp("gswarp.knn").distCUDA2(points.detach())
    return distances


def sums(*_: object) -> Tensor:
    """Contributions of Gaussians to pixels, which gswarp does not add up: raises NoKernels."""
    from splatfix.kernels.nvrtc import NoKernels

    raise NoKernels("gswarp adds up no contributions to pixels")


def refusal(settings: Any, means2D: Tensor) -> str:
    """Why these settings need the pure-PyTorch rasterizer; empty where gswarp serves them.

    `prefiltered`, which gswarp has not, was answered by the caller: no Gaussian is behind the near plane.
    """
    offset = settings.subpixel_offset
    used = {
        "antialiasing": settings.antialiasing,
        "kernel_size": settings.kernel_size is not None,
        "subpixel_offset": offset is not None and bool(offset.any()),
        "FastGS's compact box": settings.compact_box is not None,
        "upstream_gradients": settings.upstream_gradients,
        "absolute gradients": means2D.shape[1] != 3,
        f"a background of {settings.bg.numel()} channels": settings.bg.numel() != 3,
    }
    for option, is_used in used.items():
        if is_used:
            return f"gswarp has no {option}"
    return ""


def rasterize(
    settings: Any, *inputs: Optional[Tensor], used: Optional[Tensor] = None
) -> Tuple[Tensor, Tensor, Optional[Tensor], Tensor, Tensor]:
    """Color [C, H, W], radii [P], no inverse depth, alpha and depth [1, H, W], from checked inputs on one GPU, float32.

    `inputs` are means3D, means2D, opacities, shs, colors_precomp, scales, rotations, cov3D_precomp. For `used` the image is
    gone through once more.
    """
    means, means2D, *others = inputs
    assert means is not None and means2D is not None

    def put(tensor: Tensor) -> Tensor:  # gswarp reads matrices as they lie in memory
        return tensor.detach().to(means).contiguous()

    gswarp = _gswarp("gswarp.rasterizer")
    warp_settings = gswarp.GaussianRasterizationSettings(
        image_height=int(settings.image_height),
        image_width=int(settings.image_width),
        tanfovx=float(settings.tanfovx),
        tanfovy=float(settings.tanfovy),
        bg=put(settings.bg).reshape(3),
        scale_modifier=float(settings.scale_modifier),
        viewmatrix=put(settings.viewmatrix),
        projmatrix=put(settings.projmatrix),
        sh_degree=min(int(settings.sh_degree), 3),
        campos=put(settings.campos).reshape(3),
        prefiltered=False,
        auto_tune_verbose=False,
    )
    none = means.new_empty(0)
    opacities, shs, colors, scales, rotations, covariances = (
        none if item is None else item.contiguous() for item in others
    )
    color, radii, meta = gswarp.rasterize_gaussians(
        means.contiguous(), means2D, shs, colors, opacities, scales, rotations, covariances, warp_settings
    )
    if used is not None:
        # beside this file in the drop-ins that ask for it
        beside = importlib.import_module(__name__.replace("on_warp", "contributions"))
        used.copy_(beside.contributions(settings, means, inputs[2], *inputs[5:]).pixels.clamp_max(1))
    # gswarp's way back reads these two: a caller may edit his in place
    return color, radii.clone(), None, meta.alpha.clone(), meta.depth


def main(arguments: Sequence[str]) -> int:
    """Compile into FOLDER what a JSON text lists, [[kernel, ...], [architecture, ...]]; the last line is a JSON object.

    The object has `warp`, `cuda` and `files`, [[name, module, architecture], ...], or `error`; the exit status is then 1.
    """
    folder, (kernels, architectures) = Path(arguments[0]), json.loads(arguments[1])
    files: List[List[Any]] = []
    try:
        with contextlib.redirect_stdout(sys.stderr):
            warp: Any = importlib.import_module("warp")
            warp.config.kernel_cache_dir = str(folder / "cache")  # nothing stays behind in the user's
            for module in [name for kernel in kernels for name in MODULES[kernel]]:
                importlib.import_module(module)
                for architecture in architectures:
                    beside = folder / f"{len(files)}"
                    known = sorted(warp.get_cuda_supported_archs())
                    fitting = [number for number in known if number <= architecture]
                    if not fitting:
                        raise ValueError(
                            f"it compiles for sm_{known[0]} and newer, not for sm_{architecture}"
                        )
                    cubin = fitting[-1] == architecture
                    warp.compile_aot_module(
                        module, arch=fitting[-1], module_dir=str(beside), use_ptx=not cubin
                    )
                    (made,) = beside.glob("*.cubin" if cubin else "*.ptx")
                    files.append([str(made.relative_to(folder)), module, architecture])
            cuda = ".".join(map(str, warp.get_cuda_toolkit_version()))
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        sys.stdout.write(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        return 1
    sys.stdout.write(json.dumps({"warp": warp.__version__, "cuda": cuda, "files": files}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
