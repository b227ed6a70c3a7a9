"""Certification on a folder of scenes: what is there trains, what is missing is named, and no unknown floor is claimed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.certify import Outcome, Request, SceneRun, data_suite, run_and_report
from splatfix.certify.data import CPU_ITERATIONS, CPU_WIDTH, GPU_ITERATIONS
from splatfix.certify.suites import SUITES, sample_suite
from splatfix.core.errors import SplatfixError
from splatfix.core.resources import smoke_trainer_folder

pytest.importorskip("torch")

SAMPLES = smoke_trainer_folder() / "samples"
LENGTH, WIDTH = 60, 64  # enough for every criterion on the samples below


def lay_out(root: Path, **scenes: str) -> Path:
    """A data folder: name below the root (``__`` for a slash) = the sample that stands for it."""
    for place, sample in scenes.items():
        shutil.copytree(SAMPLES / sample, root / place.replace("__", "/"))
    return root


def outcomes(run: SceneRun) -> dict[str, Outcome]:
    return {item.code: item.outcome for item in run.criteria}


def test_what_is_there_trains_and_what_is_missing_is_named_without_a_floor(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", tandt__train="plaza", mine__statue="figurine")
    suite = data_suite(root, sys.executable, "cpu", LENGTH, WIDTH)
    assert suite.scenes == ("train", "statue")
    certificate, _ = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert certificate.granted, certificate.reasons
    assert "how good it should be is not known for train, statue" in certificate.claim
    assert "12 scene(s) were looked for and skipped" in certificate.claim
    for run in certificate.scenes:
        seen = outcomes(run)
        assert seen.pop("held-out-quality") is Outcome.NOT_MEASURED
        assert set(seen.values()) == {Outcome.MET}
        assert (run.result["iterations"], run.result["resolution"][0]) == (LENGTH, WIDTH)
    asked = {run.scene: run.result["asked"] for run in certificate.scenes}
    assert (asked["train"]["strategy"], asked["train"]["budget"]) == ("budget", 2.0)
    assert asked["statue"]["strategy"] == "default"
    assert {item.scene for item in certificate.skipped} >= {"bicycle", "truck", "playroom"}
    text = (tmp_path / "out" / "certificate.md").read_text()
    assert "no floor known for train, statue" in text and "| held-out-quality | not judged |" in text
    assert (
        f"bicycle, flowers, garden, stump, treehill, bonsai, counter, kitchen, room, truck, drjohnson, playroom: not below {root}"
        in text
    )


def test_a_scene_without_its_photos_refuses_the_certificate_by_name(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", **{"360_v2__garden": "courtyard"})
    for photo in (root / "360_v2" / "garden" / "images_8").iterdir():
        photo.unlink()
    suite = data_suite(root, sys.executable, "cpu", LENGTH, WIDTH)
    certificate, _ = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert not certificate.granted and certificate.claim.startswith("Refused")
    assert [reason for reason in certificate.reasons if "garden" in reason and "0 usable image" in reason]
    assert "Check that the image folder" in "".join(certificate.reasons)


def test_one_view_cannot_be_both_trained_on_and_held_out(tmp_path: Path) -> None:
    """Without a test split nothing is shown, however well it trains."""
    root = lay_out(tmp_path / "data", mine__room="courtyard")
    for photo in sorted((root / "mine" / "room" / "images_8").iterdir())[1:]:
        photo.unlink()
    suite = data_suite(root / "mine" / "room", sys.executable, "cpu", LENGTH, WIDTH)
    assert suite.scenes == ("room",) and suite.skipped == ()
    certificate, _ = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert not certificate.granted
    assert any("1 usable image" in reason for reason in certificate.reasons)


def test_a_cpu_is_asked_for_less_than_a_gpu_and_what_is_given_wins(tmp_path: Path) -> None:
    root = lay_out(tmp_path, truck="fruit")
    on_cpu, on_gpu = (data_suite(root, sys.executable, device) for device in ("cpu", "cuda"))
    assert (on_cpu.iterations, on_cpu.resolution) == (CPU_ITERATIONS, CPU_WIDTH)
    assert (on_gpu.iterations, on_gpu.resolution) == (GPU_ITERATIONS, None)
    given = data_suite(root, sys.executable, "cuda", 500, 4)
    words = " ".join(given.trainer_arguments("truck"))
    assert words == f"truck --data {root} --iterations 500 --resolution 4"


def test_sample_suites_can_be_shortened_too() -> None:
    assert sample_suite("quick") == SUITES["quick"]
    words = " ".join(sample_suite("quick", 20, 32).trainer_arguments("study"))
    assert words == "study --preset quick --iterations 20 --resolution 32"


def test_a_folder_without_scenes_or_no_folder_at_all_is_said_before_training(tmp_path: Path) -> None:
    with pytest.raises(SplatfixError) as caught:
        data_suite(tmp_path, sys.executable, "cpu")
    assert (caught.value.code, int(caught.value.exit_code)) == ("unreadable-scene", 3)
    with pytest.raises(SplatfixError) as caught:
        data_suite(tmp_path / "nowhere", sys.executable, "cpu")
    assert (caught.value.code, int(caught.value.exit_code)) == ("wrong-usage", 2)


def test_a_report_is_never_written_over_the_data(tmp_path: Path) -> None:
    root = lay_out(tmp_path, truck="fruit")
    before = sorted(path.relative_to(root) for path in root.rglob("*"))
    suite = data_suite(root, sys.executable, "cpu", 10, WIDTH)
    with pytest.raises(SplatfixError) as caught:
        run_and_report(Request(sys.executable, suite, root))
    assert caught.value.code == "not-our-folder"
    assert sorted(path.relative_to(root) for path in root.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--suite", "quick"], "suite-and-data"),
        (["--container", "cpu"], "not-in-a-container"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words: list[str], code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "splatfix", "certify", "--data", str(tmp_path), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and code in done.stderr and "Traceback" not in done.stderr
