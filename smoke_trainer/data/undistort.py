"""Lens distortion of the COLMAP / OpenCV kind, its inverse, and the pinhole camera that replaces a distorted one."""

from __future__ import annotations

import numpy as np

from smoke_trainer.data.camera import Camera, Distortion

Array = np.ndarray


def distort_points(points: Array, lens: Distortion) -> Array:
    """Ideal image-plane positions [N, 2] (x/z, y/z) to where the lens puts them (OpenCV's model)."""
    x, y = points[:, 0], points[:, 1]
    r2 = x * x + y * y
    radial = 1.0 + r2 * (lens.k1 + r2 * (lens.k2 + r2 * lens.k3))
    dx = 2.0 * lens.p1 * x * y + lens.p2 * (r2 + 2.0 * x * x)
    dy = lens.p1 * (r2 + 2.0 * y * y) + 2.0 * lens.p2 * x * y
    return np.stack([x * radial + dx, y * radial + dy], axis=1)


def undistort_points(points: Array, lens: Distortion, iterations: int = 20) -> Array:
    """The inverse of `distort_points` by Newton's method with a numeric Jacobian (there is no closed form)."""
    if lens.is_zero:
        return points
    guess: Array = points.copy()
    right, down = np.array([1e-6, 0.0]), np.array([0.0, 1e-6])
    for _ in range(iterations):
        error = distort_points(guess, lens) - points
        if float(np.abs(error).max(initial=0.0)) < 1e-12:
            break
        along_x = (distort_points(guess + right, lens) - distort_points(guess - right, lens)) / 2e-6
        along_y = (distort_points(guess + down, lens) - distort_points(guess - down, lens)) / 2e-6
        determinant = along_x[:, 0] * along_y[:, 1] - along_y[:, 0] * along_x[:, 1]
        determinant = np.where(np.abs(determinant) < 1e-9, 1e-9, determinant)
        move_x = (error[:, 0] * along_y[:, 1] - error[:, 1] * along_y[:, 0]) / determinant
        move_y = (error[:, 1] * along_x[:, 0] - error[:, 0] * along_x[:, 1]) / determinant
        guess = guess - np.stack([move_x, move_y], axis=1)
    return guess


def source_positions(target: Camera, source: Camera, lens: Distortion) -> Array:
    """For every pixel of the ideal `target`, where to look in the distorted image: [H, W, 2], pixel centres at +0.5."""
    rows, columns = np.mgrid[0 : target.height, 0 : target.width]
    x = (columns.ravel() + 0.5 - target.cx) / target.fx
    y = (rows.ravel() + 0.5 - target.cy) / target.fy
    bent = distort_points(np.stack([x, y], axis=1), lens)
    pixels = bent * [source.fx, source.fy] + [source.cx, source.cy]
    return np.asarray(pixels.reshape(target.height, target.width, 2))


def pinhole_for(source: Camera, lens: Distortion) -> Camera:
    """The pinhole of the same size that replaces a distorted camera.

    Its focal length is enlarged just enough that every pixel falls inside the photo (no blank border), found by
    bisection between 1x and 4x.
    """

    def fits(factor: float) -> bool:
        inside = source_positions(source.zoomed(factor), source, lens)
        wide = (inside[..., 0] >= 0.0) & (inside[..., 0] <= source.width)
        return bool((wide & (inside[..., 1] >= 0.0) & (inside[..., 1] <= source.height)).all())

    low, high = 1.0, 4.0
    if lens.is_zero or fits(low):
        return source
    for _ in range(12):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return source.zoomed(high)
