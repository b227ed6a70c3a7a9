"""Whether the photos are there, whole, of the size that their cameras state, and of a kind that trainers read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from splatfix.checks.model import Finding
from splatfix.checks.scene.model import SceneCheck, check
from splatfix.core.step import fill_in
from splatfix.core.words import counted
from splatfix.facts.scene.model import Photo, Scene, SceneImage
from splatfix.facts.scene.photos import CAMERA_ENDINGS

FIX = fill_in("splatfix", "scenes", "fix", "SCENE", "--out", "COPY")
_ROUNDING = 2.0
"""Pixels by which a copy's side may differ from a whole fraction of the photo's."""


def of_images(scene: Scene) -> Iterator[tuple[SceneImage, Photo]]:
    """The images whose photo is there."""
    for image in scene.images:
        photo = scene.photos.get(image.path)
        if photo is not None:
            yield image, photo


@check("photos-missing", "Every image that is named is there")
def missing(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Trainers end at the first that is not."""
    absent = [image for image in scene.images if image.path and scene.photos.get(image.path) is None]
    if not absent:
        return
    by_lower = {path.lower(): path for path, photo in scene.photos.items() if photo is not None}
    by_name = {PurePosixPath(path).name: path for path, photo in scene.photos.items() if photo is not None}
    remedy = "Copy them there, or remove them from the reconstruction (colmap image_deleter)."
    for image in absent:
        name = PurePosixPath(image.path).name
        if other := by_lower.get(image.path.lower()):
            remedy = f"{other} differs from {image.path} in capital letters only: rename the files."
            break
        if other := by_name.get(name):
            remedy = f"One of that name is {other}: move the files to where the reconstruction names them."
            break
        # a folder that was converted: the same name with another ending
        stem = str(PurePosixPath(image.path).with_suffix("")) + "."
        if other := next((path for path in by_lower.values() if path.startswith(stem)), None):
            remedy = f"{other} has another ending than {image.path}: convert the files back."
            break
    summary = (
        f"Named by the reconstruction and not there: {len(absent)} of {counted(len(scene.images), 'photo')}."
    )
    yield this.fail(summary, remedy, names=[image.path for image in absent])


@check("photos-unreadable", "Every photo is an image file")
def unreadable(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Its first bytes are those of a format that Pillow and OpenCV read."""
    broken = [path for path, photo in scene.photos.items() if photo is not None and not photo.format]
    cameras = [path for path in broken if PurePosixPath(path).suffix.lower() in CAMERA_ENDINGS]
    others = [path for path in broken if path not in cameras]
    if others:
        yield this.fail(
            f"Not images, or with damaged headers: {counted(len(others), 'file')}.",
            "Copy them again from the camera.",
            names=others,
        )
    if cameras:
        yield this.fail(
            f"In a camera's own format, which trainers do not read: {counted(len(cameras), 'photo')}.",
            "Export them as JPEG or PNG before the reconstruction.",
            names=cameras,
        )


@check("photos-truncated", "Every photo is whole")
def truncated(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """The mark that ends a JPEG or PNG is there."""
    cut = [
        path
        for path, photo in scene.photos.items()
        if photo is not None and photo.format and not photo.complete
    ]
    if cut:
        yield this.fail(
            f"Cut off before their end: {counted(len(cut), 'photo')}.",
            "Copy them again from the camera.",
            names=cut,
        )


@check("photos-other-size", "Photos have the size that their cameras state")
def other_size(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Another shape draws every ray wrongly; the same shape at another size is taken by most trainers."""
    shapes, scales = [], []
    for image, photo in of_images(scene):
        camera = image.camera
        if camera is None or not (camera.width and camera.height and photo.width):
            continue
        across, down = photo.width / camera.width, photo.height / camera.height
        tolerance = _ROUNDING / min(photo.width, photo.height)
        if abs(across / down - 1.0) > tolerance:
            shapes.append(f"{image.path}: {photo.width}x{photo.height}, not {camera.width}x{camera.height}")
        elif across != 1.0 and not image.path.startswith("images_"):
            scales.append(f"{image.path}: {photo.width}x{photo.height}, not {camera.width}x{camera.height}")
    if shapes:
        yield this.fail(
            f"Of another shape than their camera states: {counted(len(shapes), 'photo')}.",
            "Use the photos that were reconstructed, neither cropped nor turned.",
            names=shapes,
        )
    if scales:
        yield this.warn(
            f"Smaller or larger than their camera states: {counted(len(scales), 'photo')}.",
            "Put the photos that were reconstructed into images, and smaller copies into images_2, images_4, images_8.",
            FIX,
            names=scales,
        )


@check("photos-turned", "Photos are stored upright")
def turned(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Pillow shows pixels as they are stored; OpenCV and viewers turn them as EXIF says. Poses fit one of the two."""
    paths = [
        path for path, photo in scene.photos.items() if photo is not None and photo.orientation in range(2, 9)
    ]
    if paths:
        yield this.warn(
            f"Stored turned, with a mark of EXIF that some programs obey and others do not: {counted(len(paths), 'photo')}.",
            "Turn the files themselves before the reconstruction.",
            FIX,
            names=paths,
        )


@check("photos-not-rgb", "Photos have three colors of 8 bits")
def not_rgb(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Gray, CMYK and 16 bits."""
    strange = []
    for path, photo in scene.photos.items():
        if photo is None or not photo.width:
            continue
        if photo.format == "jpeg" and photo.channels == 4:
            strange.append(f"{path}: CMYK")
        elif photo.channels in (1, 2):
            strange.append(f"{path}: gray")
        elif photo.bits > 8:
            strange.append(f"{path}: {photo.bits} bits")
    if strange:
        yield this.fail(
            f"Not RGB of 8 bits, on which trainers end, or which they read as white: {counted(len(strange), 'photo')}.",
            "Convert them to RGB of 8 bits.",
            names=strange,
        )


@check("photos-alpha", "No photo is partly transparent, or all of a Blender scene are")
def alpha(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Inria's family multiplies the drawn picture with alpha; others drop it."""
    paths = [path for path, photo in scene.photos.items() if photo is not None and photo.alpha]
    there = [photo for photo in scene.photos.values() if photo is not None and photo.width]
    if not paths:
        return
    if scene.layout == "blender" and len(paths) == len(there):
        return
    if scene.layout == "blender":
        yield this.warn(
            f"{len(paths)} of {len(there)} images have an alpha channel and the others none: they get another background.",
            "Export all of them alike.",
            names=paths,
        )
    else:
        yield this.warn(
            f"With an alpha channel, by which Inria's family masks and which others drop: {counted(len(paths), 'photo')}.",
            "Save them without, unless they are meant to be masks.",
            names=paths,
        )


@check("photos-copied", "No photo is there twice")
def copied(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Under two names it counts twice, and may be trained on and held out."""
    same: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, photo in scene.photos.items():
        if photo is not None and photo.width:
            same[(photo.size_bytes, photo.width, photo.height, photo.ending)].append(path)
    groups = [paths for paths in same.values() if len(paths) > 1]
    if groups:
        yield this.warn(
            f"There under more than one name: {counted(len(groups), 'photo')}.",
            "Remove the copies, and reconstruct again.",
            names=[" = ".join(paths[:3]) for paths in groups],
        )


@check("photos-mixed", "Photos of one camera have one size")
def mixed(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """A layout whose camera states no size takes that of the files."""
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    for image, photo in of_images(scene):
        if image.camera is not None and not image.camera.width and photo.width:
            sizes[photo.width, photo.height].append(image.path)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: len(sizes[size]))
        others = [path for size, paths in sizes.items() if size != usual for path in paths]
        yield this.fail(
            f"Of another size than the others' {usual[0]}x{usual[1]}: {counted(len(others), 'image')}.",
            "Export all of them at one size.",
            names=others,
        )


@check("copies-incomplete", "Smaller copies are those of all photos")
def copies(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """``images_2``, ``images_4`` and ``images_8`` have every photo, at that fraction of its size."""
    for divisor, prepared in scene.copies.items():
        absent, sizes = [], []
        for image in scene.images:
            name = str(PurePosixPath(image.name).with_suffix(""))
            copy = prepared.get(name)
            if copy is None:
                absent.append(image.name)
            elif image.camera is not None and image.camera.width and copy.width:
                wide = abs(copy.width * divisor - image.camera.width) > _ROUNDING * divisor
                high = abs(copy.height * divisor - image.camera.height) > _ROUNDING * divisor
                if wide or high:
                    sizes.append(f"{image.name}: {copy.width}x{copy.height}")
        if absent and scene.images:
            yield this.fail(f"images_{divisor} lacks {counted(len(absent), 'photo')}.", FIX, names=absent)
        if sizes:
            yield this.fail(
                f"In images_{divisor}, and not the photo divided by {divisor}: {counted(len(sizes), 'copy')}.",
                FIX,
                names=sizes,
            )


@check("masks-incomplete", "Masks fit the photos")
def masks(scene: Scene, this: SceneCheck) -> Iterator[Finding]:
    """Where there is a folder of masks every image has one, of its size."""
    if not scene.masks or not scene.images:
        return
    absent, sizes = [], []
    for image, photo in of_images(scene):
        mask = scene.masks.get(image.name) or scene.masks.get(f"{image.name}.png")
        mask = mask or scene.masks.get(str(PurePosixPath(image.name).with_suffix(".png")))
        if mask is None:
            absent.append(image.name)
        elif mask.width and photo.width and (mask.width, mask.height) != (photo.width, photo.height):
            sizes.append(f"{image.name}: {mask.width}x{mask.height}")
    if absent:
        yield this.warn(
            f"Without a mask, while others have one: {counted(len(absent), 'image')}.",
            "Add the masks.",
            names=absent,
        )
    if sizes:
        yield this.fail(
            f"Not as large as their photo: {counted(len(sizes), 'mask')}.",
            "Export them again.",
            names=sizes,
        )
