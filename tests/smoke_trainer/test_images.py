"""Decoding and the bounded cache; lens distortion, its inverse, and a distorted picture made straight."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smoke_trainer.data.camera import Camera, Distortion, distort_points, pinhole_for, source_positions
from smoke_trainer.data.images import ImageStore, decode
from smoke_trainer.data.load import load_scene
from smoke_trainer.errors import SceneError
from smoke_trainer.metrics import psnr_from
from tests.smoke_trainer.tiny import FUZZ, TRUTH

CPU = torch.device("cpu")


def store(scene: Any, images: float) -> ImageStore:
    camera = scene.train[0].camera
    return ImageStore(CPU, int(images * 3 * camera.width * camera.height))


def test_the_cache_is_bounded_and_drops_the_oldest(scene_folder):
    scene = load_scene(str(scene_folder("colmap-binary")))
    photos = store(scene, 2.5)
    for view in scene.train[:4]:
        photos.get(view)
        assert photos.held_bytes <= photos.capacity_bytes
    assert list(photos._kept) == [str(view.image_path) for view in scene.train[2:4]]
    photos.get(scene.train[2])
    photos.get(scene.train[0])
    assert list(photos._kept) == [str(scene.train[2].image_path), str(scene.train[0].image_path)]
    assert photos.held_bytes == sum(planes.numel() for planes in photos._kept.values())


def test_a_cache_too_small_for_one_image_still_works(scene_folder):
    scene = load_scene(str(scene_folder("colmap-binary")))
    photos = store(scene, 0.5)
    assert torch.equal(photos.get(scene.train[0]).color, store(scene, 9).get(scene.train[0]).color)
    assert photos.held_bytes == 0


def test_a_cached_photo_equals_the_decoded_one_and_the_file(scene_folder):
    scene = load_scene(str(scene_folder("colmap-binary")))
    photos = store(scene, 9)
    first, second = photos.get(scene.train[0]), photos.get(scene.train[0])
    assert torch.equal(first.color, second.color)
    stored = torch.from_numpy(np.array(Image.open(scene.train[0].image_path))).permute(2, 0, 1)
    assert (first.color - stored / 255).abs().max() <= 1e-6


def test_alpha_lets_the_background_through(scene_folder):
    scene = load_scene(str(scene_folder("blender")))
    photo = ImageStore(CPU).get(scene.train[0])
    assert photo.alpha is not None and 0.0 == photo.alpha.min() < photo.alpha.max() == 1.0
    red = photo.over(torch.tensor([1.0, 0.0, 0.0]))
    empty = photo.alpha[0] == 0
    assert (red[:, empty] == torch.tensor([1.0, 0.0, 0.0])[:, None]).all()
    solid = photo.alpha[0] == 1
    assert torch.equal(red[:, solid], photo.color[:, solid])


def test_a_mask_is_read_with_its_photo(scene_folder, tmp_path):
    scene = load_scene(str(scene_folder("nerfstudio")))
    view = scene.train[0]
    half = Image.new("L", (48, 36), 0)
    half.paste(255, (0, 0, 24, 36))
    half.save(tmp_path / "mask.png")
    photo = ImageStore(CPU).get(dataclasses.replace(view, mask_path=tmp_path / "mask.png"))
    assert photo.mask is not None and photo.alpha is None and photo.color.shape == (3, 36, 48)
    assert 0.4 < photo.mask.mean() < 0.6
    assert photo.mask[0, :, :20].min() == 1.0 and photo.mask[0, :, 30:].max() == 0.0


def test_larger_files_are_averaged_down(tmp_path):
    checks = Image.new("L", (8, 8))
    checks.putdata([255 * ((x + y) % 2) for y in range(8) for x in range(8)])
    checks.convert("RGB").save(tmp_path / "checks.png")
    small = decode(tmp_path / "checks.png", (4, 4))
    assert small.shape == (3, 4, 4)
    assert small.float().sub(127.5).abs().max() <= 3.0  # at the corners a bicubic window is cut


def test_a_jpeg_is_resized_from_all_its_pixels(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.jpg", quality=95)
    with Image.open(tmp_path / "noise.jpg") as original:
        target = np.asarray(original.resize((36, 24), Image.Resampling.BICUBIC))
    assert (decode(tmp_path / "noise.jpg", (36, 24)).permute(1, 2, 0).numpy() == target).all()


def test_16_bit_gray_is_scaled_not_clipped(tmp_path):
    ramp = np.arange(256, dtype=np.uint16).repeat(4).reshape(8, 128) * 257
    Image.fromarray(ramp).save(tmp_path / "short.png")
    Image.fromarray(ramp.astype(np.int32)).save(tmp_path / "long.tiff")
    for name in ("short.png", "long.tiff"):
        pixels = decode(tmp_path / name, (128, 8))
        assert pixels.shape == (3, 8, 128)
        assert (pixels == torch.from_numpy((ramp // 257).astype(np.uint8))).all()


def test_numbers_without_a_known_white_are_refused(tmp_path):
    Image.fromarray(np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)).save(tmp_path / "a.tiff")
    with pytest.raises(
        SceneError, match=r"a\.tiff cannot be read as an image: its values are floating-point"
    ):
        decode(tmp_path / "a.tiff", (8, 8))


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "LA", "1"])
def test_other_kinds_of_pixels_show_the_same_picture(mode, tmp_path):
    square = Image.new("RGB", (16, 12), (255, 255, 255))
    square.paste((0, 0, 0), (0, 0, 8, 6))
    name = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    square.convert("L" if mode == "LA" else mode).convert(mode).save(name)
    expected = torch.from_numpy(np.array(square)).permute(2, 0, 1)
    assert (decode(name, (16, 12))[:3] == expected).all()


@FUZZ
@given(data=st.data())
def test_a_damaged_image_is_one_clear_error_or_decodes(scene_folder, data):
    folder = scene_folder("colmap-text")
    path = folder / "images" / "view_001.png"
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content) - 1))
    junk = data.draw(st.binary(max_size=8))
    path.write_bytes(content[:cut] + junk)
    try:
        scene = load_scene(str(folder))
        read = ImageStore(CPU).get(scene.train[0]).color
    except SceneError as error:
        assert "view_001.png" in str(error)
    else:
        # Only checksums and the end marker may be missing: every pixel was there.
        path.write_bytes(content)
        assert torch.equal(read, ImageStore(CPU).get(scene.train[0]).color)


CAMERA = Camera(64, 48, 60.0, 61.0, 33.0, 22.0)


def test_distortion_is_opencvs_formula():
    # x = 0.5, y = -0.25: r2 = 0.3125; radial = 1 + 0.1 r2 + 0.2 r2^2; written out by hand.
    bent = distort_points(np.array([[0.5, -0.25]]), Distortion(k1=0.1, k2=0.2, p1=0.01, p2=0.02))[0]
    radial = 1 + 0.1 * 0.3125 + 0.2 * 0.3125**2
    assert bent[0] == pytest.approx(0.5 * radial + 2 * 0.01 * 0.5 * -0.25 + 0.02 * (0.3125 + 2 * 0.25))
    assert bent[1] == pytest.approx(-0.25 * radial + 0.01 * (0.3125 + 2 * 0.0625) + 2 * 0.02 * 0.5 * -0.25)


@pytest.mark.parametrize("k1", [-0.2, 0.0, 0.15, 0.4])
def test_every_pixel_of_the_pinhole_lies_in_the_photo(k1):
    pinhole = pinhole_for(dataclasses.replace(CAMERA, lens=Distortion(k1=k1)))
    places = source_positions(
        *np.mgrid[:48, :64], pinhole, dataclasses.replace(CAMERA, lens=Distortion(k1=k1))
    )
    assert (places >= 0).all() and (places[..., 0] <= 64).all() and (places[..., 1] <= 48).all()
    assert pinhole == CAMERA if k1 <= 0 else 1.0 < pinhole.fx / CAMERA.fx < 1.5


@settings(max_examples=25, deadline=None, derandomize=True)
@given(k1=st.floats(-0.4, 0.4), k2=st.floats(-0.1, 0.1), p=st.floats(-0.02, 0.02), cx=st.floats(20.0, 80.0))
def test_border_and_grid_suffice_to_fit_the_pinhole(k1, k2, p, cx):
    camera = Camera(110, 74, 90.0, 95.0, cx, 40.0, Distortion(k1, k2, p, -p))
    pinhole = pinhole_for(camera)
    places = source_positions(*np.mgrid[:74, :110], pinhole, camera)
    fits = (places >= 0).all() and (places[..., 0] <= 110).all() and (places[..., 1] <= 74).all()
    assert fits or pinhole.fx == pytest.approx(4 * camera.fx)  # where nothing fits, the longest is taken


def test_undistorted_images_match_the_pinhole_view(scene_folder):
    scene = load_scene(str(scene_folder("nerfstudio")))
    view = scene.train[2]
    assert view.name == "images/view_003.png" and not view.source.lens.is_zero
    assert view.camera == Camera(*TRUTH["pinhole"])
    photo = ImageStore(CPU).get(view).color
    truth = torch.from_numpy(TRUTH["straight"]).permute(2, 0, 1) / 255
    bent = torch.from_numpy(np.array(Image.open(view.image_path))).permute(2, 0, 1) / 255
    straight_quality, bent_quality = (
        psnr_from(float((picture - truth).square().mean())) for picture in (photo, bent)
    )
    # Resampling at 48x36 costs sharpness, but only removing the distortion puts things where they belong.
    assert straight_quality > 26.0
    assert straight_quality > bent_quality + 4.0
