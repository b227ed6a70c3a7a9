"""Runs of the sample scenes whose held-out quality was measured: how long, how large, and what to expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict

from smoke_trainer.errors import UsageError


@dataclass(frozen=True)
class Preset:
    """One scene's run: width of the images (or -1), background, and the held-out PSNR (dB) it must exceed."""

    iterations: int
    resolution: int
    background: str = "black"
    psnr_floor: float = 0.0


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


def preset_for(scene: str, preset: str) -> Preset:
    """The preset of a sample scene, or a usage error that lists the scenes it covers."""
    scenes = PRESETS[preset]
    if scene not in scenes:
        raise UsageError(
            f"the preset {preset!r} was not measured for {scene!r}",
            remedy=f"give --iterations, or choose one of: {', '.join(scenes)}",
        )
    return scenes[scene]
