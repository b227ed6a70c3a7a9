"""Loads a scene from a folder: layout, image size, held-out views, and notes on what is missing."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Dict, List, Sequence, Tuple

import numpy as np

from smoke_trainer.data.camera import Camera, pinhole_for
from smoke_trainer.data.colmap import read_colmap
from smoke_trainer.data.files import is_file, too_large
from smoke_trainer.data.find import layout_of, no_scene, pictures
from smoke_trainer.data.images import image_size
from smoke_trainer.data.scene import PointCloud, Reconstruction, RegisteredImage, Scene, View, spread_of
from smoke_trainer.data.transforms import read_transforms
from smoke_trainer.errors import SceneError, UsageError

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
# Of the sorted names the first of every eight is held out, as all the field's COLMAP readers do.
TEST_EVERY = 8
PREPARED = (8, 4, 2)  # folders images_8, images_4, images_2 beside images: the smallest comes first
# Pixels. Wider images are reduced unless a size is asked for, as in the reference implementation.
WIDEST = 1600
NEAR = 0.2  # renderers cull what is nearer
# Side of the cube of random points where cameras stand in one place: any size that NEAR does not hide.
AROUND_ONE_PLACE = 10.0
MAX_TRAINED = 32_000_000  # pixels of one image, a gigabyte on its way through the renderer
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
    except (
        OSError
    ) as error:  # a file that is not there, a folder in its place, no permission, a disk that fails
        raise SceneError(
            f"{error.filename or root} cannot be read: {error.strerror or error}",
            "the scene exists, but not all of it can be read",
            "check the permissions, or copy the scene again",
        ) from None


def _load(root: Path, resolution: int, random_points: int, seed: int) -> Scene:
    reconstruction = _read_reconstruction(root)
    notes: List[str] = list(reconstruction.notes)
    images = _deduplicated(reconstruction.images, notes)
    present = sorted(_present(root, images, notes), key=lambda item: item[0].name)
    pinholes: Dict[Camera, Camera] = {}
    views, misshapen, train, test = [], [], [], []
    # A split that the layout states itself is kept.
    is_split = all(image.held_out is not None for image, _ in present)
    for index, (image, files) in enumerate(present):
        view = _view(image, files, resolution, pinholes)
        views.append(view)
        if image.held_out or (not is_split and index % TEST_EVERY == 0):
            test.append(view)
        else:
            train.append(view)
        # Rotated by a viewer, or of another session; rounding of prepared copies is less.
        upright = view.source.width * image.camera.height / image.camera.width
        if abs(view.source.height - upright) > 2.0 + 0.02 * upright:
            misshapen.append(image.name)
    _note(notes, misshapen, "image(s) have another shape than their camera states")
    if not train or not test:
        raise SceneError(
            f"{root}: usable images are {len(train)} to train on and {len(test)} to hold out",
            "training needs both kinds",
            "check that the image folder holds the images that the reconstruction names",
        )
    points = reconstruction.points
    count = 0 if points is None else len(points.xyz)
    if points is None or count < 4:  # a Gaussian's size comes from its three nearest neighbours
        if points is not None or reconstruction.layout != "blender":  # Blender's layout has none
            notes.append(f"{count} points found: {random_points} random ones are used instead")
        points = _random_points(train, random_points, seed)
    # Where some see none, poses and points do not belong together, or the scale is wrong.
    some = points.xyz[:: max(1, len(points.xyz) // 10_000)]
    blind = [view.name for view in views if not (_sees(view, some) or _sees(view, points.xyz))]
    text = f"of {len(views)} views show none of the points, all of which are behind the camera, nearer than {NEAR} or outside"
    _note(notes, blind, f"{text} the image")
    return Scene(root.resolve().name, reconstruction.layout, tuple(train), tuple(test), points, tuple(notes))


Files = Dict[int, Path]  # how many times smaller than the stated size -> the file


def _read_reconstruction(root: Path) -> Reconstruction:
    """Recognise the layout by its files and read it."""
    layout = layout_of(root)
    if layout is None:
        raise no_scene(root)
    if layout == "colmap":
        return read_colmap(root)
    return read_transforms(root, layout)


def _note(notes: List[str], names: Sequence[str], text: str) -> None:
    """Note how many there are of something, and the first five; nothing of none."""
    if names:
        notes.append(f"{len(names)} {text}: {', '.join(names[:5])}")


def _deduplicated(images: Sequence[RegisteredImage], notes: List[str]) -> List[RegisteredImage]:
    """Each image once: the same one under two numbers could both train and be held out. Layouts that state the split keep it."""
    once = {(image.name, image.held_out): image for image in reversed(images)}
    if len(once) < len(images):
        notes.append(
            f"{len(images) - len(once)} image(s) are registered more than once; the first of each counts"
        )
    both = sorted(name for name, held_out in once if held_out and (name, False) in once)
    _note(notes, both, "held-out image(s) are trained on as well, so held-out quality is too good")
    return list(reversed(list(once.values())))


def _present(
    root: Path, images: Sequence[RegisteredImage], notes: List[str]
) -> List[Tuple[RegisteredImage, Files]]:
    """Images that exist in at least one size; the others are named in the notes."""
    present: List[Tuple[RegisteredImage, Files]] = []
    missing: List[str] = []
    for image in images:
        # only a folder of images can have prepared copies beside it
        folders = {factor: f"{image.folder}_{factor}" for factor in PREPARED if image.folder}
        folders[1] = image.folder
        files: Files = {}
        for factor, name in folders.items():
            path = root / name / image.file
            if is_file(path):
                files[factor] = path
        if files:
            present.append((image, files))
        else:
            missing.append(image.name)
    _note(notes, missing, f"of {len(images)} registered image(s) are not on disk")
    if present:
        folder = next(iter(present[0][1].values())).parent
        known = {PurePosixPath(image.file).name for image in images}
        extra = [path.name for path in pictures(folder) if path.name not in known]
        _note(notes, extra, "image(s) on disk are not in the reconstruction")
    elif images:
        expected = root / images[0].folder / images[0].file
        raise SceneError(
            f"0 usable images: {expected} does not exist, nor does any other of the {len(images)} that {root} registers",
            f"prepared copies, of which folders are named {images[0].folder or 'images'}_2, _4 or _8, would do too",
            f"run `splatfix scenes check {root}`: it finds images of other names, letters or endings",
        )
    return present


def _sees(view: View, xyz: np.ndarray) -> bool:
    """Tell whether any of the points [N, 3] lies in the view's image, far enough away to be drawn."""
    camera = view.camera
    x, y, z = (xyz @ view.world_to_camera[:3, :3].T + view.world_to_camera[:3, 3]).T
    far = np.maximum(z, NEAR)
    column, row = camera.fx * x / far + camera.cx, camera.fy * y / far + camera.cy
    inside = (column >= 0) & (column <= camera.width) & (row >= 0) & (row <= camera.height)
    return bool((inside & (z > NEAR)).any())


def _view(image: RegisteredImage, files: Files, resolution: int, pinholes: Dict[Camera, Camera]) -> View:
    """Choose the file and the size to train at, and the pinhole that replaces a distorted camera.

    The file is the smallest prepared one that is still large enough, resized to the wanted size.
    """
    smallest_first = sorted(files, reverse=True)
    smallest_width, _ = image_size(files[smallest_first[0]])
    if resolution <= 0:
        target = float(min(WIDEST, smallest_width))
    elif resolution <= LARGEST_FACTOR:
        target = image.camera.width / resolution
    else:
        target = float(resolution)
    for factor in smallest_first:
        path = files[factor]
        width, height = image_size(path)
        if width >= round(target):
            break
    # Never enlarge: a scene that only has small copies trains at their size.
    scale = min(1.0, target / width)
    width, height = max(1, round(width * scale)), max(1, round(height * scale))
    if width * height > MAX_TRAINED:
        raise too_large(
            path,
            f"{MAX_TRAINED // 1_000_000} million pixels to train on ({width} x {height})",
            f"train on a smaller size, such as --resolution {LARGEST_FACTOR}",
        )
    source = image.camera.resized(width, height)
    if source not in pinholes:
        pinholes[source] = pinhole_for(source)
    return View(image.name, path, pinholes[source], source, image.world_to_camera, image.mask)


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
