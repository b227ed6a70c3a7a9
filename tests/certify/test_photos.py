"""The second decoder of photos agrees with Pillow, gives up on what it does not know, and sees what a reader does wrong."""

from __future__ import annotations

import hashlib
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from smoke_trainer import photos as trainers
from smoke_trainer.data.images import decode, image_size
from smoke_trainer.ply import write_gaussians
from splatfix.certify import Criterion, Outcome
from splatfix.certify.criteria.truth import MOST_OFF, held_out_as_pictured, photos_decoded, ply_round_trip
from splatfix.certify.photos import Unknown, grid_of
from splatfix.certify.record import HeldOutView, ImageQuality, Photo, PlyCheck, TrainingRecord
from splatfix.certify.scenes import samples_folder
from tests.smoke_trainer.tiny import SHAPES

PHOTO = samples_folder() / "courtyard" / "images_8" / "view_003.png"


def by_pillow(path: Path, mode: str = "RGBA", size: tuple[int, int] | None = None) -> Any:
    """What the trainer has of a photo."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert(mode).resize(size or image.size, 3)).astype(np.float32) / 255
    over_black = pixels[..., :3] * pixels[..., 3:] if mode == "RGBA" else pixels
    return trainers.grid_of(torch.from_numpy(over_black).permute(2, 0, 1)).numpy()


def saved(folder: Path, mode: str, name: str, **options: Any) -> Path:
    path = folder / name
    with Image.open(PHOTO) as image:
        picture = image.convert(mode).resize((323, 241), 3)
    if mode in ("RGBA", "LA"):
        picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    picture.save(path, **options)
    return path


@pytest.mark.parametrize(
    ("mode", "name", "options"),
    [
        *((mode, "a.png", {}) for mode in ("RGB", "RGBA", "L", "LA")),
        ("L", "a.jpg", {}),
        ("RGB", "a.jpg", {"quality": 95}),
        ("RGB", "a.jpg", {"quality": 75, "subsampling": 0}),
        ("RGB", "a.jpg", {"quality": 85, "subsampling": 1, "restart_marker_blocks": 7}),
    ],
)
def test_it_agrees_with_pillow(mode: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path, mode, name, **options)
    allowed = 0.01 if name.endswith("png") else 1.2
    assert np.abs(np.array(grid_of(path)[0]) - by_pillow(path)).max() < allowed


@pytest.mark.parametrize("progressive", [False, True])
def test_a_large_photo_is_decoded_from_its_top(progressive: bool, tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    with Image.open(PHOTO) as image:
        image.resize((2600, 2000), 3).save(path, progressive=progressive)
    grid, details = grid_of(path)
    assert 0 < len(grid) < 6
    assert len(details) == len(grid) * (not progressive)
    allowed = 3 if progressive else 1  # its first scan lacks the last bit of each mean
    assert np.abs(np.array(grid) - by_pillow(path)[: len(grid)]).max() < allowed


@pytest.mark.parametrize(
    ("mode", "name", "options"),
    [
        ("P", "a.png", {}),
        ("I;16", "a.png", {}),
        ("CMYK", "a.jpg", {}),
        ("RGB", "a.jpg", {"progressive": True}),
        ("RGB", "a.webp", {}),
        ("RGB", "a.tiff", {}),
    ],
)
def test_what_it_does_not_know_is_unknown(
    mode: str, name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(Unknown):
        grid_of(saved(tmp_path, mode, name, **options))


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_damaged_file_is_unknown_or_read(name: str, tmp_path: Path) -> None:
    whole, chance = saved(tmp_path, "RGB", name).read_bytes(), random.Random(1)
    unknown = 0
    for _ in range(60):
        damaged = bytearray(whole[: chance.randrange(len(whole))])
        for _ in range(5):
            damaged[chance.randrange(min(len(damaged), 700) or 1) : 1] = bytes([chance.randrange(256)])
        (tmp_path / name).write_bytes(damaged)
        try:
            grid_of(tmp_path / name)
        except Unknown:
            unknown += 1
    assert unknown > 20


def judged(grid: Any) -> Any:
    photo = Photo("view_003", "images_8/view_003.png", grid)
    return photos_decoded(TrainingRecord(photos=(photo,)), Path(), samples_folder() / "courtyard", 1)


def test_the_truth_and_another_filter_are_met() -> None:
    for size in ((160, 120), (128, 96), (77, 58)):
        assert judged(by_pillow(PHOTO, size=size).tolist()).outcome is Outcome.MET


@pytest.mark.parametrize(
    "change",
    [
        lambda grid: grid[..., ::-1],
        lambda grid: grid[::-1],
        lambda grid: grid[:, ::-1],
        lambda grid: 255 * (grid / 255) ** 1.1,
        lambda grid: grid + 1.5 * MOST_OFF,
    ],
    ids=["BGR", "upside down", "mirrored", "gamma", "brighter"],
)
def test_what_was_not_in_the_file_is_refused(change: Any) -> None:
    item = judged(change(by_pillow(PHOTO)).tolist())
    assert item.outcome is Outcome.FAILED and "view_003 is off by" in item.measured


@pytest.mark.parametrize(
    "options", [{"quality": 95}, {"quality": 30}, {"subsampling": 0}, {"subsampling": 1}]
)
@pytest.mark.parametrize(
    ("filters", "outcome"),
    [
        ((), Outcome.MET),
        ((ImageFilter.GaussianBlur(1),), Outcome.FAILED),
        ((ImageFilter.BoxBlur(1),), Outcome.FAILED),
        ((ImageFilter.UnsharpMask(1, 80, 0),), Outcome.FAILED),
    ],
    ids=["as it is", "Gaussian", "box", "sharper"],
)
def test_the_details_of_a_jpeg_are_compared(
    filters: Any, outcome: Outcome, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path, "RGB", "a.jpg", **options)

    def altered(path: Path, size: Any) -> torch.Tensor:
        with Image.open(path) as image:
            for one in filters:
                image = image.filter(one)
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    monkeypatch.setattr(trainers, "decode", altered)
    photo = Photo("a", "a.jpg", by_pillow(path).tolist(), *trainers._as_decoded(path))
    item = photos_decoded(TrainingRecord(photos=(photo,)), tmp_path, tmp_path, 1)
    assert item.outcome is outcome, item.measured
    assert ("times the details of its file" in item.measured) is bool(filters)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA"])
def test_every_pixel_of_a_png_is_compared(mode: str, tmp_path: Path) -> None:
    path = saved(tmp_path, mode, "a.png")
    right = hashlib.sha256(decode(path, image_size(path)).numpy().tobytes()).hexdigest()
    for digest, outcome in ((right, Outcome.MET), ("0" * 64, Outcome.FAILED)):
        photo = Photo("a", "a.png", by_pillow(path).tolist(), digest)
        item = photos_decoded(TrainingRecord(photos=(photo,)), tmp_path, tmp_path, 1)
        assert item.outcome is outcome, item.measured


def pictured(tmp_path: Path, *, told: float = 0.0, brighter: int = 0) -> Any:
    """A picture with an error of 10 of 255 in every pixel, of which another PSNR was told, or whose photo is brighter."""
    with Image.open(PHOTO) as image:
        pixels = np.asarray(image.convert("RGB")).clip(0, 200)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    shown = pixels + np.uint8(brighter)
    Image.fromarray(np.concatenate([shown + np.uint8(10), shown], axis=1)).save(tmp_path / "picture.png")
    psnr = 20 * math.log10(255 / 10) + told
    view = HeldOutView("a", psnr, "picture.png", "photo.png")
    return TrainingRecord(heldout_views=(view,), heldout=ImageQuality(psnr))


def test_held_out_quality_is_that_of_its_pictures(tmp_path: Path) -> None:
    assert held_out_as_pictured(pictured(tmp_path), tmp_path).outcome is Outcome.MET
    item = held_out_as_pictured(pictured(tmp_path, told=0.5), tmp_path)
    assert item.measured == "a has 28.13 dB in its picture, and 28.63 dB was told"
    masked = TrainingRecord(heldout_views=(HeldOutView("a", 20.0),))
    item = held_out_as_pictured(masked, tmp_path)
    assert (item.outcome, item.measured) == (Outcome.NOT_MEASURED, "masks hide parts of them")


@pytest.mark.parametrize(
    ("gap", "outcome"), [(0.0, Outcome.MET), (-0.3, Outcome.FAILED), (0.3, Outcome.FAILED)]
)
def test_a_held_out_view_is_drawn_as_a_step_draws_it(gap: float, outcome: Outcome) -> None:
    """Also of one whose picture a mask hides."""
    view = HeldOutView("a", 25.0, drawn_again=25.0 + gap)
    item = held_out_as_pictured(TrainingRecord(heldout_views=(view,)), Path())
    assert item.outcome is outcome, item.measured
    assert outcome is Outcome.MET or "as a training step draws it, and 25.00 dB was told" in item.measured


def test_rows_of_a_saved_cloud_are_read_as_viewers_read_them(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows = {name: generator.normal(size=(9, *shape)).astype(np.float32) for name, shape in SHAPES.items()}
    write_gaussians(tmp_path / "cloud.ply", rows)

    def judged(number: int, changed: str = "") -> Criterion:
        row = {
            name: tuple((values[5] + (name == changed)).flatten().tolist()) for name, values in rows.items()
        }
        cloud = PlyCheck("cloud.ply", 1, 0.0, 1e-6, {str(number): row})
        return ply_round_trip(TrainingRecord(ply=cloud), tmp_path)

    assert judged(5).outcome is Outcome.MET
    for name in SHAPES:
        assert judged(5, name).measured == f"{name} of row 5 is not what was trained; largest difference 0"
    assert judged(6).outcome is judged(90).outcome is Outcome.FAILED


def test_a_photo_in_a_picture_is_that_of_its_file(tmp_path: Path) -> None:
    right, wrong = (photos_decoded(pictured(tmp_path, brighter=b), tmp_path, tmp_path, 1) for b in (0, 2))
    assert right.outcome is Outcome.NOT_MEASURED and wrong.outcome is Outcome.FAILED
    assert wrong.measured == "not every pixel is as the file has it: a"


def test_no_photo_that_can_be_compared_is_not_measured(tmp_path: Path) -> None:
    photo = Photo("x", "x.webp", ())
    assert (
        photos_decoded(TrainingRecord(photos=(photo,)), tmp_path, tmp_path, 1).outcome is Outcome.NOT_MEASURED
    )
    assert photos_decoded(TrainingRecord(), tmp_path, tmp_path, 1).outcome is Outcome.NOT_MEASURED
