"""What a training had for its photos: mean colors of a grid of cells, which another decoder of the same files must find too."""

from __future__ import annotations

import os
from typing import List

import torch
from torch import Tensor

from smoke_trainer.data.images import ImageStore, decode
from smoke_trainer.data.load import find_scene
from smoke_trainer.data.scene import Scene, View
from smoke_trainer.record import PhotoReport

ACROSS, DOWN = 8, 6  # cells
MOST = 8  # photos, spread over training and held-out views


def photo_reports(scene: Scene, images: ImageStore, folder: str) -> List[PhotoReport]:
    """Some of the photos as they are trained on, over black; `folder` is the scene's, or a sample's name."""
    views = [*scene.train, *scene.test]
    root = find_scene(folder)
    reports = []
    for view in views[:: max(1, -(-len(views) // MOST))]:
        grid = grid_of(_pixels(view, images))
        rows = [[[round(value, 2) for value in cell] for cell in row] for row in grid.tolist()]
        reports.append(PhotoReport(view.name, os.path.relpath(view.image_path, root), rows))
    return reports


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
