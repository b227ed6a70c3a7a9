"""A small ray tracer in numpy: one bounce of light, hard sun shadows, true colour, coverage and depth of every pixel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence, Tuple

import numpy as np

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion
from smoke_trainer.data.undistort import undistort_points
from smoke_trainer.scenes.primitives import Primitive

Array = np.ndarray


@dataclass(frozen=True)
class World:
    """Shapes and light. `sky` maps directions [N, 3] to colours [N, 3]; without it a missed ray has no coverage."""

    shapes: Sequence[Primitive]
    sky: Optional[Callable[[Array], Array]] = None
    sun: Tuple[float, float, float] = (0.4, -0.8, 0.3)  # direction towards the light; y points down
    ambient: float = 0.45
    shadows: bool = True
    lamps: Sequence[Tuple[Tuple[float, float, float], float]] = field(default_factory=tuple)


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


def _first_hit(shapes: Sequence[Primitive], origins: Array, directions: Array) -> Tuple[Array, Array, Array]:
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


def pixel_rays(
    camera: Camera, world_to_camera: Array, pixels: Array, distortion: Distortion = NO_DISTORTION
) -> Tuple[Array, Array]:
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
