"""A scene as its files state it. Nothing here judges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

Vector = tuple[float, float, float]
Keypoint = tuple[float, float, int]
"""Column and row in pixels, and the number of its point."""
FARTHEST = 1e15
"""Units or pixels: no number of a scene is larger, and the square of a larger one would be no float32."""
MOST_SIDE = 1 << 20
"""Pixels of an image's side that a camera may state."""
MOST_PIXELS = 178_956_970
"""Of a photo: of more Pillow says that it is a bomb, and refuses it (twice its MAX_IMAGE_PIXELS)."""
PILLOW_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")
"""In which photos are opened, by Pillow's names. It knows dozens more; one of them hands the file to Ghostscript."""
ROUNDING = 2.0
"""Pixels by which a side of a smaller copy may differ from a whole fraction of the photo's."""
Rotation = tuple[Vector, Vector, Vector]
"""Rows; from the world's axes to the camera's (x right, y down, z forward)."""


def bounded(value: float) -> float:
    """Return the number, or nan for one that no scene has, with which nothing could be computed."""
    return value if abs(value) < FARTHEST else math.nan


def inner_stem(path: str) -> str:
    """Return a photo's path without its first folder (images, images_2) and its ending: what it shares with its copies."""
    inner = PurePosixPath(path.partition("/")[2] or path)
    return str(inner.parent / inner.stem)


class Camera(Struct, frozen=True):
    """The camera of one or more images, in pixels."""

    model: str
    """COLMAP's name of it; ``""`` where a layout states nothing but an angle of view."""
    width: int
    height: int
    """0 where they are not stated, or are no image's."""
    parameters: tuple[float, ...]
    """In COLMAP's order: of its first models the focal length or lengths, then the principal point."""

    @classmethod
    def stated(cls, model: str, width: int, height: int, parameters: tuple[float, ...]) -> Camera:
        """Make a camera of a file that somebody else wrote."""
        width, height = (side if 0 < side <= MOST_SIDE else 0 for side in (width, height))
        return cls(model, width, height, tuple(map(bounded, parameters)))

    @property
    def focal_lengths(self) -> tuple[float, float] | None:
        """Along x and y; None where there are none."""
        if not self.parameters:
            return None
        return self.parameters[0], self.parameters[self.model in TWO_FOCAL_LENGTHS]

    @property
    def center(self) -> tuple[float, float] | None:
        """The principal point; None where there is none."""
        center = self.parameters[1 + (self.model in TWO_FOCAL_LENGTHS) :][:2]
        return (center[0], center[1]) if len(center) == 2 else None

    def project(self, point: Vector) -> tuple[float, float] | None:
        """Column and row of a point in the camera's axes, without distortion; None behind the camera."""
        x, y, depth = point
        focal, center = self.focal_lengths, self.center
        if depth <= 0 or focal is None or center is None:
            return None
        return focal[0] * x / depth + center[0], focal[1] * y / depth + center[1]

    def shows(self, pixel: tuple[float, float], margin: float = 0.0) -> bool:
        """Whether a column and row lie in its image, or no further from it than a share of its width."""
        beyond = margin * self.width
        return -beyond <= pixel[0] <= self.width + beyond and -beyond <= pixel[1] <= self.height + beyond

    def has_shape(self, width: int, height: int) -> bool:
        """Tell whether an image of that size is as wide for its height as it states, give or take what rounding does."""
        if not (self.width and self.height and width and height):
            return False
        across, down = width / self.width, height / self.height
        return abs(across / down - 1.0) <= ROUNDING / min(width, height)


TWO_FOCAL_LENGTHS = {"PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV", "THIN_PRISM_FISHEYE"}


class Pose(Struct, frozen=True):
    """Where a camera stands: ``rotation`` and ``translation`` take a point of the world into the camera's axes."""

    rotation: Rotation
    translation: Vector

    @property
    def position(self) -> Vector:
        x, y, z = (
            -sum(self.rotation[row][column] * self.translation[row] for row in range(3))
            for column in range(3)
        )
        return x, y, z

    def seen_from(self, point: Vector) -> Vector:
        """A point of the world in the camera's axes; the third number is its depth."""
        # called for every point and view: without loops it takes a fifth
        (a, b, c), (d, e, f), (g, h, i) = self.rotation
        (x, y, z), (right, down, ahead) = point, self.translation
        return a * x + b * y + c * z + right, d * x + e * y + f * z + down, g * x + h * y + i * z + ahead


class SceneImage(Struct, frozen=True):
    """One image of a reconstruction."""

    name: str
    """As the reconstruction has it."""
    path: str
    """Below the scene's folder, with slashes: where the field's loaders look for it."""
    camera: Camera | None
    """None: the reconstruction does not have the camera that it refers to."""
    pose: Pose | None
    """None: its numbers are no rotation and position."""
    held_out: bool | None = None
    """Whether the layout itself keeps it for testing; None where the layout has no split."""
    keypoints: tuple[Keypoint, ...] = ()
    """Some of those that have a point."""


class Photo(Struct, frozen=True):
    """What the header of an image file says."""

    format: str
    """jpeg, png, or another format by its first bytes; "" where they are no image's that is known here."""
    size_bytes: int
    width: int = 0
    height: int = 0
    """0: a format whose size is not read here."""
    channels: int = 0
    bits: int = 8
    alpha: bool = False
    orientation: int = 1
    """Of EXIF: 1 is upright, 3 upside down, 6 and 8 a quarter turn."""
    complete: bool = True
    """The file has the mark that ends its format."""
    ending: bytes = b""
    """Its last bytes, by which copies of one file are told."""
    pointer: bool = False
    """It is a pointer of Git LFS, and the photo was not downloaded."""
    outside: bool = False
    """Its name or a link leads out of the scene's folder; nothing of it was read."""

    @property
    def unusual(self) -> str:
        """What keeps it from being 8-bit RGB, as far as its header says; "" for nothing."""
        if self.format == "jpeg" and self.channels == 4:
            return "CMYK"
        if self.channels in (1, 2):
            return "gray"
        return f"{self.bits} bits" if self.bits > 8 else ""


class Model(Struct, frozen=True):
    """The files of one COLMAP model."""

    folder: str
    """Below the scene's folder."""
    suffix: str
    """``.bin`` or ``.txt``: the one that loaders prefer."""
    files: tuple[str, ...]
    images: int
    """0 where it cannot be read."""
    text_images: int | None = None
    """Of ``images.txt`` where that lies beside ``images.bin``."""


class Points(Struct, frozen=True):
    """The points to start from."""

    count: int
    sample: tuple[Vector, ...]
    """The first of them, at most :data:`splatfix.facts.scene.colmap.SAMPLED`."""
    colours: int
    """Different colours in the sample."""
    numbers: tuple[int, ...] = ()
    """By which keypoints refer to those of the sample."""


class Scene(Struct, frozen=True):
    """A scene's folder."""

    folder: Path
    layout: str
    """colmap-binary, colmap-text, blender (train and test files), nerfstudio (one file), photos, or "" for none of these."""
    damage: str = ""
    """Why the reconstruction cannot be read, without a full stop."""
    model: Model | None = None
    """The COLMAP model that was read."""
    models: tuple[Model, ...] = ()
    """All that lie there, ``model`` among them."""
    images: tuple[SceneImage, ...] = ()
    cameras: int = 0
    points: Points | None = None
    """None where the layout has none."""
    ply_points: int | None = None
    """Of the ``points3D.ply`` beside a COLMAP model, which Inria's family prefers."""
    photos: Mapping[str, Photo | None] = field(default_factory=dict)
    """By path: of all image files, and None for those that are named and not there."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """By the path of an image without a photo: the one photo that has its name in another folder, in other letters (capital or
    not), or with another ending."""
    copies: Mapping[int, Mapping[str, Photo]] = field(default_factory=dict)
    """Of ``images_2``, ``images_4``, ``images_8``: by divisor, then by name without its ending."""
    masks: Mapping[str, Photo] = field(default_factory=dict)
    """Of the folder ``masks``, by name."""
    test_file: bool = True
    """Of a Blender scene: there is a ``transforms_test.json``."""
    angle: bool = True
    """Of a Blender scene: ``camera_angle_x`` is stated."""
    endings: bool = True
    """Of a Blender scene: its paths have no ending, so that loaders add ``.png``."""
    host_memory: int | None = None
    """In bytes, of the machine that is to load it; None: not known."""

    @property
    def present(self) -> Mapping[str, Photo]:
        """The photos that are there."""
        return {path: photo for path, photo in self.photos.items() if photo is not None}
