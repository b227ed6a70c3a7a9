"""The points that structure from motion would find on a world: sampled on surfaces, noisy, with the views that saw them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoke_trainer.data.camera import Camera, Distortion, distort_points
from tools.scenes.recipes import SceneRecipe
from tools.scenes.render import Array, Picture, pixel_rays

PIXEL_NOISE = 0.4  # standard deviation of a keypoint, in image pixels
DEPTH_NOISE = 0.004  # standard deviation along the ray, relative to the depth
MIN_TRACK = 3  # views that must see a point, as mappers require
MAX_TRACK = 8  # views kept per point (real tracks are short)


@dataclass(frozen=True)
class Observed:
    """A sparse reconstruction: points and, for each, its track of (view index, x, y) in image pixels."""

    xyz: Array
    rgb: Array
    error: Array
    tracks: list[list[tuple[int, float, float]]]


def project(camera: Camera, world_to_camera: Array, lens: Distortion, points: Array) -> tuple[Array, Array]:
    """Points [N, 3] to pixels [N, 2] (centres at +0.5) and depth [N]."""
    local = points @ world_to_camera[:3, :3].T + world_to_camera[:3, 3]
    depth = local[:, 2]
    plane = distort_points(local[:, :2] / np.where(np.abs(depth) < 1e-9, 1e-9, depth)[:, None], lens)
    return plane * [camera.fx, camera.fy] + [camera.cx, camera.cy], depth


def _keypoints(picture: Picture, count: int, rng: np.random.Generator) -> Array:
    """Pixel indices [n] of a view, drawn where the picture has detail, as a feature detector would."""
    gray = picture.color.mean(axis=2) * picture.alpha
    detail = np.hypot(*np.gradient(gray)) + 0.01
    detail[~np.isfinite(picture.depth)] = 0.0
    weights = np.sqrt(detail).ravel()
    if weights.sum() <= 0:
        return np.empty(0, dtype=np.int64)
    count = min(count, int(np.count_nonzero(weights)))
    return np.asarray(rng.choice(weights.size, size=count, replace=False, p=weights / weights.sum()))


def _sees(picture: Picture, pixels: Array, depth: Array) -> Array:
    """Which projected points [N] lie inside the picture and are not hidden (depth within 2 % of the true one)."""
    height, width = picture.depth.shape
    column, row = np.floor(pixels[:, 0]).astype(np.int64), np.floor(pixels[:, 1]).astype(np.int64)
    inside = (depth > 0.05) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    truth = picture.depth[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)]
    return np.asarray(inside & (np.abs(truth - depth) < 0.02 * depth))


def reconstruct(recipe: SceneRecipe, pictures: Sequence[Picture]) -> Observed:
    """Sample about `recipe.points` surface points that at least three views see, with keypoint and depth noise."""
    camera = recipe.image_camera
    rng = np.random.default_rng(recipe.seed)
    per_view = max(1, int(np.ceil(1.6 * recipe.points / len(pictures))))
    candidates, colors = [], []
    for picture, pose in zip(pictures, recipe.poses, strict=True):
        index = _keypoints(picture, per_view, rng)
        row, column = np.divmod(index, camera.width)
        pixels = np.stack([column + 0.5, row + 0.5], axis=1)
        jitter = rng.normal(0.0, PIXEL_NOISE, pixels.shape)
        origins, directions = pixel_rays(camera, pose, pixels + jitter, recipe.distortion)
        along = directions @ pose[2, :3]
        depth = picture.depth[row, column] * (1.0 + rng.normal(0.0, DEPTH_NOISE, len(index)))
        candidates.append(origins + directions * (depth / along)[:, None])
        colors.append(picture.color[row, column])
    xyz, rgb = np.concatenate(candidates), np.concatenate(colors)
    tracks = _tracks(recipe, pictures, xyz, rng)
    kept = [index for index, track in enumerate(tracks) if len(track) >= MIN_TRACK]
    kept = sorted(rng.permutation(kept)[: recipe.points].tolist())
    tint = np.clip(rgb[kept] + rng.normal(0.0, 0.01, (len(kept), 3)), 0.0, 1.0)
    error = np.abs(rng.normal(PIXEL_NOISE, 0.15, len(kept)))
    return Observed(xyz[kept], np.round(tint * 255).astype(np.uint8), error, [tracks[i] for i in kept])


def _tracks(
    recipe: SceneRecipe, pictures: Sequence[Picture], xyz: Array, rng: np.random.Generator
) -> list[list[tuple[int, float, float]]]:
    """For every point the views that see it, with the noisy pixel in each."""
    tracks: list[list[tuple[int, float, float]]] = [[] for _ in range(len(xyz))]
    for view in rng.permutation(len(pictures)).tolist():
        pixels, depth = project(recipe.image_camera, recipe.poses[view], recipe.distortion, xyz)
        pixels = pixels + rng.normal(0.0, PIXEL_NOISE, pixels.shape)
        for index in np.nonzero(_sees(pictures[view], pixels, depth))[0].tolist():
            if len(tracks[index]) < MAX_TRACK:
                tracks[index].append((view, float(pixels[index, 0]), float(pixels[index, 1])))
    return tracks
