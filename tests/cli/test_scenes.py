"""`splatfix scenes`: list, check and export the sample scenes."""

import shutil
from pathlib import Path

from splatfix.certify.scenes import SAMPLES
from tests.cli.conftest import Document
from tests.cli.test_documents import check
from tests.conftest import Splatfix


def test_list_has_six_scenes_of_different_kinds(document: Document, splatfix: Splatfix) -> None:
    rows = check(document("scenes", "list"))["scenes"]
    assert len(rows) == len({row["kind"] for row in rows}) == 6
    assert {row["layout"] for row in rows} == {"colmap-binary", "colmap-text", "blender", "nerfstudio"}
    told = " ".join(splatfix("scenes", "list").stdout.split())
    assert all(row["name"] in told and row["kind"].split(",")[0] in told for row in rows)


def test_export_copies_a_scene_that_check_accepts(
    document: Document, splatfix: Splatfix, tmp_path: Path
) -> None:
    (row,) = check(document("scenes", "export", "figurine", "--out", tmp_path / "new"))["scenes"]
    exported = tmp_path / "new" / "figurine"
    assert row == {"name": "figurine", "folder": str(exported)}
    for path in (SAMPLES / "figurine").rglob("*"):
        copy = exported / path.relative_to(SAMPLES / "figurine")
        assert path.is_dir() or path.read_bytes() == copy.read_bytes()
    assert splatfix("scenes", "check", exported).returncode == 0


def test_scenes_below_a_folder_are_checked(document: Document, tmp_path: Path) -> None:
    document("scenes", "export", "courtyard", "--out", tmp_path)
    damaged = Path(shutil.copytree(tmp_path / "courtyard", tmp_path / "damaged"))
    next(damaged.glob("images*")).rename(damaged / "elsewhere")
    made = check(document("scenes", "check", tmp_path))
    good, bad = made["scenes"]
    assert (made["exit_code"], good["problems"], good["images"]) == (1, [], 24)
    assert [row["check"] for row in bad["findings"]] == ["photos-missing"]
    (tmp_path / "photos").mkdir()
    shutil.copy(next((tmp_path / "courtyard").glob("images*/*.png")), tmp_path / "photos")
    made = document("scenes", "check", tmp_path / "photos")
    (row,) = made["scenes"]
    assert (made["exit_code"], row["findings"][0]["check"]) == (1, "scene-not-reconstructed")
    command = row["findings"][0]["remedy"][1]["command"]
    photos = tmp_path / "photos"
    assert f"--workspace_path {photos}-scene --image_path {photos}-scene/images" in command


def test_a_mended_copy_and_its_page(document: Document, splatfix: Splatfix, tmp_path: Path) -> None:
    splatfix("scenes", "export", "fruit", "--out", tmp_path)
    words = ("--out", tmp_path / "copy", "--copies", "4")
    made = check(document("scenes", "fix", tmp_path / "fruit", *words))
    assert (made["exit_code"], made["scene"]["problems"]) == (0, [])
    assert (tmp_path / "copy" / "images_4" / "view_000.png").is_file()
    page = tmp_path / "page.html"
    assert splatfix("scenes", "check", tmp_path / "copy", "--html", page).returncode == 0
    assert "in the reconstruction" in page.read_text()
    assert splatfix("scenes", "check", tmp_path / "copy", tmp_path / "fruit", "--html", page).returncode == 2
    wrong = splatfix("scenes", "fix", tmp_path / "fruit", "--out", tmp_path / "b", "--copies", "1,x")
    assert wrong.returncode == 2


def test_errors_have_codes_and_say_what_to_do(document: Document, tmp_path: Path) -> None:
    def error_of(*words: str) -> tuple[int, str]:
        made = document("scenes", *words)
        return made["exit_code"], made["error"]["code"]

    (tmp_path / "fruit").write_text("in the way")
    assert error_of("export", "fruit", "--out", str(tmp_path)) == (3, "cannot-write")
    assert error_of("export", "fruit", "--out", str(tmp_path / "fruit")) == (3, "cannot-write")
