"""Tiny scenes in every layout, as files, and what they show."""

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings

from smoke_trainer.data.camera import Camera, Distortion

FUZZ = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LAYOUTS = ("colmap-binary", "colmap-text", "blender", "nerfstudio")
TINY = Camera(48, 36, 45.0, 46.0, 25.0, 17.0)
# Of one row of each group of Gaussians with harmonics of degree 3.
SHAPES = {"xyz": (3,), "f_dc": (1, 3), "f_rest": (15, 3), "opacity": (1,), "scaling": (3,), "rotation": (4,)}
LENS = Distortion(k1=-0.3, k2=0.05, p1=0.002, p2=-0.001)
SCENES = Path(__file__).with_name("scenes")
"""A folder a layout: ten photos of one world at 48x36, of another at 40x40 for Blender's."""
TRUTH = np.load(SCENES / "truth.npz")
"""Of the ray tracer that made them (tools/scenes, until issue 50): ``poses``, world to camera, and ``blender_poses``; ``xyz`` and
``rgb`` of the points; ``straight``, photo 3 of nerfstudio's scene without its distortion, seen by a ``pinhole``."""


def poses_of(layout: str) -> np.ndarray:
    """[10, 4, 4], world to camera."""
    return TRUTH["blender_poses" if layout == "blender" else "poses"]
