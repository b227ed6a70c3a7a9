"""`splatfix scenes`: the sample scenes, rendered in the target environment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Splatfix = Callable[..., "subprocess.CompletedProcess[str]"]


def test_it_lists_six_scenes_that_differ_in_kind_and_layout(splatfix: Splatfix) -> None:
    document = json.loads(splatfix("scenes", "list", "--json").stdout)
    assert (document["schema_version"], document["kind"], document["exit_code"]) == (1, "scenes", 0)
    rows = document["scenes"]
    assert len(rows) == len({row["kind"] for row in rows}) == 6
    assert {row["layout"] for row in rows} == {"colmap-binary", "colmap-text", "blender", "nerfstudio"}
    told = " ".join(splatfix("scenes", "list").stdout.split())
    assert all(row["name"] in told and row["kind"].split(",")[0] in told for row in rows)


def test_check_finds_a_picture_that_was_changed(splatfix: Splatfix, tmp_path: Path) -> None:
    import shutil

    from PIL import Image

    import smoke_trainer

    assert smoke_trainer.__file__ is not None
    stored = Path(smoke_trainer.__file__).parent / "samples" / "figurine"
    shutil.copytree(stored, tmp_path / "figurine")
    fine = splatfix("scenes", "check", "figurine", "--root", str(tmp_path))
    assert (fine.returncode, fine.stdout.strip()) == (0, "figurine: as its recipe makes it")
    Image.new("RGBA", (128, 128), (90, 20, 20, 255)).save(tmp_path / "figurine" / "images" / "view_005.png")
    wrong = splatfix("scenes", "check", "figurine", "--root", str(tmp_path), "--json")
    document = json.loads(wrong.stdout)
    assert wrong.returncode == document["exit_code"] == 1
    assert "view_005.png differs" in document["scenes"][0]["problems"][0]


def test_what_cannot_be_done_is_said_clearly(splatfix: Splatfix, empty_venv: Path, tmp_path: Path) -> None:
    unknown = splatfix("scenes", "make", "nonsuch", "--out", str(tmp_path))
    assert unknown.returncode == 2 and "choose one of: courtyard" in " ".join(unknown.stderr.split())
    absent = splatfix("scenes", "check", "fruit", "--root", str(tmp_path))
    assert absent.returncode == 3 and "There is no scene" in absent.stderr
    assert f"make it: splatfix scenes make fruit --out {tmp_path}" in absent.stderr
    (tmp_path / "fruit").write_text("")
    full = splatfix("scenes", "make", "fruit", "--out", str(tmp_path), "--json")
    error = json.loads(full.stdout)["error"]
    assert (full.returncode, error["code"]) == (3, "cannot-write") and "with --out" in error["todo"][0]
    no_folder = splatfix("scenes", "make", "fruit", "--out", str(tmp_path / "fruit"))
    assert no_folder.returncode == 2 and "(cannot-write)" in no_folder.stderr
    bare = splatfix("scenes", "list", "--python", str(empty_venv), "--json")
    assert bare.returncode == 3
    error = json.loads(bare.stdout)["error"]
    assert error["code"] == "environment-not-ready" and "numpy" in error["meaning"]
