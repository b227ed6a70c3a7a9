from __future__ import annotations

import os
from pathlib import Path

import pytest

from splatfix.core.errors import SplatfixError
from splatfix.resolve.checkout import sources_in

from .machines import cuda_source


def taming(folder: Path) -> Path:
    """The files by which a checkout of taming-3dgs is known."""
    for name in ("train.py", "full_eval.py", "convert.py", "LICENSE_ORIGINAL.md", "utils/taming_utils.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for name in ("arguments", "scene", "gaussian_renderer", "lpipsPyTorch", "web_viewer"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("")
    for name in ("simple-knn", "diff-gaussian-rasterization"):
        cuda_source(folder / "submodules" / name, name.replace("-", "_"))
    return folder


def test_a_checkout_stands_for_its_extensions(tmp_path: Path) -> None:
    sources, notes = sources_in([str(taming(tmp_path))])
    assert [source.name for source in sources] == ["diff_gaussian_rasterization", "simple_knn"]
    assert "aming" in notes[0] and "diff-gaussian-rasterization, simple-knn" in notes[0]


def test_a_source_named_twice_counts_once(tmp_path: Path) -> None:
    folder = taming(tmp_path)
    named = [str(folder / "submodules" / "simple-knn"), str(folder)]
    sources, _ = sources_in(named)
    assert [source.name for source in sources] == ["simple_knn", "diff_gaussian_rasterization"]


def test_a_submodule_that_is_empty_stops_it_and_a_viewer_does_not(tmp_path: Path) -> None:
    folder = taming(tmp_path)
    (folder / "SIBR_viewers").mkdir()
    (folder / ".gitmodules").write_text("\tpath = SIBR_viewers\n\tpath = submodules/fused-ssim\n")
    with pytest.raises(SplatfixError) as caught:
        sources_in([str(folder)])
    assert caught.value.code == "source-incomplete"
    assert "submodules/fused-ssim is missing" in caught.value.what and "SIBR" not in caught.value.what
    cuda_source(folder / "submodules" / "fused-ssim", "fused_ssim")
    assert len(sources_in([str(folder)])[0]) == 3


def test_a_home_folder_and_a_disk_are_no_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    cuda_source(home / "clones" / "simple-knn", "simple_knn")
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: home))
    for folder, words in ((home, "your home folder"), (Path("/"), "the root of a disk")):
        with pytest.raises(SplatfixError) as caught:
            sources_in([str(folder)])
        assert caught.value.code == "not-a-checkout" and words in caught.value.what
    assert len(sources_in([str(home / "clones")])[0]) == 1


def test_a_folder_of_everything_is_no_checkout(tmp_path: Path) -> None:
    cuda_source(tmp_path / "a" / "simple-knn", "simple_knn")
    for number in range(3001):
        (tmp_path / f"photos{number}").mkdir()
    with pytest.raises(SplatfixError) as caught:
        sources_in([str(tmp_path)])
    assert caught.value.code == "not-a-checkout" and "3000 folders" in caught.value.what


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_source(tmp_path / "ours" / "simple-knn", "simple_knn")
    (tmp_path / "locked").mkdir()
    real = os.scandir

    def scandir(path: str | Path = ".") -> object:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    sources, notes = sources_in([str(tmp_path)])
    assert len(sources) == 1
    assert notes[-1] == f"{tmp_path / 'locked'} cannot be read and was not looked into"
