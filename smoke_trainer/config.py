"""Every number of a training run, as frozen data: the paper's defaults, and how they shrink for a short run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional

# The reference implementation trains this long; its densification and decay times are counts of these iterations.
PAPER_ITERATIONS = 30_000
# Opacity climbs from its reset value to one half in about 90 steps of Adam at the rate of 0.05.
SHORTEST_WITH_RESET = 150
NEVER = 1 << 62
SHORT_RUN = 7000  # below this the schedule is compressed; 7000 is the reference's first test


@dataclass(frozen=True)
class LearningRates:
    """Adam's rate for each parameter group (Inria's defaults); the position's is multiplied by the scene's extent."""

    xyz_first: float = 1.6e-4
    xyz_last: float = 1.6e-6
    f_dc: float = 2.5e-3
    f_rest: float = 2.5e-3 / 20.0
    opacity: float = 0.05
    scaling: float = 5e-3
    rotation: float = 1e-3


@dataclass(frozen=True)
class DensifyConfig:
    """When and how Gaussians are added and removed.

    Iterations are counted from 1; densification happens after `first` (which is excluded) up to `last` (which is not).
    """

    first: int = 500
    last: int = 15_000
    every: int = 100
    opacity_reset_every: int = 3000
    gradient_threshold: float = 2e-4  # of the screen-space position gradient, in NDC units
    percent_dense: float = 0.01  # of the scene's extent: smaller Gaussians are cloned, larger ones split
    min_opacity: float = 0.005
    max_screen_size: float = 20.0  # pixels of radius; larger ones are pruned once opacity has been reset
    max_world_size: float = 0.1  # of the scene's extent; as above
    max_gaussians: int = 1_000_000  # MCMC's cap
    budget: float = 2.0  # final count, or a multiple of the initial count where below 100
    noise_rate: float = 5e5  # MCMC: of the position's learning rate
    opacity_penalty: float = 0.01  # MCMC
    scale_penalty: float = 0.01  # MCMC


@dataclass(frozen=True)
class TrainConfig:
    """One run."""

    scene: str
    iterations: int
    out: Path
    renderer: str = "torch"
    ssim: str = "kernels"
    knn: str = "kernels"
    device: str = "cpu"
    data_device: str = "cpu"
    resolution: int = -1
    seed: int = 0
    strategy: str = "default"
    background: str = "black"  # black | white | random (a new colour each iteration)
    sh_degree: int = 3
    sh_every: int = 1000
    dssim_weight: float = 0.2
    random_points: int = 5000
    antialiasing: bool = False
    rates: LearningRates = field(default_factory=LearningRates)
    densify: DensifyConfig = field(default_factory=DensifyConfig)
    cache_mb: int = 2048
    checkpoint_every: int = 0
    resume: Optional[Path] = None
    evaluate_every: int = 0
    json_progress: bool = False
    tensorboard: bool = False
    census: bool = False
    preset: Optional[str] = None
    psnr_floor: Optional[float] = None  # what the preset is known to exceed


def scaled_to(config: TrainConfig) -> TrainConfig:
    """The same run with its schedule compressed to fit `config.iterations`; 7000 and more keep the reference's numbers.

    A short run would never reach the reference's times, and so would never show that densification works. Here it
    densifies from a fifth of the run to seven tenths, about every twelfth, resets opacity once at four tenths (if
    there is time to recover), and reaches the last SH degree at half. It takes larger steps, which on the samples
    gains 2 to 4 dB at 200 iterations. Pruning by size stays off: a far background that has not been refined yet
    consists of large Gaussians only.
    """
    total = config.iterations
    if total >= SHORT_RUN:
        return config
    every = max(1, min(10, total // 6), total // 12)
    densify = replace(
        config.densify,
        first=max(1, total // 5),
        last=int(0.7 * total),
        every=every,
        opacity_reset_every=int(0.4 * total) if total >= SHORTEST_WITH_RESET else NEVER,
        gradient_threshold=5e-4,
        min_opacity=0.009,
        max_screen_size=float("inf"),
        max_world_size=float("inf"),
    )
    factor = min(8.0, math.sqrt(SHORT_RUN / total))
    rates = config.rates
    rates = replace(
        rates,
        xyz_first=rates.xyz_first * factor,
        xyz_last=rates.xyz_last * factor,
        f_dc=rates.f_dc * factor,
        f_rest=rates.f_rest * factor,
        scaling=rates.scaling * min(4.0, factor),
        rotation=rates.rotation * factor,
    )
    sh_every = max(1, total // (2 * max(1, config.sh_degree)))
    return replace(config, densify=densify, rates=rates, sh_every=sh_every)
