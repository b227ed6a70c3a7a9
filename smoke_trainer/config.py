"""The settings of a training run: the paper's defaults, their compression for short runs, and presets for the samples."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Dict, Optional

# The reference implementation trains this long; its densification and decay times are counts of these iterations.
PAPER_ITERATIONS = 30_000
# Opacity climbs from its reset value to one half in about 90 steps of Adam at the rate of 0.05.
SHORTEST_WITH_RESET = 150
RECOVERY = 500  # iterations that must follow an opacity reset, or half of a shorter run
NEVER = 1 << 62
SHORT_RUN = 7000  # below this the schedule is compressed; 7000 is the reference's first test
FEW_VIEWS = 10  # below this only what is cloned, or of the smaller half, grows in a short run
FEW_VIEWS_STEPS = 1250  # and goes as far as so many steps of the reference, no farther
MANY_VIEWS = 36  # training views from which on a short run grows as a long one does


@dataclass(frozen=True)
class LearningRates:
    """Adam's learning rate for each parameter group (Inria's defaults of 2024; 0.05 for opacity before that, and for MCMC).

    That of positions decays from `xyz_init` to `xyz_final`, both multiplied by the scene's extent.
    """

    xyz_init: float = 1.6e-4
    xyz_final: float = 1.6e-6
    f_dc: float = 2.5e-3
    f_rest: float = 2.5e-3 / 20.0
    opacity: float = 0.025
    scaling: float = 5e-3
    rotation: float = 1e-3


@dataclass(frozen=True)
class DensifyConfig:
    """When and how Gaussians are added and removed.

    Iterations are counted from 1; `refine_start_iter` and the stops are excluded.
    """

    refine_start_iter: int = 500
    refine_stop_iter: int = 15_000
    refine_every: int = 100
    reset_every: int = 3000  # iterations between two opacity resets
    reset_stop_iter: int = 15_000
    reset_at_start: bool = False  # also at `refine_start_iter`: the reference does so on a white background
    # average screen-space gradient of the position, in NDC units: above it Gaussians grow
    grow_grad2d: float = 2e-4
    grow_scale3d: float = 0.01  # of the scene's extent: smaller Gaussians are cloned, larger ones split
    grow_below3d: float = math.inf  # of the scene's extent: larger ones grow only in the smaller half
    min_opacity: float = 0.005  # fainter Gaussians are pruned (MCMC: relocated)
    max_scale3d: float = 0.1  # of the scene's extent: larger Gaussians are pruned once opacity has been reset
    cap_max: int = 1_000_000  # MCMC: largest number of Gaussians
    budget: float = 2.0  # budget: final number of Gaussians, or a multiple of the initial one if below 100
    noise_lr: float = 5e5  # MCMC: noise relative to the learning rate of positions
    opacity_reg: float = 0.01  # MCMC: weight of the mean opacity in the loss
    scale_reg: float = 0.01  # MCMC: weight of the mean scale in the loss


@dataclass(frozen=True)
class TrainConfig:
    """One run.

    `resolution`: 1, 2, 4 or 8 divides the stated size; larger is a width in pixels; -1 takes the smallest prepared copies.
    """

    scene: str  # a folder, or the name of a sample
    iterations: int
    out: Path
    renderer: str = "torch"
    ssim: str = "kernels"
    knn: str = "kernels"
    device: str = "cpu"
    resolution: int = -1
    seed: int = 0
    strategy: str = "default"
    background: str = "black"  # black | white | random (a new colour each iteration)
    sh_degree: int = 3
    sh_degree_interval: int = 1000  # iterations until one more SH degree is used
    lambda_dssim: float = 0.2
    random_points: int = 100_000  # for a scene without points
    initial_opacity: float = 0.1
    initial_scale: float = 1.0  # of the distance to the nearest neighbours
    antialiasing: bool = False
    lrs: LearningRates = field(default_factory=LearningRates)
    densify: DensifyConfig = field(default_factory=DensifyConfig)
    checkpoint_every: int = 0  # 0: never
    resume: Optional[Path] = None
    json_progress: bool = False
    preset: Optional[str] = None
    stop_after: int = 0  # end there as a run of `iterations` would go on; 0: at its end
    psnr_floor: Optional[float] = None  # dB that the preset is known to exceed


def scaled_to(config: TrainConfig) -> TrainConfig:
    """The same run with its strategy's own defaults, and its schedule made to fit `config.iterations`.

    From 7000 on the reference's schedule is kept. A shorter run would end before the reference densifies, and so would
    never show that densification works; so at 700 iterations and below it densifies from 20 % of the run to 70 %, about
    ten times, resets opacity once at 40 % (if there is time to recover), reaches the last SH degree at 50 %, and does not
    prune by size: a far background that has not been refined yet consists of large Gaussians. In between every setting
    (times as a share of the run) is blended geometrically with that of the 7000, by the logarithm of the length. Learning
    rates grow with the square root of the compression, which gains 2 to 4 dB on the samples at 200 iterations.

    Opacity is reset only if RECOVERY iterations or half of the run are left, so that none ends faint.
    """
    total, usual = config.iterations, replace(config.densify, reset_at_start=config.background == "white")
    if config.strategy == "mcmc":
        usual = replace(config.densify, refine_stop_iter=25_000)
        lrs = replace(config.lrs, opacity=0.05)
        config = replace(config, initial_opacity=0.5, initial_scale=0.1, lrs=lrs)
    stop = min(usual.refine_stop_iter, total)
    latest_reset = total - min(RECOVERY, total // 2)
    short = shortness(total)
    if short <= 0.0:
        return replace(
            config, densify=replace(usual, refine_stop_iter=stop, reset_stop_iter=min(stop, latest_reset + 1))
        )

    def between(reference: float, shortest: float) -> float:
        return math.exp((1.0 - short) * math.log(reference) + short * math.log(shortest))

    def iterations(reference: float, shortest: int) -> int:
        return round(between(reference * total / SHORT_RUN, max(1, shortest)))

    stop = iterations(min(usual.refine_stop_iter, SHORT_RUN), int(0.7 * total)) + 1
    start = max(1, iterations(usual.refine_start_iter, total // 5))
    every = max(1, min(10, total // 6), iterations(usual.refine_every, total // 12))
    reset_every = NEVER
    if total >= SHORTEST_WITH_RESET:
        reset_every = iterations(usual.reset_every, int(0.4 * total))
    max_scale3d = math.inf
    if short < 1.0:
        max_scale3d = usual.max_scale3d / (1.0 - short)
    densify = replace(
        usual,
        refine_start_iter=start,
        refine_stop_iter=stop,
        refine_every=every,
        reset_every=reset_every,
        reset_stop_iter=min(stop, latest_reset + 1),
        reset_at_start=usual.reset_at_start and short < 1.0,
        grow_grad2d=between(usual.grow_grad2d, 5e-4),
        min_opacity=between(usual.min_opacity, 0.009),
        max_scale3d=max_scale3d,
    )
    factor = min(8.0, math.sqrt(SHORT_RUN / total))
    lrs = LearningRates(*(each * factor for each in astuple(config.lrs)))
    lrs = replace(lrs, opacity=min(0.05, lrs.opacity), scaling=config.lrs.scaling * min(4.0, factor))
    interval = max(1, iterations(config.sh_degree_interval, total // (2 * max(1, config.sh_degree))))
    return replace(config, densify=densify, lrs=lrs, sh_degree_interval=interval)


def fitted_to_views(config: TrainConfig, views: int) -> TrainConfig:
    """A short run's schedule made to fit the number of its training views; of MANY_VIEWS it needs nothing.

    As in `scaled_to` by less towards 7000 iterations, from which on the reference's own is kept:

    - What makes a Gaussian grow is the mean of its gradient's norm over the views that showed it. The fewer they are, the
      more of that mean is what one photo alone asks for, in proportion to 1 / sqrt(views): the threshold rises so.
    - Degree d of the harmonics has (d + 1)^2 coefficients. A degree is reached only where there are two views for each.
    - Below half of MANY_VIEWS there is room for Gaussians larger than the scene, beside all of the views and a veil in any
      other. So pruning by size, which other short runs go without, comes back: at the scene's extent, since a smaller
      limit takes a far background away (4 dB of an outdoor sample at a quarter of the extent).
    - The halves of a large Gaussian are put anywhere within it, before a camera too, where few views tell. Below FEW_VIEWS
      none of the larger half is split (with 14 views that costs 5 dB of the same sample's background).
    - Below FEW_VIEWS opacity is not reset: what comes back after a reset is what each photo asks for. Pruning by size, which
      begins with the first reset, goes with it.
    - Below FEW_VIEWS each is seen so often that the rates of other short runs learn the photos by heart: together its steps go
      as far as FEW_VIEWS_STEPS of the reference's (rates times steps), and no step is shorter than the reference's.

    Nine photos of a castle, 500 iterations: without this they grow by a half, and what was added is learned by heart
    (9 to 22 dB on one held-out view by the seed, 27 dB on training views).
    """
    densify, total, short = config.densify, config.iterations, shortness(config.iterations)
    share = min(max(views, 1) / MANY_VIEWS, 1.0)
    if short <= 0.0 or share >= 1.0:
        return config
    degree = min(config.sh_degree, max(1, math.isqrt(views // 2) - 1))
    interval = config.sh_degree_interval
    if 0 < degree < config.sh_degree:
        interval = round(interval ** (1.0 - short) * (total // (degree + 1) + 1) ** short)
    max_scale3d, grow_below3d, reset_every = densify.max_scale3d, densify.grow_below3d, densify.reset_every
    rate = 1.0
    if 2.0 * share < 1.0:
        max_scale3d = min(max_scale3d, DensifyConfig.max_scale3d ** (1.0 - short))
    if views < FEW_VIEWS:
        grow_below3d = densify.grow_scale3d / short
        reset_every = NEVER if short == 1.0 else round(reset_every / (1.0 - short))
        times_the_reference = max(1.0, FEW_VIEWS_STEPS / total)
        rate = min(1.0, times_the_reference / math.sqrt(SHORT_RUN / total))
    return replace(
        config,
        lrs=LearningRates(*(each * rate for each in astuple(config.lrs))),
        sh_degree_interval=max(interval, config.sh_degree_interval),
        densify=replace(
            densify,
            grow_grad2d=densify.grow_grad2d / math.sqrt(share) ** short,
            max_scale3d=max_scale3d,
            grow_below3d=grow_below3d,
            reset_every=reset_every,
        ),
    )


def shortness(iterations: int) -> float:
    """0 from 7000 iterations on, 1 at 700 and below, by the logarithm of the length in between."""
    return min(max(math.log10(SHORT_RUN / iterations), 0.0), 1.0)


@dataclass(frozen=True)
class Preset:
    """One sample's run: width of the images in pixels (or -1), background, the held-out PSNR in dB it must exceed, and the
    random points of a scene without points (the reference's 100,000 are no smoke test on a CPU)."""

    iterations: int
    resolution: int
    background: str = "black"
    psnr_floor: Optional[float] = None
    random_points: int = 5000


# Floors lie 1.5 dB or a little more below the lowest held-out PSNR of seeds 0, 1 and 2 (CPU, torch 2.13, `--renderer torch`):
#   quick     courtyard 22.79 22.63 22.96, study 26.81 26.69 26.44, figurine 30.03 30.39 30.11
#   standard  courtyard 24.49 24.31 24.81, study 27.92 27.84 27.84, fruit 22.78 22.97 22.77,
#             figurine 31.64 31.63 31.63, trellis 28.44 28.15 28.57, plaza 24.12 24.77 24.72
PRESETS: Dict[str, Dict[str, Preset]] = {
    "quick": {
        "courtyard": Preset(200, 128, psnr_floor=21.0),
        "study": Preset(200, 128, psnr_floor=24.9),
        "figurine": Preset(200, -1, "random", psnr_floor=28.5),
    },
    "standard": {
        "courtyard": Preset(300, -1, psnr_floor=22.8),
        "study": Preset(300, -1, psnr_floor=26.3),
        "fruit": Preset(300, -1, psnr_floor=21.2),
        "figurine": Preset(300, -1, "random", psnr_floor=30.1),
        "trellis": Preset(300, -1, psnr_floor=26.6),
        "plaza": Preset(300, -1, psnr_floor=22.6),
    },
}
