"""Which trainers take a scene, and with which words of their own the others refuse it."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from splatfix.checks.scene.model import Refusal, StackVerdict
from splatfix.checks.scene.photos import of_images
from splatfix.core.step import run
from splatfix.facts.scene.colmap import MODELS
from splatfix.facts.scene.model import Model, Scene, SceneImage
from splatfix.knowledge.scene_readers import SceneReader, scene_readers

_NUMBERS = {name: number for number, (name, _) in MODELS.items()}


def stack_verdicts(scene: Scene) -> tuple[StackVerdict, ...]:
    """Return a verdict for each loader of the table."""
    verdicts = []
    for reader in scene_readers().values():
        refusals = tuple(_refusals(scene, reader))
        verdicts.append(StackVerdict(reader.name, reader.stacks, reader.source_files, refusals))
    return tuple(verdicts)


def _refusal(
    scene: Scene, reader: SceneReader, fault: str, way_out: str = "", option: str = "", **blanks: object
) -> Refusal:
    """Build a refusal in the loader's own words, their blanks filled."""
    says = reader.says.get(fault, "").format_map({"folder": scene.folder, **blanks})
    return Refusal(fault, says, option, way_out)


def _refusals(scene: Scene, reader: SceneReader) -> Iterator[Refusal]:
    refusal = partial(_refusal, scene, reader)
    if scene.layout not in reader.layouts:
        if scene.layout == "colmap-text" and "colmap-binary" in reader.layouts:
            assert scene.model is not None  # a layout of COLMAP's has one
            folder = scene.folder / scene.model.folder
            paths = ("--input_path", folder, "--output_path", folder)
            converter = run("colmap", "model_converter", *paths, "--output_type", "BIN")
            yield refusal("text-model", converter.line())
        else:
            yield refusal("layout")
        return
    if scene.damage:
        yield refusal("damaged")
        return
    if scene.model is not None:
        yield from _of_model(scene, scene.model, reader)
    if scene.layout == "blender":
        if reader.opens_test_file and not scene.test_file:
            yield refusal("test-file", "splatfix scenes fix, which writes a split")
        if reader.needs_angle and not scene.angle:
            yield refusal("angle")
        if reader.adds_png and not scene.endings:
            path = next(image.path for image in scene.images if PurePosixPath(image.name).suffix)
            # the ending that it gets a second time
            values = _photo(scene, f"{path}.png")
            yield refusal("photo-missing", "remove the endings from file_path", **values)
    yield from _of_photos(scene, reader)
    if reader.needs_points and scene.points is None:
        yield refusal("points", "name a point cloud with ply_file_path")


def _of_model(scene: Scene, model: Model, reader: SceneReader) -> Iterator[Refusal]:
    refusal = partial(_refusal, scene, reader)
    if model.folder not in reader.folders:
        option = ""
        if reader.folder_option:
            option = f"{reader.folder_option} {model.folder}"
        yield refusal("model-elsewhere", f"move the model to {reader.folders[0]}", option)
    names = sorted({image.camera.model for image in scene.images if image.camera is not None})
    # COLMAP's command that makes pinhole photos, and a model of them
    photos = next((image.path.partition("/")[0] for image in scene.images), "images")
    inputs = ("--image_path", scene.folder / photos, "--input_path", scene.folder / model.folder)
    command = run("colmap", "image_undistorter", *inputs, "--output_path", f"{scene.folder}-undistorted")
    undistort = f"{command.line()}, then move the model that it writes to sparse/0"
    for name in names:
        if name not in reader.models:
            yield refusal("camera-model", undistort, model=name, number=_NUMBERS.get(name, name))
            break
    if reader.one_model and len(names) > 1:
        yield refusal("several-camera-models", undistort)
    if any(image.camera is None for image in scene.images):
        yield refusal("camera-unknown")
    if reader.copies and reader.copies not in scene.copies:
        yield refusal("copies", "splatfix scenes fix", reader.copies_option)


def _of_photos(scene: Scene, reader: SceneReader) -> Iterator[Refusal]:
    """Name the first photo that the loader does not find, and the first that it cannot read."""
    refusal = partial(_refusal, scene, reader)
    for image in scene.images:
        folder, _, inner = image.path.partition("/")
        if scene.model is not None and folder.startswith("images_"):
            values = _photo(scene, f"images/{inner}", image.name)
            option = ""
            if reader.images_by_divisor:
                option = f"{reader.images_option} {folder.removeprefix('images_')}" + _rounding(scene, image)
            elif reader.images_option:
                option = f"{reader.images_option} {folder}"
            yield refusal("photos-folder", "add the photos in a folder images", option, **values)
            break
        if reader.by_name_alone and scene.model is not None and "/" in inner:
            values = _photo(scene, f"{folder}/{PurePosixPath(inner).name}", image.name)
            way_out = "put all photos into one folder, under names of their own"
            yield refusal("photo-missing", way_out, **values)
            break
        if image.path and scene.photos.get(image.path) is None:
            yield refusal("photo-missing", **_photo(scene, image.path, image.name))
            break
    for image, photo in of_images(scene):
        values = _photo(scene, image.path, image.name)
        if not photo.format:
            yield refusal("photo-unreadable", **values)
            return
        if not photo.complete:
            yield refusal("photo-truncated", **values)
            return
        stated = image.camera and (image.camera.width, image.camera.height)
        size, of_copy = (photo.width, photo.height), image.path.startswith("images_")
        if reader.photos_as_stated and stated and all(stated) and size != stated and not of_copy:
            way_out = "use the photos that were reconstructed"
            yield refusal("photo-size", way_out, width=size[0], height=size[1])
            return


def _rounding(scene: Scene, image: SceneImage) -> str:
    """Say how nerfstudio must round the size of copies to take this one; "" for down, which it does unasked."""
    photo, camera = scene.photos.get(image.path), image.camera
    divisor = image.path.partition("/")[0].removeprefix("images_")
    if photo is None or camera is None or not (photo.width and camera.width and divisor.isdigit()):
        return ""
    modes: Mapping[str, Callable[[float], int]] = {"floor": math.floor, "round": round, "ceil": math.ceil}
    for mode, rounded in modes.items():
        sides = (rounded(side / int(divisor)) for side in (camera.width, camera.height))
        if (photo.width, photo.height) == tuple(sides):
            return "" if mode == "floor" else f" --downscale-rounding-mode {mode}"
    return ""


def _photo(scene: Scene, path: str, name: str = "") -> Mapping[str, Any]:
    return {"path": scene.folder / path, "name": name or PurePosixPath(path).name}
