"""Scenes below a data folder: found by name and layout however they are nested, the missing ones named with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from smoke_trainer.__main__ import main
from smoke_trainer.data.find import PUBLIC_SCENES, FoundScene, layout_of, locate, survey
from smoke_trainer.errors import SceneError, UsageError
from tests.conftest import ROOT


def colmap(folder: Path) -> Path:
    (folder / "sparse" / "0").mkdir(parents=True)
    return folder


def with_file(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    (folder / name).write_text("{}")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    colmap(root / "truck")
    colmap(root / "360_v2" / "garden")
    colmap(root / "tandt_db" / "db" / "playroom")
    with_file(root / "nerf_synthetic" / "lego", "transforms_train.json")
    # inside a scene: its own business
    (root / "nerf_synthetic" / "lego" / "train" / "sparse").mkdir(parents=True)
    with_file(root / "nerfstudio" / "room", "transforms.json")  # somebody's own room
    (root / "360_v2" / "flowers" / "images").mkdir(parents=True)  # without a reconstruction
    (root / "photos" / "of" / "a" / "holiday").mkdir(parents=True)
    return root


def test_public_scenes_come_first_then_others_by_name(data):
    scenes, skipped = survey(data)
    assert scenes == [
        FoundScene("garden", data / "360_v2" / "garden", "colmap"),
        FoundScene("truck", data / "truck", "colmap"),
        FoundScene("playroom", data / "tandt_db" / "db" / "playroom", "colmap"),
        FoundScene("lego", data / "nerf_synthetic" / "lego", "blender"),
        FoundScene("room", data / "nerfstudio" / "room", "nerfstudio"),
    ]
    assert scenes[0].public is PUBLIC_SCENES["garden"] and scenes[3].public is scenes[4].public is None
    assert dict(skipped).keys() == set(PUBLIC_SCENES) - {"garden", "truck", "playroom"}


def test_a_scene_folder_is_that_scene_only(data):
    folder = data / "360_v2" / "garden"
    assert survey(folder) == ([FoundScene("garden", folder, "colmap")], [])


def test_own_scenes_only_do_not_miss_public_ones(tmp_path, capsys):
    colmap(tmp_path / "shed")
    with_file(tmp_path / "figure", "transforms_train.json")
    assert survey(tmp_path)[1] == []
    assert main(["--data", str(tmp_path), "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    (with_file(tmp_path / "room", "transforms.json") / "images").mkdir()  # a scene, if not the public one
    assert survey(tmp_path)[1] == []


def test_two_folders_of_one_name_are_both_found(data):
    colmap(data / "mine" / "truck")
    assert locate("truck", data).folder == data / "truck"
    assert locate("mine-truck", data).folder == data / "mine" / "truck"


def test_a_folder_that_cannot_be_opened_is_passed_over(data, monkeypatch):
    real = Path.iterdir

    def iterdir(self: Path):
        if self.name == "photos":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert len(survey(data)[0]) == 5


def test_no_scene_and_no_folder_are_errors(tmp_path):
    with pytest.raises(SceneError, match="no scene found in") as caught:
        survey(tmp_path)
    assert "transforms_train.json" in caught.value.note
    with pytest.raises(UsageError, match="folder not found"):
        survey(tmp_path / "nowhere")
    assert layout_of(tmp_path) is None


def test_locate_finds_by_name_or_lists_the_others(data):
    assert locate("lego", data).folder == data / "nerf_synthetic" / "lego"
    with pytest.raises(SceneError, match="bicycle not found in") as caught:
        locate("bicycle", data)
    assert "garden, truck, playroom, lego, room" in caught.value.note


def test_the_list(data, capsys):
    assert main(["--data", str(data), "--list"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[0].split(maxsplit=2)[:2] == ["garden", "colmap"]
    assert "Mip-NeRF 360, outdoor" in printed.out and "lego" in printed.out and "bicycle" in printed.err
    assert main(["--data", str(data / "photos"), "--list"]) == 3


@pytest.mark.parametrize(("folder", "code", "said"), [("", 0, "garden"), ("nowhere", 2, "folder not found")])
def test_listing_needs_no_torch(folder, code, said, data, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('there is none')")
    argv = [sys.executable, "-m", "smoke_trainer", "--list", "--data", str(data / folder)]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=given)
    assert done.returncode == code and said in done.stdout + done.stderr
