"""A small ray tracer in numpy: shapes, one bounce of light, hard shadows; colour, coverage and depth per pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion, distort_points
from tools.scenes.textures import Texture, flat

Array = np.ndarray
Vector = tuple[float, float, float]

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

    def intersect(self, origins: Array, directions: Array) -> tuple[Array, Array]:
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

    def intersect(self, origins: Array, directions: Array) -> tuple[Array, Array]:
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

    def intersect(self, origins: Array, directions: Array) -> tuple[Array, Array]:
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

    def intersect(self, origins: Array, directions: Array) -> tuple[Array, Array]:
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


@dataclass(frozen=True)
class World:
    """Shapes and light. `sky` maps directions [N, 3] to colours [N, 3]; without it a missed ray has no coverage."""

    shapes: Sequence[Primitive]
    sky: Callable[[Array], Array] | None = None
    sun: tuple[float, float, float] = (0.4, -0.8, 0.3)  # direction towards the light; y points down
    ambient: float = 0.45
    shadows: bool = True
    lamps: Sequence[tuple[tuple[float, float, float], float]] = field(default_factory=tuple)


@dataclass(frozen=True)
class Surface:
    """What a bundle of rays met: distance along the ray [N] (inf: nothing), colour [N, 3], coverage [N] in 0..1."""

    distance: Array
    color: Array
    coverage: Array


@dataclass(frozen=True)
class Picture:
    """One rendered view: `color` [H, W, 3] in 0..1 (not premultiplied), `alpha` [H, W], `depth` [H, W] along z."""

    color: Array
    alpha: Array
    depth: Array


def trace(world: World, origins: Array, directions: Array) -> Surface:
    """Follow rays (origins and unit directions, [N, 3]) to the first surface and shade it."""
    distance, normals, owner = _first_hit(world.shapes, origins, directions)
    hit = owner >= 0
    color = np.zeros_like(origins)
    points = origins + np.where(hit, distance, 0.0)[:, None] * directions
    # A surface met from behind (the inside of a room) is lit from the side we see.
    facing = np.sum(normals * directions, axis=1, keepdims=True) > 0
    normals = np.where(facing, -normals, normals)
    for index, shape in enumerate(world.shapes):
        mine = owner == index
        if mine.any():
            color[mine] = _shade(world, shape, points[mine], normals[mine], directions[mine])
    coverage = hit.astype(np.float64)
    if world.sky is not None:
        color[~hit] = world.sky(directions[~hit])
        coverage[:] = 1.0
    return Surface(distance, np.clip(color, 0.0, 1.0), coverage)


def _first_hit(shapes: Sequence[Primitive], origins: Array, directions: Array) -> tuple[Array, Array, Array]:
    """Distances [N], normals [N, 3] and the index of the shape [N] (-1: none)."""
    distance = np.full(len(origins), np.inf)
    normals = np.zeros_like(origins)
    owner = np.full(len(origins), -1)
    for index, shape in enumerate(shapes):
        t, normal = shape.intersect(origins, directions)
        closer = t < distance
        distance = np.where(closer, t, distance)
        normals[closer] = normal[closer]
        owner[closer] = index
    return distance, normals, owner


def _shade(world: World, shape: Primitive, points: Array, normals: Array, directions: Array) -> Array:
    """Lambert's law from the sun and lamps, plus a Phong highlight that moves with the viewer."""
    base = shape.material.texture(shape.local(points))
    if shape.material.unlit:
        return base
    # What glows by itself (a far backdrop) casts no shadow: the sun stands before it.
    solid = [other for other in world.shapes if not other.material.unlit]
    light = np.full(len(points), world.ambient)
    gloss = np.zeros(len(points))
    sun = np.asarray(world.sun) / np.linalg.norm(world.sun)
    sources = [(np.broadcast_to(sun, points.shape), 1.0 - world.ambient, np.full(len(points), np.inf))]
    for position, strength in world.lamps:
        offset = np.asarray(position) - points
        reach = np.linalg.norm(offset, axis=1)
        sources.append((offset / reach[:, None], strength, reach))
    for toward, strength, reach in sources:
        slope = np.maximum(np.sum(normals * toward, axis=1), 0.0)
        lit = slope > 0
        if world.shadows and lit.any():
            start = points[lit] + 1e-3 * normals[lit]
            blocker, _, _ = _first_hit(solid, start, toward[lit])
            lit[lit] = blocker >= reach[lit] - 1e-3
        light += np.where(lit, strength * slope, 0.0)
        if shape.material.specular > 0:
            mirror = directions - 2.0 * np.sum(directions * normals, axis=1, keepdims=True) * normals
            peak = np.maximum(np.sum(mirror * toward, axis=1), 0.0) ** shape.material.shininess
            gloss += np.where(lit, shape.material.specular * peak, 0.0)
    return np.asarray(base * light[:, None] + gloss[:, None])


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


def pixel_rays(
    camera: Camera, world_to_camera: Array, pixels: Array, distortion: Distortion = NO_DISTORTION
) -> tuple[Array, Array]:
    """Rays through image positions [N, 2] (pixel centres at +0.5): origins [N, 3] and unit directions [N, 3]."""
    x = (pixels[:, 0] - camera.cx) / camera.fx
    y = (pixels[:, 1] - camera.cy) / camera.fy
    plane = undistort_points(np.stack([x, y], axis=1), distortion)
    local = np.concatenate([plane, np.ones((len(plane), 1))], axis=1)
    rotation, translation = world_to_camera[:3, :3], world_to_camera[:3, 3]
    directions = local @ rotation
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    origin = -rotation.T @ translation
    return np.broadcast_to(origin, directions.shape).copy(), directions


def render_view(
    world: World,
    camera: Camera,
    world_to_camera: Array,
    samples: int = 3,
    distortion: Distortion = NO_DISTORTION,
) -> Picture:
    """Render one view with samples x samples rays a pixel (a box filter, as a camera's sensor has)."""
    height, width = camera.height, camera.width
    rows, columns = np.mgrid[0:height, 0:width]
    color = np.zeros((height * width, 3))
    alpha = np.zeros(height * width)
    for sub_row in range(samples):
        for sub_column in range(samples):
            offset = ((sub_column + 0.5) / samples, (sub_row + 0.5) / samples)
            pixels = np.stack([columns.ravel() + offset[0], rows.ravel() + offset[1]], axis=1)
            surface = trace(world, *pixel_rays(camera, world_to_camera, pixels, distortion))
            color += surface.color * surface.coverage[:, None]
            alpha += surface.coverage
    color = color / np.maximum(alpha, 1e-9)[:, None]
    alpha /= samples * samples
    depth = _center_depth(world, camera, world_to_camera, distortion)
    return Picture(color.reshape(height, width, 3), alpha.reshape(height, width), depth)


def _center_depth(world: World, camera: Camera, world_to_camera: Array, distortion: Distortion) -> Array:
    """Depth along the optical axis at pixel centres [H, W]; inf where nothing is met."""
    rows, columns = np.mgrid[0 : camera.height, 0 : camera.width]
    pixels = np.stack([columns.ravel() + 0.5, rows.ravel() + 0.5], axis=1)
    origins, directions = pixel_rays(camera, world_to_camera, pixels, distortion)
    distance, _, _ = _first_hit(world.shapes, origins, directions)
    return np.asarray((distance * (directions @ world_to_camera[2, :3])).reshape(camera.height, camera.width))
