"""Which extensions splatfix can replace by pure PyTorch, under which names they are known, and which nothing replaces."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.facts.python_source import read_package_source
from splatfix.facts.source import extension_folders, read_source
from splatfix.knowledge.stacks import identify, recognise_checkout, stacks, variant, variants


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
    serves: tuple[str, ...]
    """Keys of the variants (``splatfix.knowledge.stacks``) whose calls it answers, the one it follows first."""
    variant: str = ""
    """Which of the packages of that name it is, where several share one."""

    @property
    def name(self) -> str:
        """As a person names it: ``simple_knn``, ``diff_gaussian_rasterization@dr_aa``."""
        return f"{self.module}@{self.variant}" if self.variant else self.module


_SLOW = "plain PyTorch: the same image and gradients within rounding, for small scenes; far slower than CUDA"


def _rasterizer(variant_name: str, *serves: str, helpers: bool = False, note: str = "") -> Swap:
    kernels = ("rasterizer.py", "helpers.py") if helpers else ("rasterizer.py",)
    return Swap(
        "diff-gaussian-rasterization",
        "diff_gaussian_rasterization",
        kernels,
        "diff_gaussian_rasterization/__init__.py",
        _SLOW + (f"; {note}" if note else ""),
        serves,
        variant_name,
    )


SWAPS: tuple[Swap, ...] = (
    Swap(
        "fused-ssim",
        "fused_ssim",
        ("ssim.py",),
        "fused_ssim/__init__.py",
        "the same formula in plain PyTorch: same numbers within rounding, slower, more memory",
        ("fused-ssim",),
    ),
    Swap(
        "simple-knn",
        "simple_knn",
        ("knn.py",),
        "simple_knn/_C.py",
        "exact nearest neighbours in plain PyTorch; called once, when training starts",
        ("simple-knn-86710c2", "simple-knn-44f7642", "simple-knn-camenduru"),
    ),
    _rasterizer("v1", "inria-v1", "sugar"),
    _rasterizer("dr_aa", "inria-2024-dr_aa"),
    _rasterizer("mip", "mip"),
    _rasterizer(
        "3dgs_accel", "3dgs-accel", helpers=True, note="signatures as the 2024 trainer calls them (source not read)"
    ),
    _rasterizer("mcmc", "mcmc", helpers=True, note="is_used costs a second pass over the image"),
    _rasterizer("scaffold", "scaffold"),
)  # fmt: skip

# Asked for, and honestly refused, by variant. Source: what they return, read from their sources (stacks.json).
_IRREPLACEABLE_VARIANTS = {
    "taming": "its forward also returns eleven lists and counts of its own, which decide where taming-3dgs densifies",
    "gof": "its nine-channel output and integrate() have no stand-in here (Gaussian opacity fields)",
    "rade": "its depth, coordinate and normal maps and integrate() have no stand-in here (RaDe-GS)",
    "speedy": "its backward pass fills per-Gaussian scores by which Speedy-Splat prunes",
    "fastgs": "its per-Gaussian metric counts, by which FastGS densifies, have no stand-in here",
    "2dgs-surfel": "its depth, normal and distortion maps have no stand-in here (2D Gaussian splatting)",
    "pgsr": "its plane and normal outputs have no stand-in here (PGSR)",
    "triangle": "it draws triangles, not Gaussians",
    "mesh": "it draws triangles, not Gaussians",
    "fused-ssim-fastgs": "its functions are not those of fused_ssim (FastGS ships its own)",
}
_IRREPLACEABLE = {
    "diff-surfel-rasterization": _IRREPLACEABLE_VARIANTS["2dgs-surfel"],
    "diff-plane-rasterization": _IRREPLACEABLE_VARIANTS["pgsr"],
    "diff-triangle-rasterization": _IRREPLACEABLE_VARIANTS["triangle"],
    "diff-triangle-mesh-rasterization": _IRREPLACEABLE_VARIANTS["mesh"],
    "diff-gaussian-rasterization-fastgs": _IRREPLACEABLE_VARIANTS["fastgs"],
    "tetra-nerf": "it needs CGAL's tetrahedra; it is CPU code, so no GPU plays a part in its build",
    "effrdel": "it computes Delaunay meshes; it is CPU code, so no GPU plays a part in its build",
    "gsplat": "it is a library of kernels of its own; build it instead",
}
_SHARED_NAME = "diff-gaussian-rasterization"


def choose_swaps(sources: Iterable[str]) -> tuple[Swap, ...]:
    """The drop-ins for names, source folders or whole checkouts, each once.

    Raises:
        SplatfixError: ``nothing-replaces-it`` (exit 1) with the reason; ``variant-not-said``, ``unknown-swap``,
            ``nothing-to-swap`` (exit 2); ``same-name-twice`` when two variants of one name are asked for.
    """
    named = list(dict.fromkeys(sources))
    if named == ["."] and extension_folders(Path()) != (Path(),) and not recognise_checkout(_paths(Path())):
        raise usage_error(
            "nothing-to-swap",
            "Nothing was named to be replaced, and this folder is no checkout with extensions.",
            f"Name one or more of: {known_names()}",
        )
    found = tuple(dict.fromkeys(swap for item in named for swap in _swaps_for(item)))
    by_distribution: dict[str, Swap] = {}
    for swap in found:
        other = by_distribution.setdefault(swap.distribution, swap)
        if other != swap:
            raise SplatfixError(
                "same-name-twice",
                f"{other.name} and {swap.name} are one distribution.",
                meaning="One environment holds one of them; the second would replace the first.",
                todo=("Name the one that your trainer calls.",),
            )
    return found


def swap_of(distribution: str, variant_name: str = "") -> Swap:
    """The drop-in of this distribution and variant, which must be one of ``SWAPS``."""
    return next(item for item in SWAPS if (item.distribution, item.variant) == (distribution, variant_name))


def known_names() -> str:
    """What can be replaced, for a sentence."""
    return ", ".join(swap.name for swap in SWAPS)


def refusal(variant_key: str) -> str | None:
    """Why nothing replaces this variant; None when something does, or when it is not known."""
    return _IRREPLACEABLE_VARIANTS.get(variant_key)


def swap_for_variant(variant_key: str) -> Swap | None:
    """The drop-in that answers the calls of this variant."""
    return next((swap for swap in SWAPS if variant_key in swap.serves), None)


def _swaps_for(text: str) -> tuple[Swap, ...]:
    folder = Path(text).expanduser()
    if folder.is_dir() and (inside := _inside(folder)):
        return inside
    return (_by_name(text),)


def _inside(folder: Path) -> tuple[Swap, ...]:
    """What replaces an extension's source folder, or all extensions of a checkout; nothing when it is neither."""
    if any((folder / file).is_file() for file in ("setup.py", "pyproject.toml")):
        return (_by_source(folder),)
    recognised = recognise_checkout(_paths(folder))
    sources = [_by_source(item) for item in extension_folders(folder)]
    # submodules that git has not fetched: what the stack is known to need
    lacking = [_by_variant(key) for stack in recognised[:1] for key in stack.needs if variant(key)]
    there = {swap.distribution for swap in sources}
    return (*sources, *(swap for swap in lacking if swap.distribution not in there))


def _paths(folder: Path) -> list[str]:
    """The first two levels of a folder, relative, with '/': enough to tell stacks apart."""
    found = (*folder.glob("*"), *folder.glob("*/*"))
    return [os.path.relpath(path, folder).replace(os.sep, "/") for path in found]


def _by_source(folder: Path) -> Swap:
    name = canonicalize_name(read_source(folder).label)
    if name != _SHARED_NAME:
        return _by_name(name)
    module = _SHARED_NAME.replace("-", "_")
    try:
        shown = read_package_source(module, (folder / module / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise usage_error(
            "variant-unreadable",
            f"Which {module} {folder} is cannot be read from its {module}/__init__.py: {error}.",
            f"Name the variant: {_variants()}",
        ) from error
    matches = identify(
        module,
        settings=shown.settings,
        exports=shown.exports or None,
        returns=shown.returns,
        forward=shown.forward,
        classes=shown.classes,
    )
    if not matches:
        raise SplatfixError(
            "nothing-replaces-it",
            f"{folder} is a {module} of a kind that splatfix does not know.",
            meaning="A drop-in with other settings or results would be called wrongly.",
            todo=(f"If it is called like one of these, name that one: {_variants()}",),
        )
    return _by_variant(matches[0].variant.key)


def _by_variant(key: str) -> Swap:
    swap = swap_for_variant(key)
    if swap is not None:
        return swap
    row = variant(key)
    what = f"{row.module} ({key})" if row else key
    raise _refused(what, refusal(key) or "no drop-in was made for it", row.module if row else key, key)


def _by_name(text: str) -> Swap:
    name, _, kind = text.partition("@")
    name = canonicalize_name(name)
    if name == _SHARED_NAME and kind:
        return _named_variant(text, kind)
    if name == _SHARED_NAME:
        raise usage_error(
            "variant-not-said",
            f"At least nine incompatible packages are called {text}; which of them does your trainer call?",
            f"Name it: {_variants()}",
            "Or give the trainer's checkout: splatfix install PATH/TO/CHECKOUT --backend pure",
        )
    for swap in SWAPS:
        if name == swap.distribution and not kind:
            return swap
    if name in _IRREPLACEABLE:
        raise _refused(text, _IRREPLACEABLE[name], name)
    raise usage_error(
        "unknown-swap",
        f"{text} is nothing that splatfix has a drop-in for.",
        f"There are drop-ins for: {known_names()}",
    )


def _named_variant(text: str, kind: str) -> Swap:
    for swap in SWAPS:
        if swap.distribution == _SHARED_NAME and kind in (swap.variant, *swap.serves):
            return swap
    if kind in _IRREPLACEABLE_VARIANTS:
        return _by_variant(kind)
    raise usage_error(
        "unknown-swap", f"{text} is no variant that splatfix knows.", f"Name one of: {_variants()}"
    )


def _variants() -> str:
    return ", ".join(swap.name for swap in SWAPS if swap.variant)


def _refused(what: str, why: str, name: str, variant_key: str = "") -> SplatfixError:
    beside = companions(name, variant_key)
    others = (
        f"What is used beside it can be swapped by name: splatfix install {' '.join(beside)} --backend pure"
    )
    return SplatfixError(
        "nothing-replaces-it",
        f"There is no drop-in for {what}: {why}.",
        meaning="Only a native build serves it.",
        todo=(f"splatfix install PATH/TO/{name} --target sm_120", *([others] if beside else [])),
    )


def companions(extension: str, variant_key: str = "") -> tuple[str, ...]:
    """Names of the drop-ins for what the stacks that call an extension call beside it; () where they call nothing else.

    Args:
        extension: a module or distribution; where several share the name, ``variant_key`` tells which.
    """
    keys = (
        {variant_key}
        if variant_key
        else {row.key for row in variants(extension.replace("-", "_"))} | {extension}
    )
    names: dict[str, None] = {}
    for row in stacks():
        used = (*row.needs, *row.also_needs)
        if keys.isdisjoint(used):
            continue
        for item in used:
            by_name = (
                swap for swap in SWAPS if not swap.variant and item in (swap.module, swap.distribution)
            )
            swap = swap_for_variant(item) or next(by_name, None)
            if swap is not None:
                names[swap.name] = None
    return tuple(sorted(names))
