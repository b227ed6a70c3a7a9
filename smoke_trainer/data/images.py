"""Images as tensors: decoded when needed, undistorted, and cached up to a given size."""

from __future__ import annotations

import io
import warnings
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.data.camera import Camera, source_positions
from smoke_trainer.data.files import content_of
from smoke_trainer.data.scene import View
from smoke_trainer.errors import Damage

# Pillow 9.1 moved the filters into an enumeration; the numbers are the same in every version.
BICUBIC = 3  # as the reference implementation resizes its photos
# What cameras and dataset tools write. Pillow knows dozens more; one of them hands the file to another program.
FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "PPM", "TGA", "GIF")


@dataclass(frozen=True)
class GroundTruth:
    """The image of one view: `color` [3, H, W] in 0..1, `alpha` and `mask` [1, H, W] or None."""

    color: Tensor
    alpha: Optional[Tensor] = None
    mask: Optional[Tensor] = None

    def over(self, background: Tensor) -> Tensor:
        """The image [3, H, W] over a background colour [3]."""
        if self.alpha is None:
            return self.color
        return self.color * self.alpha + background[:, None, None] * (1.0 - self.alpha)


@contextmanager
def _image(path: Path) -> Iterator[Image.Image]:
    """An image whose header was read; raises Damage for what is none, in the `with` block as well, and for more pixels than
    Pillow allows (179 million)."""
    try:
        file: Any = content_of(path)
        if isinstance(file, bytes):  # of an empty file; the others are mapped, and can be read from
            file = io.BytesIO(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about half as many
            with Image.open(file, formats=FORMATS) as image:
                yield image
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        fault = "no known format" if isinstance(error, UnidentifiedImageError) else str(error)
        raise Damage(path, f"cannot be read as an image: {fault}") from None


def image_size(path: Path) -> Tuple[int, int]:
    """(width, height), from the file's header only."""
    with _image(path) as image:
        return int(image.width), int(image.height)


def decode(path: Path, size: Tuple[int, int]) -> Tensor:
    """An image file at (width, height), resized where it has another size: uint8 [C, H, W] with C = 3 or 4.

    A JPEG is decoded whole and then resized: what its decoder skips on the way to a smaller size leaves aliases, which
    are then trained on (34 dB from the resized photo at 376 of 1024 pixels).
    """
    with _image(path) as image:
        pixels = image
        if image.mode == "F":
            raise ValueError("its values are floating-point numbers, whose range is unknown")
        if image.mode.startswith("I"):  # gray of 16 bits, which Pillow would clip to white
            pixels = Image.fromarray((np.asarray(image).clip(0, 65535) / 257.0).round().astype(np.uint8))
        has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
        mode = "RGBA" if has_alpha else "RGB"
        if pixels.mode != mode:
            pixels = pixels.convert(mode)
        if pixels.size != size:
            pixels = pixels.resize(size, BICUBIC)
        return torch.from_numpy(np.array(pixels)).permute(2, 0, 1).contiguous()


@lru_cache(maxsize=2)  # a scene of one camera wants one; one camera per image would want gigabytes
def sampling_grid(target: Camera, source: Camera) -> Tensor:
    """For every pixel of a pinhole its position in the distorted image, [1, H, W, 2] in -1..1."""
    rows, columns = np.mgrid[0 : target.height, 0 : target.width]
    pixels = source_positions(rows, columns, target, source)
    scaled = 2.0 * pixels / np.array((source.width, source.height)) - 1.0
    return torch.from_numpy(scaled.astype(np.float32))[None]


class ImageStore:
    """Loads images; keeps the most recently used ones as bytes in host memory."""

    def __init__(self, device: torch.device, capacity_bytes: int = 2 << 30) -> None:
        self.device = device
        self.capacity_bytes = capacity_bytes
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        return sum(planes.numel() for planes in self._kept.values())

    def get(self, view: View) -> GroundTruth:
        """Decode the view's file, or take it from the cache; raises SceneError for a file that is damaged."""
        key = str(view.image_path)
        planes = self._kept.pop(key, None)
        if planes is None:
            planes = load_planes(view)
        self._kept[key] = planes  # as the latest
        while self.held_bytes > self.capacity_bytes:
            self._kept.popitem(last=False)
        values = to_device(planes, self.device).float() / 255.0
        mask, alpha = None, None
        if view.mask_path is not None:
            mask = (values[-1:] > 0.5).float()
            values = values[:-1]
        if len(values) == 4:
            alpha = values[3:]
        return GroundTruth(values[:3], alpha, mask)


def load_planes(view: View) -> Tensor:
    """The pixels of a view's pinhole, and its mask's as one more plane: uint8 [C, H, W]."""
    size = (view.source.width, view.source.height)
    planes = decode(view.image_path, size)
    if view.mask_path is not None:
        # a plane of its image, so that it is undistorted with it
        planes = torch.cat([planes, decode(view.mask_path, size)[:1]])
    if view.source.lens.is_zero:
        return planes
    straight = F.grid_sample(
        planes[None].float(),
        sampling_grid(view.camera, view.source),
        mode="bilinear",
        padding_mode="border",
        align_corners=False,
    )
    return straight[0].round().to(torch.uint8)
