"""Whether cameras, poses and points make sense together: by what each camera sees of the points."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check, listed
from splatfix.facts.scene.colmap import MODELS
from splatfix.facts.scene.model import Camera, Pose, Scene, SceneImage, Vector
from splatfix.model import Finding

NEAR = 0.2
"""Units: what is nearer to a camera is not drawn (Inria's rasterizer, in_frustum in auxiliary.h)."""
FAR = 10_000.0
"""Units: float32 positions have some thousandths of precision left there."""
_CAMERAS, _POINTS = 60, 400
"""That are looked at."""
_SEEN = 0.02
"""Share of the points: a camera of a healthy scene sees far more."""
_NARROW = 0.01
"""Of an image's width: the middle half of the points of a healthy scene takes far more."""
_ONE_PLACE = 1e-3
"""Of the distance of what is seen: cameras spread no further stand in one place."""
_FAR_AWAY = 30.0
"""Times the median distance from the middle: such a camera belongs to another scene."""
_WILD, _MOST_WILD = 1000.0, 0.01
"""A point further away than so many times the median is wild; COLMAP leaves a few."""
_FEW_POINTS = 300
_OFF = 0.05
"""Of an image's width: COLMAP leaves less than a hundredth of that, and distortion some hundredths at the corners."""
_FEWEST_KEYPOINTS = 8
_MODELS = {name for name, _ in MODELS.values()}
_PERSPECTIVE = {"SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV"}


@check("camera-unknown")
def camera_unknown(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.damage:
        return
    yield from listed(this.fail, [image.name for image in scene.images if image.camera is None])
    models = {image.camera.model for image in scene.images if image.camera is not None and image.camera.model}
    for model in sorted(models - _MODELS):
        yield this.fail("model", model=model, known=len(_MODELS))


@check("camera-impossible")
def camera_impossible(scene: Scene, this: Check) -> Iterator[Finding]:
    wrong: Counter[str] = Counter()
    for image in scene.images:
        if image.camera is not None and (reason := _impossible(image.camera)):
            wrong[reason] += 1
    for reason, count in wrong.items():
        yield this.fail(reason=reason, count=count)


def _impossible(camera: Camera) -> str:
    """Say what is wrong with it; "" for nothing."""
    if not all(map(math.isfinite, camera.parameters)):
        return "parameters are not finite numbers"
    focal, center = camera.focal_lengths, camera.center
    if focal is None or camera.model not in _MODELS:
        return ""
    if min(focal) <= 0:
        return "focal length is not positive"
    if not (camera.width and camera.height):
        return "size is no image's"
    if max(camera.width / focal[0], camera.height / focal[1]) > 2 * math.tan(math.radians(87.5)):
        return "field of view is above 175 degrees"
    if min(camera.width / focal[0], camera.height / focal[1]) < 2 * math.tan(math.radians(0.25)):
        return "field of view is below half a degree"
    if center is not None and not (0 < center[0] < camera.width and 0 < center[1] < camera.height):
        return "principal point lies outside of the image"
    return ""


@check("pose-impossible")
def pose_impossible(scene: Scene, this: Check) -> Iterator[Finding]:
    names = [image.name or "a frame without a file_path" for image in scene.images if image.pose is None]
    yield from listed(this.fail, names)


@check("poses-equal")
def poses_equal(scene: Scene, this: Check) -> Iterator[Finding]:
    by_pose: dict[object, list[str]] = {}
    for image, pose in _posed(scene):
        rounded = tuple(round(value, 9) for row in (*pose.rotation, pose.translation) for value in row)
        by_pose.setdefault(rounded, []).append(image.path)
    same = [names for names in by_pose.values() if len(set(names)) > 1]
    yield from listed(this.warn, [" = ".join(names[:3]) for names in same])


@check("poses-one-place")
def poses_one_place(scene: Scene, this: Check) -> Iterator[Finding]:
    positions = [pose.position for _, pose in _posed(scene)]
    if len(positions) < 2:
        return
    middle = _middle(positions)
    spread = max(math.dist(position, middle) for position in positions)
    reach = median([math.dist(point, middle) for point in _finite(scene)] or [1.0])
    if spread <= _ONE_PLACE * reach:
        yield this.fail()


@check("pose-far-away")
def pose_far_away(scene: Scene, this: Check) -> Iterator[Finding]:
    posed = list(_posed(scene))
    if len(posed) < 4:
        return
    middle = _middle([pose.position for _, pose in posed])
    distances = {image.name: math.dist(pose.position, middle) for image, pose in posed}
    limit = _FAR_AWAY * median(distances.values())
    names = [name for name, distance in distances.items() if distance > limit > 0]
    yield from listed(this.fail, names, times=_FAR_AWAY)


@check("poses-flipped")
def poses_flipped(scene: Scene, this: Check) -> Iterator[Finding]:
    shares = _shares(scene)
    if not shares:
        return
    if median(shares.values()) >= _SEEN:
        yield from listed(this.fail, [name for name, share in shares.items() if share == 0.0], "blind")
        if median(_widths(scene)) < _NARROW:
            yield this.fail("other-units")
        return
    turned = (case for case, turn in _TURNS.items() if median(_shares(scene, turn).values()) > 5 * _SEEN)
    yield this.fail(next(turned, ""))


@check("reprojection-error")
def reprojection_error(scene: Scene, this: Check) -> Iterator[Finding]:
    shares, errors = _shares(scene), _errors(scene)
    if not errors or (shares and median(shares.values()) < _SEEN):
        return
    off = [name for name, error in errors.items() if error > _OFF and shares.get(name) != 0.0]
    if len(off) > len(errors) / 2:
        yield this.fail("most", error=median(errors.values()))
    else:
        yield from listed(this.fail, off)


def _errors(scene: Scene) -> Mapping[str, float]:
    """Return by image the median distance of its points from their keypoints, as a share of its width. Distortion is left out,
    and wide-angle models with it; so is a common factor, for many scale cameras and photos and leave the keypoints."""
    if scene.points is None:
        return {}
    positions = dict(zip(scene.points.numbers, scene.points.sample, strict=True))
    errors = {}
    for image, pose in _posed(scene):
        camera = image.camera
        if camera is None or camera.model not in _PERSPECTIVE or _impossible(camera):
            continue
        pairs = []
        for column, row, number in image.keypoints:
            if number in positions:
                point = camera.project(pose.seen_from(positions[number])) or (math.inf, math.inf)
                pairs.append((point, (column, row)))
        if len(pairs) >= _FEWEST_KEYPOINTS:
            reach = median(math.hypot(*key) for _, key in pairs)
            factor = median(math.hypot(*point) for point, _ in pairs) / (reach or 1.0)
            distances = [math.dist(point, (factor * x, factor * y)) for point, (x, y) in pairs]
            errors[image.name] = min(1.0, median(distances) / camera.width)
    return errors


@check("scene-scale")
def scene_scale(scene: Scene, this: Check) -> Iterator[Finding]:
    depths = [median(depth for _, _, depth in before) for _, before in _before_cameras(scene)]
    usual = median(depths or [1.0])
    if usual < NEAR:
        yield this.fail(usual=usual, near=NEAR)
    elif usual > FAR:
        yield this.warn(usual=usual)


@check("points-none")
def points_none(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.damage or scene.points is None:
        return
    if not scene.points.count:
        yield this.fail()
    elif scene.points.count < _FEW_POINTS:
        yield this.warn(count=scene.points.count)


@check("points-wild")
def points_wild(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.points is None or not scene.points.sample:
        return
    total, finite = len(scene.points.sample), _finite(scene)
    if len(finite) < total:
        yield this.fail(count=total - len(finite), total=total)
    if not finite:
        return
    middle = _middle(finite)
    distances = [math.dist(point, middle) for point in finite]
    limit = _WILD * median(distances)
    number = sum(distance > limit > 0 for distance in distances)
    if number:
        yield this.warn(times=max(distances) / median(distances), count=number, total=total)


@check("points-one-color")
def points_one_color(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.points is not None and len(scene.points.sample) > 1 and scene.points.colours == 1:
        yield this.warn()


@check("points-stale-ply")
def points_stale_ply(scene: Scene, this: Check) -> Iterator[Finding]:
    if scene.ply_points is None or scene.points is None or scene.damage:
        return
    if scene.ply_points != scene.points.count:
        yield this.warn(ply=scene.ply_points, model=scene.points.count)


def _posed(scene: Scene) -> Iterator[tuple[SceneImage, Pose]]:
    for image in scene.images:
        if image.pose is not None:
            yield image, image.pose


def _middle(points: Sequence[Vector]) -> Vector:
    """Return the median along each axis: of outliers it takes no notice."""
    x, y, z = (median(axis) for axis in zip(*points, strict=True))
    return x, y, z


def _finite(scene: Scene) -> Sequence[Vector]:
    """Return the points that were looked at, without those whose position is no number."""
    if scene.points is None:
        return []
    return [point for point in scene.points.sample if all(map(math.isfinite, point))]


def _some_points(scene: Scene) -> Sequence[Vector]:
    finite = _finite(scene)
    return finite[:: max(1, len(finite) // _POINTS)]


def _before_cameras(scene: Scene) -> Iterator[tuple[SceneImage, Sequence[Vector]]]:
    """Yield for some cameras, which have any before them, the points there, as they see them."""
    points = _some_points(scene)
    for image, pose in list(_posed(scene))[:_CAMERAS]:
        before = [point for point in map(pose.seen_from, points) if point[2] > 0]
        if before:
            yield image, before


def _looking_back(pose: Pose) -> Pose:
    """Turn a pose of axes with y up and z backwards."""
    right, (a, b, c), (d, e, f) = pose.rotation
    x, y, z = pose.translation
    return Pose((right, (-a, -b, -c), (-d, -e, -f)), (x, -y, -z))


def _inverse(pose: Pose) -> Pose:
    """Invert a camera-to-world pose that was written where world-to-camera is read."""
    first, second, third = zip(*pose.rotation, strict=True)
    return Pose((first, second, third), pose.position)


_TURNS: Mapping[str, Callable[[Pose], Pose]] = {"axes-of-opengl": _looking_back, "inverse": _inverse}


def _shares(scene: Scene, change: Callable[[Pose], Pose] | None = None) -> Mapping[str, float]:
    """Return for some cameras the share of the points that they see."""
    points = _some_points(scene)
    if not points:
        return {}
    posed = list(_posed(scene))
    shares = {}
    for image, pose in posed[:: max(1, len(posed) // _CAMERAS)]:
        camera = image.camera
        if camera is None or camera.focal_lengths is None or camera.center is None or _impossible(camera):
            continue
        if change is not None:
            pose = change(pose)
        projected = [camera.project(pose.seen_from(point)) for point in points]
        in_sight = sum(place is not None and camera.shows(place) for place in projected)
        shares[image.name] = in_sight / len(points)
    return shares


def _widths(scene: Scene) -> Sequence[float]:
    """Return for some cameras the part of the image's width that the middle half of the points before it takes."""
    widths = []
    for image, before in _before_cameras(scene):
        focal = image.camera and image.camera.focal_lengths
        if image.camera is None or not focal or len(before) < 4 or not image.camera.width:
            continue
        columns = sorted(focal[0] * x / depth for x, _, depth in before)
        middle_half = columns[3 * len(columns) // 4] - columns[len(columns) // 4]
        widths.append(middle_half / image.camera.width)
    return widths or [1.0]
