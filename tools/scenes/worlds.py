"""What stands in each sample scene: six worlds that differ in kind (outdoor, indoor, close-up, object, thin, wide)."""

from __future__ import annotations

import numpy as np

from tools.scenes.raytrace import Box, Material, Primitive, Rod, Sphere, World
from tools.scenes.textures import (
    Array,
    Texture,
    bricks,
    checker,
    flat,
    fractal_noise,
    noise,
    planks,
    stripes,
)

# The ground is the plane y = 0 in every world and y points down, so heights are negative.


def _ground(texture: Texture, half: float = 12.0) -> Box:
    return Box((0.0, 0.1, 0.0), (half, 0.1, half), material=Material(texture))


def _landscape(radius: float, seed: int) -> Sphere:
    """A far backdrop seen from inside: textured hills below a smooth sky."""

    def texture(points: Array) -> Array:
        heading = points / radius
        angle = np.arctan2(heading[:, 2], heading[:, 0])
        around = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
        ridge = 0.06 + 0.16 * fractal_noise(around * 3.0, 3, seed)
        height = -heading[:, 1]
        woods = noise(0.05, [(0.12, 0.22, 0.10), (0.35, 0.42, 0.18), (0.55, 0.50, 0.30)], 3, seed + 5)(
            heading
        )
        fade = np.clip(height * 1.6, 0.0, 1.0)[:, None]
        sky = (1.0 - fade) * np.array([0.85, 0.88, 0.92]) + fade * np.array([0.35, 0.55, 0.85])
        return np.where((height < ridge)[:, None], woods, sky)

    return Sphere((0.0, 0.0, 0.0), radius, Material(texture, unlit=True))


def _tree(x: float, z: float, height: float, seed: int) -> list[Primitive]:
    bark = Material(noise(0.08, [(0.25, 0.16, 0.10), (0.50, 0.36, 0.22)], 2, seed))
    leaves = Material(noise(0.12, [(0.10, 0.28, 0.08), (0.30, 0.52, 0.15), (0.62, 0.68, 0.28)], 2, seed + 1))
    return [
        Rod((x, 0.0, z), (x, -height, z), 0.09, bark),
        Sphere((x, -height - 0.25, z), 0.52, leaves),
        Sphere((x + 0.3, -height + 0.05, z + 0.1), 0.34, leaves),
        Sphere((x - 0.25, -height + 0.1, z - 0.2), 0.32, leaves),
    ]


def courtyard() -> World:
    """Outdoor: a small house, trees and a gilded ball on a lawn, with hills and sky far behind."""
    lawn = noise(0.35, [(0.20, 0.32, 0.12), (0.42, 0.52, 0.22), (0.66, 0.62, 0.36)], 4, 11)
    paving = checker(0.4, (0.62, 0.58, 0.52), (0.48, 0.44, 0.40), 0.25, 12)
    shapes: list[Primitive] = [
        _landscape(45.0, 3),
        _ground(lawn, 14.0),
        Box((0.0, -0.01, 0.0), (1.6, 0.02, 1.6), 0.3, Material(paving)),
        Box(
            (-0.9, -0.7, 0.7),
            (0.7, 0.7, 0.5),
            0.5,
            Material(bricks(0.14, (0.70, 0.36, 0.26), (0.82, 0.78, 0.72))),
        ),
        Box(
            (-0.9, -1.46, 0.7),
            (0.82, 0.07, 0.62),
            0.5,
            Material(planks(0.12, [(0.3, 0.2, 0.2), (0.55, 0.3, 0.25)])),
        ),
        Sphere(
            (0.65, -0.45, -0.25), 0.42, Material(noise(0.2, [(0.7, 0.5, 0.1), (0.95, 0.8, 0.35)], 2, 9), 0.5)
        ),
        Box(
            (0.65, -0.05, -0.25),
            (0.3, 0.05, 0.3),
            0.2,
            Material(checker(0.1, (0.8, 0.8, 0.8), (0.3, 0.3, 0.35))),
        ),
        *_tree(1.5, 1.2, 1.1, 21),
        *_tree(-1.9, -1.0, 0.9, 31),
    ]
    return World(shapes, sun=(0.5, -0.8, -0.4), ambient=0.45)


def _room_texture(half: tuple[float, float, float]) -> Texture:
    floor = planks(0.35, [(0.42, 0.26, 0.14), (0.66, 0.46, 0.28), (0.78, 0.60, 0.40)], (0, 2), 41)
    paper = stripes(0.3, [(0.72, 0.74, 0.62), (0.60, 0.66, 0.58)], 0)
    paper_side = stripes(0.3, [(0.74, 0.66, 0.60), (0.64, 0.56, 0.54)], 2)
    grain = noise(0.15, [(0.85, 0.85, 0.85), (1.1, 1.1, 1.1)], 2, 43)

    def texture(points: Array) -> Array:
        on_floor = points[:, 1] > half[1] - 1e-3
        on_ceiling = points[:, 1] < -half[1] + 1e-3
        on_side = np.abs(points[:, 0]) > half[0] - 1e-3
        walls = np.where(on_side[:, None], paper_side(points), paper(points)) * grain(points)
        upper = np.where(on_ceiling[:, None], np.array([0.88, 0.87, 0.84]) * grain(points), walls)
        return np.clip(np.where(on_floor[:, None], floor(points), upper), 0.0, 1.0)

    return texture


def study() -> World:
    """Indoor: a papered room with a desk, a bookshelf, a picture and a globe, lit by one lamp."""
    half = (2.6, 1.3, 2.6)
    wood = Material(planks(0.2, [(0.36, 0.20, 0.10), (0.60, 0.38, 0.20)], (0, 2), 51), 0.15)
    books = stripes(
        0.09, [(0.7, 0.2, 0.2), (0.2, 0.35, 0.6), (0.85, 0.75, 0.4), (0.25, 0.5, 0.3), (0.5, 0.3, 0.5)], 0
    )
    globe = noise(
        0.16, [(0.15, 0.35, 0.65), (0.25, 0.50, 0.75), (0.45, 0.62, 0.30), (0.75, 0.66, 0.42)], 3, 53
    )
    picture = noise(0.3, [(0.2, 0.2, 0.45), (0.9, 0.55, 0.3), (0.95, 0.9, 0.7)], 3, 54)
    shapes: list[Primitive] = [
        Box((0.0, -1.3, 0.0), half, 0.0, Material(_room_texture(half))),
        Box((0.3, -0.75, 0.2), (0.8, 0.04, 0.5), 0.35, wood),
        *[
            Rod((0.3 + dx, 0.0, 0.2 + dz), (0.3 + dx, -0.75, 0.2 + dz), 0.04, wood)
            for dx, dz in ((-0.6, -0.1), (0.5, -0.5), (0.6, 0.15), (-0.45, 0.55))
        ],
        Sphere((0.5, -1.02, 0.1), 0.23, Material(globe, 0.4)),
        Box((0.0, -0.85, 0.35), (0.2, 0.06, 0.14), 0.8, Material(books)),
        Box(
            (-1.9, -0.7, -1.2),
            (0.3, 0.7, 0.9),
            0.0,
            Material(stripes(0.35, [(0.45, 0.28, 0.15), (0.3, 0.18, 0.1)], 1)),
        ),
        Box((0.4, -1.5, 2.57), (0.7, 0.45, 0.03), 0.0, Material(picture)),
        Box(
            (1.2, -0.25, -1.3),
            (0.4, 0.25, 0.4),
            0.6,
            Material(checker(0.16, (0.75, 0.3, 0.25), (0.9, 0.85, 0.75))),
        ),
    ]
    return World(shapes, sun=(0.2, -1.0, 0.1), ambient=0.6, lamps=(((-0.6, -2.3, -0.4), 0.4),), shadows=True)


def fruit() -> World:
    """Close-up: glossy fruit on a chequered cloth before a mottled wall."""
    cloth = checker(0.22, (0.88, 0.86, 0.80), (0.35, 0.45, 0.65), 0.2, 61)
    peel = [
        noise(0.12, [(0.80, 0.25, 0.12), (0.92, 0.60, 0.20)], 3, 62),
        noise(0.10, [(0.55, 0.65, 0.15), (0.80, 0.82, 0.35)], 3, 63),
        noise(0.08, [(0.85, 0.50, 0.10), (0.98, 0.72, 0.25)], 2, 64),
        noise(0.06, [(0.35, 0.12, 0.30), (0.60, 0.30, 0.50)], 2, 65),
    ]
    balls = [
        ((0.0, -0.3, 0.0), 0.30),
        ((0.48, -0.24, 0.1), 0.24),
        ((-0.3, -0.22, -0.38), 0.22),
        ((0.2, -0.15, -0.45), 0.15),
    ]
    shapes: list[Primitive] = [
        _ground(cloth, 3.0),
        Box(
            (0.0, -1.0, 2.0),
            (3.0, 1.2, 0.05),
            0.0,
            Material(noise(0.4, [(0.4, 0.36, 0.34), (0.75, 0.70, 0.62)], 4, 66)),
        ),
        *[Sphere(center, radius, Material(peel[i], 0.45, 25.0)) for i, (center, radius) in enumerate(balls)],
        Rod((0.0, -0.58, 0.0), (0.06, -0.75, 0.03), 0.02, Material(flat((0.35, 0.25, 0.12)))),
        Box(
            (-0.65, -0.06, 0.15),
            (0.22, 0.06, 0.3),
            0.7,
            Material(planks(0.08, [(0.5, 0.35, 0.2), (0.75, 0.58, 0.38)])),
        ),
    ]
    return World(
        shapes,
        sky=lambda d: np.broadcast_to(np.array([0.72, 0.74, 0.78]), d.shape).copy(),
        sun=(0.5, -0.9, -0.5),
    )


def figurine() -> World:
    """Synthetic object with alpha: a toy figure with nothing around it."""
    cloth = bricks(0.07, (0.25, 0.45, 0.70), (0.85, 0.85, 0.60), 71)
    skin = Material(noise(0.15, [(0.80, 0.58, 0.42), (0.95, 0.78, 0.62)], 2, 72), 0.25)
    metal = Material(stripes(0.06, [(0.85, 0.85, 0.88), (0.45, 0.47, 0.52)], 1), 0.5, 12.0)
    shapes: list[Primitive] = [
        Box((0.0, 0.0, 0.0), (0.36, 0.42, 0.24), 0.2, Material(cloth)),
        Sphere((0.0, -0.72, 0.0), 0.30, skin),
        Sphere((0.12, -0.76, -0.26), 0.06, Material(flat((0.1, 0.1, 0.12)), 0.6)),
        Sphere((-0.12, -0.76, -0.26), 0.06, Material(flat((0.1, 0.1, 0.12)), 0.6)),
        Rod((-0.36, -0.32, 0.0), (-0.80, 0.10, -0.1), 0.09, metal),
        Rod((0.36, -0.32, 0.0), (0.85, -0.60, -0.05), 0.09, metal),
        Rod((-0.18, 0.40, 0.0), (-0.24, 0.98, 0.0), 0.11, metal),
        Rod((0.18, 0.40, 0.0), (0.26, 0.98, 0.0), 0.11, metal),
        Box(
            (0.0, 1.04, 0.0),
            (0.62, 0.07, 0.42),
            0.0,
            Material(checker(0.14, (0.8, 0.3, 0.25), (0.95, 0.9, 0.8), 0.2, 73)),
        ),
        Sphere(
            (0.88, -0.63, -0.05), 0.14, Material(noise(0.06, [(0.9, 0.8, 0.2), (0.3, 0.7, 0.4)], 2, 74), 0.3)
        ),
        Box(
            (0.0, -1.04, 0.0),
            (0.20, 0.10, 0.20),
            0.6,
            Material(stripes(0.04, [(0.6, 0.15, 0.2), (0.9, 0.75, 0.2)], 1)),
        ),
    ]
    return World(shapes, sun=(0.5, -0.9, -0.6), ambient=0.5)


def trellis() -> World:
    """Textured planes with thin structures: a lattice of bars and wires before two papered walls."""
    bar = Material(stripes(0.1, [(0.92, 0.90, 0.84), (0.55, 0.30, 0.20)], 1))
    wire = Material(flat((0.12, 0.13, 0.15)))
    uprights = [Rod((x, 0.0, -0.2), (x, -1.8, -0.2), 0.035, bar) for x in np.linspace(-1.4, 1.4, 6)]
    rails = [Rod((-1.5, y, -0.2), (1.5, y, -0.2), 0.03, bar) for y in (-0.4, -1.0, -1.7)]
    wires = [Rod((-1.5, -0.1 - 0.3 * k, 0.1), (1.5, -0.4 - 0.3 * k, 0.1), 0.012, wire) for k in range(4)]
    mural = noise(
        0.5, [(0.15, 0.35, 0.40), (0.45, 0.62, 0.50), (0.90, 0.80, 0.50), (0.80, 0.42, 0.30)], 4, 81
    )
    shapes: list[Primitive] = [
        _ground(checker(0.3, (0.70, 0.66, 0.60), (0.50, 0.48, 0.46), 0.25, 82), 5.0),
        Box((0.6, -1.3, 1.6), (2.9, 1.5, 0.05), 0.15, Material(mural)),
        Box(
            (-2.1, -1.3, 0.6),
            (0.05, 1.5, 2.6),
            0.25,
            Material(bricks(0.16, (0.66, 0.42, 0.34), (0.85, 0.82, 0.78), 83)),
        ),
        *uprights,
        *rails,
        *wires,
    ]
    return World(
        shapes,
        sky=lambda d: np.broadcast_to(np.array([0.66, 0.75, 0.86]), d.shape).copy(),
        sun=(0.6, -0.8, -0.7),
    )


def plaza() -> World:
    """Wide baseline: a column and blocks on a paved square, seen from few places far apart."""
    stone = noise(0.25, [(0.50, 0.46, 0.40), (0.72, 0.68, 0.60), (0.88, 0.85, 0.78)], 4, 91)
    shapes: list[Primitive] = [
        _landscape(40.0, 7),
        _ground(checker(0.6, (0.68, 0.60, 0.52), (0.52, 0.50, 0.50), 0.2, 92), 12.0),
        Rod(
            (0.0, 0.0, 0.0),
            (0.0, -1.8, 0.0),
            0.28,
            Material(stripes(0.3, [(0.8, 0.76, 0.7), (0.55, 0.4, 0.35)], 1)),
        ),
        Sphere((0.0, -2.0, 0.0), 0.36, Material(noise(0.2, [(0.2, 0.45, 0.4), (0.5, 0.7, 0.6)], 3, 93), 0.4)),
        Box(
            (1.4, -0.4, 0.5),
            (0.5, 0.4, 0.5),
            0.4,
            Material(bricks(0.13, (0.72, 0.48, 0.34), (0.86, 0.82, 0.76), 94)),
        ),
        Box((-1.2, -0.3, 0.9), (0.6, 0.3, 0.35), -0.5, Material(stone)),
        Box(
            (-0.6, -0.5, -1.4),
            (0.35, 0.5, 0.35),
            0.9,
            Material(checker(0.2, (0.3, 0.4, 0.6), (0.85, 0.82, 0.7), 0.2, 95)),
        ),
        Sphere(
            (1.0, -0.3, -1.1), 0.3, Material(noise(0.12, [(0.75, 0.3, 0.25), (0.95, 0.75, 0.5)], 2, 96), 0.3)
        ),
    ]
    return World(shapes, sun=(-0.5, -0.9, -0.4), ambient=0.45)
