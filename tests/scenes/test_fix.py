"""``splatfix scenes fix``: the copy is right, a stopped run goes on, and the original is never touched."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from smoke_trainer.data.load import SAMPLES
from splatfix.checks.scene import judge
from splatfix.core.errors import Exit
from splatfix.core.files import TEMPORARY, write_json
from splatfix.facts.scene.photos import read_photo
from splatfix.facts.scene.reader import read_scene
from splatfix.model import Status
from splatfix.scenes.fix import MARKER, FixRequest, fix_scene
from splatfix.scenes.photos import Change, jobs_of, untagged
from tests.files import contents
from tests.plan.machines import refused
from tests.scenes.faults import FAULTS, change, photos_of, resave, setting
from tests.scenes.test_check import alarms


@pytest.fixture(name="scene")
def _scene(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLES / "fruit", tmp_path / "scene"))


def fixed(scene: Path, out: Path, **options: object) -> tuple[str, ...]:
    request = FixRequest(scene, out, **options)  # type: ignore[arg-type]
    return fix_scene(request, lambda text: None).changes


def ways_out(scene: Path, fault: str) -> set[str]:
    """What trainers that refuse a scene for this fault are told."""
    refusals = (refusal for verdict in judge(read_scene(scene)).stacks for refusal in verdict.refusals)
    return {refusal.way_out for refusal in refusals if refusal.fault == fault}


def test_copies_are_photos_reduced_by_lanczos(scene: Path, tmp_path: Path) -> None:
    fixed(scene, tmp_path / "copy", copies=(2, 8))
    for divisor in (2, 8):
        for photo in photos_of(scene):
            with (
                Image.open(photo) as whole,
                Image.open(tmp_path / "copy" / f"images_{divisor}" / photo.name) as copy,
            ):
                size = (round(whole.width / divisor), round(whole.height / divisor))
                assert copy.tobytes() == whole.resize(size, Image.Resampling.LANCZOS).tobytes()
    assert alarms(tmp_path / "copy") == {}


def test_a_model_is_moved_as_it_is(scene: Path, tmp_path: Path) -> None:
    """What else a trainer asks of it, COLMAP does: its command is named, with this scene's paths."""
    before = contents(scene / "sparse" / "0")
    (scene / "sparse" / "0").rename(scene / "model")
    (scene / "sparse").rmdir()
    (scene / "model").rename(scene / "sparse")
    assert "model moved from sparse to sparse/0" in fixed(scene, tmp_path / "copy", copies=())
    model = tmp_path / "copy" / "sparse" / "0"
    assert contents(model) == before
    command = f"colmap model_converter --input_path {model} --output_path {model} --output_type BIN"
    assert ways_out(tmp_path / "copy", "text-model") == {command}


def test_distorted_cameras_are_for_colmap(tmp_path: Path) -> None:
    scene = tmp_path / "plaza"
    shutil.copytree(SAMPLES / "plaza", scene)
    (scene / "images_4").rename(scene / "images")
    fixed(scene, tmp_path / "copy", copies=())
    copy = tmp_path / "copy"
    command = f"colmap image_undistorter --image_path {copy}/images --input_path {copy}/sparse/0"
    assert ways_out(copy, "camera-model") == {
        f"{command} --output_path {copy}-undistorted, then move the model that it writes to sparse/0"
    }


def test_a_blender_scene_gets_a_split(tmp_path: Path) -> None:
    scene = shutil.copytree(SAMPLES / "figurine", tmp_path / "scene")
    (scene / "transforms_test.json").unlink()
    frames = json.loads((scene / "transforms_train.json").read_text())["frames"]
    fixed(scene, tmp_path / "copy", copies=())
    mended = read_scene(tmp_path / "copy")
    held_out = [image for image in mended.images if image.held_out]
    assert (len(mended.images), len(held_out)) == (len(frames), -(-len(frames) // 8))
    assert alarms(tmp_path / "copy") == {}


def test_lists_for_nerfstudio(scene: Path, tmp_path: Path) -> None:
    fixed(scene, tmp_path / "copy", copies=(), split=True)
    lists = [(tmp_path / "copy" / f"{part}_list.txt").read_text().split() for part in ("test", "train")]
    assert [len(names) for names in lists] == [3, 21] and not set(lists[0]) & set(lists[1])


def test_a_photo_that_is_stored_turned(scene: Path, tmp_path: Path) -> None:
    """It is turned where nothing was reconstructed, or its camera has the upright size; else its mark goes."""
    FAULTS["turned by EXIF"][1](scene)
    photo = photos_of(scene)[0]
    path = photo.relative_to(scene).as_posix()
    jobs = {job.path: job.change for job in jobs_of(read_scene(scene), ())}
    assert jobs.pop(path) is Change.UNTAGGED and set(jobs.values()) == {Change.COPIED}
    fixed(scene, tmp_path / "copy", copies=())
    header = read_photo(tmp_path / "copy" / path)
    assert header is not None and (header.orientation, header.width, header.height) == (1, 160, 120)
    with Image.open(photo) as before, Image.open(tmp_path / "copy" / path) as after:
        assert before.tobytes() == after.tobytes()
    shutil.rmtree(scene / "sparse")
    fixed(scene, tmp_path / "photos", copies=())
    header = read_photo(tmp_path / "photos" / path)
    assert header is not None and (header.orientation, header.width, header.height) == (1, 120, 160)
    assert untagged(b"no photo") == b"no photo"


def test_killed_four_times(scene: Path, tmp_path: Path) -> None:
    """The original stays byte for byte, and the copy is in the end as one that was never stopped."""
    before = contents(scene, {MARKER})
    fixed(scene, tmp_path / "whole")
    command = [sys.executable, "-m", "splatfix", "scenes", "fix", str(scene), "--out", str(tmp_path / "copy")]
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / f"{TEMPORARY}0").touch()  # killed while its marker was written
    pauses = random.Random(3)
    for _ in range(4):
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + pauses.uniform(0.1, 0.7)
        while started.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        started.kill()
        started.wait()
        assert contents(scene, {MARKER}) == before
        for path in (tmp_path / "copy").glob("images*/*.png"):
            assert (read_photo(path) or pytest.fail(str(path))).complete
    assert subprocess.run(command, capture_output=True, check=False).returncode == Exit.OK
    copy, whole = contents(tmp_path / "copy", {MARKER}), contents(tmp_path / "whole", {MARKER})
    assert copy == whole and contents(scene, {MARKER}) == before


REFUSED = {
    "into itself": ("copy-elsewhere", 2, "scene"),
    "below itself": ("copy-elsewhere", 2, "scene/copy"),
    "around itself": ("copy-elsewhere", 2, "."),
    "over something": ("copy-exists", 2, "other"),
}


@pytest.mark.parametrize(("code", "exit_code", "out"), REFUSED.values(), ids=REFUSED)
def test_a_copy_never_goes_over_anything(
    code: str, exit_code: int, out: str, scene: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    error = refused(fixed, scene, tmp_path / out)
    assert (error.code, error.exit_code) == (code, exit_code)
    assert contents(tmp_path) == before


def test_other_options_do_not_go_on_with_a_copy(scene: Path, tmp_path: Path) -> None:
    fixed(scene, tmp_path / "copy", copies=(2,))
    error = refused(fixed, scene, tmp_path / "copy", copies=(4,))
    assert error.code == "copy-exists"


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("nothing", "not-a-scene"),
        ("no cameras", "scene-damaged"),
        ("a photo cut off", "photo-not-readable"),
        *(
            (f"a photo {where}", "leads-out")
            for where in ("named outside", "named from the root", "behind a link")
        ),
        *((f"{what} behind a link", "leads-out") for what in ("photos", "photos alone,", "a model")),
    ],
)
def test_what_cannot_be_mended(fault: str, code: str, scene: Path, tmp_path: Path) -> None:
    FAULTS[fault][1](scene)
    error = refused(fixed, scene, tmp_path / "copy")
    assert error.code == code
    assert (tmp_path / "copy").exists() is (code == "photo-not-readable"), "all else is seen before it writes"


MENDED = (
    *("capital letters", "photos in input", "a gray photo"),
    *("a photo under another ending", "CMYK", "gray of 16 bits"),
)


@pytest.mark.parametrize("fault", MENDED)
def test_what_is_known_is_mended(fault: str, scene: Path, tmp_path: Path) -> None:
    """Renames, and 8-bit RGB: the copy has nothing left of it, and the pixels stay those of the photo."""
    photo = photos_of(scene)[0]
    with Image.open(photo) as opened:
        before = opened.convert("RGB")
    others = {
        "a photo under another ending": lambda: before.save(photo.with_suffix(".bmp")) or photo.unlink(),
        "CMYK": lambda: before.convert("CMYK").save(photo, format="JPEG", quality=95),
        "gray of 16 bits": lambda: (
            before.convert("L").convert("I").point(lambda it: it * 257).convert("I;16").save(photo)
        ),
    }
    others.get(fault, lambda: FAULTS[fault][1](scene))()
    assert set(alarms(scene)) & {"photos-missing", "photos-not-rgb"}
    fixed(scene, tmp_path / "copy", copies=(2,))
    assert alarms(tmp_path / "copy") == {}
    with Image.open(tmp_path / "copy" / "images" / photo.name) as after:
        gray = [image.convert("L").tobytes() for image in (before, after)]
    assert max(abs(one - other) for one, other in zip(*gray, strict=True)) < 32


def test_copies_are_fractions_of_what_cameras_state(scene: Path, tmp_path: Path) -> None:
    """Of photos of half that size too; nothing is enlarged."""
    for photo in photos_of(scene):
        resave(photo, lambda it: it.resize((it.width // 4, it.height // 4)))
    changes = fixed(scene, tmp_path / "copy")
    assert [change.partition(":")[0] for change in changes if "images_" in change] == [
        "smaller copies in images_4, images_8",
        "images_2 left out",
    ]
    assert alarms(tmp_path / "copy") == {"photos-other-size": Status.WARN}
    fixed(SAMPLES / "trellis", tmp_path / "nerfstudio", copies=(2,))
    assert alarms(tmp_path / "nerfstudio") == {}


OUTSIDE = {
    "a name through a link": ("a/../../../home/.bash_aliases", "images/a"),
    "a link in the copy": ("", "copy/images"),
    "a file beside the photos": ("", "cameras.json"),
    "a folder beside them": ("", "masks"),
}


@pytest.mark.parametrize(("name", "link"), OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_goes_into_a_copy_or_out_of_it_by_links(
    name: str, link: str, scene: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").touch()
    if name:
        change(scene, "images", setting(9, name), range(1))
    if link.startswith("copy"):
        begun = {"copies": [2, 4, 8], "split": False, "folder": str(scene)}
        write_json(tmp_path / "copy" / MARKER, {"made_from": begun})
        (tmp_path / link).symlink_to(tmp_path / "home")
    else:
        (scene / link).symlink_to(tmp_path / "home" / ("secret" if link.endswith(".json") else ""))
    before = contents(tmp_path)
    assert refused(fixed, scene, tmp_path / "copy").code == "leads-out"
    assert contents(tmp_path) == before


def test_without_pillow_nothing_is_begun(
    scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    error = refused(fixed, scene, tmp_path / "copy")
    assert (error.code, error.exit_code) == ("needs-pillow", 2) and "splatfix[scenes]" in error.todo[0].line()
    assert not (tmp_path / "copy").exists()
    fixed(scene, tmp_path / "copy", copies=())
