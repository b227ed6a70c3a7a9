"""LPIPS (Zhang et al. 2018, VGG-16), if its weights are on this machine; nothing is ever downloaded.

Two files are needed: VGG-16's own weights in torch's cache (`vgg16-397923af.pth`, as torchvision stores it) and the small
linear layers (`vgg.pth`), which the packages lpips and torchmetrics carry and other trainers leave in the same cache.

Images are given in 0..1, as the field's trainers do when they report LPIPS, although the network was fitted to -1..1;
numbers are comparable with the published ones of 3DGS only so.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

NETWORK_FILE = "vgg16-397923af.pth"
# The linear layers inside other packages: (package, path below its folder).
LINEAR_FILES = (
    ("lpips", "weights/v0.1/vgg.pth"),
    ("torchmetrics", "functional/image/lpips_models/vgg.pth"),
)
# VGG-16: the convolutions of each stage by their index in torchvision's `features`; between stages the size is halved.
STAGES: Tuple[Tuple[int, ...], ...] = ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28))
SMALLEST_SIDE = 16  # pixels; four halvings must leave something
# The statistics by which the authors centre and scale each channel (their ScalingLayer).
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
EPSILON = 1e-10


class Lpips(NamedTuple):
    """VGG-16's weights by their names, and one weight per channel [C, 1, 1] of each stage."""

    kernels: Dict[str, Tensor]
    linear: List[Tensor]

    @torch.no_grad()
    def __call__(self, one: Tensor, two: Tensor) -> float:
        """The distance of two images [3, H, W] in 0..1; 0 for equal ones."""
        pair = torch.stack([one, two])
        pair = (pair - pair.new_tensor(SHIFT)[:, None, None]) / pair.new_tensor(SCALE)[:, None, None]
        distance = 0.0
        for number, indices in enumerate(STAGES):
            if number:
                pair = F.max_pool2d(pair, 2)
            for index in indices:
                kernel, bias = (self.kernels[f"features.{index}.{kind}"] for kind in ("weight", "bias"))
                pair = F.relu(F.conv2d(pair, kernel, bias, padding=1))
            unit = pair / (pair.square().sum(dim=1, keepdim=True).sqrt() + EPSILON)
            weighted = (unit[0] - unit[1]).square() * self.linear[number]
            distance += float(weighted.sum(dim=0).mean())
        return distance


def find_lpips(device: torch.device, smallest_side: int) -> Tuple[Optional[Lpips], str]:
    """The metric, or None and the reason why it is not measured."""
    network, linear = find_weights()
    if network is None or linear is None:
        return None, "not measured: weights not found"
    if smallest_side < SMALLEST_SIDE:
        return None, f"not measured: the images are smaller than {SMALLEST_SIDE} pixels"
    try:
        # on the CPU first: the file has VGG-16's classifier too, nine tenths of it
        weights = [torch.load(path, map_location="cpu", weights_only=True) for path in (network, linear)]
        kernels = {name: rows.to(device) for name, rows in weights[0].items() if name.startswith("features.")}
        layers = [weights[1][f"lin{number}.model.1.weight"][0].to(device) for number in range(len(STAGES))]
    except Exception as error:  # noqa: BLE001  (torch.load raises many kinds for a damaged file)
        return None, f"not measured: {network} or {linear} cannot be read ({type(error).__name__})"
    return Lpips(kernels, layers), ""


def find_weights() -> Tuple[Optional[Path], Optional[Path]]:
    """(VGG-16's weights, the linear layers), each None if it is not on this machine."""
    cache = Path(torch.hub.get_dir()) / "checkpoints"  # type: ignore[no-untyped-call, unused-ignore]
    network, linear = [cache / NETWORK_FILE], [cache / "vgg.pth"]
    for package, inside in LINEAR_FILES:
        spec = importlib.util.find_spec(package)  # looks for the package without running it
        if spec is not None:
            linear += [Path(folder) / inside for folder in spec.submodule_search_locations or ()]
    found = [next(filter(Path.is_file, paths), None) for paths in (network, linear)]
    return found[0], found[1]
