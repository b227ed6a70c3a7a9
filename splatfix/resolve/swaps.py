"""Which extensions splatfix can replace by pure PyTorch, and under which names they are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.facts.source import read_source


@dataclass(frozen=True)
class Swap:
    """One drop-in: the distribution it takes the place of, and what it is made of."""

    distribution: str
    module: str
    kernels: tuple[str, ...]
    """Files of ``splatfix.kernels`` it carries copies of."""
    face: str
    """The module in the drop-in that has the original's names, as a path."""
    note: str


SWAPS: tuple[Swap, ...] = (
    Swap(
        "fused-ssim",
        "fused_ssim",
        ("ssim.py",),
        "fused_ssim/__init__.py",
        "the same formula in plain PyTorch: same numbers within rounding, slower, more memory",
    ),
    Swap(
        "simple-knn",
        "simple_knn",
        ("knn.py",),
        "simple_knn/_C.py",
        "exact nearest neighbours in plain PyTorch; called once, when training starts",
    ),
)

# Asked for by name, and honestly refused. Source of the reasons: which parts of their results plain PyTorch can serve.
_IRREPLACEABLE = {
    "diff-surfel-rasterization": "its depth, normal and distortion maps have no stand-in here (2D Gaussian splatting)",
    "diff-plane-rasterization": "its plane and normal outputs have no stand-in here (PGSR)",
    "diff-triangle-rasterization": "it draws triangles, not Gaussians",
    "diff-gaussian-rasterization": "a pure PyTorch rasterizer is an oracle for small scenes, not yet a drop-in",
    "gsplat": "it is a library of kernels of its own; build it instead",
}


def choose_swaps(sources: Iterable[str]) -> tuple[Swap, ...]:
    """The drop-ins for names or source folders, each once.

    Raises:
        SplatfixError: ``nothing-replaces-it`` (exit 1) with the reason, ``unknown-swap`` (exit 2) for other names.
    """
    named = [item for item in sources if item != "."]
    if not named:
        raise usage_error(
            "nothing-to-swap", "Nothing was named to be replaced.", f"Name one or more of: {known_names()}"
        )
    return tuple(dict.fromkeys(_swap_for(item) for item in named))


def known_names() -> str:
    """What can be replaced, for a sentence."""
    return ", ".join(swap.module for swap in SWAPS)


def _swap_for(text: str) -> Swap:
    folder = Path(text).expanduser()
    is_folder = folder.is_dir() and any((folder / file).is_file() for file in ("setup.py", "pyproject.toml"))
    name = canonicalize_name(read_source(folder).label if is_folder else text)
    for swap in SWAPS:
        if name == swap.distribution:
            return swap
    if name in _IRREPLACEABLE:
        raise SplatfixError(
            "nothing-replaces-it",
            f"There is no drop-in for {text}: {_IRREPLACEABLE[name]}.",
            meaning="Only a native build serves it.",
            todo=(f"splatfix install PATH/TO/{name} --target sm_120",),
        )
    raise usage_error(
        "unknown-swap",
        f"{text} is nothing that splatfix has a drop-in for.",
        f"There are drop-ins for: {known_names()}",
    )
