"""Cameras: a pinhole's numbers and a lens's distortion coefficients, in COLMAP's conventions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Camera:
    """A pinhole: size and focal lengths in pixels, principal point with pixel centres at +0.5 (COLMAP's convention)."""

    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float

    def resized(self, width: int, height: int) -> Camera:
        """The same field of view on another pixel grid."""
        sx, sy = width / self.width, height / self.height
        return Camera(width, height, self.fx * sx, self.fy * sy, self.cx * sx, self.cy * sy)

    def zoomed(self, factor: float) -> Camera:
        """The same grid with a focal length `factor` times as long."""
        return Camera(self.width, self.height, self.fx * factor, self.fy * factor, self.cx, self.cy)


@dataclass(frozen=True)
class Distortion:
    """OpenCV's radial (k1, k2, k3) and tangential (p1, p2) coefficients; SIMPLE_RADIAL and RADIAL use the first ones."""

    k1: float = 0.0
    k2: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    k3: float = 0.0

    @property
    def is_zero(self) -> bool:
        """True for a plain pinhole."""
        return not any((self.k1, self.k2, self.p1, self.p2, self.k3))


NO_DISTORTION = Distortion()
