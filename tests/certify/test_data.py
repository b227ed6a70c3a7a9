"""Certification on a folder of scenes: what is there trains, what is missing is named, and no unknown floor is claimed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from splatfix.app.certify import exit_code_of, run_and_report
from splatfix.certify import Outcome, Request, SceneRun, certify, data_suite
from splatfix.certify.data import CPU_ITERATIONS, CPU_WIDTH, GPU_ITERATIONS
from splatfix.certify.stage import stage
from splatfix.certify.suites import SUITES, Suite, sample_suite
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.core.resources import smoke_trainer_folder
from splatfix.report import certificate as report

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


def no_photos(scene: Path) -> None:
    for photo in (scene / "images_8").iterdir():
        photo.unlink()


def one_photo(scene: Path) -> None:
    """Without a test split nothing is shown, however well it trains."""
    for photo in sorted((scene / "images_8").iterdir())[1:]:
        photo.unlink()


def cut_photo(scene: Path) -> None:
    photo = sorted((scene / "images_8").iterdir())[3]
    photo.write_bytes(photo.read_bytes()[:2000])


def cut_cameras(scene: Path) -> None:
    (scene / "sparse" / "0" / "cameras.bin").write_bytes(b"\x01\x00\x00")


def broken_json(scene: Path) -> None:
    (scene / "transforms_train.json").write_text('{"frames": [')


@pytest.mark.parametrize(
    ("sample", "damage", "words"),
    [
        ("courtyard", no_photos, "0 usable image"),
        ("courtyard", one_photo, "1 usable image"),
        ("courtyard", cut_photo, "cannot be read as an image"),
        ("courtyard", cut_cameras, "cameras.bin ends too early"),
        ("figurine", broken_json, "transforms_train.json is not JSON"),
    ],
)
def test_a_scene_of_ones_own_that_cannot_be_read_says_nothing_about_the_environment(
    sample: str, damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    root = lay_out(tmp_path / "data", mine__attic=sample)
    damage(root / "mine" / "attic")
    suite = data_suite(root, sys.executable, "cpu", LENGTH, WIDTH)
    assert suite.scenes == ("attic",) and suite.skipped == ()
    certificate, facts = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert (certificate.granted, certificate.reasons, certificate.undetermined) == (False, (), True)
    assert [item.scene for item in certificate.unreadable] == ["attic"]
    assert words in certificate.unreadable[0].reason
    assert "could not be determined: attic cannot be read" in certificate.claim
    assert "not shown to train" not in certificate.claim and "'computes'" in certificate.claim
    reached = {item.name: item.reached for item in certificate.proof}
    assert (reached[RungName.COMPUTES], reached[RungName.TRAINS]) == (True, None)
    document = report.document(certificate, facts)
    assert (int(exit_code_of(certificate)), document["verdict"]) == (3, "undetermined")
    text = (tmp_path / "out" / "certificate.md").read_text()
    assert text.startswith("# splatfix certificate: could not be determined") and words in text
    assert "REFUSED" not in text and "FAILED" not in text


def test_what_fails_on_another_scene_refuses_all_the_same(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", mine__attic="courtyard", mine__statue="figurine")
    cut_cameras(root / "mine" / "attic")
    suite = data_suite(root, sys.executable, "cpu", 2, WIDTH)  # too short to learn anything
    certificate, facts = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert not certificate.granted and not certificate.undetermined
    assert certificate.claim.startswith("Refused")
    assert all(reason.startswith("statue: ") for reason in certificate.reasons) and certificate.reasons
    assert [item.scene for item in certificate.unreadable] == ["attic"]
    document = report.document(certificate, facts)
    assert (int(exit_code_of(certificate)), document["verdict"]) == (1, "refused")


@pytest.mark.slow
def test_a_readable_scene_beside_an_unreadable_one_trains_and_is_told(tmp_path: Path) -> None:
    root = lay_out(tmp_path / "data", mine__attic="courtyard", mine__statue="figurine")
    cut_cameras(root / "mine" / "attic")
    suite = data_suite(root, sys.executable, "cpu", LENGTH, WIDTH)
    out = tmp_path / "out"
    certificate, _ = run_and_report(Request(sys.executable, suite, out))
    assert certificate.undetermined, certificate.reasons
    trains = next(item for item in certificate.proof if item.name is RungName.TRAINS)
    assert trains.reached is None
    assert trains.shown_by.startswith("attic cannot be read; every criterion met on the others") and (
        "statue" in trains.shown_by
    )


def test_a_bundled_scene_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    """Nobody but splatfix put it there."""

    def with_a_broken_sample(folder: Path) -> Path:
        path = stage(folder)
        broken_json(path / "smoke_trainer" / "samples" / "figurine")
        return path

    short = Suite("quick", "one scene, a few steps", ("figurine",), 600.0, iterations=2)
    asked = Request(sys.executable, short, tmp_path)
    certificate, _ = certify(asked, put_in_place=with_a_broken_sample)
    assert not certificate.granted and not certificate.undetermined and certificate.unreadable == ()
    assert any("transforms_train.json is not JSON" in reason for reason in certificate.reasons)


def test_photos_of_one_name_in_train_and_test_are_two_views(tmp_path: Path) -> None:
    """The usual Blender layout: train/r_0.png and test/r_0.png."""
    scene = lay_out(tmp_path / "data", lego="figurine") / "lego"
    for split in ("train", "test"):
        (scene / split).mkdir()
        path = scene / f"transforms_{split}.json"
        document = json.loads(path.read_text())
        for index, frame in enumerate(document["frames"]):
            (scene / f"{frame['file_path']}.png").rename(scene / split / f"r_{index}.png")
            frame["file_path"] = f"./{split}/r_{index}"
        path.write_text(json.dumps(document))
    suite = data_suite(scene, sys.executable, "cpu", LENGTH, WIDTH)
    certificate, _ = run_and_report(Request(sys.executable, suite, tmp_path / "out"))
    assert certificate.granted, certificate.reasons
    split_seen = next(item for item in certificate.scenes[0].criteria if item.code == "held-out-views")
    assert ", 0 in both, " in split_seen.measured


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
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and code in done.stderr and "Traceback" not in done.stderr
