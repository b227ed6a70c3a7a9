"""A COLMAP scene in text files, at a given width; pinhole cameras only."""

import math
import os
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image


class View(NamedTuple):
    name: str
    image: torch.Tensor
    tanfov: tuple
    world_view: torch.Tensor
    full_proj: torch.Tensor
    center: torch.Tensor


def rows(path):
    with open(path) as file:
        return [line.split() for line in file if line.strip() and not line.startswith("#")]


def load(folder, width):
    sparse = os.path.join(folder, "sparse", "0")
    cameras = {row[0]: row for row in rows(os.path.join(sparse, "cameras.txt"))}
    for row in cameras.values():
        assert row[1] == "PINHOLE", f"camera model {row[1]} not handled: only PINHOLE"
    with open(os.path.join(sparse, "images.txt")) as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    views = [
        view(row, cameras[row[8]], folder, width) for row in lines[::2] if len(row) > 9 or len(row) == 10
    ]
    points = np.array(
        [[float(word) for word in row[1:7]] for row in rows(os.path.join(sparse, "points3D.txt"))]
    )
    return sorted(views, key=lambda item: item.name), points[::6]


def view(row, camera, folder, width):
    w, x, y, z, *shift = map(float, row[1:8])
    turn = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    pose = np.eye(4, dtype=np.float32)
    pose[:3, :3], pose[:3, 3] = turn, shift
    full, high = float(camera[2]), float(camera[3])
    tanfov = (full / (2 * float(camera[4])), high / (2 * float(camera[5])))
    near, far = 0.01, 100.0
    lens = np.zeros((4, 4), dtype=np.float32)
    lens[0, 0], lens[1, 1], lens[3, 2] = 1 / tanfov[0], 1 / tanfov[1], 1.0
    lens[2, 2], lens[2, 3] = far / (far - near), -far * near / (far - near)
    photo = Image.open(os.path.join(folder, "images", row[9])).convert("RGB")
    photo = photo.resize((width, math.ceil(width * high / full)))
    image = torch.from_numpy(np.asarray(photo, dtype=np.float32) / 255).permute(2, 0, 1).cuda()
    world_view = torch.from_numpy(pose).t().contiguous().cuda()
    full_proj = (world_view @ torch.from_numpy(lens).t().cuda()).contiguous()
    return View(row[9], image, tanfov, world_view, full_proj, torch.linalg.inv(world_view)[3, :3])
