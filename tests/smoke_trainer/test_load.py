"""From folder to scene: layout, split, sizes, missing and damaged files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoke_trainer.data.load import SAMPLES, find_scene, load_scene
from smoke_trainer.errors import SceneError, UsageError
from smoke_trainer.train import train
from splatfix.certify.scenes import find_samples
from tests.hostile.scenes import load_damaged
from tests.smoke_trainer.tiny import LAYOUTS, poses_of


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_loads_with_every_eighth_held_out(layout, scene_folder):
    scene = load_scene(str(scene_folder(layout)))
    assert scene.layout == layout
    below = "" if layout.startswith("colmap") else "images/"
    assert [view.name for view in scene.test] == [f"{below}view_000.png", f"{below}view_008.png"]
    assert len(scene.train) == 8
    assert len(scene.points.xyz) > 100
    for view in scene.train + scene.test:
        pose = poses_of(layout)[int(Path(view.name).stem[5:8])]
        assert np.abs(view.world_to_camera - pose).max() < 1e-6


def test_prepared_copies_come_before_full_size(scene_folder):
    folder = scene_folder("colmap-binary")
    (folder / "images").mkdir()
    for path in (folder / "images_8").iterdir():
        Image.new("RGB", (384, 288)).save(folder / "images" / path.name)
    view = load_scene(str(folder)).train[0]
    assert view.image_path.parent.name == "images_8"
    assert (view.camera.width, view.camera.height, view.camera.cx, view.camera.cy) == (48, 36, 25.0, 17.0)
    full = load_scene(str(folder), resolution=1).train[0]
    assert full.image_path.parent.name == "images" and full.camera.width == 384
    assert full.camera.cx == pytest.approx(8 * view.camera.cx)
    # Half the size: the small copies would have to be enlarged, so the full ones are averaged down.
    half = load_scene(str(folder), resolution=2).train[0]
    assert half.image_path.parent.name == "images" and half.camera.width == 192
    narrow = load_scene(str(folder), resolution=24).train[0]
    assert narrow.image_path.parent.name == "images_8"
    assert (narrow.camera.width, narrow.camera.height) == (24, 18)
    assert load_scene(str(folder), resolution=4000).train[0].camera.width == 384  # nothing is enlarged


def test_wide_images_are_reduced_to_1600_pixels_by_default(scene_folder):
    folder = scene_folder("colmap-text")
    first, *others = (folder / "images").iterdir()
    Image.new("L", (3200, 2400)).save(first)
    for path in others:
        path.write_bytes(first.read_bytes())
    view = load_scene(str(folder)).train[0]
    assert (view.camera.width, view.camera.height) == (1600, 1200)
    assert view.camera.cx == pytest.approx(25.0 * 1600 / 48)
    assert load_scene(str(folder), resolution=3000).train[0].camera.width == 3000


def test_missing_images_are_named(scene_folder):
    folder = scene_folder("colmap-binary")
    (folder / "images_8" / "view_002.png").unlink()
    scene = load_scene(str(folder))
    assert len(scene.train) + len(scene.test) == 9
    assert scene.notes == ("1 of 10 registered image(s) are not on disk: view_002.png",)


def test_without_any_image_the_error_says_what_is_needed(scene_folder):
    folder = scene_folder("colmap-binary")
    for path in (folder / "images_8").iterdir():
        path.unlink()
    with pytest.raises(SceneError, match="usable images are 0"):
        load_scene(str(folder))


@pytest.mark.parametrize("below", ["images", "input", ""])
def test_photos_without_poses_are_told(below, tmp_path):
    (tmp_path / below).mkdir(exist_ok=True)
    Image.new("RGB", (8, 8)).save(tmp_path / below / "a.JPG")
    with pytest.raises(SceneError, match=r"holds photos \(1\)") as caught:
        load_scene(str(tmp_path))
    assert f"splatfix scenes check {tmp_path}" in caught.value.hint


def test_masks_beside_colmap_images_are_found(scene_folder):
    folder = scene_folder("colmap-text")
    (folder / "masks").mkdir()
    Image.new("L", (48, 36), 255).save(folder / "masks" / "view_001.png.png")
    Image.new("L", (48, 36), 255).save(folder / "masks" / "view_003.png")
    masked = [view.name for view in load_scene(str(folder)).train if view.mask_path is not None]
    assert masked == ["view_001.png", "view_003.png"]


def test_without_points_training_starts_from_seeded_random_ones(scene_folder):
    folder = scene_folder("blender")
    (folder / "points3d.ply").unlink()
    scene = load_scene(str(folder), random_points=321, seed=5)
    assert scene.points.xyz.shape == (321, 3)
    assert "random" in str(scene.notes)
    assert (load_scene(str(folder), random_points=321, seed=5).points.xyz == scene.points.xyz).all()
    # They surround what the cameras look at (the figure stands at the origin).
    assert np.linalg.norm(scene.points.xyz.mean(axis=0)) < 0.5


def test_an_image_registered_twice_is_one_view(scene_folder):
    """Sorted side by side, one copy would be held out while the other trains."""
    folder = scene_folder("colmap-text")
    path = folder / "sparse" / "0" / "images.txt"
    path.write_text(path.read_text() * 2)
    scene = load_scene(str(folder))
    assert [view.name for view in scene.test] == ["view_000.png", "view_008.png"] and len(scene.train) == 8
    assert scene.notes == ("10 image(s) are registered more than once; the first of each counts",)


def test_one_training_view_has_a_scale_and_visible_points(scene_folder, short_run):
    folder = scene_folder("colmap-text")
    for path in sorted((folder / "images").iterdir())[2:]:  # one to train on, one held out
        path.unlink()
    (folder / "sparse" / "0" / "points3D.txt").write_text("")
    scene = load_scene(str(folder), random_points=5000)
    assert len(scene.train) == 1 and len(scene.points.xyz) == 5000
    distance = np.median(np.linalg.norm(scene.points.xyz - scene.train[0].position, axis=1))
    assert scene.extent == pytest.approx(1.1 * distance, rel=1e-6) and scene.extent > 1
    record = train(short_run(5, scene=str(folder), random_points=2000))
    assert record.status == "ok" and record.gradients["xyz"].min > 0


def test_extent_is_the_cameras_spread(scene_folder):
    scene = load_scene(str(scene_folder("colmap-binary")))
    centers = np.array([view.position for view in scene.train])
    assert scene.extent == pytest.approx(1.1 * np.linalg.norm(centers - centers.mean(axis=0), axis=1).max())


def test_samples_are_found_by_name_and_strangers_refused(tmp_path: Path):
    assert find_scene("courtyard") == SAMPLES / "courtyard"
    with pytest.raises(UsageError, match="nonsuch") as caught:
        find_scene("nonsuch")
    assert "courtyard" in caught.value.hint
    with pytest.raises(SceneError, match="no scene"):
        load_scene(str(tmp_path))


def test_samples_are_small_and_as_indexed():
    assert set(find_samples()) == {path.name for path in SAMPLES.iterdir() if path.is_dir()}
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) <= 8_000_000


@pytest.mark.parametrize("name", ["courtyard", "study", "fruit", "figurine", "trellis", "plaza"])
def test_every_bundled_scene_loads_without_a_note(name):
    scene = load_scene(name)
    assert scene.notes == ()
    assert len(scene.test) == (len(scene.train) + len(scene.test) + 7) // 8
    assert len(scene.points.xyz) >= 1000


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_file_is_read_or_refused(layout, seed, scene_folder):
    load_damaged(scene_folder(layout), seed)
