"""Reads a scene's folder: which layout it has, its reconstruction, and the header of every photo."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from splatfix.core.reading import is_folder, is_regular_file
from splatfix.facts.scene import colmap, transforms
from splatfix.facts.scene.model import Model, Photo, Points, Scene, SceneImage, inner_stem
from splatfix.facts.scene.photos import CAMERA_ENDINGS, ENDINGS, leads_out, read_photo

COPIES = (2, 4, 8)
_MODELS = ("sparse/0", "sparse", "colmap/sparse/0", ".")
_PHOTOS = ("images", "input", "photos", ".")
"""Where photos without a reconstruction lie."""
_DEPTH = 3
_READERS = 8


def read_scene(folder: Path) -> Scene:
    """What is true of a folder; where it has a COLMAP model and transforms, the COLMAP model, as Inria's family does."""
    models = tuple(_models(folder))
    if models:
        return _of_colmap(folder, models)
    for name in (transforms.TRAIN, transforms.ONE_FILE):
        if is_regular_file(folder / name):
            return _of_transforms(folder, name)
    for name in _PHOTOS:
        if leads_out(folder, name):
            return Scene(folder, "photos", photos={name: Photo("", 0, outside=True)})
        if paths := list(_image_files(folder, name, deep=name != ".")):
            return Scene(folder, "photos", photos=_headers(folder, paths))
    return Scene(folder, "")


def scenes_below(folder: Path) -> Iterator[Path]:
    """The folder where it has a reconstruction, or else those up to three folders below it that have one; none: itself."""
    if _has_reconstruction(folder):
        yield folder
        return
    inner: list[Path] = []
    for depth in range(1, _DEPTH + 1):
        for path in sorted(folder.glob("/".join("*" * depth))):
            outside = all(not path.is_relative_to(scene) for scene in inner)
            if outside and is_folder(path) and _has_reconstruction(path):
                inner.append(path)
    yield from inner or [folder]


def _has_reconstruction(folder: Path) -> bool:
    if any(is_regular_file(folder / name) for name in (transforms.TRAIN, transforms.ONE_FILE)):
        return True
    return is_folder(folder / "sparse") or next(_models(folder), None) is not None


def _models(folder: Path) -> Iterator[Model]:
    """COLMAP models, in the order in which loaders look for them."""
    numbered = (path.name for path in folder.glob("sparse/*") if path.name.isdigit() and path.name != "0")
    for name in (*_MODELS, *(f"sparse/{number}" for number in sorted(numbered))):
        for suffix in (".bin", ".txt"):
            files = [part for part in colmap.PARTS if is_regular_file(folder / name / f"{part}{suffix}")]
            if "images" in files or "cameras" in files:
                names = tuple(f"{part}{suffix}" for part in files)
                text_images = None
                if suffix == ".bin" and is_regular_file(folder / name / "images.txt"):
                    text_images = _count(folder, name, ".txt")
                yield Model(name, suffix, names, _count(folder, name, suffix), text_images)
                break


def _count(folder: Path, model: str, suffix: str) -> int:
    with suppress(colmap.Damaged, OSError):
        if not leads_out(folder, f"{model}/images{suffix}"):
            return len(colmap.read_images(folder / model, suffix, {}, "", keypoints=0))
    return 0


def _of_colmap(folder: Path, models: tuple[Model, ...]) -> Scene:
    model = models[0]
    where = folder / model.folder
    layout = "colmap-binary" if model.suffix == ".bin" else "colmap-text"
    ply_points = colmap.points_of_ply(where / "points3D.ply")
    scene = Scene(folder, layout, model=model, models=models, ply_points=ply_points)
    for name in model.files:
        path = f"{model.folder}/{name}"
        if leads_out(folder, path):
            damage = f"{path} is, or is behind, a link that leads out of the scene's folder"
            return replace(scene, damage=damage)
    folders = ("images", "images_2", "images_4", "images_8")
    photos = next((name for name in folders if is_folder(folder / name)), "images")
    images: tuple[SceneImage, ...] = ()
    try:
        cameras = colmap.read_cameras(where, model.suffix)
        images = tuple(colmap.read_images(where, model.suffix, cameras, photos))
        scene = replace(scene, images=images, cameras=len(cameras))
        scene = replace(scene, points=colmap.read_points(where, model.suffix))
    except colmap.Damaged as error:
        scene = replace(scene, damage=str(error))
    except OSError as error:
        name = Path(str(error.filename or "")).name or str(error)
        scene = replace(scene, damage=f"{name} is missing or cannot be opened")
    files = list(_image_files(folder, photos))
    if images and not files:
        # the folder that has a photo, where it is not the one in which trainers look
        for other in sorted(path.name for path in folder.iterdir() if is_folder(path)):
            photo = _header(folder, f"{other}/{images[0].name}")
            if photo is not None and photo.format:
                files = list(_image_files(folder, other))
                break
    return _with_photos(scene, files)


def _with_photos(scene: Scene, files: Iterable[str]) -> Scene:
    """A scene with the headers of these files, of its images, of their smaller copies and of their masks."""
    folder, copies = scene.folder, {}
    headers = _headers(folder, [*files, *(image.path for image in scene.images if image.path)])
    for divisor in COPIES:
        if is_folder(folder / f"images_{divisor}"):
            smaller = _headers(folder, _image_files(folder, f"images_{divisor}"))
            copies[divisor] = {inner_stem(path): photo for path, photo in smaller.items() if photo}
    masks = _headers(folder, _image_files(folder, "masks"))
    named_masks = {path.removeprefix("masks/"): photo for path, photo in masks.items() if photo}
    elsewhere = _elsewhere(scene.images, headers)
    return replace(scene, photos=headers, elsewhere=elsewhere, copies=copies, masks=named_masks)


def _elsewhere(images: Sequence[SceneImage], photos: Mapping[str, Photo | None]) -> Mapping[str, str]:
    """Find the photos of images that lie under another name."""
    named = {image.path for image in images if image.path}
    by_name: dict[str, list[str]] = defaultdict(list)
    for path, photo in photos.items():
        if photo is not None and photo.format and path not in named:
            for name in _names(path):
                by_name[name].append(path)
    found = {}
    for path in named:
        if photos.get(path) is None:
            same = next((by_name[name] for name in _names(path) if name in by_name), [])
            if len(same) == 1:
                found[path] = same[0]
    return found


def _names(path: str) -> Sequence[str]:
    """Return the names under which a photo is looked for: without the first folder and the ending, then without any folder."""
    inner = inner_stem(path).lower()
    return tuple(dict.fromkeys((inner, PurePosixPath(inner).name)))


def _of_transforms(folder: Path, name: str) -> Scene:
    layout, test_file = "nerfstudio", True
    if name == transforms.TRAIN:
        layout, test_file = "blender", is_regular_file(folder / transforms.TEST)
    held_out = None if layout == "nerfstudio" else False
    try:
        document = transforms.read_transforms(folder, name)
        images = list(transforms.images_of(document, held_out=held_out, ending=".png"))
        if layout == "blender" and test_file:
            test = transforms.read_transforms(folder, transforms.TEST)
            images += transforms.images_of(test, held_out=True, ending=".png")
    except transforms.NoTransforms as error:
        return Scene(folder, layout, damage=str(error), test_file=test_file)
    cloud = document.get("ply_file_path", "points3d.ply")
    points = None
    if isinstance(cloud, str) and (count := colmap.points_of_ply(folder / cloud)) is not None:
        points = Points(count, (), 0)
    folders = {str(PurePosixPath(image.path).parent) for image in images if image.path}
    files = [path for name in sorted(folders) for path in _image_files(folder, name, deep=False)]
    scene = Scene(
        folder,
        layout,
        images=tuple(images),
        cameras=len({image.camera for image in images}),
        points=points,
        test_file=test_file,
        angle=isinstance(document.get("camera_angle_x"), (int, float)),
        endings=layout == "blender" and all(not PurePosixPath(image.name).suffix for image in images),
    )
    return _with_photos(scene, files)


def _image_files(folder: Path, name: str, *, deep: bool = True) -> Iterator[str]:
    """Files of a folder in the scene's that are photos by their name, sorted by it: their paths below the scene's."""
    if leads_out(folder, name):
        return
    for parent, folders, names in os.walk(folder / name):
        folders.sort()
        if not deep:
            folders.clear()
        for file in sorted(names):
            # ._photo.jpg: what macOS writes beside a file on disks of other systems
            if PurePosixPath(file).suffix.lower() in ENDINGS | CAMERA_ENDINGS and not file.startswith("._"):
                yield Path(parent, file).relative_to(folder).as_posix()


def _headers(folder: Path, names: Iterable[str]) -> Mapping[str, Photo | None]:
    """The photos of a folder, by path below it; read at the same time, for a network's disk answers late."""
    once = list(dict.fromkeys(names))
    with ThreadPoolExecutor(_READERS) as readers:
        return dict(zip(once, readers.map(lambda name: _header(folder, name), once), strict=True))


def _header(folder: Path, name: str) -> Photo | None:
    return Photo("", 0, outside=True) if leads_out(folder, name) else read_photo(folder / name)
