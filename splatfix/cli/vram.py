"""Will it fit: ``splatfix vram``."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

from splatfix import app
from splatfix.cli import options
from splatfix.cli.options import OUTPUT, file_to_write, finish, option
from splatfix.core.errors import usage_error
from splatfix.core.step import say

SCENE = "The scene"
TRAINING = "The training"
MOST_PHOTOS, MOST_GAUSSIANS, MOST_SIDE = 1_000_000, 10_000_000_000, 65_536


class Strategy(str, Enum):
    """Of densification."""

    default = "default"
    mcmc = "mcmc"


class DataDevice(str, Enum):
    """Where photos are kept."""

    cuda = "cuda"
    cpu = "cpu"


def _stacks(incomplete: str) -> list[str]:
    """What a shell completes."""
    from splatfix.knowledge.vram import stacks_by_key

    return [key for key in stacks_by_key() if key.startswith(incomplete)]


def vram(
    stack: Annotated[
        str,
        option(
            "--stack", "The stack, such as inria, gsplat or mip.", metavar="STACK", autocompletion=_stacks
        ),
    ],
    gpu: Annotated[
        str,
        option(
            "--gpu",
            'A card ("RTX 3090") or a size ("24 GB").',
            metavar="NAME",
            show_default="this machine's largest",
        ),
    ] = "",
    scene: Annotated[
        Optional[Path], option("--scene", "Folder of a scene; only headers are read.", SCENE, "DIR")
    ] = None,
    images: Annotated[
        Optional[int], option("--images", "Number of photos.", SCENE, min=1, max=MOST_PHOTOS)
    ] = None,
    resolution: Annotated[
        Optional[str], option("--resolution", "Their size as they are trained on, 1600x1300.", SCENE, "WxH")
    ] = None,
    points: Annotated[
        Optional[int], option("--points", "Points at the start.", SCENE, min=1, max=MOST_GAUSSIANS)
    ] = None,
    gaussians: Annotated[
        Optional[int],
        option(
            "--gaussians",
            "Gaussians at the end.",
            TRAINING,
            min=1,
            max=MOST_GAUSSIANS,
            show_default="as in published runs",
        ),
    ] = None,
    budget: Annotated[
        Optional[int],
        option("--budget", "The cap of Gaussians of the strategy.", TRAINING, min=1, max=MOST_GAUSSIANS),
    ] = None,
    strategy: Annotated[
        Strategy, option("--strategy", "How Gaussians are added.", TRAINING)
    ] = Strategy.default,
    sh_degree: Annotated[
        int, option("--sh-degree", "Degree of the spherical harmonics.", TRAINING, min=0, max=4)
    ] = 3,
    data_device: Annotated[
        DataDevice, option("--data-device", "Where the photos are kept.", TRAINING)
    ] = DataDevice.cuda,
    iterations: Annotated[
        int, option("--iterations", "Of the training.", TRAINING, min=1, max=MOST_GAUSSIANS)
    ] = 30_000,
    autograd: Annotated[
        bool,
        option(
            "--autograd-evaluation",
            "Its evaluation runs without torch.no_grad, LPIPS (VGG) included.",
            TRAINING,
        ),
    ] = False,
    calibrate: Annotated[
        bool, option("--calibrate", "First fit the model by short runs on the GPU that is here (minutes).")
    ] = False,
    python: options.Python = None,
    html: Annotated[
        Optional[Path],
        option("--html", "Also write a page with the bars.", OUTPUT, "FILE", callback=file_to_write),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Foretell whether a training fits a card, how many Gaussians and minutes it takes, and what to change."""
    request = app.vram.VramRequest(
        stack=stack,
        gpu=gpu,
        scene=scene,
        photos=images,
        size=_size(resolution),
        points=points,
        gaussians=gaussians,
        budget=budget,
        sh_degree=sh_degree,
        strategy=strategy.value,
        photos_on_cpu=data_device is DataDevice.cpu,
        autograd=autograd,
        iterations=iterations,
        calibrate=calibrate,
        python=python,
        html=html,
    )
    finish(app.vram.foretell(request), as_json)


def _size(text: str | None) -> tuple[int, int] | None:
    """Width and height.

    Raises:
        SplatfixError: ``bad-resolution`` (exit code 2).
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})[xX×](\d{1,5})", text.strip())
    if match is None or not all(0 < int(side) <= MOST_SIDE for side in match.groups()):
        raise usage_error(
            "bad-resolution",
            f"{text!r} is no size of a photo.",
            say(f"Give width and height, at most {MOST_SIDE} each: --resolution 1600x1300"),
        )
    return int(match[1]), int(match[2])
