"""Scenes that do not fit what a trainer's source names, found before it runs."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from splatfix.certify.stacks import child
from splatfix.certify.stacks.child import copy_scene
from splatfix.certify.stacks.scene_layout import scene_problems
from splatfix.facts.scene.colmap import MODELS
from tests.plan.machines import refused
from tests.tables import data

READER: str = data(__file__)["texts"]["reader"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "scene"
    folder.mkdir(parents=True)
    (folder / "dataset_readers.py").write_text(READER)
    return folder.parent


def codes(checkout: Path, scene: Path, images: str = "") -> list[str]:
    return [item.code for item in scene_problems(checkout, scene, images)]


def test_a_copy_of_a_scene_ends(tmp_path: Path, scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(child, "_MOST_ENTRIES", 1)
    assert refused(copy_scene, scene, tmp_path / "again").code == "scene-not-copied"


def test_a_model_elsewhere(checkout: Path, scene: Path) -> None:
    (scene / "sparse" / "0").rename(scene / "sparse" / "1")
    (found,) = scene_problems(checkout, scene, "")
    assert found.code == "scene-model-missing" and "one lies in sparse/1" in found.summary


def test_what_the_source_names_is_looked_for(checkout: Path, scene: Path, tmp_path: Path) -> None:
    assert codes(checkout, scene) == []
    shutil.rmtree(scene / "sparse")
    assert codes(checkout, scene) == ["scene-type"]
    (scene / "transforms_train.json").write_text("{}")
    assert codes(checkout, scene) == []
    (checkout / "scene" / "dataset_readers.py").write_text("open(path)\n")
    assert codes(checkout, tmp_path) == []


def test_images_of_another_name(checkout: Path, scene: Path) -> None:
    (scene / "images").rename(scene / "photos")
    assert codes(checkout, scene) == ["scene-images-missing"]
    assert codes(checkout, scene, "photos") == []


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
