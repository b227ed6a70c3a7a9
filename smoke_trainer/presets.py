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


PRESETS: Dict[str, Dict[str, Preset]] = {
    "quick": {
        "courtyard": Preset(200, 128, psnr_floor=21.0),
        "figurine": Preset(200, -1, "random", psnr_floor=28.5),
    },
    "standard": {
        "courtyard": Preset(300, -1, psnr_floor=20.0),
        "study": Preset(300, -1, psnr_floor=20.0),
        "fruit": Preset(300, -1, psnr_floor=18.0),
        "figurine": Preset(300, -1, "random", psnr_floor=28.0),
        "trellis": Preset(300, -1, psnr_floor=20.0),
        "plaza": Preset(300, -1, psnr_floor=20.0),
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
