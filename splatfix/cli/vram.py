"""Will it fit: ``splatfix vram``."""

import re
from pathlib import Path
from typing import Annotated, Literal, Optional

from splatfix.cli import options
from splatfix.cli.options import file_to_write, finish, option
from splatfix.core.errors import SplatfixError

MOST_SIDE = 65_536


def _stacks(incomplete: str) -> list[str]:
    from splatfix.knowledge.vram import known_names

    return [key for key in known_names() if key.startswith(incomplete)]


def vram(
    stack: Annotated[str, option("vram.stack", autocompletion=_stacks)] = "",
    gpu: Annotated[str, option("vram.gpu")] = "",
    scene: Annotated[Optional[Path], option("vram.scene")] = None,
    images: Annotated[Optional[int], option("vram.images")] = None,
    resolution: Annotated[Optional[str], option("vram.resolution")] = None,
    points: Annotated[Optional[int], option("vram.points")] = None,
    gaussians: Annotated[Optional[int], option("vram.gaussians")] = None,
    budget: Annotated[Optional[int], option("vram.budget")] = None,
    strategy: Annotated[Literal["default", "mcmc"], option("vram.strategy")] = "default",
    sh_degree: Annotated[int, option("vram.sh_degree")] = 3,
    data_device: Annotated[Literal["cuda", "cpu"], option("vram.data_device")] = "cuda",
    iterations: Annotated[int, option("vram.iterations")] = 30_000,
    autograd: Annotated[bool, option("vram.autograd")] = False,
    calibrate: Annotated[bool, option("vram.calibrate")] = False,
    python: options.Python = None,
    html: Annotated[Optional[Path], option("vram.html", callback=file_to_write)] = None,
    verbose: Annotated[bool, option("vram.verbose")] = False,
    as_json: options.Json = False,
) -> None:
    """Estimate whether a training fits a GPU, how many Gaussians and minutes it takes, and which settings to change."""
    from splatfix.app import vram as use_case

    size = None
    if resolution is not None:
        match = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", resolution.strip())
        if match is None or not all(0 < int(side) <= MOST_SIDE for side in match.groups()):
            raise SplatfixError.of("cli.bad-resolution", text=resolution, most_side=MOST_SIDE)
        size = (int(match[1]), int(match[2]))
    named = {"photos": images, "size": size, "photos_on_cpu": data_device == "cpu"}
    request = options.request_of(use_case.VramRequest, locals(), **named)
    finish(use_case.foretell(request), as_json, verbose=verbose)
