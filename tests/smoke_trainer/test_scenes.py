"""The ray tracer, the simulated reconstruction, and the bundled scenes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion
from smoke_trainer.data.load import SAMPLES
from smoke_trainer.scenes import RECIPES, check_scene, make_scene
from smoke_trainer.scenes.__main__ import main
from smoke_trainer.scenes.primitives import Box, Rod, Sphere
from smoke_trainer.scenes.raytrace import World, pixel_rays, render_view
from smoke_trainer.scenes.recipes import look_at
from smoke_trainer.scenes.sfm import MIN_TRACK, project
from smoke_trainer.scenes.write import quaternion

CAMERA = Camera(33, 25, 30.0, 31.0, 15.0, 13.0)
DOWN_Z = np.array([[0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("shape", "origin", "distance", "normal"),
    [
        (Sphere((0.0, 0.0, 5.0), 2.0), (0.0, 0.0, 0.0), 3.0, (0.0, 0.0, -1.0)),
        (Sphere((0.0, 0.0, 5.0), 2.0), (0.0, 0.0, 5.0), 2.0, (0.0, 0.0, 1.0)),
        (Box((0.0, 0.0, 5.0), (1.0, 1.0, 2.0)), (0.2, 0.3, 0.0), 3.0, (0.0, 0.0, -1.0)),
        (Box((0.0, 0.0, 5.0), (1.0, 1.0, 2.0)), (0.2, 0.3, 5.5), 1.5, (0.0, 0.0, 1.0)),
        (Box((0.0, 0.0, 5.0), (1.0, 1.0, 2.0), yaw=np.pi / 2), (0.0, 0.0, 0.0), 4.0, (0.0, 0.0, -1.0)),
        (Rod((0.0, -1.0, 4.0), (0.0, 1.0, 4.0), 0.5), (0.0, 0.0, 0.0), 3.5, (0.0, 0.0, -1.0)),
    ],
)
def test_primitives_are_hit_where_geometry_says(shape, origin, distance, normal):
    t, n = shape.intersect(np.array([origin], dtype=float), DOWN_Z)
    assert t[0] == pytest.approx(distance)
    assert n[0] == pytest.approx(np.array(normal), abs=1e-9)


@pytest.mark.parametrize(
    "shape", [Sphere((0.0, 0.0, 5.0), 1.0), Box((0, 0, 5), (1, 1, 1)), Rod((0, -1, 5), (0, 1, 5), 0.5)]
)
def test_primitives_are_missed_beside_and_behind(shape):
    origins = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    t, _ = shape.intersect(origins, np.repeat(DOWN_Z, 2, axis=0))
    assert np.isinf(t).all()


@pytest.mark.parametrize("lens", [NO_DISTORTION, Distortion(k1=-0.12, k2=0.03, p1=0.002, p2=-0.001)])
def test_rays_and_projection_are_inverse(lens):
    pose = look_at((1.0, -2.0, -3.0), (0.2, 0.1, 0.0))
    rng = np.random.default_rng(0)
    pixels = rng.uniform(0, [33, 25], (50, 2))
    origins, directions = pixel_rays(CAMERA, pose, pixels, lens)
    points = origins + directions * rng.uniform(1.0, 9.0, (50, 1))
    back, depth = project(CAMERA, pose, lens, points)
    assert np.abs(back - pixels).max() < 1e-6
    assert (depth > 0).all()


def test_depth_is_measured_along_the_axis():
    wall = World([Box((0.0, 0.0, 6.0), (50.0, 50.0, 1.0))])
    picture = render_view(wall, CAMERA, np.eye(4), samples=1)
    assert np.allclose(picture.depth, 5.0)
    assert np.allclose(picture.alpha, 1.0)


def test_a_miss_without_sky_has_no_coverage_and_infinite_depth():
    picture = render_view(World([Sphere((0.0, 0.0, 8.0), 1.0)]), CAMERA, np.eye(4), samples=2)
    assert picture.alpha[0, 0] == 0.0 and np.isinf(picture.depth[0, 0])
    assert picture.alpha[13, 15] == 1.0
    assert 0.0 < picture.alpha.min() + picture.alpha.mean() < 1.0


def test_a_shadow_is_darker_than_the_light_beside_it():
    floor, ball = Box((0.0, 1.1, 6.0), (9.0, 0.1, 9.0)), Sphere((0.0, -0.5, 6.0), 0.5)
    lit = render_view(World([floor], sun=(0.0, -1.0, 0.0)), CAMERA, np.eye(4), samples=1)
    shaded = render_view(World([floor, ball], sun=(0.0, -1.0, 0.0)), CAMERA, np.eye(4), samples=1)
    both_floor = (lit.depth == shaded.depth) & np.isfinite(lit.depth)
    darker = both_floor & (shaded.color.mean(axis=2) < 0.8 * lit.color.mean(axis=2))
    assert 0 < darker.sum() < both_floor.sum()


def test_quaternions_give_the_rotation_back():
    for eye in ((1.0, -2.0, -3.0), (0.1, -0.1, 5.0), (-4.0, -1.0, 0.3)):
        rotation = look_at(eye, (0.0, 0.0, 0.0))[:3, :3]
        w, x, y, z = quaternion(rotation)
        again = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        assert np.abs(again - rotation).max() < 1e-9


def test_simulated_points_lie_near_surfaces_and_their_tracks_project_to_them(tiny_scenes):
    tiny = tiny_scenes("colmap-binary")
    camera, points = tiny.recipe.image_camera, tiny.points
    assert 150 < len(points.xyz) <= 300
    errors = []
    for xyz, track in zip(points.xyz, points.tracks, strict=True):
        assert len(track) >= MIN_TRACK
        for view, x, y in track:
            pixel, depth = project(camera, tiny.poses[view], tiny.recipe.distortion, xyz[None])
            errors.append(np.hypot(*(pixel[0] - (x, y))))
            assert depth[0] > 0
    # Keypoints carry 0.4 pixels of noise per axis, so residuals average about half a pixel.
    assert 0.2 < np.mean(errors) < 1.0


def test_bundled_scenes_are_complete_and_small():
    assert {path.name for path in SAMPLES.iterdir() if path.is_dir()} == set(RECIPES)
    total = sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file())
    assert total <= 8_000_000


@pytest.mark.parametrize("name", ["figurine", "plaza"])
def test_a_bundled_scene_is_what_its_recipe_makes(name):
    assert check_scene(name, SAMPLES / name, views=(3,)) == []


def test_check_names_a_tampered_and_a_missing_image(tmp_path: Path):
    folder = tmp_path / "figurine"
    shutil.copytree(SAMPLES / "figurine", folder)
    Image.new("RGBA", (128, 128), (90, 20, 20, 255)).save(folder / "images" / "view_000.png")
    (folder / "images" / "view_005.png").unlink()
    problems = check_scene("figurine", folder)
    assert len(problems) == 2
    assert "view_000.png differs" in problems[0] and "view_005.png is missing" in problems[1]


def test_making_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_scenes):
    monkeypatch.setitem(RECIPES, "tiny", tiny_scenes("nerfstudio").recipe)
    one, two = make_scene("tiny", tmp_path / "a"), make_scene("tiny", tmp_path / "b")
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert len(files) == 12
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes(), file


def test_making_scenes_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from smoke_trainer.scenes.__main__ import main; main(['list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "courtyard" in done.stdout, done.stderr


def test_command_line_lists_and_refuses(capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in RECIPES)
    assert main(["check", "nonsuch"]) == 2
    assert "courtyard" in capsys.readouterr().err


def test_command_line_answers_in_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["scenes"]}
    assert set(rows) == set(RECIPES)
    assert (
        rows["figurine"]["size"] == [128, 128]
        and rows["figurine"]["views"] == 24
        and rows["figurine"]["stored"]
    )
    assert main(["check", "figurine", "--json", "--root", str(tmp_path)]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (
        answer["error"]["code"] == "unreadable-scene" and "scenes make figurine" in answer["error"]["remedy"]
    )


def test_a_folder_that_cannot_be_written_is_an_error_not_a_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_scenes
):
    monkeypatch.setitem(RECIPES, "tiny", tiny_scenes("nerfstudio").recipe)
    (tmp_path / "file").write_text("not a folder")
    assert main(["make", "tiny", "--root", str(tmp_path / "file")]) == 3
    assert "cannot write" in capsys.readouterr().err
