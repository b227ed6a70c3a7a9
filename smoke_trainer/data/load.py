"""Loads a scene from a folder: layout, image size, held-out views, and notes on what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import numpy as np

from smoke_trainer.data.camera import pinhole_for
from smoke_trainer.data.colmap import read_colmap
from smoke_trainer.data.files import is_file
from smoke_trainer.data.find import layout_of, no_scene
from smoke_trainer.data.images import image_size
from smoke_trainer.data.scene import PointCloud, RegisteredImage, Scene, View, spread_of
from smoke_trainer.data.transforms import read_transforms
from smoke_trainer.errors import SceneError, UsageError

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
# Of the sorted names the first of every eight is held out, as all the field's COLMAP readers do.
TEST_EVERY = 8
PREPARED = (8, 4, 2)  # folders images_8, images_4, images_2 beside images: the smallest comes first
# Pixels. Wider images are reduced unless a size is asked for, as in the reference implementation.
WIDEST = 1600
# Side of the cube of random points where cameras stand in one place: any size above what renderers cull as too near.
AROUND_ONE_PLACE = 10.0
LARGEST_FACTOR = 8  # --resolution up to this is a divisor; anything larger is a width in pixels


def find_scene(name_or_path: str) -> Path:
    """A folder, or the name of a bundled sample; a UsageError lists the samples otherwise."""
    for folder in (Path(name_or_path), SAMPLES / name_or_path):
        if folder.is_dir():
            return folder
    samples = sorted(path.name for path in SAMPLES.glob("*") if path.is_dir())
    raise UsageError(
        f"no folder and no sample scene named {name_or_path!r}",
        hint=f"give a folder with a COLMAP, Blender or nerfstudio scene, or one of: {', '.join(samples)}",
    )


def load_scene(name_or_path: str, resolution: int = -1, random_points: int = 100_000, seed: int = 0) -> Scene:
    """Load a scene.

    resolution: -1 takes the smallest prepared copies (images_8 before images_4 ...), images wider than 1600 pixels are
    reduced to that width; 1, 2, 4, 8 divide the stated size; anything larger is a width in pixels.
    """
    root = find_scene(name_or_path)
    try:
        return _load(root, resolution, random_points, seed)
    except OSError as error:  # a file that is not there, no permission, a disk that fails
        raise SceneError(
            f"{error.filename or root} cannot be read: {error.strerror or error}",
            "the scene exists, but not all of it can be read",
            "check the permissions, or copy the scene again",
        ) from None


def _load(root: Path, resolution: int, random_points: int, seed: int) -> Scene:
    layout = layout_of(root)
    if layout is None:
        raise no_scene(root)
    reconstruction = read_colmap(root) if layout == "colmap" else read_transforms(root, layout)
    notes = list(reconstruction.notes)
    # Each image once: the same one under two numbers could both train and be held out. Layouts that state the split keep it.
    once: Dict[Tuple[str, Optional[bool]], RegisteredImage] = {}
    for image in reconstruction.images:
        once.setdefault((image.name, image.held_out), image)
    repeated = len(reconstruction.images) - len(once)
    if repeated:
        notes.append(f"{repeated} image(s) are registered more than once; the first of each counts")
    images = sorted(once.values(), key=lambda image: image.name)
    found = [(image, _files(root, image)) for image in images]
    present = [(image, files) for image, files in found if files]
    missing = [image.name for image, files in found if not files]
    absent = f"{len(missing)} of {len(found)} registered image(s) are not on disk: {', '.join(missing[:5])}"
    if missing:
        notes.append(absent)
    train, test = [], []
    # A split that the layout states itself is kept.
    is_split = all(image.held_out is not None for image, _ in present)
    for index, (image, files) in enumerate(present):
        view = _view(image, files, resolution)
        if image.held_out or (not is_split and index % TEST_EVERY == 0):
            test.append(view)
        else:
            train.append(view)
    if not train or not test:
        raise SceneError(
            f"{root}: usable images are {len(train)} to train on and {len(test)} to hold out; training needs both",
            f"{absent}; copies in folders named images_2, _4 or _8 do too",
            f"run `splatfix scenes check {root}`: it finds images of other names, letters or endings",
        )
    points = reconstruction.points
    count = 0 if points is None else len(points.xyz)
    if points is None or count < 4:  # a Gaussian's size comes from its three nearest neighbours
        notes.append(f"{count} points found: {random_points} random ones are used instead")
        points = _random_points(train, random_points, seed)
    return Scene(root.resolve().name, reconstruction.layout, tuple(train), tuple(test), points, tuple(notes))


def _files(root: Path, image: RegisteredImage) -> List[Path]:
    """The copies of an image that are there, the smallest first."""
    folder, *inside = image.path.parts or ("",)
    copies = [root.joinpath(f"{folder}_{factor}", *inside) for factor in PREPARED if inside]
    return [path for path in (*copies, root / image.path) if is_file(path)]


def _view(image: RegisteredImage, files: List[Path], resolution: int) -> View:
    """Choose the file and the size to train at, and the pinhole that replaces a distorted camera.

    The file is the smallest prepared one that is still large enough, resized to the wanted size.
    """
    smallest_width, _ = image_size(files[0])
    if resolution <= 0:
        target = float(min(WIDEST, smallest_width))
    elif resolution <= LARGEST_FACTOR:
        target = image.camera.width / resolution
    else:
        target = float(resolution)
    for path in files:
        width, height = image_size(path)
        if width >= round(target):
            break
    # Never enlarge: a scene that only has small copies trains at their size.
    scale = min(1.0, target / width)
    width, height = max(1, round(width * scale)), max(1, round(height * scale))
    source = image.camera.resized(width, height)
    return View(image.name, path, pinhole_for(source), source, image.world_to_camera, image.mask)


def _random_points(train: Sequence[View], count: int, seed: int) -> PointCloud:
    """Uniform points in a cube around where the cameras look, half as large as their spread; around them if they have none."""
    rng = np.random.default_rng(seed)
    spread = spread_of(train)
    if spread <= 1e-3:
        spread = AROUND_ONE_PLACE
    # The point nearest to all optical axes in the least-squares sense.
    centers = np.stack([view.position for view in train])
    system, right = 1e-6 * np.eye(3), 1e-6 * centers.mean(axis=0)
    for view in train:
        axis = view.world_to_camera[2, :3]
        across = np.eye(3) - np.outer(axis, axis) / max(float(axis @ axis), 1e-12)
        system = system + across
        right = right + across @ view.position
    xyz = np.linalg.solve(system, right) + rng.uniform(-0.5, 0.5, (count, 3)) * spread
    return PointCloud(xyz.astype(np.float32), rng.integers(0, 256, (count, 3)).astype(np.uint8))
