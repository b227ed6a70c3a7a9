"""Scenes made to fill the memory or to wait for ever: each ends in one error that names its limit."""

import resource
import struct
from pathlib import Path

import pytest
from PIL import Image

from smoke_trainer import ply
from smoke_trainer.data import colmap, files, images
from smoke_trainer.data.colmap_files import read_cameras, read_images, read_points
from smoke_trainer.data.transforms import read_transforms
from smoke_trainer.errors import SceneError
from tests.hostile.bad_files import bad_files

COLMAP = {
    "cameras": lambda path: [colmap.camera_from_parameters(*row[1:5], path) for row in read_cameras(path)],
    "images": lambda path: list(read_images(path, keypoints=1000)),
    "points3D": lambda path: list(read_points(path)),
}
READERS = {
    **{f"{name}{suffix}": read for suffix in (".bin", ".txt") for name, read in COLMAP.items()},
    "points.ply": ply.read_points,
    "transforms.json": lambda path: read_transforms(path.parent, "nerfstudio"),
}
BAD = dict(bad_files())


def peak() -> int:
    """Bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", READERS)
def test_pipes_devices_and_sparse_files(name: str, tmp_path: Path) -> None:
    before = peak()
    for kind in ("fifo", "link-to-fifo", "folder", "link-to-zeros", "link-to-noise", "sparse"):
        path = tmp_path / kind / name
        path.parent.mkdir()
        BAD[kind](path)
        if kind == "sparse" and name.endswith(".bin"):
            READERS[name](path)  # it says that it has none
        else:
            with pytest.raises(SceneError, match=name):
                READERS[name](path)
    assert peak() - before < 200 << 20


@pytest.mark.parametrize(("name", "size"), [("cameras.bin", 24), ("images.bin", 73), ("points3D.bin", 51)])
@pytest.mark.parametrize("count", [10**18, 2**64 - 1])
def test_counts_that_no_memory_has(name: str, size: int, count: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(struct.pack("<Q", count) + bytes(1000 * size))
    before = peak()
    with pytest.raises(SceneError, match=f"{name} ends too early"):
        READERS[name](path)
    assert peak() - before < 50 << 20


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
@pytest.mark.parametrize("count", ["6000000", "9" * 5000, "-1", "\u00b2", "9" * 18])
def test_vertices_that_no_memory_has(form: str, count: str, tmp_path: Path) -> None:
    path = tmp_path / "points.ply"
    path.write_text(f"ply\nformat {form} 1.0\nelement vertex {count}\nproperty float x\nend_header\n1 2 3\n")
    with pytest.raises(SceneError, match=r"points\.ply"):
        ply.read_points(path)


def test_lines_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    (tmp_path / "images.txt").write_text("x" * 101)
    with pytest.raises(SceneError, match="a line that is too long"):
        READERS["images.txt"](tmp_path / "images.txt")


def test_images_of_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (16, 16)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(SceneError, match=r"a\.png cannot be read as an image: Image size"):
        images.image_size(tmp_path / "a.png")


@pytest.mark.parametrize(
    "content", [b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"]
)
def test_no_image_is_handed_to_another_program(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(SceneError, match=r"a\.png cannot be read as an image"):
        images.decode(tmp_path / "a.png", (9, 9))
