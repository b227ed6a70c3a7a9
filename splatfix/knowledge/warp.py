"""gswarp and NVIDIA Warp on PyPI: which faces gswarp has, and which build of Warp runs on which driver, GPU and system."""

from __future__ import annotations

from splatfix.core.data import dataclass
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.stacks import variant

GSWARP = "gswarp>=1.1,<1.2"
"""Apache-2.0. Source: PyPI; 1.1.0 of July 2026, whose source was read for what follows, is the newest there."""
PYTHON = (3, 10)
"""The oldest that gswarp and these builds of Warp say they run on (``Requires-Python`` on PyPI)."""
OLDEST_ARCH = 70
"""Its README: compute capability 7.0 or newer."""
GLIBC = {"x86_64": (2, 28), "aarch64": (2, 34)}
"""By machine, the oldest C library that Warp's wheels for Linux run on, Jetson included. Source:
nvidia.github.io/warp/v1.19/user_guide/compatibility.html."""

# What gswarp 1.1 takes and ignores, or has not, by the settings and results of a face. Source: gswarp/rasterizer.py.
_LACKS = {
    "antialiasing": "gswarp takes antialiasing and ignores it",
    "invdepths": "gswarp gives no inverse depth",
    "kernel_size": "gswarp has no kernel_size",
    "mult": "gswarp has no compact box",
    "allmap": "gswarp draws no surfels",
}
_KERNELS = {"fused-ssim": "ssim", "simple-knn": "knn"}


@dataclass(frozen=True)
class WarpBuild:
    """The builds of warp-lang on PyPI that share a CUDA."""

    requirement: str
    cuda: str
    """Whose driver they need."""
    oldest_arch: int


BUILDS = (
    WarpBuild("warp-lang>=1.18,<2", "13.0", 75),
    WarpBuild("warp-lang>=1.17,<1.18", "12.0", 70),
)
"""The newest first. Source: nvidia.github.io/warp/v1.18/user_guide/installation.html: from 1.18 on the wheels of PyPI use CUDA
13.4, and need R580 and sm_75; until then CUDA 12, whose driver is 525.60.13 (528.33 on Windows), as the page of 1.4 says. 1.17
compiles for sm_70 (seen with it), and is the oldest that was tried."""


def kernel_of(dropin: Dropin) -> tuple[str, str]:
    """(which of gswarp's kernels stands behind a drop-in: ``ssim``, ``knn``, ``rasterizer``; "", or why none does)."""
    if dropin.distribution in _KERNELS:
        return _KERNELS[dropin.distribution], ""
    if dropin.host:
        return "", f"gswarp does not have the functions that {dropin.host} calls"
    if dropin.declared:
        return "", "gswarp gives back no maps of depth, features or sums"
    row = variant(dropin.serves[0])
    assert row is not None and row.settings is not None and row.returns is not None
    for name, reason in _LACKS.items():
        if name in row.settings or name in row.returns:
            return "", reason
    return "rasterizer", ""
