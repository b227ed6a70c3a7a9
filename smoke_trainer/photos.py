"""What a training had for its photos: mean colors of a grid of cells, and of a JPEG the energy of its details, which another
decoder of the same files must find too."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import List, Tuple

import torch
from torch import Tensor

from smoke_trainer.config import TrainConfig
from smoke_trainer.data.files import MAX_PIXELS, content_of
from smoke_trainer.data.images import ImageStore, decode, image_size
from smoke_trainer.data.load import find_scene
from smoke_trainer.data.scene import Scene, View
from smoke_trainer.record import PhotoReport, ViewReport

ACROSS, DOWN = 8, 6  # cells
MOST = 8  # photos, spread over training and held-out views
# of a photo that is decoded once more, and the frequencies that are details; as `splatfix/certify/photos.py` has them
MOST_PIXELS, MOST_OF_JPEG, FINE = 700_000, 3_000_000, 5


def photo_reports(scene: Scene, images: ImageStore, folder: str) -> List[PhotoReport]:
    """Some of the photos as they are trained on, over black; `folder` is the scene's, or a sample's name."""
    views = [*scene.train, *scene.test]
    root = find_scene(folder)
    reports = []
    for view in views[:: max(1, -(-len(views) // MOST))]:
        grid = grid_of(_pixels(view, images))
        rows = [[[round(value, 2) for value in cell] for cell in row] for row in grid.tolist()]
        file = os.path.relpath(view.image_path, root)
        digest, details = _as_decoded(view.image_path)
        reports.append(PhotoReport(view.name, file, rows, digest, details))
    return reports


def view_report(config: TrainConfig, view: View, psnr: float, picture: Path) -> ViewReport:
    """A held-out view whose picture was written."""
    photo, shown = "", picture.relative_to(config.out).as_posix()
    if view.mask_path is not None:
        shown = ""
    elif view.distortion.is_zero and config.background != "white":
        photo = os.path.relpath(view.image_path, find_scene(config.scene))
    return ViewReport(view.name, psnr if math.isfinite(psnr) else None, shown, photo)


def _as_decoded(path: Path) -> Tuple[str, List[float]]:
    """The digest of all planes of a photo, each row by row, and the details of a JPEG; none of one that is too large to be
    decoded once more by others."""
    size = image_size(path)
    if content_of(path)[:2] == b"\xff\xd8" and size[0] * size[1] <= MAX_PIXELS:
        return "", details_of(decode(path, size))
    if size[0] * size[1] > MOST_PIXELS:
        return "", []
    return hashlib.sha256(decode(path, size).numpy().tobytes()).hexdigest(), []


def details_of(planes: Tensor) -> List[float]:
    """Of [3, H, W] in 0..255, from its top, for each row of cells that holds at most MOST_OF_JPEG pixels: the mean over blocks
    of 8 x 8 of the energy that the coefficients of brightness have from FINE on (ITU-T T.81, A.3.3)."""
    height, width = planes.shape[1:]
    bands = min(DOWN, MOST_OF_JPEG * DOWN // (width * height))
    down = min(height // 8, -(-height * bands // (8 * DOWN)))
    weights = torch.tensor((0.299, 0.587, 0.114))
    light = torch.tensordot(weights, planes[:3, : 8 * down, : width // 8 * 8].float(), 1)
    pixel, frequency = torch.arange(8.0), torch.arange(8.0)[:, None]
    cosines = 0.5 * torch.cos((2.0 * pixel + 1.0) * frequency * (math.pi / 16.0))
    cosines[0] /= math.sqrt(2.0)
    blocks = light.reshape(down, 8, -1, 8).permute(0, 2, 1, 3)
    fine = (frequency + frequency.t()) >= FINE
    energies = ((cosines @ blocks @ cosines.t()) ** 2)[:, :, fine].sum(2).mean(1)
    band_of = 8 * torch.arange(down) * DOWN // height
    return [round(float(energies[band_of == band].mean()), 3) for band in range(bands)]


def _pixels(view: View, images: ImageStore) -> Tensor:
    """[3, H, W] in 0..1; of a lens with distortion as the file has them, for straightening moves them."""
    if view.distortion.is_zero:
        truth = images.get(view)
        return truth.over(torch.zeros(3, device=truth.color.device))
    planes = decode(view.image_path, (view.source.width, view.source.height)).float() / 255.0
    return planes[:3] * (planes[3:] if len(planes) == 4 else 1.0)


def grid_of(pixels: Tensor) -> Tensor:
    """Means in 0..255 of the cells of an image [3, H, W] in 0..1: [DOWN, ACROSS, 3]."""
    across, down = _shares(pixels.shape[2], ACROSS), _shares(pixels.shape[1], DOWN)
    means = down.to(pixels) @ (255.0 * pixels) @ across.to(pixels).t()
    return means.permute(1, 2, 0).cpu()


def _shares(size: int, cells: int) -> Tensor:
    """How much each pixel of a side counts in the mean of each cell, [cells, size]; one on an edge counts in both."""
    edges, pixels = torch.arange(cells + 1) * (size / cells), torch.arange(size)
    overlap = torch.minimum(pixels + 1.0, edges[1:, None]) - torch.maximum(pixels + 0.0, edges[:-1, None])
    return overlap.clamp_min(0.0) * (cells / size)
