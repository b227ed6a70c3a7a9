"""COLMAP's models: read and damaged; and beside COLMAP's own library (4.x, with rigs and frames) where pycolmap is installed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoke_trainer.data.camera import Distortion, distort_points
from smoke_trainer.data.colmap import camera_from_parameters, read_colmap
from smoke_trainer.data.load import load_scene
from smoke_trainer.errors import SceneError
from tests.smoke_trainer.tiny import FUZZ, SCENES, TINY, TRUTH
from tests.tables import data

SPARSE = Path("sparse") / "0"


@pytest.mark.parametrize("layout", ["colmap-binary", "colmap-text"])
def test_reading_gives_the_written_scene_back(layout, scene_folder):
    result = read_colmap(scene_folder(layout))
    # the photos of the binary model are an eighth of what it states
    camera = TINY if layout == "colmap-text" else TINY.resized(8 * TINY.width, 8 * TINY.height)
    assert result.layout == layout
    assert [image.name for image in result.images] == [f"view_{i:03d}.png" for i in range(10)]
    for image, pose in zip(result.images, TRUTH["poses"], strict=True):
        assert image.camera == camera
        assert np.abs(image.world_to_camera - pose).max() < 1e-8
    assert result.points is not None
    assert np.abs(result.points.xyz - TRUTH["xyz"]).max() < 1e-4
    assert (result.points.rgb == TRUTH["rgb"]).all()
    assert result.notes == ()


def test_a_model_directly_in_sparse_is_found(scene_folder):
    folder = scene_folder("colmap-binary")
    for path in (folder / SPARSE).iterdir():
        path.rename(folder / "sparse" / path.name)
    assert len(read_colmap(folder).images) == 10


@pytest.mark.parametrize(("model", "numbers"), data(__file__)["numbers_that_make_no_camera_are_refused"])
def test_numbers_that_make_no_camera_are_refused(model, numbers):
    with pytest.raises(SceneError, match="impossible camera"):
        camera_from_parameters(model, 64, 48, numbers, Path("cameras.txt"))


def test_a_fisheye_is_refused_with_a_way_out():
    with pytest.raises(SceneError, match="OPENCV_FISHEYE") as caught:
        camera_from_parameters("OPENCV_FISHEYE", 64, 48, [1.0] * 8, Path("cameras.bin"))
    assert "image_undistorter" in caught.value.hint


def test_an_image_with_an_unknown_camera_is_named_and_left_out(scene_folder):
    folder = scene_folder("colmap-text")
    path = folder / SPARSE / "images.txt"
    path.write_text(path.read_text().replace(" 1 view_003.png", " 77 view_003.png"))
    result = read_colmap(folder)
    assert len(result.images) == 9
    assert any("view_003.png" in note and "77" in note for note in result.notes)


@pytest.mark.parametrize("name", ["cameras", "images", "points3D"])
def test_a_missing_file_is_named(name, scene_folder):
    folder = scene_folder("colmap-binary")
    (folder / SPARSE / f"{name}.bin").unlink()
    message = "no COLMAP model" if name == "images" else f"{name}.bin cannot be read"
    with pytest.raises(SceneError, match=message):
        load_scene(str(folder))


@pytest.mark.parametrize("name", ["cameras", "images", "points3D"])
@FUZZ
@given(data=st.data())
def test_every_truncation_of_a_binary_model_is_one_clear_error(name, scene_folder, data):
    folder = scene_folder("colmap-binary")
    path = folder / SPARSE / f"{name}.bin"
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(SceneError, match=name):
        read_colmap(folder)


@pytest.fixture
def pycolmap() -> Any:
    return pytest.importorskip("pycolmap")


@pytest.mark.parametrize("kind", ["binary", "text"])
def test_rigs_and_frames_are_read_as_colmap_reads_them(pycolmap: Any, kind: str) -> None:
    """Two frames of a rig of a pinhole and a lens, written by COLMAP 4: poses are of the rig, and of the sensor in it."""
    model = pycolmap.Reconstruction(str(SCENES / "rigs" / kind / SPARSE))
    result = read_colmap(SCENES / "rigs" / kind)
    assert result.notes == () and result.layout == f"colmap-{kind}"
    ours = {image.name: image for image in result.images}
    assert sorted(ours) == ["left/000.png", "left/001.png", "right/000.png", "right/001.png"]
    for image in model.images.values():
        pose = image.cam_from_world().matrix()
        assert np.abs(ours[image.name].world_to_camera[:3] - pose).max() < 1e-9
    assert ours["right/001.png"].camera.lens == Distortion(k1=0.1, k2=0.01, p1=0.002, p2=-0.003)
    points = sorted(model.points3D.values(), key=lambda point: float(point.xyz[0]))
    assert result.points is not None
    order = np.argsort(result.points.xyz[:, 0])
    assert np.array_equal(result.points.xyz[order], [point.xyz for point in points])
    assert np.array_equal(result.points.rgb[order], [point.color for point in points])


@pytest.mark.parametrize(("model", "params"), data(__file__)["every_lens_bends_as_colmaps_does"])
def test_every_lens_bends_as_colmaps_does(pycolmap: Any, model: str, params: list[float]) -> None:
    theirs = pycolmap.Camera(model=model, width=64, height=48, params=params)
    camera = camera_from_parameters(model, 64, 48, params, Path("cameras.bin"))
    plane = np.random.default_rng(0).uniform(-0.5, 0.5, (200, 2))
    pixels = distort_points(plane, camera.lens) * [camera.fx, camera.fy] + [camera.cx, camera.cy]
    expected = theirs.img_from_cam(np.concatenate([plane, np.ones((200, 1))], axis=1))
    assert np.abs(pixels - expected).max() < 1e-9
