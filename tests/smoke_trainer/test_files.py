"""What stands in the place of a scene's file is read as a file, or refused at once."""

from __future__ import annotations

import pytest

from smoke_trainer.data.files import lines_of
from smoke_trainer.errors import SceneError
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
