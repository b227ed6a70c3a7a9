"""Whether the photos are there, whole, of the size that their cameras state, and of a kind that trainers read."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check, fix_command, listed
from splatfix.facts.scene.model import MOST_PIXELS, ROUNDING, Photo, Scene, SceneImage, inner_stem
from splatfix.facts.scene.photos import CAMERA_ENDINGS
from splatfix.model import Finding


def of_images(scene: Scene) -> Iterator[tuple[SceneImage, Photo]]:
    """Yield the images whose photo is there."""
    for image in scene.images:
        photo = scene.photos.get(image.path)
        if photo is not None:
            yield image, photo


@check("photos-missing", "Every image that is named is there")
def missing(scene: Scene, this: Check) -> Iterator[Finding]:
    """Trainers end at the first that is not."""
    absent = [image for image in scene.images if image.path and scene.photos.get(image.path) is None]
    if not absent:
        return
    names = [image.path for image in absent]
    remedy = "Copy the missing photos there, or remove them from the reconstruction (colmap image_deleter)."
    for image in absent:
        other = scene.elsewhere.get(image.path)
        if other is None:
            continue
        folder = other.partition("/")[0]
        if other.lower() == image.path.lower():
            remedy = f"Rename {other} to {image.path}: capital letters count."
        elif other == f"{folder}/{image.name}":
            remedy = f"The photos are in {folder}: rename it to images."
        elif PurePosixPath(other).suffix.lower() == PurePosixPath(image.name).suffix.lower():
            remedy = f"Move {other} to where the model names it ({image.name}), or reconstruct with --image_path images."
        else:
            remedy = f"Convert {other} back to {PurePosixPath(image.name).suffix}, as the model names it ({image.name})."
        break
    fixable = (fix_command(scene),) if len(scene.elsewhere) == len(set(names)) else ()
    summary = f"Photos missing, of {len(scene.images)} that are named"
    yield from listed(this.fail, names, summary, (remedy, *fixable))


@check("photos-unreadable", "Every photo is an image file")
def unreadable(scene: Scene, this: Check) -> Iterator[Finding]:
    """Its first bytes are those of a format that Pillow and OpenCV read."""
    present = scene.present
    pointers = [path for path, photo in present.items() if photo.pointer]
    outside = [path for path, photo in present.items() if photo.outside]
    broken = [path for path, photo in present.items() if not (photo.format or photo.pointer or photo.outside)]
    cameras = [path for path in broken if PurePosixPath(path).suffix.lower() in CAMERA_ENDINGS]
    others = [path for path in broken if path not in cameras]
    large = [path for path, photo in present.items() if photo.width * photo.height > MOST_PIXELS]
    yield from listed(
        this.fail,
        outside,
        "Photos outside of the scene's folder, by an absolute name, one with .., or a link that leads out (who gets the scene "
        "has other files there, or none)",
        "Name photos by paths below the scene's folder, and put the files there (cp -rL copies what links lead to).",
    )
    lfs = "Photos that were not downloaded, with only a Git LFS pointer in their place"
    yield from listed(this.fail, pointers, lfs, "Download with git lfs pull.")
    again = "Copy the originals from the camera again."
    yield from listed(this.fail, others, "Files that cannot be read as an image", again)
    raw = "Photos in a raw or HEIF format, which trainers do not read"
    yield from listed(this.fail, cameras, raw, "Convert them to JPEG or PNG, and reconstruct again.")
    millions = f"{MOST_PIXELS / 1e6:.0f} million pixels"
    bombs = f"Photos of more than {millions}, which the trainers' Pillow refuses as a decompression bomb"
    yield from listed(this.fail, large, bombs, "Scale them down, and reconstruct again.")


@check("photos-truncated", "Every photo is whole")
def truncated(scene: Scene, this: Check) -> Iterator[Finding]:
    """The mark that ends a JPEG or PNG is there."""
    cut = [path for path, photo in scene.present.items() if photo.format and not photo.complete]
    yield from listed(this.fail, cut, "Truncated photos", "Copy the originals from the camera again.")


@check("photos-other-size", "Photos have the size that their cameras state")
def other_size(scene: Scene, this: Check) -> Iterator[Finding]:
    """Another shape draws every ray wrongly; the same shape at another size is taken by most trainers."""
    shapes, scales, stated = [], [], ""
    for image, photo in of_images(scene):
        camera = image.camera
        if camera is None or not (camera.width and camera.height and photo.width):
            continue
        if not camera.has_shape(photo.width, photo.height):
            shapes.append(f"{image.path} ({photo.width}x{photo.height})")
        elif photo.width != camera.width and not image.path.startswith("images_"):
            scales.append(f"{image.path} ({photo.width}x{photo.height})")
        else:
            continue
        stated = f"{camera.width}x{camera.height}"
    yield from listed(
        this.fail,
        shapes,
        f"Photos of another aspect ratio than their camera ({stated})",
        "Use the photos that were reconstructed, neither cropped nor rotated.",
    )
    yield from listed(
        this.warn,
        scales,
        f"Photos of another size than their camera ({stated})",
        "Put the photos that were reconstructed into images, and smaller copies into images_2, images_4 and images_8.",
    )


@check("photos-turned", "Photos are stored upright")
def turned(scene: Scene, this: Check) -> Iterator[Finding]:
    """Pillow shows pixels as they are stored; OpenCV and viewers turn them as EXIF says. Poses fit one of the two."""
    paths = [path for path, photo in scene.present.items() if photo.orientation in range(2, 9)]
    summary = "Photos with an EXIF orientation, which some programs apply and others ignore"
    yield from listed(this.warn, paths, summary, fix_command(scene))


@check("photos-not-rgb", "Photos have three colors of 8 bits")
def not_rgb(scene: Scene, this: Check) -> Iterator[Finding]:
    """Gray, CMYK and 16 bits."""
    strange = [f"{path} ({photo.unusual})" for path, photo in scene.present.items() if photo.unusual]
    summary = "Photos that are not 8-bit RGB, on which trainers fail or read wrong colors"
    yield from listed(this.fail, strange, summary, fix_command(scene))


@check("photos-alpha", "No photo is partly transparent, or all of a Blender scene are")
def alpha(scene: Scene, this: Check) -> Iterator[Finding]:
    """Inria's family multiplies the drawn picture with alpha; others drop it."""
    paths = [path for path, photo in scene.present.items() if photo.alpha]
    number = sum(photo.width > 0 for photo in scene.present.values())
    summary = "Photos with an alpha channel, a mask for Inria's family and ignored by others"
    remedy = "Save them without alpha, unless it is meant as a mask."
    if scene.layout == "blender":
        if len(paths) == number:
            return
        summary = f"Images of {number} with an alpha channel, which the others do not have"
        remedy = "Export all of them with alpha, or none."
    yield from listed(this.warn, paths, summary, remedy)


@check("photos-copied", "No photo is there twice")
def copied(scene: Scene, this: Check) -> Iterator[Finding]:
    """Under two names it counts twice, and may be trained on and held out."""
    same: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, photo in scene.present.items():
        if photo.width:
            same[(photo.size_bytes, photo.width, photo.height, photo.ending)].append(path)
    twice = [" = ".join(paths[:3]) for paths in same.values() if len(paths) > 1]
    remedy = "Remove the duplicates, and reconstruct again."
    yield from listed(this.warn, twice, "Photos that are there under several names", remedy)


@check("photos-mixed", "Photos of one camera have one size")
def mixed(scene: Scene, this: Check) -> Iterator[Finding]:
    """A layout whose camera states no size takes that of the files."""
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    for image, photo in of_images(scene):
        if image.camera is not None and not image.camera.width and photo.width:
            sizes[photo.width, photo.height].append(image.path)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: len(sizes[size]))
        others = [path for size, paths in sizes.items() if size != usual for path in paths]
        summary = f"Images of another size than the {usual[0]}x{usual[1]} of most"
        yield from listed(this.fail, others, summary, "Export all of them at one size.")


@check("copies-incomplete", "Smaller copies are those of all photos")
def copies(scene: Scene, this: Check) -> Iterator[Finding]:
    """``images_2``, ``images_4`` and ``images_8`` have every photo, at that fraction of its size."""
    for divisor, prepared in scene.copies.items():
        absent, sizes = [], []
        for image in scene.images:
            copy = prepared.get(inner_stem(image.path))
            if copy is None:
                absent.append(image.name)
            elif image.camera is not None and image.camera.width and copy.width:
                wide = abs(copy.width * divisor - image.camera.width) > ROUNDING * divisor
                high = abs(copy.height * divisor - image.camera.height) > ROUNDING * divisor
                if wide or high:
                    sizes.append(f"{image.name} ({copy.width}x{copy.height})")
        remedy = fix_command(scene)
        yield from listed(this.fail, absent, f"Photos without a copy in images_{divisor}", remedy)
        yield from listed(this.fail, sizes, f"Copies in images_{divisor} not 1/{divisor} of the size", remedy)


@check("masks-incomplete", "Masks fit the photos")
def masks(scene: Scene, this: Check) -> Iterator[Finding]:
    """Where there is a folder of masks every image has one, of its size."""
    if not scene.masks:
        return
    absent, sizes = [], []
    for image, photo in of_images(scene):
        name = image.path.partition("/")[2]
        mask = scene.masks.get(name) or scene.masks.get(f"{name}.png")
        mask = mask or scene.masks.get(f"{inner_stem(image.path)}.png")
        if mask is None:
            absent.append(image.name)
        elif mask.width and photo.width and (mask.width, mask.height) != (photo.width, photo.height):
            sizes.append(f"{image.name} ({mask.width}x{mask.height})")
    yield from listed(
        this.warn, absent, "Images without a mask, while others have one", "Add the missing masks."
    )
    remedy = "Export the masks at the size of the photos."
    yield from listed(this.fail, sizes, "Masks of another size than their photo", remedy)
