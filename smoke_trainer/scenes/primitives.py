"""The shapes that sample scenes are built from: each one intersects rays and knows its own frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Tuple

import numpy as np

from smoke_trainer.scenes.textures import Texture, flat

Array = np.ndarray
Vector = Tuple[float, float, float]

# Rays start this far from the surface they leave, so that a surface does not hide itself.
NEAREST_HIT = 1e-4


@dataclass(frozen=True)
class Material:
    """How a surface looks: its texture, its gloss (view-dependent, so that spherical harmonics have work) and glow."""

    texture: Texture = field(default_factory=lambda: flat((0.7, 0.7, 0.7)))
    specular: float = 0.0
    shininess: float = 20.0
    unlit: bool = False


class Primitive:
    """A shape: `intersect` gives distances [N] (inf where missed) and outward normals [N, 3]."""

    material: Material

    def intersect(self, origins: Array, directions: Array) -> Tuple[Array, Array]:
        """Hit rays given by origins and unit directions, both [N, 3]."""
        raise NotImplementedError

    def local(self, points: Array) -> Array:
        """World points [N, 3] in the frame that textures are written in."""
        raise NotImplementedError


def _nearest_positive(near: Array, far: Array) -> Array:
    """The first of two ordered distances that lies in front of the ray's start."""
    return np.where(near > NEAREST_HIT, near, np.where(far > NEAREST_HIT, far, np.inf))


@dataclass(frozen=True)
class Sphere(Primitive):
    """A ball; seen from inside it is a sky or a far backdrop."""

    center: Vector
    radius: float
    material: Material = field(default_factory=Material)

    def intersect(self, origins: Array, directions: Array) -> Tuple[Array, Array]:
        """Solve |o + t d - c| = r for the smallest t in front."""
        offset = origins - np.asarray(self.center)
        half_b = np.sum(offset * directions, axis=1)
        discriminant = half_b**2 - (np.sum(offset * offset, axis=1) - self.radius**2)
        root = np.sqrt(np.maximum(discriminant, 0.0))
        t = np.where(discriminant > 0.0, _nearest_positive(-half_b - root, -half_b + root), np.inf)
        hit = offset + np.where(np.isfinite(t), t, 0.0)[:, None] * directions
        return t, hit / self.radius

    def local(self, points: Array) -> Array:
        """Relative to the centre."""
        return np.asarray(points - np.asarray(self.center))


@dataclass(frozen=True)
class Box(Primitive):
    """A box turned by `yaw` radians about the vertical (y) axis; thin boxes serve as walls, floors and panels."""

    center: Vector
    half: Vector
    yaw: float = 0.0
    material: Material = field(default_factory=Material)

    def _rotation(self) -> Array:
        c, s = np.cos(self.yaw), np.sin(self.yaw)
        return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])

    def intersect(self, origins: Array, directions: Array) -> Tuple[Array, Array]:
        """The slab test in the box's own frame."""
        rotation, half = self._rotation(), np.asarray(self.half)
        start = (origins - np.asarray(self.center)) @ rotation
        heading = directions @ rotation
        safe = np.where(np.abs(heading) < 1e-12, 1e-12, heading)
        one, two = (-half - start) / safe, (half - start) / safe
        near, far = np.minimum(one, two), np.maximum(one, two)
        entry, leave = near.max(axis=1), far.min(axis=1)
        t = np.where(leave >= np.maximum(entry, 0.0), _nearest_positive(entry, leave), np.inf)
        inside = entry <= NEAREST_HIT
        axis = np.where(inside, far.argmin(axis=1), near.argmax(axis=1))
        normals = np.zeros_like(origins)
        rows = np.arange(len(origins))
        sign = np.sign(safe[rows, axis])
        normals[rows, axis] = np.where(inside, sign, -sign)
        return t, normals @ rotation.T

    def local(self, points: Array) -> Array:
        """Relative to the centre, turned back."""
        return np.asarray((points - np.asarray(self.center)) @ self._rotation())


@dataclass(frozen=True)
class Rod(Primitive):
    """A cylinder without caps from `start` to `end`: legs, bars, twigs."""

    start: Vector
    end: Vector
    radius: float
    material: Material = field(default_factory=Material)

    def intersect(self, origins: Array, directions: Array) -> Tuple[Array, Array]:
        """Intersect the infinite cylinder and keep the hits between the two ends."""
        base = np.asarray(self.start)
        axis = np.asarray(self.end) - base
        length = float(np.linalg.norm(axis))
        axis = axis / length
        offset = origins - base
        flat_direction = directions - np.outer(directions @ axis, axis)
        flat_offset = offset - np.outer(offset @ axis, axis)
        a = np.maximum(np.sum(flat_direction**2, axis=1), 1e-12)
        half_b = np.sum(flat_direction * flat_offset, axis=1)
        discriminant = half_b**2 - a * (np.sum(flat_offset**2, axis=1) - self.radius**2)
        root = np.sqrt(np.maximum(discriminant, 0.0))
        t = np.full(len(origins), np.inf)
        normals = np.zeros_like(origins)
        for candidate in ((-half_b - root) / a, (-half_b + root) / a):
            height = (offset + candidate[:, None] * directions) @ axis
            fits = (discriminant > 0) & (candidate > NEAREST_HIT) & (height >= 0) & (height <= length)
            better = fits & (candidate < t)
            t = np.where(better, candidate, t)
            spoke = (flat_offset + candidate[:, None] * flat_direction) / self.radius
            normals = np.where(better[:, None], spoke, normals)
        return t, normals

    def local(self, points: Array) -> Array:
        """Relative to the start."""
        return np.asarray(points - np.asarray(self.start))
