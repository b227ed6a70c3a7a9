"""COLMAP models: both forms give the written scene back; damage gives one clear error."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoke_trainer.data.colmap import lens_from_parameters, read_colmap
from smoke_trainer.errors import SceneError
from tests.smoke_trainer.tiny import FUZZ, TINY, TRUTH

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


@pytest.mark.parametrize(
    ("model", "numbers"),
    [
        ("PINHOLE", [50, -51, 30, 20]),
        ("PINHOLE", [0, 51, 30, 20]),
        ("SIMPLE_PINHOLE", [0.01, 30, 20]),
        ("SIMPLE_PINHOLE", [50, float("nan"), 20]),
        ("RADIAL", [50, 30, 20]),
    ],
)
def test_numbers_that_make_no_camera_are_refused(model, numbers):
    with pytest.raises(SceneError, match="impossible camera"):
        lens_from_parameters(model, 64, 48, numbers, Path("cameras.txt"))


def test_a_fisheye_is_refused_with_a_way_out():
    with pytest.raises(SceneError, match="OPENCV_FISHEYE") as caught:
        lens_from_parameters("OPENCV_FISHEYE", 64, 48, [1.0] * 8, Path("cameras.bin"))
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
    message = "no COLMAP model" if name == "images" else f"{name}.bin is missing"
    with pytest.raises(SceneError, match=message):
        read_colmap(folder)


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
