"""Suites: bundled scenes, and those of a data folder, trained for real."""

import json
import shutil
from pathlib import Path

import pytest

from splatfix.certify import SUITES, Outcome, Verdict, certify, data_suite, sample_suite
from splatfix.certify.scenes import CPU_ITERATIONS, CPU_WIDTH, GPU_ITERATIONS, SAMPLES
from splatfix.model import Facts
from tests.certify.conftest import TrainingHere, subject
from tests.plan.machines import refused

LENGTH, WIDTH = 45, 64  # enough for every criterion on the samples below


def lay_out(root: Path, **scenes: str) -> Path:
    """A data folder: path below the root (``__`` for a slash) = the sample to copy there."""
    for place, sample in scenes.items():
        shutil.copytree(SAMPLES / sample, root / place.replace("__", "/"))
    return root


def usual_blender_names(scene: Path) -> None:
    """train/r_0.png and test/r_0.png: two views of one name."""
    for split in ("train", "test"):
        (scene / split).mkdir()
        path = scene / f"transforms_{split}.json"
        document = json.loads(path.read_text())
        for index, frame in enumerate(document["frames"]):
            (scene / f"{frame['file_path']}.png").rename(scene / split / f"r_{index}.png")
            frame["file_path"] = f"./{split}/r_{index}"
        path.write_text(json.dumps(document))


@pytest.mark.slow
def test_data_folder_is_certified_without_floors(tmp_path: Path, known: Facts) -> None:
    root = lay_out(tmp_path / "data", tandt__train="plaza", mine__lego="figurine")
    usual_blender_names(root / "mine" / "lego")
    suite = data_suite(root, "cpu", LENGTH, WIDTH)
    assert sorted(suite.scenes) == ["lego", "train"]
    assert len(suite.skipped) == 12
    assert {item.scene for item in suite.skipped} >= {"bicycle", "truck", "playroom"}
    asked = subject(suite, tmp_path / "out")
    certificate = certify(asked, facts=known, runner=TrainingHere())
    assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
    assert certificate.skipped == suite.skipped
    runs = {run.scene: run for run in certificate.scenes}
    for run in runs.values():
        outcomes = {item.code: item.outcome for item in run.criteria}
        assert outcomes.pop("held-out-quality") is Outcome.NOT_MEASURED
        assert {code for code, outcome in outcomes.items() if outcome is not Outcome.MET} == set()
        assert (run.record.iterations, (run.record.resolution or [0])[0]) == (LENGTH, WIDTH)
        assert not set(run.record.split.train) & set(run.record.split.test)
    ran = {name: run.record.config for name, run in runs.items()}
    assert (ran["train"].strategy, ran["train"].budget) == ("budget", 2.0)
    assert ran["lego"].strategy == "default"


def one_photo(scene: Path) -> None:
    """Without a test split nothing can be verified."""
    for photo in sorted((scene / "images_8").iterdir())[1:]:
        photo.unlink()


def cut_cameras(scene: Path) -> None:
    (scene / "sparse" / "0" / "cameras.bin").write_bytes(b"\x01\x00\x00")


def broken_json(scene: Path) -> None:
    (scene / "transforms_train.json").write_text('{"frames": [')


DAMAGES = {
    one_photo: ("courtyard", "usable images are 0 to train on"),
    cut_cameras: ("courtyard", "cameras.bin ends too early"),
    broken_json: ("figurine", "transforms_train.json is no JSON"),
}


def test_damaged_scenes_are_undetermined(tmp_path: Path, known: Facts) -> None:
    """They say nothing about the environment."""
    root = lay_out(tmp_path / "data", **{damage.__name__: sample for damage, (sample, _) in DAMAGES.items()})
    for damage in DAMAGES:
        damage(root / damage.__name__)
    suite = data_suite(root, "cpu", LENGTH, WIDTH)
    asked = subject(suite, tmp_path / "out")
    certificate = certify(asked, facts=known, runner=TrainingHere())
    assert (certificate.verdict, certificate.reasons) == (Verdict.UNDETERMINED, ())
    reasons = {item.scene: item.reason for item in certificate.unreadable}
    assert set(reasons) == {damage.__name__ for damage in DAMAGES}
    for damage, (_, words) in DAMAGES.items():
        assert words in reasons[damage.__name__]


def test_defaults_depend_on_the_device(tmp_path: Path) -> None:
    root = lay_out(tmp_path, truck="fruit")
    on_cpu, on_gpu = (data_suite(root, device) for device in ("cpu", "cuda"))
    assert (on_cpu.iterations, on_cpu.resolution) == (CPU_ITERATIONS, CPU_WIDTH)
    assert (on_gpu.iterations, on_gpu.resolution) == (GPU_ITERATIONS, None)
    given = data_suite(root, "cuda", 500, 4)
    assert (given.iterations, given.resolution) == (500, 4)


@pytest.mark.parametrize(
    ("folder", "code", "exit_code"), [("", "unreadable-scene", 3), ("x", "wrong-usage", 2)]
)
def test_folder_without_scenes(tmp_path: Path, folder: str, code: str, exit_code: int) -> None:
    error = refused(data_suite, tmp_path / folder, "cpu")
    assert (error.code, int(error.exit_code)) == (code, exit_code)


def test_samples_can_be_shortened_and_chosen() -> None:
    assert sample_suite("quick") == SUITES["quick"]
    shorter = sample_suite("quick", 20, 32)
    assert (shorter.iterations, shorter.resolution) == (20, 32)
    for scene, suite, chosen in (
        ("study", None, "quick"),
        ("fruit", None, "standard"),
        ("study", "standard", "standard"),
    ):
        only = sample_suite(suite, only=scene)
        assert (only.name, only.scenes) == (chosen, (scene,))
    for scene, suite in (("nowhere", None), ("fruit", "quick")):
        error = refused(sample_suite, suite, only=scene)
        assert (error.code, int(error.exit_code)) == ("unknown-scene", 2)
