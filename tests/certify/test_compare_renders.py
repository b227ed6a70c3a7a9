"""What is read of a trainer's outputs: images of listed formats, and point clouds in parts."""

from pathlib import Path

import numpy as np
import pytest
from PIL import UnidentifiedImageError

pytest.importorskip("torch")

from splatfix.certify.stacks import compare_renders

HEAD = (
    "ply\nformat binary_little_endian 1.0\nelement vertex 5\nproperty float x\nproperty float y\nend_header\n"
)


@pytest.mark.parametrize(
    ("rows", "whole", "non_finite"), [(5, True, 2), (4, False, 1)], ids=["whole", "cut off"]
)
def test_a_point_cloud_is_counted_part_by_part(
    rows: int, whole: bool, non_finite: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.zeros((5, 2), "<f4")
    values[0, 1], values[4, 1] = np.nan, np.inf
    path = tmp_path / "point_cloud.ply"
    path.write_bytes(HEAD.encode() + values[:rows].tobytes())
    monkeypatch.setattr(compare_renders, "_AT_ONCE", 3)
    expected = {"count": 5, "properties": 2, "whole": whole, "non_finite": non_finite}
    assert compare_renders.point_cloud(path) == expected


def test_no_other_program_is_started_for_an_image(tmp_path: Path) -> None:
    path = tmp_path / "00000.png"
    path.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with pytest.raises(UnidentifiedImageError):
        compare_renders.image(path)
