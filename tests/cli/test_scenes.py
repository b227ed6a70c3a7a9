"""`splatfix scenes`: list, check and export the sample scenes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.certify.scenes import samples_folder

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]


def test_list_has_six_scenes_of_different_kinds(splatfix: Splatfix) -> None:
    document = json.loads(splatfix("scenes", "list", "--json").stdout)
    assert (document["schema_version"], document["command"], document["exit_code"]) == (2, "scenes list", 0)
    rows = document["scenes"]
    assert len(rows) == len({row["kind"] for row in rows}) == 6
    assert {row["layout"] for row in rows} == {"colmap-binary", "colmap-text", "blender", "nerfstudio"}
    told = " ".join(splatfix("scenes", "list").stdout.split())
    assert all(row["name"] in told and row["kind"].split(",")[0] in told for row in rows)


def test_export_copies_a_scene_that_check_accepts(splatfix: Splatfix, tmp_path: Path) -> None:
    done = splatfix("scenes", "export", "figurine", "--out", str(tmp_path / "new"), "--json")
    (row,) = json.loads(done.stdout)["scenes"]
    exported = tmp_path / "new" / "figurine"
    assert (done.returncode, row) == (0, {"name": "figurine", "folder": str(exported)})
    for path in (samples_folder() / "figurine").rglob("*"):
        copy = exported / path.relative_to(samples_folder() / "figurine")
        assert path.is_dir() or path.read_bytes() == copy.read_bytes()
    checked = splatfix("scenes", "check", "figurine", "--root", str(tmp_path / "new"))
    assert (checked.returncode, checked.stdout.strip()) == (0, "figurine: OK")
    (exported / "images" / "view_005.png").write_bytes(b"another picture")
    (exported / "images" / "view_006.png").unlink()
    changed = splatfix("scenes", "check", "figurine", "--root", str(tmp_path / "new"), "--json")
    document = json.loads(changed.stdout)
    assert changed.returncode == document["exit_code"] == 1
    assert document["scenes"][0]["problems"] == [
        "images/view_005.png has changed",
        "images/view_006.png is missing",
    ]


def test_a_folder_is_loaded_as_for_training(splatfix: Splatfix, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    splatfix("scenes", "export", "courtyard", "--out", tmp_path)
    scene, named = tmp_path / "courtyard", ("--python", sys.executable, "--json")
    damaged = Path(shutil.copytree(scene, tmp_path / "damaged"))
    images = next(path for path in damaged.iterdir() if path.name.startswith("images"))
    images.rename(damaged / "elsewhere")
    done = splatfix("scenes", "check", tmp_path, *named)
    good, bad = json.loads(done.stdout)["scenes"]
    assert done.returncode == 1 and not bad["readable"] and bad["problems"]
    assert (good["readable"], good["problems"]) == (True, [])
    assert good["train"] > good["held_out"] > 0 and good["points"] > 100 and len(good["size"]) == 2
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"")
    done = splatfix("scenes", "check", tmp_path / "photos", *named)
    (row,) = json.loads(done.stdout)["scenes"]
    assert (done.returncode, row["readable"]) == (1, False), "no poses: the check has found it out"
    advice, photos = row["problems"][-1], tmp_path / "photos"
    assert f"--workspace_path {photos}-scene --image_path {photos}-scene/images" in advice
    assert f"mkdir {photos}-scene && cp -r {photos} {photos}-scene/images" in advice


def test_a_folder_that_is_not_there_is_called_one(splatfix: Splatfix) -> None:
    error = json.loads(splatfix("scenes", "check", "nowhere", "--json").stdout)["error"]
    assert (error["code"], error["exit_code"]) == ("unknown-scene", 2)
    assert error["what"] == "There is no folder 'nowhere', and no sample scene of that name."


def test_errors_have_codes_and_say_what_to_do(splatfix: Splatfix, tmp_path: Path) -> None:
    def error_of(*words: str) -> tuple[int, str]:
        done = splatfix("scenes", *words, "--json")
        return done.returncode, json.loads(done.stdout)["error"]["code"]

    assert error_of("check", "fruit", "--root", str(tmp_path)) == (3, "scene-not-found")
    (tmp_path / "fruit").write_text("in the way")
    assert error_of("export", "fruit", "--out", str(tmp_path)) == (3, "cannot-write")
    assert error_of("export", "fruit", "--out", str(tmp_path / "fruit")) == (3, "cannot-write")
