"""What published runs say beyond the parts that are stated: bytes a Gaussian and bytes a pixel, by family of stacks."""

from collections.abc import Sequence

from msgspec import Struct

from splatfix.knowledge.vram import Family, Run, published_runs

UNPUBLISHED = 0.25
"""Relative error taken for a stack of a family whose own runs nobody published."""


class Rates(Struct, frozen=True):
    """A training's highest allocated memory beside the photos that stay: bytes a Gaussian, and bytes a pixel of one photo."""

    gaussian: float
    pixel: float
    error: float
    """The largest relative error of a run left out."""
    runs: tuple[str, ...]
    source: str


def runs_of(family: Family) -> Sequence[Run]:
    """The published runs of a family."""
    known = published_runs()
    return [run for method in family.runs for run in known[method]]


def rates(family: Family) -> Rates:
    """The rates of a family by its published runs, and how far off a run is that was left out."""
    runs = runs_of(family)
    gaussian, pixel = fit(family, runs)
    errors = [error for _, error in left_out(family)]
    return Rates(gaussian, pixel, max(map(abs, errors)), tuple(run.name for run in runs), runs[0].source)


def left_out(family: Family) -> Sequence[tuple[Run, float]]:
    """Each run with the relative error of what the others predict for it."""
    runs = runs_of(family)
    errors = []
    for run in runs:
        gaussian, pixel = fit(family, [other for other in runs if other is not run])
        errors.append((run, allocated(family, run, gaussian, pixel) / run.bytes - 1.0))
    return errors


def allocated(family: Family, run: Run, gaussian: float, pixel: float) -> float:
    """What rates predict for a run, in bytes."""
    return photos_kept(family, run) + gaussian * run.gaussians + pixel * run.pixels


def photos_kept(family: Family, run: Run) -> float:
    """Bytes of the photos that stay on the GPU."""
    return float(family.photo * run.photos * run.pixels)


def fit(family: Family, runs: Sequence[Run]) -> tuple[float, float]:
    """Bytes a Gaussian and bytes a pixel with the least squares of the relative errors (the normal equations of two unknowns)."""
    gg = gp = pp = gb = pb = 0.0
    for run in runs:
        gaussian, pixel = run.gaussians / run.bytes, run.pixels / run.bytes
        rest = 1.0 - photos_kept(family, run) / run.bytes
        gg, gp, pp = gg + gaussian * gaussian, gp + gaussian * pixel, pp + pixel * pixel
        gb, pb = gb + gaussian * rest, pb + pixel * rest
    determinant = gg * pp - gp * gp
    return (gb * pp - pb * gp) / determinant, (pb * gg - gb * gp) / determinant
