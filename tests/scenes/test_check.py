"""``splatfix scenes check FOLDER``: every single fault is named, and none where there is none."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from smoke_trainer.data.load import SAMPLES
from splatfix.checks.scene import judge
from splatfix.checks.scene.model import SCENE_CHECKS, Refusal
from splatfix.core.errors import Exit
from splatfix.facts.scene.reader import read_scene, scenes_below
from splatfix.model import Status
from splatfix.report.scene import scene_page, show
from tests.scenes.faults import BLENDER_FAULTS, FAULTS, Fault, photos_of

NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir() and path.name[0] not in "._")


def alarms(folder: Path) -> dict[str, Status]:
    """Codes of what failed or is warned of."""
    findings = judge(read_scene(folder)).findings
    return {item.code: item.status for item in findings if item.status is not Status.SKIP}


@pytest.mark.parametrize("name", NAMES)
def test_no_alarm_on_a_healthy_scene(name: str) -> None:
    assert len(NAMES) == 6 and alarms(SAMPLES / name) == {}


@pytest.mark.parametrize(
    ("sample", "code", "fault"),
    [
        *(pytest.param("fruit", *row, id=name) for name, row in FAULTS.items()),
        *(pytest.param("figurine", *row, id=name) for name, row in BLENDER_FAULTS.items()),
    ],
)
def test_a_single_fault_is_named(sample: str, code: str, fault: Fault, tmp_path: Path) -> None:
    scene = shutil.copytree(SAMPLES / sample, tmp_path / "scene")
    fault(scene)
    assert code in alarms(scene)


def test_every_check_has_a_fault() -> None:
    named = {code for code, _ in (*FAULTS.values(), *BLENDER_FAULTS.values())}
    assert set(SCENE_CHECKS) - named == {"scene-host-memory"}


def test_memory_of_the_host() -> None:
    checked = judge(replace(read_scene(SAMPLES / "fruit"), host_memory=1 << 20))
    assert [item.code for item in checked.findings] == ["scene-host-memory"]
    assert checked.verdict is Exit.OK and (checked.host_bytes or 0) > 1 << 30


REFUSALS = {
    "plaza": {"Inria's family": "camera-model", "OpenSplat": "photos-folder"},
    "trellis": {"Inria's family": "layout", "gsplat's simple_trainer.py": "layout"},
    "fruit": {"OpenSplat": "text-model"},
    "figurine": {"gsplat's simple_trainer.py": "layout", "OpenSplat": "layout"},
}


@pytest.mark.parametrize(("name", "expected"), REFUSALS.items(), ids=REFUSALS)
def test_trainers_refuse_in_their_own_words(name: str, expected: dict[str, str]) -> None:
    refused = {}
    for verdict in judge(read_scene(SAMPLES / name)).stacks:
        faults = [refusal for refusal in verdict.refusals if not refusal.option]
        assert verdict.takes_it is not bool(faults)
        if faults:
            refused[verdict.reader] = faults[0].fault
            assert all(refusal.says for refusal in faults)
    assert expected.items() <= refused.items()


def test_photos_in_folders_are_not_found_by_a_base_name(tmp_path: Path) -> None:
    scene = shutil.copytree(SAMPLES / "fruit", tmp_path / "scene")
    FAULTS["one name in two folders"][1](scene)
    inria = judge(read_scene(scene)).stacks[0]
    first = photos_of(scene)[0]
    assert inria.refusals[0].says.endswith(f"'{scene / 'images' / first.name}'")


def test_points_that_cannot_be_read_are_not_called_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = shutil.copytree(SAMPLES / "fruit", tmp_path / "scene")
    FAULTS["points are words"][1](scene)
    show(Console(), judge(read_scene(scene)))
    text = capsys.readouterr().out
    assert "points        not readable" in text and "its error message is not known" in text


def test_scenes_below_a_folder(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "fruit", tmp_path / "a" / "fruit")
    shutil.copytree(SAMPLES / "trellis", tmp_path / "trellis")
    assert list(scenes_below(tmp_path)) == [tmp_path / "trellis", tmp_path / "a" / "fruit"]
    assert list(scenes_below(tmp_path / "trellis")) == [tmp_path / "trellis"]
    assert list(scenes_below(tmp_path / "a" / "fruit" / "images")) == [tmp_path / "a" / "fruit" / "images"]


def test_the_page_says_what_the_text_says(tmp_path: Path) -> None:
    scene = shutil.copytree(SAMPLES / "fruit", tmp_path / "scene")
    FAULTS["a page in its place"][1](scene)
    html = scene_page(judge(read_scene(scene)))
    assert "photos-unreadable" in html and "24 in the reconstruction" in html and "OpenSplat" in html


def test_a_binary_model_says_what_the_text_says(tmp_path: Path) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    text, binary = SAMPLES / "fruit" / "sparse" / "0", tmp_path / "scene" / "sparse" / "0"
    binary.mkdir(parents=True)
    pycolmap.Reconstruction(text).write_binary(binary)
    shutil.copytree(SAMPLES / "fruit" / "images", tmp_path / "scene" / "images")
    ours, theirs = read_scene(tmp_path / "scene"), read_scene(SAMPLES / "fruit")
    assert {image.name for image in ours.images} == {image.name for image in theirs.images}
    assert ours.points is not None and theirs.points is not None and ours.points.count == theirs.points.count
    assert alarms(tmp_path / "scene") == {}


@pytest.mark.parametrize(("more", "rounding"), [(3, ""), (-1, " --downscale-rounding-mode round")])
def test_nerfstudio_wants_the_size_that_a_camera_states(more: int, rounding: str, tmp_path: Path) -> None:
    """The other loaders scale the camera and train on; of copies it takes the divisor, and how their size was rounded."""
    scene = shutil.copytree(SAMPLES / "fruit", tmp_path / "scene")
    cameras = next(scene.rglob("cameras.txt"))
    *head, line = cameras.read_text().splitlines()
    words = line.split()
    words[2:4] = [str(int(side) * 4 + more) for side in words[2:4]]
    cameras.write_text("\n".join([*head, " ".join(words)]) + "\n")
    refusals = _refusals(scene)
    size = refusals["nerfstudio"][-1]
    assert size.fault == "photo-size" and size.says.startswith("AssertionError: The size of image (")
    assert all(item.fault != "photo-size" for item in refusals["gsplat"])
    (scene / "images").rename(scene / "images_4")
    options = [item.option for item in _refusals(scene)["nerfstudio"]]
    assert f"colmap --downscale-factor 4{rounding}" in options


def _refusals(scene: Path) -> dict[str, tuple[Refusal, ...]]:
    return {verdict.stacks[-1]: verdict.refusals for verdict in judge(read_scene(scene)).stacks}
