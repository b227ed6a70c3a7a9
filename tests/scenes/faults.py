"""Single faults of a scene: each changes a copy of a healthy one, and names the code of its finding.

Those of COLMAP work on a model in the text form with one camera and photos that are PNG or JPEG, of whatever scene.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.files import edit_json

Fault = Callable[[Path], object]
MODEL = "sparse/0"


def photos_of(scene: Path) -> list[Path]:
    """The photos that the model names, in its order."""
    return [scene / "images" / row[9] for row in rows_of(scene, "images")]


def rows_of(scene: Path, part: str) -> list[list[str]]:
    """Lines of a file of the model as words, without those of keypoints."""
    lines = (scene / MODEL / f"{part}.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    if part == "images":
        return rows[::2]
    return rows


def change(
    scene: Path, part: str, edit: Callable[[list[str], int], object], only: range | None = None
) -> None:
    """Edit the words of some lines of a file of the model."""
    path = scene / MODEL / f"{part}.txt"
    step = 2 if part == "images" else 1
    lines, number = [], 0
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            if number % step == 0 and (only is None or number // step in only):
                words = line.split()
                edit(words, number // step)
                line = " ".join(words)
            number += 1
        lines.append(line)
    path.write_text("\n".join(lines) + "\n")


def changed(part: str, edit: Callable[[list[str], int], object], only: range | None = None) -> Fault:
    """The fault of :func:`change`."""
    return lambda scene: change(scene, part, edit, only)


def first_photo(make: Callable[[Path], object]) -> Fault:
    """A fault of the first photo alone."""
    return lambda scene: make(photos_of(scene)[0])


def resaved(make: Callable[[Image.Image], Image.Image]) -> Fault:
    """The first photo as something else, under its name."""
    return first_photo(lambda photo: resave(photo, make))


def in_file(name: str, edit: Callable[[Path], object]) -> Fault:
    return lambda scene: edit(scene / name)


def keep_lines(scene: Path, part: str, count: int) -> None:
    """Leave the first entries of a file of the model only."""
    path = scene / MODEL / f"{part}.txt"
    step = 2 if part == "images" else 1
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("".join(f"{line}\n" for line in lines[: count * step]))


def setting(column: int, *values: str) -> Callable[[list[str], int], None]:
    """Put values into the columns from that one on."""

    def edit(words: list[str], number: int) -> None:
        words[column : column + len(values)] = values

    return edit


def times(factor: float, first: int, last: int) -> Callable[[list[str], int], None]:
    """Multiply the numbers of some columns."""

    def edit(words: list[str], number: int) -> None:
        words[first:last] = [str(factor * float(word)) for word in words[first:last]]

    return edit


def resave(photo: Path, make: Callable[[Image.Image], Image.Image]) -> None:
    """Save a photo as something else, under its name."""
    with Image.open(photo) as opened:
        made = make(opened.convert("RGB"))
    made.save(photo, format="PNG")


def look_back(words: list[str], _: int) -> None:
    """A pose whose axes are those of OpenGL: a half turn about x is (x, y, z, w) of the quaternion exchanged."""
    w, x, y, z = map(float, words[1:5])
    shift = list(map(float, words[5:8]))
    words[1:8] = map(str, (-x, w, -z, y, shift[0], -shift[1], -shift[2]))


def exchange_poses(scene: Path) -> None:
    """Of the first and the middle image, which look from different sides."""
    rows = rows_of(scene, "images")
    first, other = 0, len(rows) // 2
    for at, source in ((first, other), (other, first)):
        change(scene, "images", setting(1, *rows[source][1:8]), range(at, at + 1))


def jpeg_that_is_turned(scene: Path) -> None:
    """EXIF's orientation, in the file of the first photo, whatever its name ends with."""
    photo = photos_of(scene)[0]
    exif = Image.Exif()
    exif[0x0112] = 6
    with Image.open(photo) as opened:
        made = opened.convert("RGB")
    made.save(photo, format="JPEG", exif=exif)


def copies(scene: Path, divisor: int, wrong: bool = False) -> None:
    """``images_N`` of all photos."""
    folder = scene / f"images_{divisor}"
    folder.mkdir()
    for photo in photos_of(scene):
        with Image.open(photo) as opened:
            size = (opened.width // divisor + 7 * wrong, opened.height // divisor)
            opened.resize(size).save(folder / photo.name)


def incomplete_copies(scene: Path) -> None:
    copies(scene, 2)
    (scene / "images_2" / photos_of(scene)[1].name).unlink()


def masks(scene: Path, *, all_of_them: bool, size: tuple[int, int] | None = None) -> None:
    (scene / "masks").mkdir()
    for number, photo in enumerate(photos_of(scene)):
        if number or all_of_them:
            with Image.open(photo) as opened:
                Image.new("L", size or opened.size, 255).save(scene / "masks" / f"{photo.stem}.png")


def second_model(scene: Path) -> None:
    """One with all images, beside a first one with a half."""
    shutil.copytree(scene / MODEL, scene / "sparse" / "1")
    keep_lines(scene, "images", len(photos_of(scene)) // 2)


def both_forms(scene: Path) -> None:
    """A binary model without images beside the text."""
    for part, size in (("cameras", 8), ("images", 8), ("points3D", 8)):
        (scene / MODEL / f"{part}.bin").write_bytes(bytes(size))


def cut(path: Path, share: float = 0.6) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def ply_of(count: int, path: Path) -> None:
    path.write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex %d\nend_header\n" % count)


def move(scene: Path, old: str, new: str) -> None:
    (scene / new).parent.mkdir(parents=True, exist_ok=True)
    (scene / old).rename(scene / new)


def same_name_elsewhere(scene: Path) -> None:
    """Two photos with one name in two folders."""
    first, second = photos_of(scene)[:2]
    for number, photo in enumerate((first, second)):
        (scene / "images" / f"cam{number}").mkdir()
        photo.rename(scene / "images" / f"cam{number}" / first.name)

    def edit(words: list[str], number: int) -> None:
        words[9] = f"cam{number}/{first.name}"

    change(scene, "images", edit, range(2))


def one_pose_twice(scene: Path) -> None:
    change(scene, "images", setting(1, *rows_of(scene, "images")[0][1:8]), range(1, 2))


def model_in_sparse(scene: Path) -> None:
    for path in (scene / MODEL).iterdir():
        path.rename(scene / "sparse" / path.name)


def of_millimeters(scene: Path) -> None:
    change(scene, "images", times(1e-3, 5, 8))
    change(scene, "points3D", times(1e-3, 1, 4))


def as_png(photo: Path, make: Callable[[Image.Image], Image.Image]) -> None:
    """A photo as something else, as PNG whatever its name ends with; its alpha stays where ``make`` keeps it."""
    with Image.open(photo) as opened:
        made = make(opened)
    made.save(photo, format="PNG")


def behind_a_link(path: Path) -> None:
    """What it was lies beside the scene."""
    scene = next(folder for folder in path.parents if (folder / "images").exists())
    path.symlink_to(path.rename(scene.parent / path.name))


def header_byte(offset: int, *values: int) -> Callable[[Path], None]:
    """Of a PNG, whose size begins at 16, bits are at 24, and color type at 25."""

    def edit(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[offset : offset + len(values)] = bytes(values)
        path.write_bytes(bytes(content))

    return edit


POINTER = "version https://git-lfs.github.com/spec/v1\n"
FIRST, FIVE = range(1), range(5)
FAULTS: dict[str, tuple[str, Fault]] = {
    "no folder sparse": ("scene-not-reconstructed", in_file("sparse", shutil.rmtree)),
    "nothing": ("scene-not-found", lambda scene: [shutil.rmtree(path) for path in scene.iterdir()]),
    "no cameras": ("scene-model-damaged", in_file(f"{MODEL}/cameras.txt", Path.unlink)),
    "no points3D": ("scene-model-damaged", in_file(f"{MODEL}/points3D.txt", Path.unlink)),
    "images cut": ("scene-model-damaged", changed("images", lambda words, _: words.__delitem__(slice(6, None)), FIRST)),
    "points are words": ("scene-model-damaged", changed("points3D", setting(1, "x"), range(3))),
    "colours are words": ("scene-model-damaged", changed("points3D", setting(4, "x"), range(3))),
    "model in sparse": ("scene-model-elsewhere", model_in_sparse),
    "a larger second model": ("scene-several-models", second_model),
    "two forms": ("scene-two-forms", both_forms),
    "two views": ("scene-few-views", lambda scene: keep_lines(scene, "images", 2)),
    "half of the photos": ("scene-few-registered", lambda scene: keep_lines(scene, "images", len(photos_of(scene)) // 2)),
    "an image named twice": ("scene-named-twice", lambda it: change(it, "images", setting(9, photos_of(it)[1].name), FIRST)),
    "one name in two folders": ("scene-names-collide", same_name_elsewhere),
    "a photo missing": ("photos-missing", first_photo(Path.unlink)),
    "capital letters": ("photos-missing", first_photo(lambda photo: photo.rename(photo.with_suffix(".PNG")))),
    "photos in input": ("photos-missing", lambda scene: move(scene, "images", "input")),
    "an empty photo": ("photos-unreadable", first_photo(lambda photo: photo.write_bytes(b""))),
    "a pointer of Git LFS": ("photos-unreadable", first_photo(lambda photo: photo.write_text(POINTER))),
    "a page in its place": ("photos-unreadable", first_photo(lambda photo: photo.write_bytes(b"<!DOCTYPE html><html>"))),
    "a raw photo": ("photos-unreadable", in_file("images/raw.dng", lambda path: path.write_bytes(b"\0" * 90))),
    "a photo named outside": ("photos-unreadable", changed("images", setting(9, "../../view.png"), FIRST)),
    "a photo named from the root": ("photos-unreadable", changed("images", setting(9, "/etc/passwd"), FIRST)),
    "a photo behind a link": ("photos-unreadable", first_photo(behind_a_link)),
    "photos behind a link": ("photos-unreadable", in_file("images", behind_a_link)),
    "photos alone, behind a link": (
        "photos-unreadable",
        lambda scene: (shutil.rmtree(scene / "sparse"), behind_a_link(scene / "images")),
    ),
    "a model behind a link": ("scene-model-damaged", in_file("sparse/0", behind_a_link)),
    "a pipe in its place": ("photos-unreadable", first_photo(lambda photo: (photo.unlink(), os.mkfifo(photo)))),
    "a color type of no PNG": ("photos-unreadable", first_photo(header_byte(25, 9))),
    "a PNG of no height": ("photos-unreadable", first_photo(header_byte(20, 0, 0, 0, 0))),
    "a bomb": ("photos-unreadable", first_photo(header_byte(16, 0, 1, 0, 0, 0, 1, 0, 0))),
    "a name of 300 bytes": ("photos-missing", changed("images", setting(9, "x" * 300), FIRST)),
    "no name": ("photos-unreadable", changed("images", setting(9, "."), FIRST)),
    "a photo cut off": ("photos-truncated", first_photo(cut)),
    "a cropped photo": ("photos-other-size", resaved(lambda it: it.crop((0, 0, it.width, it.height - 20)))),
    "a smaller photo": ("photos-other-size", resaved(lambda it: it.resize((it.width // 2, it.height // 2)))),
    "a turned photo": ("photos-other-size", resaved(lambda it: it.transpose(Image.Transpose.ROTATE_90))),
    "turned by EXIF": ("photos-turned", jpeg_that_is_turned),
    "a gray photo": ("photos-not-rgb", resaved(lambda it: it.convert("L"))),
    "a photo with alpha": ("photos-alpha", first_photo(lambda photo: as_png(photo, lambda it: it.convert("RGBA")))),
    "a photo under a second name": ("photos-copied", first_photo(lambda photo: shutil.copy(photo, photo.with_name("again.png")))),
    "a copy missing": ("copies-incomplete", incomplete_copies),
    "copies of another size": ("copies-incomplete", lambda scene: copies(scene, 2, wrong=True)),
    "a mask missing": ("masks-incomplete", lambda scene: masks(scene, all_of_them=False)),
    "small masks": ("masks-incomplete", lambda scene: masks(scene, all_of_them=True, size=(8, 8))),
    "an unknown camera": ("camera-unknown", changed("images", setting(8, "77"), FIRST)),
    "a camera model of COLMAP 4": ("camera-unknown", changed("cameras", setting(1, "DIVISION"))),
    "a negative focal length": ("camera-impossible", changed("cameras", times(-1.0, 4, 6))),
    "a tiny focal length": ("camera-impossible", changed("cameras", times(1e-3, 4, 6))),
    "a center outside": ("camera-impossible", changed("cameras", times(3.0, 6, 8))),
    "a focal length of 1e308": ("camera-impossible", changed("cameras", setting(4, "1e308", "1e308"))),
    "a width of 4,000 digits": ("camera-impossible", changed("cameras", setting(2, "9" * 4000))),
    "a camera cut short": ("scene-model-damaged", changed("cameras", lambda words, _: words.__delitem__(slice(5, None)))),
    "twice the focal length": ("reprojection-error", changed("cameras", times(2.0, 4, 6))),
    "two poses exchanged": ("reprojection-error", exchange_poses),
    "a pose without numbers": ("pose-impossible", changed("images", setting(5, "nan"), FIRST)),
    "a position of 1e308": ("pose-impossible", changed("images", setting(5, "1e308"), FIRST)),
    "a rotation of zero": ("pose-impossible", changed("images", setting(1, "0", "0", "0", "0"), FIRST)),
    "one pose twice": ("poses-equal", one_pose_twice),
    "all in one place": ("poses-one-place", changed("images", setting(5, "0", "0", "0"))),
    "one far away": ("pose-far-away", changed("images", times(1e4, 5, 8), FIRST)),
    "one looks away": ("poses-flipped", changed("images", look_back, FIRST)),
    "axes of OpenGL": ("poses-flipped", changed("images", look_back)),
    "poses in millimeters": ("poses-flipped", changed("images", times(1000.0, 5, 8))),
    "a scene of millimeters": ("scene-scale", of_millimeters),
    "no points": ("points-none", lambda scene: keep_lines(scene, "points3D", 0)),
    "twenty points": ("points-none", lambda scene: keep_lines(scene, "points3D", 20)),
    "wild points": ("points-wild", changed("points3D", times(1e7, 1, 4), FIVE)),
    "points at 1e308": ("points-wild", changed("points3D", setting(1, "1e308"), FIVE)),
    "points without numbers": ("points-wild", changed("points3D", setting(1, "nan"), FIVE)),
    "gray points": ("points-one-color", changed("points3D", setting(4, "128", "128", "128"))),
    "an old ply": ("points-stale-ply", lambda scene: ply_of(3, scene / MODEL / "points3D.ply")),
}  # fmt: skip
"""Code by fault, for a scene in COLMAP's text form."""


TRAIN, VIEW = "transforms_train.json", "images/view_001.png"
MIRRORED = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, 3], [0, 0, 0, 1]]


def in_json(edit: Callable[[Any], object]) -> Fault:
    return lambda scene: edit_json(scene / TRAIN, edit)


BLENDER_FAULTS: dict[str, tuple[str, Fault]] = {
    "no test file": ("scene-no-split", in_file("transforms_test.json", Path.unlink)),
    "a view in both parts": ("scene-no-split", lambda scene: shutil.copy(scene / TRAIN, scene / "transforms_test.json")),
    "no JSON": ("scene-model-damaged", in_file(TRAIN, cut)),
    "no frames": ("scene-model-damaged", in_json(lambda document: document.pop("frames"))),
    "a mirrored pose": ("pose-impossible", in_json(lambda it: it["frames"][0].update(transform_matrix=MIRRORED))),
    "a frame without a path": ("pose-impossible", in_json(lambda it: it["frames"][0].pop("file_path"))),
    "a frame that is none": ("pose-impossible", in_json(lambda it: it["frames"].append(None))),
    "a path from the root": ("photos-unreadable", in_json(lambda it: it["frames"][0].update(file_path="/a/b.png"))),
    "a matrix of 1e308": ("pose-impossible", in_json(lambda it: it["frames"][0].update(transform_matrix=[[1e308] * 4] * 4))),
    "an image missing": ("photos-missing", in_file(VIEW, Path.unlink)),
    "some without alpha": ("photos-alpha", in_file(VIEW, lambda path: resave(path, lambda photo: photo))),
    "another size": ("photos-mixed", in_file(VIEW, lambda path: as_png(path, lambda it: it.reduce(2)))),
    "sixteen bits": ("photos-not-rgb", in_file(VIEW, header_byte(24, 16))),
}  # fmt: skip
"""Code by fault, for a scene with files for training and testing."""
