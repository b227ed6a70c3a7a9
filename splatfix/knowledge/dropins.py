"""The table of drop-ins: what splatfix can replace by pure PyTorch, under which names, and what nothing replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from splatfix.knowledge.stacks import variant


@dataclass(frozen=True)
class Dropin:
    """One drop-in: the distribution it takes the place of, and what it is made of."""

    distribution: str
    module: str
    kernels: tuple[str, ...]
    """Files of ``splatfix.kernels`` it carries copies of."""
    api: str
    """The module in the drop-in that has the original's names, as a path."""
    note: str
    serves: tuple[str, ...]
    """Keys of the variants (``splatfix.knowledge.stacks``) whose calls it answers, the one it follows first."""
    variant: str = ""
    """Which of the packages of that name it is, where several share one."""
    cuda: tuple[str, ...] = ()
    """Files of ``splatfix.kernels`` that it needs besides, to run its CUDA kernels."""
    functions: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """What it has beside a rasterizer, with the parameters: names below the module, such as ``_C.distCUDA2``."""

    @property
    def name(self) -> str:
        """As a user names it: ``simple_knn``, ``diff_gaussian_rasterization@dr_aa``."""
        return f"{self.module}@{self.variant}" if self.variant else self.module


@dataclass(frozen=True)
class Face:
    """How a package is called; what is None is not known."""

    settings: tuple[str, ...] | None = None
    """Fields of its Settings tuple, in order."""
    settings_defaults: int = 0
    forward: tuple[str, ...] | None = None
    """Parameters of the rasterizer's forward, without self."""
    forward_required: int = 0
    returns: int | None = None
    values: tuple[str, ...] = ()
    """What the forward returns, by name."""
    functions: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """What else it has, with the parameters: ``compute_relocation``, ``GaussianRasterizer.markVisible``."""


_SLOW = (
    "plain PyTorch, for small scenes: far slower than CUDA, the same image within rounding; gradients are the derivative, also "
    "where the CUDA kernel's are not (scale_modifier, antialiasing, kernel_size), unless SPLATFIX_UPSTREAM_GRADIENTS=1"
)


_CUDA = (
    "nvrtc.py",
    "rasterizer_cuda.py",
    *(f"cuda/{name}" for name in ("common.h", "gaussians.h", "tiles.h", "harmonics.h")),
    *(f"cuda/{name}" for name in ("projection.cu", "binning.cu")),
)
_SUMS = ("contributions_cuda.py", "cuda/contributions.cu")


def _rasterizer(
    variant_name: str,
    *serves: str,
    beside: tuple[str, ...] = (),
    note: str = "",
    module: str = "diff_gaussian_rasterization",
) -> Dropin:
    """``variant_name``: "" where no other package has the module's name. ``beside``: kernels it needs too."""
    return Dropin(
        module.replace("_", "-"),
        module,
        ("projection.py", "binning.py", "scene.py", "blending.py", "rasterizer.py", *beside),
        f"{module}/__init__.py",
        _SLOW + (f"; {note}" if note else ""),
        serves,
        variant_name,
        (*_CUDA, "surfels_cuda.py", "cuda/surfels.cu")
        if "surfels.py" in beside
        else (*_CUDA, "cuda/blending.cu", *(_SUMS if "contributions.py" in beside else ())),
    )


DROPINS: tuple[Dropin, ...] = (
    Dropin(
        "fused-ssim",
        "fused_ssim",
        ("ssim.py",),
        "fused_ssim/__init__.py",
        "the same formula in plain PyTorch: same numbers within rounding, slower, more memory",
        ("fused-ssim", "fused-ssim-fastgs"),
        cuda=("nvrtc.py", "ssim_cuda.py", "cuda/common.h", "cuda/ssim.cu"),
        functions=dict.fromkeys(("fused_ssim", "fused_ssim3d"), ("img1", "img2", "padding", "train")),
    ),
    Dropin(
        "simple-knn",
        "simple_knn",
        ("knn_tree.py", "knn_search.py", "knn_libraries.py", "knn.py"),
        "simple_knn/_C.py",
        "exact nearest neighbours in plain PyTorch; called once, when training starts",
        ("simple-knn-86710c2", "simple-knn-44f7642", "simple-knn-camenduru"),
        cuda=("nvrtc.py", "knn_cuda.py", "cuda/common.h", "cuda/knn.cu"),
        functions={"_C.distCUDA2": ("points",)},
    ),
    _rasterizer("v1", "inria-v1", "sugar"),
    _rasterizer("dr_aa", "inria-2024-dr_aa"),
    _rasterizer("mip", "mip"),
    _rasterizer(
        "3dgs_accel",
        "3dgs-accel",
        beside=("helpers.py",),
        note="signatures as the 2024 trainer calls them (source not read)",
    ),
    _rasterizer(
        "mcmc",
        "mcmc",
        beside=("helpers.py", "contributions.py"),
        note="is_used costs a second pass over the image",
    ),
    _rasterizer("scaffold", "scaffold"),
    _rasterizer(
        "taming",
        "taming",
        beside=("helpers.py", "contributions.py"),
        note="the sums by which it densifies cost a second pass over the image, where pixel_weights are given",
    ),
    _rasterizer(
        "",
        "fastgs",
        beside=("helpers.py", "contributions.py"),
        note="metric counts cost a second pass over the image, where get_flag asks for them",
        module="diff_gaussian_rasterization_fastgs",
    ),
    _rasterizer(
        "",
        "2dgs-surfel",
        beside=("surfels.py",),
        note="surfels take some eight times as long as Gaussians",
        module="diff_surfel_rasterization",
    ),
)

# Asked for, and honestly refused, by variant. Source: what they return, read from their sources (stacks.json).
IRREPLACEABLE_VARIANTS = {
    "gof": "its nine-channel output and integrate() have no drop-in (Gaussian opacity fields)",
    "rade": "its depth, coordinate and normal maps and integrate() have no drop-in (RaDe-GS)",
    "speedy": "its backward pass fills per-Gaussian scores by which Speedy-Splat prunes",
    "pgsr": "its plane and normal outputs have no drop-in (PGSR)",
    "stopthepop": "its sorting and culling settings have no drop-in (StopThePop)",
    "depth": "its depth map, of which gradients come back, has no drop-in",
    "depth-alpha": "its depth and alpha maps, of which gradients come back, have no drop-in",
    "diff-gauss": "its depth, normal, alpha and attribute maps have no drop-in (diff_gauss)",
    "fused-ssim-litegs": "its fused_l1_ssim_loss has no drop-in (LiteGS)",
    "triangle": "it draws triangles, not Gaussians",
    "mesh": "it draws triangles, not Gaussians",
}
IRREPLACEABLE = {
    "diff-plane-rasterization": IRREPLACEABLE_VARIANTS["pgsr"],
    "diff-triangle-rasterization": IRREPLACEABLE_VARIANTS["triangle"],
    "diff-triangle-mesh-rasterization": IRREPLACEABLE_VARIANTS["mesh"],
    "tetra-nerf": "it needs CGAL's tetrahedra; it is CPU code, so no GPU plays a part in its build",
    "effrdel": "it computes Delaunay meshes; it is CPU code, so no GPU plays a part in its build",
    "gsplat": "it is a library of kernels of its own; build it instead",
}


def face_of(dropin: Dropin) -> Face:
    """How a drop-in is called."""
    row = variant(dropin.serves[0])
    if row is None or row.forward is None:
        return Face(functions=dropin.functions)
    helpers = row.exports & {"adamUpdate", "compute_relocation"}
    names = [f"{row.rasterizer_class}.{method}" for method in row.methods]
    names += ["rasterize_gaussians", "cpu_deep_copy_tuple", "_C.mark_visible", *row.extra_classes]
    names += [f"_C.{name}" for name in helpers] + [name for name in helpers if name == "compute_relocation"]
    values = row.returns or ()
    return Face(
        settings=row.settings,
        forward=row.forward,
        forward_required=3,
        returns=len(values),
        values=values,
        functions=dict.fromkeys(names),
    )


def dropin_named(name: str) -> Dropin | None:
    """The drop-in of this name (``simple_knn``, ``diff_gaussian_rasterization@dr_aa``); None: there is none."""
    return next((item for item in DROPINS if item.name == name), None)


def dropin_of(distribution: str, variant_name: str = "") -> Dropin:
    """The drop-in of this distribution and variant, which must be one of ``DROPINS``."""
    return next(item for item in DROPINS if (item.distribution, item.variant) == (distribution, variant_name))


def known_names() -> str:
    """What can be replaced, in a sentence."""
    return ", ".join(dropin.name for dropin in DROPINS)


def refusal(variant_key: str) -> str | None:
    """Why nothing replaces this variant; None when something does, or when it is not known."""
    return IRREPLACEABLE_VARIANTS.get(variant_key)


def dropin_for_variant(variant_key: str) -> Dropin | None:
    """The drop-in that answers the calls of this variant."""
    return next((dropin for dropin in DROPINS if variant_key in dropin.serves), None)
