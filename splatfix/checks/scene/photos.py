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


@check("photos-missing")
def photos_missing(scene: Scene, this: Check) -> Iterator[Finding]:
    absent = [image for image in scene.images if image.path and scene.photos.get(image.path) is None]
    names = [image.path for image in absent]
    case, other, first = "", "", None
    for image in absent:
        if image.path in scene.elsewhere:
            first, other = image, scene.elsewhere[image.path]
            break
    folder = other.partition("/")[0]
    if first is not None:
        case = "converted"
        if other.lower() == first.path.lower():
            case = "other-capitals"
        elif other == f"{folder}/{first.name}":
            case = "other-folder"
        elif PurePosixPath(other).suffix.lower() == PurePosixPath(first.name).suffix.lower():
            case = "elsewhere"
    yield from listed(
        this.fail,
        names,
        case,
        total=len(scene.images),
        image=first,
        other=other,
        folder=folder,
        suffix=PurePosixPath(first.name).suffix if first else "",
        fix=fix_command(scene) if len(scene.elsewhere) == len(set(names)) else (),
    )


@check("photos-unreadable")
def photos_unreadable(scene: Scene, this: Check) -> Iterator[Finding]:
    photos = defaultdict[str, list[str]](list)
    for path, photo in scene.present.items():
        if photo.pointer:
            photos["pointers"].append(path)
        if photo.outside:
            photos["outside"].append(path)
        if photo.width * photo.height > MOST_PIXELS:
            photos["large"].append(path)
        if photo.format or photo.pointer or photo.outside:
            continue
        if PurePosixPath(path).suffix.lower() in CAMERA_ENDINGS:
            photos["raw"].append(path)
        else:
            photos["strange"].append(path)
    for case in ("outside", "pointers", "strange", "raw", "large"):
        yield from listed(this.fail, photos[case], case, millions=MOST_PIXELS / 1e6)


@check("photos-truncated")
def photos_truncated(scene: Scene, this: Check) -> Iterator[Finding]:
    present = scene.present.items()
    yield from listed(this.fail, [path for path, photo in present if photo.format and not photo.complete])


@check("photos-other-size")
def photos_other_size(scene: Scene, this: Check) -> Iterator[Finding]:
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
    yield from listed(this.fail, shapes, stated=stated)
    yield from listed(this.warn, scales, stated=stated)


@check("photos-turned")
def photos_turned(scene: Scene, this: Check) -> Iterator[Finding]:
    paths = [path for path, photo in scene.present.items() if photo.orientation in range(2, 9)]
    yield from listed(this.warn, paths, fix=fix_command(scene))


@check("photos-not-rgb")
def photos_not_rgb(scene: Scene, this: Check) -> Iterator[Finding]:
    strange = [f"{path} ({photo.unusual})" for path, photo in scene.present.items() if photo.unusual]
    yield from listed(this.fail, strange, fix=fix_command(scene))


@check("photos-alpha")
def photos_alpha(scene: Scene, this: Check) -> Iterator[Finding]:
    paths = [path for path, photo in scene.present.items() if photo.alpha]
    number, blender = sum(photo.width > 0 for photo in scene.present.values()), scene.layout == "blender"
    if not (blender and len(paths) == number):
        yield from listed(this.warn, paths, "some-of-blender" if blender else "", number=number)


@check("photos-copied")
def photos_copied(scene: Scene, this: Check) -> Iterator[Finding]:
    same: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, photo in scene.present.items():
        if photo.width:
            same[(photo.size_bytes, photo.width, photo.height, photo.ending)].append(path)
    yield from listed(this.warn, [" = ".join(paths[:3]) for paths in same.values() if len(paths) > 1])


@check("photos-mixed")
def photos_mixed(scene: Scene, this: Check) -> Iterator[Finding]:
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    for image, photo in of_images(scene):
        if image.camera is not None and not image.camera.width and photo.width:
            sizes[photo.width, photo.height].append(image.path)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: len(sizes[size]))
        others = [path for size, paths in sizes.items() if size != usual for path in paths]
        yield from listed(this.fail, others, usual=usual)


@check("copies-incomplete")
def copies_incomplete(scene: Scene, this: Check) -> Iterator[Finding]:
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
        yield from listed(this.fail, absent, divisor=divisor, fix=fix_command(scene))
        yield from listed(this.fail, sizes, "other-size", divisor=divisor, fix=fix_command(scene))


@check("masks-incomplete")
def masks_incomplete(scene: Scene, this: Check) -> Iterator[Finding]:
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
    yield from listed(this.warn, absent)
    yield from listed(this.fail, sizes)
