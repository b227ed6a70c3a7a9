"""A scene: views, points, and which views are held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from smoke_trainer.data.camera import Array, Camera
from smoke_trainer.data.files import content_of

ONE_PLACE = 1e-6  # of the distance of the points: cameras spread no further stand in one place


@dataclass(frozen=True)
class PointCloud:
    """Points to start from: `xyz` [N, 3] float32, `rgb` [N, 3] uint8."""

    xyz: Array
    rgb: Array


@dataclass(frozen=True)
class RegisteredImage:
    """One image as a reconstruction states it: nominal camera, pose (world to camera, 4x4, y down, z forward).

    The file is `path`, below the scene's root; smaller copies lie in its first folder's `_2`, `_4`, `_8`, if it has one.
    `name` is unique in the scene: COLMAP's own, and the path below the scene's root that a transforms file states, for
    train/r_0.png and test/r_0.png are two images. `held_out` is None if the layout has no split.
    """

    name: str
    path: PurePosixPath
    camera: Camera
    world_to_camera: Array
    mask: Optional[Path]
    held_out: Optional[bool] = None


@dataclass(frozen=True)
class Reconstruction:
    """What a reader of one layout found; `points` is None where the layout has none."""

    layout: str
    images: Tuple[RegisteredImage, ...]
    points: Optional[PointCloud]
    notes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """One image, ready to train on.

    `camera` is the pinhole to render with. `source` is the camera of the file's pixels after resizing to its size;
    the two differ only where its lens has to be removed. `name` is the image's identity, folder included.
    """

    name: str
    image_path: Path
    camera: Camera
    source: Camera
    world_to_camera: Array
    mask_path: Optional[Path]

    @property
    def position(self) -> Array:
        """The camera's centre in the world, [3]."""
        return np.asarray(-self.world_to_camera[:3, :3].T @ self.world_to_camera[:3, 3])


@dataclass(frozen=True)
class Scene:
    """A loaded scene. `notes` lists what was left out (missing images, bad points)."""

    name: str
    layout: str
    train: Tuple[View, ...]
    test: Tuple[View, ...]
    points: PointCloud
    notes: Tuple[str, ...] = ()

    def fingerprint(self) -> Tuple[str, List[str]]:
        """SHA-256 of what is trained on: the images' bytes, their cameras and poses, the split, and the points; and the names of
        held-out views whose image is, byte for byte, that of a training view."""
        digest = hashlib.sha256()
        files: Dict[Path, bytes] = {}
        for views in (self.train, self.test):
            digest.update(f"{len(views)} views\n".encode())
            for view in views:
                digest.update(f"{view.name} {view.camera} {view.source} {view.source.lens}\n".encode())
                digest.update(np.ascontiguousarray(view.world_to_camera, dtype=np.float64).tobytes())
                for path in filter(None, (view.image_path, view.mask_path)):
                    if path not in files:
                        files[path] = hashlib.sha256(content_of(path)).digest()
                    digest.update(files[path])
        digest.update(np.ascontiguousarray(self.points.xyz).tobytes())
        digest.update(np.ascontiguousarray(self.points.rgb).tobytes())
        trained = {files[view.image_path] for view in self.train}
        repeated = [view.name for view in self.test if files[view.image_path] in trained]
        return digest.hexdigest(), repeated

    @cached_property
    def extent(self) -> float:
        """1.1 times the largest distance of a training camera from their mean (the scale of position steps).

        Cameras that all stand in one place (one image, a panorama) have no such distance, and nothing could ever move:
        the median distance of the points is used instead.
        """
        centers = np.stack([view.position for view in self.train])
        some = self.points.xyz[:: max(1, len(self.points.xyz) // 100_000)]
        reach = float(np.median(np.linalg.norm(some - centers.mean(axis=0), axis=1)))
        spread = spread_of(self.train)
        if spread <= ONE_PLACE * reach:
            spread = reach
        return 1.1 * max(spread, 1e-6)


def spread_of(views: Sequence[View]) -> float:
    """The largest distance of a camera from the mean of all."""
    centers = np.stack([view.position for view in views])
    return float(np.linalg.norm(centers - centers.mean(axis=0), axis=1).max())
