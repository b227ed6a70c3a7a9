"""The ray tracer, the simulated reconstruction, and the sample scenes that they make."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion, distort_points
from tools.scenes.__main__ import main
from tools.scenes.make import INDEX, SAMPLES, check_scene, index_of, make_scene
from tools.scenes.raytrace import (
    Box,
    Primitive,
    Rod,
    Sphere,
    World,
    pixel_rays,
    render_view,
    undistort_points,
)
from tools.scenes.recipes import RECIPES, Recipe, look_at, orbit
from tools.scenes.sfm import MIN_TRACK, project, reconstruct
from tools.scenes.write import quaternion

CAMERA = Camera(33, 25, 30.0, 31.0, 15.0, 13.0)
DOWN_Z = np.array([[0.0, 0.0, 1.0]])


def tiny(camera: Camera, views: int, **changes: Any) -> Recipe:
    """The fruit in a few small views."""
    return dataclasses.replace(
        RECIPES["fruit"],
        camera=camera,
        poses=lambda: orbit(views, 1.9, 0.9, (0.05, -0.2, 0.0), 160.0, -80.0),
        points=300,
        **changes,
    )


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
def test_primitives_are_hit_where_geometry_says(
    shape: Primitive, origin: tuple[float, ...], distance: float, normal: tuple[float, ...]
) -> None:
    t, n = shape.intersect(np.array([origin], dtype=float), DOWN_Z)
    assert t[0] == pytest.approx(distance)
    assert n[0] == pytest.approx(np.array(normal), abs=1e-9)


@pytest.mark.parametrize(
    "shape", [Sphere((0.0, 0.0, 5.0), 1.0), Box((0, 0, 5), (1, 1, 1)), Rod((0, -1, 5), (0, 1, 5), 0.5)]
)
def test_primitives_are_missed_beside_and_behind(shape: Primitive) -> None:
    origins = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    t, _ = shape.intersect(origins, np.repeat(DOWN_Z, 2, axis=0))
    assert np.isinf(t).all()


@pytest.mark.parametrize("lens", [NO_DISTORTION, Distortion(k1=-0.12, k2=0.03, p1=0.002, p2=-0.001)])
def test_rays_and_projection_are_inverse(lens: Distortion) -> None:
    pose = look_at((1.0, -2.0, -3.0), (0.2, 0.1, 0.0))
    rng = np.random.default_rng(0)
    pixels = rng.uniform(0, [33, 25], (50, 2))
    origins, directions = pixel_rays(CAMERA, pose, pixels, lens)
    points = origins + directions * rng.uniform(1.0, 9.0, (50, 1))
    back, depth = project(CAMERA, pose, lens, points)
    assert np.abs(back - pixels).max() < 1e-6
    assert (depth > 0).all()


@settings(deadline=None, derandomize=True)
@given(
    k1=st.floats(-0.2, 0.2),
    k2=st.floats(-0.05, 0.05),
    p1=st.floats(-0.01, 0.01),
    p2=st.floats(-0.01, 0.01),
    seed=st.integers(0, 99),
)
def test_undistorting_inverts_distorting(k1: float, k2: float, p1: float, p2: float, seed: int) -> None:
    lens = Distortion(k1, k2, p1, p2)
    points = np.random.default_rng(seed).uniform(-0.6, 0.6, (40, 2))
    assert np.abs(undistort_points(distort_points(points, lens), lens) - points).max() < 1e-8


def test_depth_is_measured_along_the_axis() -> None:
    wall = World([Box((0.0, 0.0, 6.0), (50.0, 50.0, 1.0))])
    picture = render_view(wall, CAMERA, np.eye(4), samples=1)
    assert np.allclose(picture.depth, 5.0)
    assert np.allclose(picture.alpha, 1.0)


def test_a_miss_without_sky_has_no_coverage_and_infinite_depth() -> None:
    picture = render_view(World([Sphere((0.0, 0.0, 8.0), 1.0)]), CAMERA, np.eye(4), samples=2)
    assert picture.alpha[0, 0] == 0.0 and np.isinf(picture.depth[0, 0])
    assert picture.alpha[13, 15] == 1.0
    assert 0.0 < picture.alpha.min() + picture.alpha.mean() < 1.0


def test_a_shadow_is_darker_than_the_light_beside_it() -> None:
    floor, ball = Box((0.0, 1.1, 6.0), (9.0, 0.1, 9.0)), Sphere((0.0, -0.5, 6.0), 0.5)
    lit = render_view(World([floor], sun=(0.0, -1.0, 0.0)), CAMERA, np.eye(4), samples=1)
    shaded = render_view(World([floor, ball], sun=(0.0, -1.0, 0.0)), CAMERA, np.eye(4), samples=1)
    both_floor = (lit.depth == shaded.depth) & np.isfinite(lit.depth)
    darker = both_floor & (shaded.color.mean(axis=2) < 0.8 * lit.color.mean(axis=2))
    assert 0 < darker.sum() < both_floor.sum()


def test_quaternions_give_the_rotation_back() -> None:
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


def test_points_lie_where_their_tracks_project() -> None:
    recipe = tiny(Camera(48, 36, 45.0, 46.0, 25.0, 17.0), 8)
    camera, lens, poses = recipe.camera, recipe.distortion, recipe.poses()
    pictures = [render_view(recipe.world(), camera, pose, samples=1) for pose in poses]
    points = reconstruct(pictures, camera, poses, lens, recipe.points, recipe.seed)
    assert 150 < len(points.xyz) <= 300
    errors = []
    for xyz, track in zip(points.xyz, points.tracks, strict=True):
        assert len(track) >= MIN_TRACK
        for view, x, y in track:
            pixel, depth = project(camera, poses[view], lens, xyz[None])
            errors.append(np.hypot(*(pixel[0] - (x, y))))
            assert depth[0] > 0
    # Keypoints carry 0.4 pixels of noise per axis, so residuals average about half a pixel.
    assert 0.2 < np.mean(errors) < 1.0


def test_samples_are_complete_small_and_indexed() -> None:
    assert {path.name for path in SAMPLES.iterdir() if path.is_dir()} == set(RECIPES)
    total = sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file())
    assert total <= 8_000_000
    assert json.loads((SAMPLES / INDEX).read_text()) == index_of(SAMPLES)


@pytest.mark.parametrize("name", ["figurine", "plaza"])
def test_a_sample_matches_its_recipe(name: str) -> None:
    assert check_scene(RECIPES[name], SAMPLES / name, views=(3,)) == []


def test_check_names_changed_and_missing_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "figurine"
    shutil.copytree(SAMPLES / "figurine", folder)
    Image.new("RGBA", (128, 128), (90, 20, 20, 255)).save(folder / "images" / "view_000.png")
    (folder / "images" / "view_005.png").unlink()
    assert main(["figurine", "--check", "--root", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert "view_000.png differs" in told and "view_005.png is missing" in told


def test_making_twice_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lens = Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001)
    recipe = tiny(Camera(24, 18, 22.0, 22.0, 12.0, 9.0), 5, layout="nerfstudio", distortion=lens)
    monkeypatch.setitem(RECIPES, "fruit", recipe)
    assert main(["fruit", "--root", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "a" / "fruit")]
    one, two = tmp_path / "a" / "fruit", make_scene(recipe, tmp_path / "b")
    (row,) = json.loads((tmp_path / "a" / INDEX).read_text())["scenes"]
    assert (row["name"], row["views"], row["size"], len(row["files"])) == ("fruit", 5, [24, 18], 7)
    for file in row["files"]:
        assert (one / file).read_bytes() == (two / file).read_bytes(), file


def test_an_unknown_scene_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nonsuch"])
    assert caught.value.code == 2 and "courtyard" in capsys.readouterr().err


def test_the_program_does_not_import_the_tools() -> None:
    root = SAMPLES.parents[1]
    for path in [*(root / "splatfix").rglob("*.py"), *(root / "smoke_trainer").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) tools\b", text, re.MULTILINE), path
