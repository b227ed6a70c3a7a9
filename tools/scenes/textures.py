"""Procedural surface colours: functions from points [N, 3] in an object's own frame to colours [N, 3] in 0..1.

All of them are pure arithmetic on the coordinates (a hashed integer lattice instead of a random state), so the
same scene comes out on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Texture = Callable[[Array], Array]
Color = tuple[float, float, float]


def lattice_hash(cells: Array, seed: int) -> Array:
    """Hash integer cells [N, 3] to numbers [N] in 0..1 (xor-multiply mixing of 32-bit words)."""
    words = cells.astype(np.int64).astype(np.uint32)
    mixed = np.full(len(words), (seed * 2654435761) & 0xFFFFFFFF, dtype=np.uint32)
    for axis, prime in enumerate((73856093, 19349663, 83492791)):
        mixed ^= words[:, axis] * np.uint32(prime)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x85EBCA6B)
        mixed ^= mixed >> np.uint32(13)
    return np.asarray(mixed.astype(np.float64) / 4294967295.0)


def value_noise(points: Array, seed: int) -> Array:
    """Smoothly interpolated lattice noise [N] in 0..1 with features of size one."""
    base = np.floor(points)
    fraction = points - base
    smooth = fraction * fraction * (3.0 - 2.0 * fraction)
    total = np.zeros(len(points))
    for corner in range(8):
        offset = np.array([corner & 1, (corner >> 1) & 1, (corner >> 2) & 1])
        weight = np.prod(np.where(offset == 1, smooth, 1.0 - smooth), axis=1)
        total += weight * lattice_hash(base + offset, seed)
    return total


def fractal_noise(points: Array, octaves: int, seed: int) -> Array:
    """Octaves of value noise [N] in 0..1, each twice as fine and half as strong as the one before."""
    total, weight, scale = np.zeros(len(points)), 0.0, 1.0
    for octave in range(octaves):
        total += scale * value_noise(points * 2.0**octave, seed + octave)
        weight += scale
        scale *= 0.5
    return total / weight


def _ramp(values: Array, colors: Sequence[Color]) -> Array:
    """Look values in 0..1 up in evenly spaced colours, linearly interpolated."""
    stops = np.linspace(0.0, 1.0, len(colors))
    table = np.asarray(colors, dtype=np.float64)
    return np.stack([np.interp(values, stops, table[:, channel]) for channel in range(3)], axis=1)


def flat(color: Color) -> Texture:
    """One colour everywhere."""
    return lambda points: np.broadcast_to(np.asarray(color, dtype=np.float64), (len(points), 3)).copy()


def noise(size: float, colors: Sequence[Color], octaves: int = 3, seed: int = 0) -> Texture:
    """Clouds of the given feature `size` through a ramp of `colors`, with the contrast stretched."""

    def texture(points: Array) -> Array:
        values = fractal_noise(points / size, octaves, seed)
        return _ramp(np.clip((values - 0.25) * 2.0, 0.0, 1.0), colors)

    return texture


def checker(size: float, first: Color, second: Color, grain: float = 0.15, seed: int = 0) -> Texture:
    """Squares of side `size` in two colours, each with its own brightness and a fine grain."""

    def texture(points: Array) -> Array:
        # A nudge keeps faces that lie exactly on a lattice plane from flickering between two cells.
        cells = np.floor(points / size + 1e-4)
        even = (cells.sum(axis=1) % 2 == 0)[:, None]
        base = np.where(even, np.asarray(first), np.asarray(second))
        tone = 1.0 + grain * (2.0 * lattice_hash(cells, seed) - 1.0)
        fine = 1.0 + grain * (2.0 * value_noise(points * (6.0 / size), seed + 7) - 1.0)
        return np.clip(base * (tone * fine)[:, None], 0.0, 1.0)

    return texture


def bricks(size: float, brick: Color, mortar: Color, seed: int = 0) -> Texture:
    """Level courses of bricks (2:1) around all upright faces, each brick with its own tone."""

    def texture(points: Array) -> Array:
        # x + z runs along either kind of upright face of a box.
        along, up = (points[:, 0] + points[:, 2]) / (2.0 * size), points[:, 1] / size
        row = np.floor(up)
        shifted = along + 0.5 * (row % 2)
        column = np.floor(shifted)
        joint = (shifted - column < 0.06) | (up - row < 0.12)
        cells = np.stack([column, row, np.zeros_like(row)], axis=1)
        tone = 0.7 + 0.5 * lattice_hash(cells, seed)
        grain = 0.85 + 0.3 * value_noise(points * (8.0 / size), seed + 3)
        color = np.where(joint[:, None], np.asarray(mortar), np.asarray(brick) * tone[:, None])
        return np.clip(color * grain[:, None], 0.0, 1.0)

    return texture


def planks(width: float, colors: Sequence[Color], axes: tuple[int, int] = (0, 2), seed: int = 0) -> Texture:
    """Boards of the given `width` across `axes[0]`, with grain that runs along `axes[1]`."""

    def texture(points: Array) -> Array:
        board = np.floor(points[:, axes[0]] / width)
        cells = np.stack([board, np.zeros_like(board), np.zeros_like(board)], axis=1)
        stretched = points.copy()
        stretched[:, axes[0]] *= 12.0 / width
        stretched[:, axes[1]] *= 1.5 / width
        values = 0.5 * fractal_noise(stretched, 2, seed) + 0.5 * lattice_hash(cells, seed + 1)
        gap = points[:, axes[0]] / width - board < 0.05
        return np.asarray(_ramp(values, colors) * np.where(gap, 0.45, 1.0)[:, None])

    return texture


def stripes(size: float, colors: Sequence[Color], axis: int = 1) -> Texture:
    """Hard bands of the given `size` along one axis."""

    def texture(points: Array) -> Array:
        index = np.floor(points[:, axis] / size).astype(np.int64) % len(colors)
        return np.asarray(np.asarray(colors, dtype=np.float64)[index])

    return texture
