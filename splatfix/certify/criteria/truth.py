"""Whether the photos that were trained on are what their files hold, and held-out quality what the saved pictures show."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

from splatfix.certify.criteria.criterion import criterion
from splatfix.certify.model import Criterion
from splatfix.certify.photos import Grid, Line, Unknown, digest_of, grid_of, pixels_of
from splatfix.certify.record import HeldOutView, Photo, TrainingRecord
from splatfix.core.words import counted, few

T = TypeVar("T")
MOST_OFF = 6.0
"""Of 255, of the mean color of a cell. Files that are decoded twice agree to 1, small JPEG with few and large blocks of color to
3.3; red and blue exchanged are 50 and more off on the sample scenes, a gamma of 1.1 is 9 off."""
LEAST_DETAIL, MOST_DETAIL = 0.8, 1.25
"""Of the energy that the details of a JPEG have in its file. Of 16 photos of a camera and 24 files of them saved again
at qualities 30, 75 and 98, libjpeg's three transforms, with and without smooth colors, have 0.989 to 1.030; a Gaussian blur of a
pixel 0.08 to 0.23, of half a pixel 0.51 to 0.88 (the largest is of a photo with a burnt-out sky, the next 0.65), means of
3 x 3 pixels 0.11 to 0.35, half the size and back 0.12 to 0.36, an unsharp mask 1.66 to 1.89."""
FAINTEST = 20.0
"""Energy of details; rounding to whole numbers alone makes 2."""
MOST_PICTURES = 8
"""Of held-out views, that are decoded."""
MOST_OF_PIXEL = 1.0
"""Of 255, of a pixel of a held-out photo in its picture, which is rounded once more where it had an alpha channel."""
ROUNDED = 0.25
"""Of 255 squared, by which the rounding of a picture changes a mean squared error: 1 / 12 for each side, and more."""
ROUNDED_MEAN = 0.01
"""In dB."""
MOST_OF_ERROR = 0.02
"""Of a mean squared error, which is 0.09 dB."""
_LONGEST_HEADER = 1 << 16


def photos_decoded(record: TrainingRecord, run: Path, scene: Path, most: int) -> Criterion:
    """Some photos are decoded again, by splatfix itself, and compared with what the trainer had of them.

    Args:
        run: folder that the trainer wrote into, with pictures of held-out views.
        scene: folder with the files that are true.
        most: photos that are decoded; Python takes a second or more for a large one.
    """
    largest, worst, compared, exact, detailed, reasons = 0.0, "", 0, 0, 0, []
    altered: dict[str, str] = {}
    for photo in _spread(record.photos, most):
        path = scene / photo.file
        try:
            truth, details = grid_of(path)
        except Unknown as reason:
            reasons.append(str(reason))
            continue
        trained = photo.grid[: len(truth)]
        off = _off(truth, trained)
        compared += 1
        if off > largest:
            largest, worst = off, f"{photo.name} is off by {off:.1f} of 255, allowed {MOST_OFF:g}"
            if _off([[cell[::-1] for cell in row] for row in truth], trained) <= MOST_OFF:
                worst += ": red and blue are exchanged"
        equal = _equal(photo, path)
        exact += equal is True
        if equal is False:
            altered[photo.name] = photo.name
        share = _share_of_details(photo, details)
        detailed += share is not None
        if share is not None and not LEAST_DETAIL <= share <= MOST_DETAIL:
            altered[photo.name] = f"{photo.name} has {share:.2f} times the details of its file"
    pictured = _spread(record.heldout_views, MOST_PICTURES)
    altered.update((view.name, view.name) for view in pictured if _pictured_otherwise(view, run, scene))
    met: bool | None = largest <= MOST_OFF and not altered
    measured = f"{counted(compared, 'photo')} agree to {largest:.1f} of 255, {exact} of them in every pixel"
    if detailed:
        measured += f", {detailed} in their details"
    if largest > MOST_OFF:
        measured = worst
    elif altered:
        measured = f"not every pixel is as the file has it: {few(tuple(altered.values()))}"
    elif not compared:
        met, measured = None, "; ".join(dict.fromkeys(reasons)) or "no photo was recorded"
    return criterion("photos-decoded", met, measured, most=MOST_OFF, less=LEAST_DETAIL, more=MOST_DETAIL)


def _share_of_details(photo: Photo, details: Sequence[float]) -> float | None:
    """Energy of a JPEG's details as it was decoded, by what its file has; None where one tells none, or there are hardly any."""
    if len(photo.details) < len(details) or sum(details) <= FAINTEST * len(details):
        return None
    return sum(photo.details[: len(details)]) / sum(details)


def _equal(photo: Photo, path: Path) -> bool | None:
    """Whether a photo was decoded to the pixels that its file has; None where that is not compared."""
    if not photo.sha256:
        return None
    try:
        return photo.sha256 == digest_of(path)
    except Unknown:
        return None


def _pictured_otherwise(view: HeldOutView, run: Path, scene: Path) -> bool:
    """Whether a held-out view's photo is not the one of its file; of another size, it is not compared."""
    if not view.photo:
        return False
    try:
        _, shown = _halves(run / view.picture)
        truth = pixels_of(scene / view.photo)
    except Unknown:
        return False
    if (len(shown), len(shown[0][0])) != (len(truth), len(truth[0][0])):
        return False
    return max(map(_distance, _values(shown), _values(truth))) > MOST_OF_PIXEL


def held_out_as_pictured(record: TrainingRecord, run: Path) -> Criterion:
    """PSNR of held-out views, measured again on the pictures that were saved of them, and when they are drawn as a step does.

    Args:
        run: folder that the trainer wrote into.
    """
    wrong, reasons, measured = [], [], 0
    for view in _spread(record.heldout_views, MOST_PICTURES):
        if not view.picture:
            reasons.append("masks hide parts of them")
            continue
        try:
            rendered, photo = map(_values, _halves(run / view.picture))
        except Unknown as reason:
            reasons.append(str(reason))
            continue
        measured += 1
        squared = sum(gap * gap for gap in map(_distance, rendered, photo)) / len(photo)
        told = view.psnr or 0.0
        if _told_otherwise(squared, told):
            shown = 10 * math.log10(255**2 / max(squared, ROUNDED))
            wrong.append(f"{view.name} has {shown:.2f} dB in its picture, and {told:.2f} dB was told")
    again = [(view, view.drawn_again) for view in record.heldout_views if view.drawn_again is not None]
    for view, psnr in again:
        told = view.psnr or 0.0
        if _told_otherwise(_squared_error(psnr), told):
            wrong.append(
                f"{view.name} has {psnr:.2f} dB as a training step draws it, and {told:.2f} dB was told"
            )
    each, mean = [view.psnr for view in record.heldout_views if view.psnr is not None], record.heldout.psnr
    if each and mean is not None and abs(sum(each) / len(each) - mean) > ROUNDED_MEAN:
        wrong.append(f"the mean of the views is {sum(each) / len(each):.2f} dB, and {mean:.2f} dB was told")
    met: bool | None = not wrong
    text = few(wrong, between="; ")
    if met and (measured or again):
        text = f"{counted(measured, 'view')} measured again, {len(again)} drawn again"
    elif met:
        met, text = None, "; ".join(dict.fromkeys(reasons)) or "no picture was recorded"
    return criterion("held-out-as-pictured", met, text, share=MOST_OF_ERROR)


def _squared_error(psnr: float) -> float:
    """The mean squared error, of values to 255, that a PSNR in dB is of."""
    return 255**2 * float(10 ** (-psnr / 10))


def _told_otherwise(squared: float, told: float) -> bool:
    """Whether a mean squared error is not that of the PSNR that was told, beyond what rounding and few pixels change."""
    return abs(squared - _squared_error(told)) > ROUNDED + MOST_OF_ERROR * squared


def ply_round_trip(record: TrainingRecord, run: Path | None) -> Criterion:
    """The saved point cloud, read back, renders as what was trained, and some of its rows are read by splatfix itself.

    Args:
        run: folder that the trainer wrote into; None where there is none any more.
    """
    ply, reasons = record.ply, []
    difference, tolerance = ply.round_trip_difference, ply.tolerance
    measured = "not measured" if difference is None else f"largest difference {difference:.2g}"
    met = difference is not None and tolerance is not None and difference <= tolerance
    if run is not None and ply.path:
        try:
            for number, row in ply.rows.items():
                for name in _saved_otherwise(run / ply.path, int(number), row):
                    reasons.append(f"{name} of row {number} is not what was trained")
        except (OSError, ValueError, struct.error) as error:
            reasons.append(f"{ply.path} cannot be read: {error}")
        if not ply.rows:
            reasons.append("not told what was trained")
        measured = "; ".join(filter(None, (few(reasons), measured)))
    return criterion("ply-round-trip", met and not reasons, measured, tolerance=tolerance)


def _saved_otherwise(path: Path, number: int, row: Mapping[str, Sequence[float | None]]) -> list[str]:
    """The groups that a row of a PLY file does not have as viewers read them: of f_rest all red first."""
    with path.open("rb") as file:
        head, end, _ = file.read(_LONGEST_HEADER).partition(b"end_header\n")
        names = [
            line.split()[-1]
            for line in head.decode("ascii").splitlines()
            if line.startswith("property float ")
        ]
        file.seek(len(head) + len(end) + 4 * len(names) * number)
        saved = dict(zip(names, struct.unpack(f"<{len(names)}f", file.read(4 * len(names))), strict=True))
    rest = len(row.get("f_rest", ())) // 3
    columns = {
        "xyz": ["x", "y", "z"],
        "f_dc": [f"f_dc_{index}" for index in range(3)],
        "f_rest": [f"f_rest_{channel * rest + index}" for index in range(rest) for channel in range(3)],
        "opacity": ["opacity"],
        "scaling": [f"scale_{index}" for index in range(3)],
        "rotation": [f"rot_{index}" for index in range(4)],
    }
    return [
        name
        for name, its in columns.items()
        if not _same(row.get(name, ()), [saved.get(one, math.nan) for one in its])
    ]


def _same(trained: Sequence[float | None], saved: Sequence[float]) -> bool:
    numbers = [number if math.isfinite(number) else None for number in saved]
    return list(trained) == numbers


def _spread(items: Sequence[T], most: int) -> Sequence[T]:
    """At most so many of them, from all parts."""
    return items[:: max(1, -(-len(items) // most))]


def _halves(picture: Path) -> tuple[list[Line], list[Line]]:
    """The rendering, and the photo at its right; raises Unknown."""
    lines = pixels_of(picture)
    width = len(lines[0][0]) // 2
    return (
        [[color[:width] for color in line] for line in lines],
        [[color[width:] for color in line] for line in lines],
    )


def _values(lines: Sequence[Line]) -> list[float]:
    return [value for line in lines for color in line for value in color]


def _distance(one: float, other: float) -> float:
    return abs(one - other)


def _off(
    truth: Grid | Sequence[Sequence[Sequence[float]]], trained: Sequence[Sequence[Sequence[float]]]
) -> float:
    """The largest difference of a color; infinite where the grids do not fit."""
    ours, theirs = (list(chain.from_iterable(chain.from_iterable(grid))) for grid in (truth, trained))
    if len(ours) != len(theirs):
        return float("inf")
    return max(abs(one - other) for one, other in zip(ours, theirs, strict=True))
