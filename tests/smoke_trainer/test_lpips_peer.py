"""Our LPIPS beside its authors' own package `lpips`, with the same network: runs where that package is installed.

The network's real weights are taken where torch's cache has them; otherwise random ones stand in on both sides, which
holds architecture, scaling, normalisation and the package's real linear layers together just as well.
"""

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from smoke_trainer.data.load import SAMPLES
from smoke_trainer.lpips import find_weights, read_weights

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16(pretrained: bool = False) -> Any:
    """VGG-16's convolutional part (Simonyan and Zisserman 2015, column D), for a machine without torchvision."""
    assert not pretrained, "nothing is downloaded"
    layers: list[torch.nn.Module] = []
    width = 3
    for stage in STAGES:
        for channels in stage:
            layers += [torch.nn.Conv2d(width, channels, 3, padding=1), torch.nn.ReLU()]
            width = channels
        layers.append(torch.nn.MaxPool2d(2))
    return types.SimpleNamespace(features=torch.nn.Sequential(*layers))


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The authors' metric with a VGG trunk of random weights."""
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):  # not there, or built for another torch
        for name in [name for name in sys.modules if name.split(".")[0] in ("torchvision", "lpips")]:
            monkeypatch.delitem(sys.modules, name)
        stand_in, models = types.ModuleType("torchvision"), types.ModuleType("torchvision.models")
        models.vgg16, stand_in.models = vgg16, models  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torchvision", stand_in)
        monkeypatch.setitem(sys.modules, "torchvision.models", models)
    lpips = pytest.importorskip("lpips")
    torch.manual_seed(3)
    return lpips.LPIPS(net="vgg", pnet_rand=True, verbose=False)


def trunk_of(peer: Any) -> dict[str, torch.Tensor]:
    """The peer's convolutions under torchvision's names."""
    named = {}
    for name, value in peer.net.state_dict().items():
        _, index, kind = name.split(".")
        named[f"features.{index}.{kind}"] = value
    return named


def photos() -> list[torch.Tensor]:
    paths = sorted((SAMPLES / "courtyard" / "images_8").iterdir())[:2]
    return [torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).float() / 255.0 for path in paths]


def test_it_gives_the_authors_numbers(peer: Any, tmp_path: Path) -> None:
    network, _ = find_weights()
    if network is not None:
        real = torch.load(network, weights_only=True)
        peer.net.load_state_dict(
            {name: real[f"features.{'.'.join(name.split('.')[1:])}"] for name in peer.net.state_dict()}
        )
    stored = tmp_path / "network.pth"
    torch.save(trunk_of(peer), stored)
    linear = Path(sys.modules["lpips"].__file__ or "").parent / "weights" / "v0.1" / "vgg.pth"
    ours = read_weights(stored, linear, torch.device("cpu"))
    one, two = photos()
    blurred = torch.nn.functional.avg_pool2d(one[None], 5, 1, 2)[0]
    for a, b in ((one, two), (one, blurred), (one, one)):
        with torch.no_grad():
            expected = float(peer(a[None], b[None]))
        assert ours(a, b) == pytest.approx(expected, rel=1e-4, abs=1e-9)
    assert ours(one, two) > ours(one, blurred) > 0.0
