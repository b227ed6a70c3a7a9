from __future__ import annotations

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
