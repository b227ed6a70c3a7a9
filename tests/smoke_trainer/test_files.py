"""What stands in the place of a scene's file is read as a file, or refused at once."""

from __future__ import annotations

import os

import pytest

from smoke_trainer.data.files import MAX_JSON, content_of, lines_of
from smoke_trainer.errors import SceneError
from smoke_trainer.ply import read_points
from tests.hostile.bad_files import bad_files

BAD = dict(bad_files())


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "kind", ["fifo", "link-to-fifo", "folder", "link-to-zeros", "link-to-noise", "sparse"]
)
def test_what_is_no_text_file_is_refused(kind, tmp_path):
    BAD[kind](tmp_path / "transforms.json")
    with pytest.raises(SceneError, match=r"transforms\.json"):
        list(lines_of(tmp_path / "transforms.json"))


@pytest.mark.timeout(10)
def test_a_sparse_file_costs_nothing(tmp_path):
    BAD["sparse"](tmp_path / "points.ply")
    assert len(content_of(tmp_path / "points.ply")) > MAX_JSON
    with pytest.raises(SceneError, match="no PLY header"):
        read_points(tmp_path / "points.ply")


@pytest.mark.parametrize("content", [b"", b"a\xff\n"])
def test_a_file_is_read(content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    assert bytes(content_of(tmp_path / "a")) == content
    assert list(lines_of(tmp_path / "a")) == content.decode("utf-8", "replace").split()
    with pytest.raises(OSError, match=os.strerror(2)):
        content_of(tmp_path / "b")
