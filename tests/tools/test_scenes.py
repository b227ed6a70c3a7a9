"""The sample scenes: complete, indexed, and as their recipes make them."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from smoke_trainer.data.camera import Camera, Distortion
from tools.scenes.__main__ import INDEX, SAMPLES, check_scene, index_of, main, make_scene
from tools.scenes.recipes import RECIPES, orbit


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
    output = capsys.readouterr().out
    assert "view_000.png differs" in output and "view_005.png is missing" in output


def test_making_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = dataclasses.replace(
        RECIPES["fruit"],
        layout="nerfstudio",
        camera=Camera(24, 18, 22.0, 22.0, 12.0, 9.0),
        distortion=Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001),
        poses=orbit(5, 1.9, 0.9, (0.05, -0.2, 0.0), 160.0, -80.0),
        points=300,
    )
    monkeypatch.setitem(RECIPES, "fruit", recipe)
    assert main(["fruit", "--root", str(tmp_path / "a")]) == 0
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
