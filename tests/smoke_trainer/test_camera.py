"""Lens distortion: its inverse, the pinhole that replaces it, and a distorted picture made straight."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from smoke_trainer.data.camera import (
    Camera,
    Distortion,
    distort_points,
    pinhole_for,
    source_positions,
)
from smoke_trainer.data.images import ImageStore
from smoke_trainer.data.load import load_scene
from smoke_trainer.metrics import psnr
from tests.smoke_trainer.tiny import TRUTH

CAMERA = Camera(64, 48, 60.0, 61.0, 33.0, 22.0)


def test_distortion_is_opencvs_formula():
    # x = 0.5, y = -0.25: r2 = 0.3125; radial = 1 + 0.1 r2 + 0.2 r2^2; written out by hand.
    bent = distort_points(np.array([[0.5, -0.25]]), Distortion(k1=0.1, k2=0.2, p1=0.01, p2=0.02))[0]
    radial = 1 + 0.1 * 0.3125 + 0.2 * 0.3125**2
    assert bent[0] == pytest.approx(0.5 * radial + 2 * 0.01 * 0.5 * -0.25 + 0.02 * (0.3125 + 2 * 0.25))
    assert bent[1] == pytest.approx(-0.25 * radial + 0.01 * (0.3125 + 2 * 0.0625) + 2 * 0.02 * 0.5 * -0.25)


@pytest.mark.parametrize("k1", [-0.2, 0.0, 0.15, 0.4])
def test_every_pixel_of_the_pinhole_lies_in_the_photo(k1):
    lens = Distortion(k1=k1)
    pinhole = pinhole_for(CAMERA, lens)
    places = source_positions(pinhole, CAMERA, lens)
    assert (places >= 0).all() and (places[..., 0] <= 64).all() and (places[..., 1] <= 48).all()
    assert pinhole == CAMERA if k1 <= 0 else 1.0 < pinhole.fx / CAMERA.fx < 1.5


@settings(max_examples=25, deadline=None, derandomize=True)
@given(k1=st.floats(-0.4, 0.4), k2=st.floats(-0.1, 0.1), p=st.floats(-0.02, 0.02), cx=st.floats(20.0, 80.0))
def test_border_and_grid_suffice_to_fit_the_pinhole(k1, k2, p, cx):
    camera, lens = Camera(110, 74, 90.0, 95.0, cx, 40.0), Distortion(k1, k2, p, -p)
    pinhole = pinhole_for(camera, lens)
    places = source_positions(pinhole, camera, lens)
    fits = (places >= 0).all() and (places[..., 0] <= 110).all() and (places[..., 1] <= 74).all()
    assert fits or pinhole.fx == pytest.approx(4 * camera.fx)  # where nothing fits, the longest is taken


def test_undistorted_images_match_the_pinhole_view(scene_folder):
    scene = load_scene(str(scene_folder("nerfstudio")))
    view = scene.train[2]
    assert view.name == "images/view_003.png" and not view.distortion.is_zero
    assert view.camera == Camera(*TRUTH["pinhole"])
    photo = ImageStore(torch.device("cpu"), torch.device("cpu")).get(view).color
    truth = torch.from_numpy(TRUTH["straight"]).permute(2, 0, 1) / 255
    bent = torch.from_numpy(np.array(Image.open(view.image_path))).permute(2, 0, 1) / 255
    straight_quality, bent_quality = psnr(photo, truth), psnr(bent, truth)
    # Resampling at 48x36 costs sharpness, but only removing the distortion puts things where they belong.
    assert straight_quality > 26.0
    assert straight_quality > bent_quality + 4.0
