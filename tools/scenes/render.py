"""A small ray tracer in numpy: shapes, one bounce of light, hard shadows; colour, coverage and depth per pixel.

A texture maps points [N, 3] in a shape's own frame to colours [N, 3] in 0..1. All of them are pure arithmetic on the
coordinates (a hashed integer lattice instead of a random state), so the same scene comes out on every machine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoke_trainer.data.camera import NO_DISTORTION, Camera, Distortion, distort_points

Array = np.ndarray
Texture = Callable[[Array], Array]
Color = Sequence[float]

# Rays start this far from the surface they leave, so that a surface does not hide itself.
NEAREST_HIT = 1e-4


def lattice_hash(cells: Array, seed: int) -> Array:
    """Hash integer cells [N, 3] to numbers [N] in 0..1 (xor-multiply mixing of 32-bit words)."""
    cells = cells.astype(np.int64).astype(np.uint32)
    mixed = np.full(len(cells), (seed * 2654435761) & 0xFFFFFFFF, dtype=np.uint32)
    for axis, prime in enumerate((73856093, 19349663, 83492791)):
        mixed ^= cells[:, axis] * np.uint32(prime)
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
    stops, table = np.linspace(0.0, 1.0, len(colors)), np.asarray(colors)
    return np.stack([np.interp(values, stops, table[:, channel]) for channel in range(3)], axis=1)


def flat(color: Color) -> Texture:
    """One colour everywhere."""
    return lambda points: np.broadcast_to(np.asarray(color), points.shape).copy()


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


def planks(width: float, colors: Sequence[Color], axes: Sequence[int] = (0, 2), seed: int = 0) -> Texture:
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
        return np.asarray(np.asarray(colors)[index])

    return texture


def landscape(radius: float, seed: int) -> Texture:
    """A far backdrop seen from inside a ball: textured hills below a smooth sky."""
    woods = noise(0.05, [(0.12, 0.22, 0.10), (0.35, 0.42, 0.18), (0.55, 0.50, 0.30)], 3, seed + 5)

    def texture(points: Array) -> Array:
        heading = points / radius
        angle = np.arctan2(heading[:, 2], heading[:, 0])
        around = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
        ridge = 0.06 + 0.16 * fractal_noise(around * 3.0, 3, seed)
        height = -heading[:, 1]
        fade = np.clip(height * 1.6, 0.0, 1.0)[:, None]
        sky = (1.0 - fade) * np.array([0.85, 0.88, 0.92]) + fade * np.array([0.35, 0.55, 0.85])
        return np.where((height < ridge)[:, None], woods(heading), sky)

    return texture


def room(half: Sequence[float]) -> Texture:
    """The inside of a box of these half sides: boards, papered walls and a plain ceiling."""
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


TEXTURES: Mapping[str, Callable[..., Texture]] = {
    kind.__name__: kind for kind in (flat, noise, checker, bricks, planks, stripes, landscape, room)
}


# An intersection takes rays (origins and unit directions, [N, 3]) and gives distances [N] (inf where missed) and outward
# normals [N, 3]. A ball seen from inside is a sky; thin boxes are walls, floors and panels; rods are legs, bars and twigs.
Rays = tuple[Array, Array]
Hits = tuple[Array, Array]


def _nearest_positive(near: Array, far: Array) -> Array:
    """The first of two ordered distances that lies in front of the ray's start."""
    return np.where(near > NEAREST_HIT, near, np.where(far > NEAREST_HIT, far, np.inf))


def hit_ball(rays: Rays, center: Array, radius: float) -> Hits:
    """Solve |o + t d - c| = r for the smallest t in front."""
    origins, directions = rays
    offset = origins - center
    half_b = np.sum(offset * directions, axis=1)
    discriminant = half_b**2 - (np.sum(offset * offset, axis=1) - radius**2)
    root = np.sqrt(np.maximum(discriminant, 0.0))
    t = np.where(discriminant > 0.0, _nearest_positive(-half_b - root, -half_b + root), np.inf)
    hit = offset + np.where(np.isfinite(t), t, 0.0)[:, None] * directions
    return t, hit / radius


def hit_box(rays: Rays, center: Array, half: Sequence[float], yaw: float) -> Hits:
    """The slab test in the box's own frame."""
    origins, directions = rays
    rotation, sides = _about_vertical(yaw), np.asarray(half)
    start = (origins - center) @ rotation
    heading = directions @ rotation
    safe = np.where(np.abs(heading) < 1e-12, 1e-12, heading)
    one, two = (-sides - start) / safe, (sides - start) / safe
    near, far = np.minimum(one, two), np.maximum(one, two)
    entry, leave = near.max(axis=1), far.min(axis=1)
    t = np.where(leave >= np.maximum(entry, 0.0), _nearest_positive(entry, leave), np.inf)
    inside = entry <= NEAREST_HIT
    axis = np.where(inside, far.argmin(axis=1), near.argmax(axis=1))
    normals, rows = np.zeros_like(origins), np.arange(len(origins))
    sign = np.sign(safe[rows, axis])
    normals[rows, axis] = np.where(inside, sign, -sign)
    return t, normals @ rotation.T


def _about_vertical(yaw: float) -> Array:
    c, s = np.cos(yaw), np.sin(yaw)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def hit_rod(rays: Rays, start: Array, end: Sequence[float], radius: float) -> Hits:
    """Intersect the infinite cylinder and keep the hits between the two ends; there are no caps."""
    origins, directions = rays
    axis = np.asarray(end) - start
    length = float(np.linalg.norm(axis))
    axis = axis / length
    offset = origins - start
    flat_direction = directions - np.outer(directions @ axis, axis)
    flat_offset = offset - np.outer(offset @ axis, axis)
    a = np.maximum(np.sum(flat_direction**2, axis=1), 1e-12)
    half_b = np.sum(flat_direction * flat_offset, axis=1)
    discriminant = half_b**2 - a * (np.sum(flat_offset**2, axis=1) - radius**2)
    root = np.sqrt(np.maximum(discriminant, 0.0))
    t = np.full(len(origins), np.inf)
    normals = np.zeros_like(origins)
    for candidate in ((-half_b - root) / a, (-half_b + root) / a):
        height = (offset + candidate[:, None] * directions) @ axis
        fits = (discriminant > 0) & (candidate > NEAREST_HIT) & (height >= 0) & (height <= length)
        better = fits & (candidate < t)
        t = np.where(better, candidate, t)
        spoke = (flat_offset + candidate[:, None] * flat_direction) / radius
        normals = np.where(better[:, None], spoke, normals)
    return t, normals


SHAPES: Mapping[str, Callable[..., Hits]] = {"ball": hit_ball, "box": hit_box, "rod": hit_rod}


@dataclass(frozen=True)
class Shape:
    """A shape and its surface; `anchor` is its center or start, and the origin of its texture's frame."""

    kind: str
    anchor: Array
    size: Sequence[Any]
    texture: Texture
    specular: float = 0.0
    shininess: float = 20.0
    unlit: bool = False

    def hit(self, rays: Rays) -> Hits:
        """Distances and outward normals."""
        return SHAPES[self.kind](rays, self.anchor, *self.size)

    def color(self, points: Array) -> Array:
        """Of the surface at world points [N, 3]."""
        local = points - self.anchor
        if self.kind == "box":
            local = local @ _about_vertical(self.size[1])
        return self.texture(local)


@dataclass(frozen=True)
class World:
    """Shapes and light."""

    shapes: Sequence[Shape]
    sun: Sequence[float]
    ambient: float
    lamps: Sequence[tuple[Sequence[float], float]] = ()
    sky: Color | None = None


def world_of(table: Mapping[str, Any]) -> World:
    """The world of a table of ``scenes.toml``."""
    shapes = []
    for row in table["shapes"]:
        fields = dict(row)
        (kind,) = SHAPES.keys() & fields.keys()
        anchor, *size = fields.pop(kind)
        texture, *arguments = fields.pop("texture")
        shapes.append(Shape(kind, np.asarray(anchor), size, TEXTURES[texture](*arguments), **fields))
    return World(shapes, table["sun"], table["ambient"], table.get("lamps", ()), table.get("sky"))


@dataclass(frozen=True)
class Picture:
    """One rendered view: `color` [H, W, 3] in 0..1 (not premultiplied), `alpha` [H, W], `depth` [H, W] along z."""

    color: Array
    alpha: Array
    depth: Array


def _trace(world: World, rays: Rays) -> tuple[Array, Array]:
    """Follow rays to the first surface and shade it: colour [N, 3] and coverage [N] in 0..1."""
    origins, directions = rays
    distance, normals, owner = _first_hit(world.shapes, rays)
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
        color[~hit] = world.sky
        coverage[:] = 1.0
    return np.clip(color, 0.0, 1.0), coverage


def _first_hit(shapes: Sequence[Shape], rays: Rays) -> tuple[Array, Array, Array]:
    """Distances [N], normals [N, 3] and the index of the shape [N] (-1: none)."""
    count = len(rays[0])
    distance, normals, owner = np.full(count, np.inf), np.zeros((count, 3)), np.full(count, -1)
    for index, shape in enumerate(shapes):
        t, normal = shape.hit(rays)
        closer = t < distance
        distance = np.where(closer, t, distance)
        normals[closer] = normal[closer]
        owner[closer] = index
    return distance, normals, owner


def _shade(world: World, shape: Shape, points: Array, normals: Array, directions: Array) -> Array:
    """Lambert's law from the sun and lamps, plus a Phong highlight that moves with the viewer."""
    base = shape.color(points)
    if shape.unlit:
        return base
    # What glows by itself (a far backdrop) casts no shadow: the sun stands before it.
    solid = [other for other in world.shapes if not other.unlit]
    light, gloss = np.full(len(points), world.ambient), np.zeros(len(points))
    sun = np.asarray(world.sun) / np.linalg.norm(world.sun)
    sources = [(np.broadcast_to(sun, points.shape), 1.0 - world.ambient, np.full(len(points), np.inf))]
    for position, strength in world.lamps:
        offset = np.asarray(position) - points
        reach = np.linalg.norm(offset, axis=1)
        sources.append((offset / reach[:, None], strength, reach))
    for toward, strength, reach in sources:
        slope = np.maximum(np.sum(normals * toward, axis=1), 0.0)
        lit = slope > 0
        if lit.any():
            start = points[lit] + 1e-3 * normals[lit]
            blocker, _, _ = _first_hit(solid, (start, toward[lit]))
            lit[lit] = blocker >= reach[lit] - 1e-3
        light += np.where(lit, strength * slope, 0.0)
        if shape.specular > 0:
            mirror = directions - 2.0 * np.sum(directions * normals, axis=1, keepdims=True) * normals
            peak = np.maximum(np.sum(mirror * toward, axis=1), 0.0) ** shape.shininess
            gloss += np.where(lit, shape.specular * peak, 0.0)
    return np.asarray(base * light[:, None] + gloss[:, None])


def undistort_points(points: Array, lens: Distortion) -> Array:
    """The inverse of `distort_points` by Newton's method with a numeric Jacobian (there is no closed form)."""
    if lens.is_zero:
        return points
    guess: Array = points.copy()
    right, down = np.array([1e-6, 0.0]), np.array([0.0, 1e-6])
    for _ in range(20):
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
) -> Rays:
    """Rays through image positions [N, 2] (pixel centres at +0.5)."""
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
    corners = np.stack([columns.ravel(), rows.ravel()], axis=1)
    color, alpha = np.zeros((height * width, 3)), np.zeros(height * width)
    for sub_row in range(samples):
        for sub_column in range(samples):
            offset = [(sub_column + 0.5) / samples, (sub_row + 0.5) / samples]
            rays = pixel_rays(camera, world_to_camera, corners + offset, distortion)
            seen, coverage = _trace(world, rays)
            color += seen * coverage[:, None]
            alpha += coverage
    color = color / np.maximum(alpha, 1e-9)[:, None]
    alpha /= samples * samples
    # Depth is measured along the optical axis at pixel centres; inf where nothing is met.
    rays = pixel_rays(camera, world_to_camera, corners + 0.5, distortion)
    depth = _first_hit(world.shapes, rays)[0] * (rays[1] @ world_to_camera[2, :3])
    return Picture(
        color.reshape(height, width, 3), alpha.reshape(height, width), depth.reshape(height, width)
    )
