"""PLY files: the order that viewers expect, and damage."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoke_trainer import ply
from smoke_trainer.errors import SceneError
from smoke_trainer.model import GROUPS
from tests.smoke_trainer.tiny import FUZZ


def gaussians(count: int = 7, rest: int = 15, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [(3,), (1, 3), (rest, 3), (1,), (3,), (4,)]
    return {
        name: rng.normal(size=(count, *shape)).astype(np.float32)
        for name, shape in zip(GROUPS, shapes, strict=True)
    }


@pytest.mark.parametrize("rest", [0, 3, 8, 15])
def test_writing_and_reading_give_the_same_numbers(rest, tmp_path):
    rows = gaussians(rest=rest)
    ply.write_gaussians(tmp_path / "a" / "p.ply", rows)
    again = ply.read_gaussians(tmp_path / "a" / "p.ply")
    assert set(again) == set(rows)
    for name, values in rows.items():
        assert again[name].shape == values.shape and (again[name] == values).all(), name


def test_the_bytes_are_in_inrias_order(tmp_path):
    rows = gaussians(count=2)
    ply.write_gaussians(tmp_path / "p.ply", rows)
    header, body = (tmp_path / "p.ply").read_bytes().split(b"end_header\n", 1)
    names = [line.split()[-1].decode() for line in header.splitlines() if line.startswith(b"property")]
    expected = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"]
    expected += [f"f_rest_{i}" for i in range(45)]
    expected += ["opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    assert names == expected
    assert len(body) == 2 * 62 * 4
    second = struct.unpack("<62f", body[62 * 4 :])
    assert second[:3] == tuple(rows["xyz"][1])
    # Channel by channel: the first fifteen are red's, so entry 16 is green's second coefficient.
    assert second[9 + 0] == rows["f_rest"][1, 0, 0]
    assert second[9 + 1] == rows["f_rest"][1, 1, 0]
    assert second[9 + 16] == rows["f_rest"][1, 1, 1]
    assert second[54] == rows["opacity"][1, 0]
    assert second[58:] == tuple(rows["rotation"][1])


def test_ascii_and_big_endian_points(tmp_path):
    header = "ply\nformat {} 1.0\ncomment x\nelement vertex 2\nproperty float x\nproperty float y\nproperty double z\n"
    header += "property uchar red\nproperty uchar green\nproperty uchar blue\nelement face 0\n"
    header += "property list uchar int vertex_index\nend_header\n"
    (tmp_path / "a.ply").write_text(header.format("ascii") + "1 2 3 10 20 30\n4 5 6 40 50 60\n")
    body = struct.pack(">ffdBBB", 1, 2, 3, 10, 20, 30) + struct.pack(">ffdBBB", 4, 5, 6, 40, 50, 60)
    (tmp_path / "b.ply").write_bytes(header.format("binary_big_endian").encode() + body)
    for name in ("a.ply", "b.ply"):
        points = ply.read_points(tmp_path / name)
        assert points.xyz.tolist() == [[1, 2, 3], [4, 5, 6]]
        assert points.rgb.tolist() == [[10, 20, 30], [40, 50, 60]]


HEAD = "ply\nformat ascii 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"


def test_points_that_are_no_numbers_are_left_out(tmp_path):
    (tmp_path / "a.ply").write_text(HEAD.format(3) + "1 2 3\nnan 0 0\n1e30 0 0\n")
    points = ply.read_points(tmp_path / "a.ply")
    assert points.xyz.tolist() == [[1, 2, 3]]
    assert points.rgb.tolist() == [[128, 128, 128]]
    (tmp_path / "a.ply").write_text(HEAD.format(2) + "1 2 3\n4 words 6\n")
    with pytest.raises(SceneError, match="not numbers"):
        ply.read_points(tmp_path / "a.ply")


def test_points_are_not_gaussians(tmp_path):
    (tmp_path / "a.ply").write_text(HEAD.format(1) + "1 2 3\n")
    with pytest.raises(SceneError, match="f_dc_0"):
        ply.read_gaussians(tmp_path / "a.ply")


@FUZZ
@given(data=st.data())
def test_every_truncation_is_one_clear_error(tmp_path, data):
    path = tmp_path / "p.ply"
    ply.write_gaussians(path, gaussians(count=3, rest=3))
    content = path.read_bytes()
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(SceneError, match=r"p\.ply"):
        ply.read_gaussians(path)
