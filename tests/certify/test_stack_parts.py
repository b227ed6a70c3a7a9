"""Parts of a rehearsal: scenes that do not fit, how far the trainer is, its threads, and what it left."""

import json
import os
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import UnidentifiedImageError

from splatfix.certify.progress import words
from splatfix.certify.stacks.child import copy_scene
from splatfix.certify.stacks.prepare import threads_for
from splatfix.certify.stacks.progress import following, latest
from splatfix.certify.stacks.scene_layout import scene_problems
from splatfix.facts.scene.colmap import MODELS
from splatfix.model import Facts, Resources
from tests.plan.machines import refused
from tests.tables import data

pytest.importorskip("torch")

from splatfix.certify.stacks import compare_renders

READER: str = data(__file__)["texts"]["reader"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "scene"
    folder.mkdir(parents=True)
    (folder / "dataset_readers.py").write_text(READER)
    return folder.parent


def codes(checkout: Path, scene: Path, images: str = "") -> list[str]:
    return [item.code for item in scene_problems(checkout, scene, images)]


def test_a_copy_of_a_scene_ends(tmp_path: Path, scene: Path) -> None:
    """Photos behind links come with it; what leads back to it, or has no end, does not."""
    (scene / "images").rename(tmp_path / "photos")
    (tmp_path / "photos" / "a.png").touch()
    (scene / "images").symlink_to(tmp_path / "photos")
    for name, target in (
        ("here", "."),
        ("above", "../.."),
        ("zeros", "/dev/zero"),
        ("zeros.png", "/dev/zero"),
    ):
        (scene / name).symlink_to(target)
    os.mkfifo(scene / "pipe")
    copy = copy_scene(scene, tmp_path / "copy")
    assert {path.name for path in copy.iterdir()} == {"images", "sparse"}
    assert (copy / "images" / "a.png").is_symlink() and not (copy / "images").is_symlink()
    assert refused(copy_scene, scene, copy).code == "scene-not-copied", "it is there already"


@pytest.mark.parametrize(
    ("moved", "to", "images", "found"),
    [
        ("images", "images", "", []),
        ("images", "photos", "", ["scene-images-missing"]),
        ("images", "photos", "photos", []),
        ("sparse", "model", "", ["scene-type"]),
        ("sparse/0", "sparse/1", "", ["scene-model-missing"]),
    ],
)
def test_what_the_source_names_is_looked_for(
    checkout: Path, scene: Path, moved: str, to: str, images: str, found: list[str]
) -> None:
    (scene / moved).rename(scene / to)
    problems = scene_problems(checkout, scene, images)
    assert [item.code for item in problems] == found
    assert ("one lies in sparse/1" in str(problems)) is (to == "sparse/1")
    (scene / "transforms_train.json").write_text("{}")
    assert (codes(checkout, scene, images) == []) is (found in ([], ["scene-type"]))
    (checkout / "scene" / "dataset_readers.py").write_text("open(path)\n")
    assert codes(checkout, scene, images) == []


@pytest.mark.parametrize(
    ("number", "fits"), [(0, True), (1, True), (2, True), (4, False), (10, False), (99, False)]
)
def test_camera_models_of_a_binary_model(checkout: Path, scene: Path, number: int, fits: bool) -> None:
    size = MODELS[number][1] if number in MODELS else 0
    rows = [struct.pack("<iiQQ4d", 1, 1, 160, 120, 150, 150, 80, 60)]
    rows += [struct.pack(f"<iiQQ{size}d", 2, number, 160, 120, *[1.0] * size)]
    model = scene / "sparse" / "0"
    (model / "cameras.bin").write_bytes(struct.pack("<Q", 2) + b"".join(rows))
    (model / "images.bin").write_bytes(struct.pack("<Q", 0))
    assert codes(checkout, scene) == ([] if fits else ["scene-camera-model"])
    (model / "cameras.bin").write_bytes(struct.pack("<Q", 2) + rows[0] + rows[1][:9])
    assert codes(checkout, scene) == []


def line(iteration: int, milliseconds: float = 250.0, loss: float | None = 0.1) -> str:
    row = {
        "iteration": iteration,
        "loss": loss,
        "gaussians": 300,
        "rss_gb": 0.5,
        "ms": {"iteration": milliseconds},
    }
    return json.dumps(row) + "\n"


def test_progress_is_that_of_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert latest(path, 100) == {}
    path.write_text(line(1)[:20])
    assert latest(path, 100) == {}, "half a line is none"
    path.write_text(line(1, 9000.0) + line(2) + line(3)[:20])
    assert latest(path, 100)["iteration"] == 2
    path.write_text(line(1, 9000.0) + line(2) + line(3, loss=None))
    state = latest(path, 100)
    assert words(state) == "iteration 3 of 100, 4.0 it/s, 300 Gaussians, host memory 0.50 GiB, 0:24 left"
    path.write_text("".join(line(number) for number in range(1, 2001)))
    assert words(latest(path, 2000)).startswith("iteration 2000 of 2000, 4.0 it/s")


def test_who_fails_to_listen_stops_nothing(tmp_path: Path) -> None:
    path, told = tmp_path / "metrics.jsonl", threading.Event()
    path.write_text(line(1))

    def tell(state: Mapping[str, Any]) -> None:
        told.set()
        raise OSError(28, "No space left on device")

    with following(path, 100, tell, every=0.01):
        assert told.wait(5)


@pytest.mark.parametrize(("variables", "cores", "load", "count", "why"), data(__file__)["threads"])
def test_threads(
    known: Facts, variables: dict[str, str], cores: int, load: float, count: int, why: str
) -> None:
    machine = replace(known.machine, resources=Resources(cores=cores))
    assert threads_for(replace(known, machine=machine), variables, load) == (count, why)


HEAD = (
    "ply\nformat binary_little_endian 1.0\nelement vertex 5\nproperty float x\nproperty float y\nend_header\n"
)


@pytest.mark.parametrize(("rows", "whole", "non_finite"), [(5, True, 2), (4, False, 1), (0, False, 0)])
def test_values_of_a_point_cloud_are_counted(rows: int, whole: bool, non_finite: int, tmp_path: Path) -> None:
    values = np.zeros((5, 2), "<f4")
    values[0, 1], values[4, 1] = np.nan, np.inf
    path = tmp_path / "point_cloud.ply"
    path.write_bytes(HEAD.encode() + values[:rows].tobytes())
    expected = {"count": 5, "properties": 2, "whole": whole, "non_finite": non_finite}
    assert compare_renders.point_cloud(path) == expected


def test_no_other_program_is_started_for_an_image(tmp_path: Path) -> None:
    path = tmp_path / "00000.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(UnidentifiedImageError):
        compare_renders.image(path)
