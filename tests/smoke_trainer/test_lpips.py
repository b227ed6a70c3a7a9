"""LPIPS from weights that lie on the machine: found, computed as defined, or said not to be measured and why."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from smoke_trainer import lpips
from smoke_trainer.lpips import EPSILON, NETWORK_FILE, SCALE, SHIFT, STAGES, find_lpips, find_weights
from smoke_trainer.train import train

CHANNELS = (4, 6, 8, 5, 7)  # a narrow network of the same shape
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of torch, and none of the packages that carry the linear layers."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(lpips.importlib.util, "find_spec", lambda name: None)
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints"


def store_weights(cache: Path, linear: Path) -> None:
    generator = torch.Generator().manual_seed(7)
    network, layers, width = {}, {}, 3
    for number, (stage, channels) in enumerate(zip(STAGES, CHANNELS, strict=True)):
        for index in stage:
            network[f"features.{index}.weight"] = 0.4 * torch.randn(
                channels, width, 3, 3, generator=generator
            )
            network[f"features.{index}.bias"] = 0.1 * torch.randn(channels, generator=generator)
            width = channels
        layers[f"lin{number}.model.1.weight"] = torch.rand(1, channels, 1, 1, generator=generator)
    torch.save(network, cache / NETWORK_FILE)
    linear.parent.mkdir(parents=True, exist_ok=True)
    torch.save(layers, linear)


def reference(one: np.ndarray, two: np.ndarray, network: dict, layers: dict) -> float:
    """The definition in float64 numpy, one image at a time."""
    from scipy.signal import correlate  # a second, which no other test needs

    def features(image):
        planes = (image - np.array(SHIFT)[:, None, None]) / np.array(SCALE)[:, None, None]
        for number, stage in enumerate(STAGES):
            if number:
                height, width = planes.shape[1] // 2, planes.shape[2] // 2
                cut = planes[:, : 2 * height, : 2 * width]
                planes = cut.reshape(len(planes), height, 2, width, 2).max(axis=(2, 4))
            for index in stage:
                kernel = network[f"features.{index}.weight"].double().numpy()
                bias = network[f"features.{index}.bias"].double().numpy()
                padded = np.pad(planes, ((0, 0), (1, 1), (1, 1)))
                planes = np.stack(
                    [correlate(padded, k, mode="valid")[0] + b for k, b in zip(kernel, bias, strict=True)]
                )
                planes = np.maximum(planes, 0.0)
            yield planes / (np.sqrt((planes**2).sum(axis=0)) + EPSILON)

    total = 0.0
    for number, (a, b) in enumerate(zip(features(one), features(two), strict=True)):
        weights = layers[f"lin{number}.model.1.weight"].double().numpy().reshape(-1, 1, 1)
        total += float(((a - b) ** 2 * weights).sum(axis=0).mean())
    return total


def test_it_is_the_definition(no_weights):
    store_weights(no_weights, no_weights / "vgg.pth")
    metric, note = find_lpips(CPU, 33)
    assert metric is not None and note == ""
    one, two = torch.rand(2, 3, 33, 40, generator=torch.Generator().manual_seed(1))
    network, layers = torch.load(no_weights / NETWORK_FILE), torch.load(no_weights / "vgg.pth")
    expected = reference(one.double().numpy(), two.double().numpy(), network, layers)
    assert expected > 1e-3
    assert metric(one, two) == pytest.approx(expected, rel=1e-4)
    assert metric(one, one) == 0.0


def test_the_linear_layers_are_found_inside_a_package(no_weights, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    package = tmp_path / "packages" / "lpips"
    store_weights(no_weights, package / "weights" / "v0.1" / "vgg.pth")
    (package / "__init__.py").write_text("raise RuntimeError('must not be run')")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "lpips", raising=False)
    assert find_weights() == (no_weights / NETWORK_FILE, package / "weights" / "v0.1" / "vgg.pth")


def test_the_report_has_it_or_says_why_not(no_weights, short_run):
    heldout = train(short_run(3)).heldout
    assert (heldout.lpips, heldout.lpips_note) == (None, "not measured: weights not found")
    store_weights(no_weights, no_weights / "vgg.pth")
    record = train(short_run(3, out="with"))
    assert record.heldout.lpips > 0.0 and record.heldout.lpips_note == ""
    assert record.initial_heldout.lpips is None


def test_damaged_weights_and_small_images_are_said(no_weights):
    store_weights(no_weights, no_weights / "vgg.pth")
    assert find_lpips(CPU, 12) == (None, "not measured: the images are smaller than 16 pixels")
    (no_weights / "vgg.pth").write_bytes(b"half a file")
    metric, note = find_lpips(CPU, 64)
    assert metric is None and "vgg.pth cannot be read" in note
