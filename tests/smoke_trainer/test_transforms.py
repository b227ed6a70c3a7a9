"""Blender and nerfstudio scenes, sound and damaged."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from smoke_trainer.data.camera import Distortion
from smoke_trainer.data.load import load_scene
from smoke_trainer.data.transforms import read_transforms
from smoke_trainer.errors import SceneError
from smoke_trainer.train import prepare, train
from tests.smoke_trainer.tiny import FUZZ, LENS, TINY


def edit(folder: Path, change: Callable[[dict[str, Any]], object], name: str = "transforms.json") -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))


def test_distortion_and_intrinsics_are_read(scene_folder):
    image = read_transforms(scene_folder("nerfstudio"), "nerfstudio").images[0]
    assert image.camera == replace(TINY, lens=LENS)


def test_a_frame_may_state_its_own_camera(scene_folder):
    folder = scene_folder("nerfstudio")
    edit(folder, lambda d: d["frames"][3].update(fl_x=99.0, k1=0.1, k2=0.02, k3=0.003, p1=0.004, p2=0.005))
    edit(folder, lambda d: d["frames"][5].update(k1=0.0, k2=0.0, p1=0.0, p2=0.0))
    images = read_transforms(folder, "nerfstudio").images
    assert images[3].camera.fx == 99.0 != images[4].camera.fx
    assert images[3].camera.lens == Distortion(0.1, 0.02, 0.004, 0.005, 0.003) != images[4].camera.lens
    assert images[5].camera.lens.is_zero


def test_scaled_axes_of_a_pose_are_brought_back_to_length_one(scene_folder):
    folder = scene_folder("nerfstudio")
    expected = [image.world_to_camera for image in read_transforms(folder, "nerfstudio").images]

    def scale(document):
        for frame in document["frames"]:
            for row in frame["transform_matrix"][:3]:
                row[:3] = [2.5 * value for value in row[:3]]

    edit(folder, scale)
    for image, pose in zip(read_transforms(folder, "nerfstudio").images, expected, strict=True):
        assert image.world_to_camera == pytest.approx(pose, abs=1e-9)


def test_a_mask_that_is_not_there_is_named(scene_folder):
    folder = scene_folder("nerfstudio")
    (folder / "masks").mkdir()
    Image.new("L", (48, 36), 255).save(folder / "masks" / "there.png")
    edit(folder, lambda d: d["frames"][1].update(mask_path="masks/there.png"))
    edit(folder, lambda d: d["frames"][2].update(mask_path="masks/gone.png"))
    scene = load_scene(str(folder))
    assert [view.name for view in scene.train if view.mask_path is not None] == ["images/view_001.png"]
    assert any("masks/gone.png of images/view_002.png is not on disk" in note for note in scene.notes)


def nerf_synthetic(folder: Path) -> Path:
    """The folder as the field's Blender scenes are laid out: train/r_0.png and test/r_0.png are two photos."""
    (folder / "images").rename(folder / "all")
    for split in ("train", "test"):
        (folder / split).mkdir()
        name = f"transforms_{split}.json"
        for index, frame in enumerate(json.loads((folder / name).read_text())["frames"]):
            file = folder / "all" / f"{frame['file_path'].rsplit('/', 1)[1]}.png"
            file.rename(folder / split / f"r_{index}.png")
        edit(
            folder,
            lambda d, split=split: [
                frame.update(file_path=f"./{split}/r_{index}") for index, frame in enumerate(d["frames"])
            ],
            name,
        )
    return folder


def test_views_of_one_name_keep_their_own_camera(scene_folder, short_run):
    """The held-out r_0 stands elsewhere than the r_0 that trained."""
    config = short_run(6, scene=str(nerf_synthetic(scene_folder("blender"))))
    run = prepare(config)
    assert run.scene.notes == ()
    for view in (*run.scene.train, *run.scene.test):
        moved = run.camera(view).world_to_view[3, :3].tolist()
        assert moved == pytest.approx(view.world_to_camera[:3, 3].tolist(), abs=1e-5)
    record = train(config)
    assert record.status == "ok", record
    assert len(record.split.train) == 8 and len(record.split.test) == 2
    assert not set(record.split.train) & set(record.split.test)
    previews = sorted(path.name for path in (config.out / "renders").iterdir())
    assert previews == ["000006_test_r_0.png", "000006_test_r_1.png"]


def test_a_transforms_file_may_state_whole_paths(scene_folder, tmp_path):
    folder = scene_folder("nerfstudio")
    (folder / "images").rename(tmp_path / "elsewhere")

    def move(document):
        for frame in document["frames"]:
            frame["file_path"] = str(tmp_path / "elsewhere" / Path(frame["file_path"]).name)

    edit(folder, move)
    scene = load_scene(str(folder))
    assert len(scene.train) + len(scene.test) == 10 and scene.notes == ()


def test_blender_without_its_test_file_is_an_error(scene_folder):
    folder = scene_folder("blender")
    (folder / "transforms_test.json").unlink()
    with pytest.raises(SceneError, match=r"transforms_test\.json cannot be read"):
        load_scene(str(folder))


USELESS = "no usable pose, size or focal length"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("frames"), "no JSON with a list of frames"),
        (lambda d: d["frames"].append("x"), "no JSON with a list of frames"),
        (lambda d: d["frames"][0].update(transform_matrix=[[1, 2], [3, 4]]), USELESS),
        (lambda d: d["frames"][0].update(transform_matrix=[[0.0] * 4] * 4), USELESS),
        (lambda d: d["frames"][0].update(transform_matrix="no"), USELESS),
        (lambda d: d.update(fl_x=0.0), USELESS),
        (lambda d: d.update(fl_x="wide"), USELESS),
        (lambda d: d.update(w=-3), USELESS),
        (lambda d: d.update(k1=float("nan")), USELESS),
        (lambda d: d.update(camera_model="OPENCV_FISHEYE"), "OPENCV_FISHEYE"),
        (lambda d: d.update(is_fisheye=True), "camera model FISHEYE, which cannot be undistorted"),
        (lambda d: d.update(fl_y=-40.0), USELESS),
        (lambda d: (d.pop("fl_x"), d.update(camera_angle_x=math.pi)), USELESS),
    ],
)
def test_each_kind_of_damage_has_its_sentence(change, words, scene_folder):
    folder = scene_folder("nerfstudio")
    edit(folder, change)
    with pytest.raises(SceneError, match=words):
        read_transforms(folder, "nerfstudio")


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@FUZZ
@given(
    key=st.sampled_from(["w", "h", "fl_x", "fl_y", "cx", "k1", "camera_model", "ply_file_path", "frames"]),
    frame_key=st.sampled_from(["file_path", "transform_matrix", "mask_path", "w", "fl_x"]),
    in_frame=st.booleans(),
    value=VALUES,
)
def test_any_json_value_in_any_place_is_read_or_refused(scene_folder, key, frame_key, in_frame, value):
    folder = scene_folder("nerfstudio")
    if in_frame:
        edit(folder, lambda d: d["frames"][1].update({frame_key: value}))
    else:
        edit(folder, lambda d: d.update({key: value}))
    try:
        load_scene(str(folder))
    except SceneError as error:
        assert str(error)
