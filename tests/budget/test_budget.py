"""What is foretold of trainings, held against what was published and measured."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smoke_trainer.config import TrainConfig, scaled_to
from smoke_trainer.train import prepare, train_step
from splatfix.app import calibrate
from splatfix.app.vram import verdict_of
from splatfix.budget.changes import changes_for, highest_peak, largest_for, most_taken
from splatfix.budget.expected import gaussians_expected, mcmc_count, minutes_expected
from splatfix.budget.memory import card_phases, host_phases
from splatfix.budget.model import Need, Span, Verdict
from splatfix.certify.scenes import SAMPLES
from splatfix.checks.scene.size import read_scene_size
from splatfix.cli import app
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed
from splatfix.knowledge.dropins import dropin_named
from splatfix.knowledge.vram import GIB, card_memory, families, settings_of, stacks_by_key
from tests.machines import facts_of
from tests.plan.machines import refused
from tests.tables import data
from tools import vram

compared = cache(vram.compared)
LIMITS: dict[str, tuple[int, float]] = data(__file__)["limits"]
"""How many rows of a kind there are, and the error that each may have."""
THREE_MILLION = Span(3e6, 3e6, 3e6)
ISSUE_676 = Need("inria-v1", 1362, 1600, 1300, THREE_MILLION)
WORDS = ("--stack", "inria", "--images", "1362", "--resolution", "1600x1300", "--gaussians", "3000000")


def called(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of ``splatfix vram``."""
    done = CliRunner().invoke(app, ["vram", *words, "--json"])
    if isinstance(done.exception, SplatfixError):
        return int(done.exception.exit_code), {"error": done.exception.to_json()}
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("kind", LIMITS)
def test_what_was_published_and_measured_is_foretold(kind: str) -> None:
    number, limit = LIMITS[kind]
    rows = [row for row in compared() if row.kind == kind]
    assert len(rows) == number
    assert {row.name: row.error for row in rows if abs(row.error) > limit} == {}


def test_the_photos_of_issue_676_are_refused_while_loading_with_the_flag_that_saves_them() -> None:
    code, document = called("--gpu", "RTX 3090", *WORDS)
    assert (code, document["verdict"]) == (1, "exceeds")
    assert document["loading"]["peak_bytes"] > document["limit_bytes"] == int(0.97 * 24 * GIB)
    photos = next(part for part in document["loading"]["parts"] if part["name"] == "photos")
    assert (photos["bytes"], photos["kind"]) == (12 * 1362 * 1600 * 1300, "computed")
    first = document["changes"][0]
    assert (first["option"], first["kind"], first["fits"]) == ("--data_device cpu", "computed", True)
    assert first["saves_bytes"] > photos["bytes"] and "676" in first["source"]
    code, saved = called("--gpu", "RTX 3090", *WORDS, "--data-device", "cpu")
    assert (code, saved["verdict"], saved["changes"]) == (0, "fits", [])
    assert saved["training"]["high_bytes"] == first["peak_bytes"]
    assert saved["host"]["training"]["peak_bytes"] > photos["bytes"]


@pytest.mark.parametrize("stack", sorted(stacks_by_key()))
def test_every_phase_is_the_sum_of_its_parts_or_not_known(stack: str) -> None:
    phases = card_phases(replace(ISSUE_676, stack=stack, autograd=True, lpips="vgg"))
    hosts = host_phases(replace(ISSUE_676, stack=stack, photos_on_cpu=True))
    assert set(phases) == set(hosts) == {"loading", "training", "evaluation"}
    known = [phase for phase in (*phases.values(), *hosts.values()) if phase is not None]
    assert bool(known) == bool(stacks_by_key()[stack].family)
    for phase in known:
        assert phase.peak_bytes == sum(part.bytes for part in phase.parts)
        assert phase.low_bytes <= phase.peak_bytes <= phase.high_bytes
        assert {part.kind for part in phase.parts} <= {"computed", "published", "claimed"}
        assert all(part.source in phase.sources for part in phase.parts)


def test_no_published_run_of_the_stack_itself_means_a_larger_error() -> None:
    spans = []
    for stack in ("inria-v1", "speedy"):
        training = card_phases(replace(ISSUE_676, stack=stack, photos=10))["training"]
        assert training is not None
        spans.append(training.high_bytes - training.low_bytes)
    assert spans[0] < spans[1]


def test_changes_are_in_order_of_quality_and_each_helps_more() -> None:
    need = replace(ISSUE_676, stack="mcmc", gaussians=Span(2e7, 2e7, 2e7))
    changes = changes_for(need, 8 * GIB)
    order = [setting.option.partition("{")[0] for setting in settings_of(stacks_by_key()["mcmc"])]
    places = [max(at for at, begin in enumerate(order) if row.option.startswith(begin)) for row in changes]
    assert places == sorted(places) and len(changes) > 3
    peaks = [row.peak_bytes for row in changes if row.peak_bytes is not None]
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] <= 8 * GIB
    unknown = [row for row in changes if row.saves_bytes is None]
    assert unknown and all(row.kind in ("claimed", "unknown") and row.fits is None for row in unknown)
    budget = next(row for row in changes if row.option.startswith("--cap_max "))
    assert 100_000 <= int(budget.option.split()[1]) < 2e7


def test_a_swap_that_is_advised_is_one_that_splatfix_installs() -> None:
    options = {row.option for stack in stacks_by_key().values() for row in settings_of(stack)}
    swaps = [option.split() for option in options if option.startswith("splatfix install ")]
    assert len(swaps) == 2 and all(dropin_named(name) for _, _, name, *_ in swaps)


def test_the_largest_is_the_last_that_fits() -> None:
    need = replace(ISSUE_676, photos=100)
    limit = int(0.97 * 24 * GIB)
    largest = largest_for(need, limit)
    assert largest.gaussians and largest.photos and largest.resolution
    for count, fits in ((largest.gaussians, True), (largest.gaussians + 1, False)):
        assert ((most_taken(replace(need, gaussians=Span(count, count, count))) or 0) <= limit) is fits
    for photos, fits in ((largest.photos, True), (largest.photos + 1, False)):
        assert ((most_taken(replace(need, photos=photos)) or 0) <= limit) is fits
    assert largest_for(ISSUE_676, limit).gaussians == 0  # the photos alone are too many
    assert largest_for(replace(need, stack="gsplat"), limit).photos is None


def test_what_is_not_known_is_said() -> None:
    code, document = called(
        "--gpu", "24 GB", "--stack", "scaffold", "--images", "185", "--resolution", "1600x1000"
    )
    assert (code, document["verdict"], document["loading"]) == (3, "unknown", None)
    assert [row["saves_bytes"] for row in document["changes"]] == [None] * 3
    mesh = ("--stack", "mesh", "--images", "185", "--resolution", "1600x1000", "--gaussians")
    assert called("--gpu", "16 GB", *mesh, "4000000")[0] == 3
    code, document = called("--gpu", "16 GB", *mesh, "25000000")
    assert (code, document["training"]["parts"][0]["kind"]) == (1, "claimed")
    assert verdict_of({"training": None}, 1) is Verdict.UNKNOWN
    assert gaussians_expected(replace(ISSUE_676, stack="smoke")) is None
    assert minutes_expected(replace(ISSUE_676, gaussians=Span(1e9, 1e9, 1e9)), 30_000) is None


def test_what_can_be_computed_of_sugar_is_a_lower_bound() -> None:
    words = ("--stack", "sugar", "--images", "185", "--resolution", "1297x840")
    code, document = called("--gpu", "24 GB", *words)
    training = document["training"]
    assert (code, document["verdict"], training["at_least"]) == (3, "unknown", True)
    parts = {part["name"]: part["bytes"] for part in training["parts"]}
    count = 4_330_000  # of Inria's published 7,000 iterations on this scene, from which SuGaR goes on
    assert parts["neighbours"] == 12 * 16 * count and parts["SDF samples"] == 88 * 16 * 1_000_000
    assert parts["photos"] == 12 * 185 * 1297 * 840
    changes = {row["option"]: row for row in document["changes"]}
    assert changes["regularity_knn = 12"]["fits"] is None and len(changes) == 4
    assert changes["n_samples_for_sdf_regularization = 250_000"]["saves_bytes"] == 88 * 16 * 750_000
    assert called("--gpu", "6 GB", *words)[1]["verdict"] == "exceeds"
    text = CliRunner().invoke(app, ["vram", "--gpu", "24 GB", *words]).stdout
    assert "takes at least" in text and "regularity_knn = 12" in text


def test_a_published_run_on_as_many_photos_of_this_size_is_used() -> None:
    words = ("--gpu", "24 GB", "--stack", "inria", "--images", "185", "--resolution", "1297x841")
    document = called(*words)[1]
    assert document["gaussians"]["runs"] == ["inria-30k garden"]
    assert document["need"]["gaussians"] == {"low": 5_710_000, "typical": 5_710_000, "high": 5_710_000}
    own = [
        part for part in document["training"]["parts"] if part["name"] not in ("allocator", "CUDA context")
    ]
    assert sum(part["bytes"] for part in own) == pytest.approx(11.04 * GIB, rel=1e-3)
    assert document["minutes"]["low"] == document["minutes"]["high"] == pytest.approx(3461 / 60)
    assert called(*words, "--iterations", "7000")[1]["need"]["gaussians"]["low"] == 4_330_000


def test_the_count_follows_photos_and_points() -> None:
    need = Need("inria-v1", 185, 1000, 840, Span(0, 0, 0))
    spans = [
        gaussians_expected(replace(need, photos=photos, points=points))
        for photos, points in ((15, 0), (30, 0), (185, 0), (1850, 0), (15, 2_000_000))
    ]
    few, twice, usual, many, dense = ((span.low, span.high) for span in spans if span is not None)
    assert twice == (pytest.approx(2 * few[0]), pytest.approx(2 * few[1])) and few[1] < usual[1]
    assert usual == (1_190_000, 6_060_000) and many[0] == usual[0] and many[1] > usual[1]
    assert dense == (2_000_000, pytest.approx(2_000_000 + few[1]))


def test_a_range_over_the_limit_is_no_yes() -> None:
    words = ("--gpu", "8 GB", "--stack", "gsplat", "--images", "185", "--resolution", "1200x840")
    code, document = called(*words)
    training = document["training"]
    assert training["peak_bytes"] < document["limit_bytes"] < training["high_bytes"]
    assert (code, document["verdict"]) == (3, "unknown")
    cap = next(row for row in document["changes"] if "cap-max" in row["option"])
    assert cap["fits"] and cap["peak_bytes"] <= document["limit_bytes"]
    text = CliRunner().invoke(app, ["vram", *words]).stdout
    assert text.startswith("? May not fit 8 GB") and "--gaussians narrows it" in text


@pytest.mark.parametrize("stack", sorted(stacks_by_key()))
def test_the_answer_is_25_lines_at_most(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for gpu in ("2 GB", "24 GB"):
        words = ["vram", "--gpu", gpu, "--stack", stack, "--images", "1362", "--resolution", "1600x1300"]
        assert len(CliRunner().invoke(app, words).stdout.splitlines()) <= 25


def test_ranges_name_the_runs_that_they_rest_on() -> None:
    expected = gaussians_expected(ISSUE_676)
    assert expected is not None and len(expected.runs) == 7
    minutes = minutes_expected(ISSUE_676, 30_000)
    assert minutes is not None and minutes.low < 50 < minutes.high and "inria-30k room" in minutes.runs
    halved = minutes_expected(ISSUE_676, 15_000)
    assert halved is not None and halved.high == pytest.approx(minutes.high / 2)
    assert mcmc_count(100, 2, cap=108) == 108
    mcmc = replace(ISSUE_676, stack="gsplat", strategy="mcmc")
    for cap, count in ((None, 1_000_000), (5_000_000, 5_000_000)):
        expected = gaussians_expected(mcmc, cap)
        assert expected is not None and expected.low == expected.high == count


@pytest.mark.parametrize(("gpu", "words", "code", "error", "named"), data(__file__)["refused"])
def test_what_cannot_be_foretold_is_refused(
    gpu: str, words: tuple[str, ...], code: int, error: str, named: str
) -> None:
    """Of an option that is named twice the last counts."""
    whole = () if "--scene" in words or "mip" in words else WORDS
    exit_code, document = called("--gpu", gpu, *whole, *(w.replace("<long>", "n" * 5000) for w in words))
    assert (exit_code, document["error"]["code"]) == (code, error)
    assert named in str(document["error"]["todo"]), "what would be known"


@pytest.mark.parametrize(
    "words", [("--images", "0"), ("--gaussians", "-3"), ("--sh-degree", "9"), ("--budget", "1e3")]
)
def test_numbers_out_of_range_are_wrong_usage(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["vram", "--gpu", "24 GB", *WORDS, *words]).exit_code == 2


def test_cards_by_their_names() -> None:
    sizes = data(__file__)["cards"]
    assert {name: card_memory(name) for name in sizes} == {name: gib * GIB for name, gib in sizes.items()}
    assert [card_memory(name) for name in ("RTX 9999 48GB", "", "0 GB", "ti", "6000")] == [None] * 5


@pytest.mark.parametrize(
    ("machine", "name", "gib"),
    [
        ("rtx-3090-and-5090", "NVIDIA GeForce RTX 5090", 32),
        ("a100-mig-kubernetes", "MIG", 37),
        ("apple-m2-max", "", 0),
    ],
)
def test_this_machines_largest_card_counts(
    machine: str, name: str, gib: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = facts_of(machine)
    monkeypatch.setattr("splatfix.app.vram.machine_facts.gather", lambda _: facts)
    code, document = called(*WORDS)
    if not name:
        assert (code, document["error"]["code"]) == (3, "no-gpu")
        return
    assert name in document["card"]["name"]
    assert document["card"]["memory_bytes"] / GIB == pytest.approx(gib, rel=0.05)


def test_the_page_and_the_terminal_draw_the_parts(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["vram", "-v", "--gpu", "24 GB", *WORDS, "--html", str(page)])
    assert done.exit_code == 1 and "█" in done.stdout and "--data_device cpu" in done.stdout
    text = page.read_text("utf-8")
    assert text.count("<meter") >= 20
    assert "--data_device cpu" in text


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["default", "mcmc"])
def test_the_smoke_trainer_holds_what_is_foretold(tmp_path: Path, strategy: str) -> None:
    config = TrainConfig(scene="fruit", iterations=12, out=tmp_path / "out", strategy=strategy)
    run = prepare(scaled_to(config))
    for iteration in range(1, 13):
        train_step(run, iteration)
    for view in (*run.scene.train, *run.scene.test):
        run.images.get(view)
    size = read_scene_size(run.scene.train[0].image_path.parent.parent)
    assert not isinstance(size, str)
    count = float(len(run.model))
    sizes, span = (size.photos, size.width, size.height), Span(count, count, count)
    need = Need("smoke", *sizes, span, size.points, strategy=strategy)
    evaluation = card_phases(need)["evaluation"]
    assert evaluation is not None
    held = ("parameters", "moments", "statistics of densification", "photos")
    assert run.held_bytes() == pytest.approx(
        sum(part.bytes for part in evaluation.parts if part.name in held), rel=0.05
    )


# A scene's folder


def colmap(folder: Path, *, text: bool) -> Path:
    """A COLMAP model of three photos and four points, of which the headers say so."""
    model = folder / "sparse" / "0"
    model.mkdir(parents=True)
    if text:
        (model / "cameras.txt").write_text("# cameras\n1 PINHOLE 3200 2000 1 1 1 1\n")
        (model / "images.txt").write_text("# images\n" + "1 1 0 0 0 0 0 0 1 a.jpg\n\n" * 3)
        (model / "points3D.txt").write_text("# points\n" + "1 0 0 0 9 9 9 0.5\n" * 4)
    else:
        (model / "cameras.bin").write_bytes(struct.pack("<QiiQQ4d", 1, 1, 1, 3200, 2000, 9, 9, 9, 9))
        rows = (
            struct.pack("<i7di", n, 1, 0, 0, 0, n, 0, 0, 1) + b"%d.jpg\0" % n + bytes(8) for n in range(3)
        )
        (model / "images.bin").write_bytes(struct.pack("<Q", 3) + b"".join(rows))
        points = (struct.pack("<Q3d3Bd", n, 0, 0, 3, 9, 9, 9, 0) + bytes(8) for n in range(4))
        (model / "points3D.bin").write_bytes(struct.pack("<Q", 4) + b"".join(points))
    return folder


@pytest.mark.parametrize("text", [True, False])
def test_a_scene_is_read_by_its_headers(tmp_path: Path, *, text: bool) -> None:
    scene = read_scene_size(colmap(tmp_path / "scene", text=text))
    assert not isinstance(scene, str)
    assert (scene.photos, scene.width, scene.height, scene.points) == (3, 3200, 2000, 4)
    code, document = called("--gpu", "24 GB", "--stack", "mip", "--scene", str(tmp_path / "scene"))
    need = document["need"]
    # Inria's trainer reduces photos wider than 1600 pixels, and holds them decoded as they are while it loads
    assert (code, need["width"], need["height"], need["source_pixels"]) == (0, 1600, 1000, 3200 * 2000)
    assert need["gaussians"]["low"] == document["gaussians"]["low"] > 0
    (tmp_path / "photos").mkdir()
    words = ("--gpu", "24 GB", "--stack", "mip", "--scene", str(tmp_path))
    assert called(*words)[1] == document and document["scenes"] == 1
    (colmap(tmp_path / "more", text=True) / "sparse" / "0" / "cameras.txt").write_text(
        "1 PINHOLE 9 9 1 1 1 1\n"
    )
    both = called(*words)[1]
    assert (both["scenes"], both["scene"]) == (2, str(tmp_path / "scene")), "the larger one counts"
    (tmp_path / "broken" / "sparse").mkdir(parents=True)
    done = CliRunner().invoke(app, ["vram", *words, "--json"])
    assert json.loads(done.stdout) == both and f"Note: {tmp_path}/broken has " in " ".join(
        done.stderr.split()
    )


@pytest.mark.parametrize(
    ("stack", "copies", "size", "option"),
    [
        ("gsplat", (), (3200, 2000), "--data_factor 1"),
        ("gsplat", (2, 4), (800, 500), ""),
        ("nerfstudio", (), (1600, 1000), ""),
        ("smoke", (2, 8), (400, 250), ""),
    ],
)
def test_photos_are_as_large_as_the_trainer_takes_them(
    tmp_path: Path, stack: str, copies: tuple[int, ...], size: tuple[int, int], option: str
) -> None:
    folder = colmap(tmp_path / "scene", text=False)
    for divisor in copies:
        (folder / f"images_{divisor}").mkdir()
    words = ["vram", "--gpu", "24 GB", "--stack", stack, "--scene", str(folder), "--gaussians", "1000"]
    need = called(*words[1:])[1]["need"]
    assert ((need["width"], need["height"]), need["size_option"]) == (size, option)
    assert not option or f"(at {option}: " in CliRunner().invoke(app, words).stdout


@pytest.mark.parametrize("damage", ["images.bin", "points3D.bin", "cameras.bin"])
def test_a_damaged_scene_is_told(tmp_path: Path, damage: str) -> None:
    folder = colmap(tmp_path / "scene", text=False)
    (folder / "sparse" / "0" / damage).write_bytes(b"\xff" * 5)
    assert isinstance(read_scene_size(folder), str)
    (folder / "sparse" / "0" / damage).write_bytes(b"\xff" * 40)
    assert isinstance(read_scene_size(folder), str)
    assert (
        called("--gpu", "24 GB", "--stack", "mip", "--scene", str(folder))[1]["error"]["code"]
        == "not-a-scene"
    )


def test_transforms_are_scenes_too(tmp_path: Path) -> None:
    frames = [{"file_path": "./r_0"}, {"file_path": "./r_1"}]
    (tmp_path / "transforms_train.json").write_text(json.dumps({"frames": frames}))
    assert isinstance(read_scene_size(tmp_path), str)
    (tmp_path / "r_0.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBB", 80, 60, 8, 6))
    scene = read_scene_size(tmp_path)
    assert not isinstance(scene, str)
    assert (scene.photos, scene.width, scene.height, scene.channels) == (2, 80, 60, 4)
    assert scene.points == 100_000
    (tmp_path / "points3d.ply").write_bytes(b"ply\nformat binary_little_endian 1.0\nelement vertex 77\n\0")
    scene = read_scene_size(tmp_path)
    assert not isinstance(scene, str) and scene.points == 77
    (tmp_path / "transforms_train.json").write_text("[" * 100_000)
    assert isinstance(read_scene_size(tmp_path), str)


@pytest.mark.parametrize(
    "row", json.loads(vram.RECORD.read_text("utf-8"))["rows"], ids=lambda row: row["scene"]
)
def test_sample_scenes_are_foretold_by_their_folders(row: dict[str, Any]) -> None:
    folder = SAMPLES / row["scene"]
    code, document = called("--stack", "smoke", "--scene", str(folder), "--strategy", row["strategy"])
    need, expected = document["need"], document["gaussians"]
    names = ("photos", "width", "height", "points")
    assert code == 0 and {name: need[name] for name in names} == {name: row[name] for name in names}
    assert expected["low"] * 0.99 <= row["final"] <= expected["high"] * 1.01
    for phase, measured in (("training", "resident_train"), ("evaluation", "resident_evaluation")):
        assert document[phase]["low_bytes"] < row[measured] < document[phase]["high_bytes"]


# Short runs


class Trainer:
    """A runner that leaves the record of a short run: a measured peak of so much more than is foretold."""

    def __init__(self, need: Need, factor: float) -> None:
        self.need, self.factor = need, factor

    def run(self, argv: list[str], **_: Any) -> Completed:
        """Write ``result.json`` where the trainer would."""
        out = Path(argv[argv.index("--out") + 1])
        out.mkdir()
        width = 160
        if "--resolution" in argv:
            width = int(argv[argv.index("--resolution") + 1])
        record: dict[str, Any] = {"gaussians": {"peak": 5000, "final": 4000}, "resolution": [width, width]}
        published, stated = calibrate._beyond_stated(self.need, record)
        allocated = stated + self.factor * published
        record["memory"] = {"cuda": {"train": {"allocated": allocated}}}
        (out / "result.json").write_text(json.dumps(record))
        return Completed(tuple(argv))


def test_short_runs_fit_the_published_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "packages_obstacle", lambda *_: None)
    error = refused(calibrate.calibrated, ISSUE_676, None, None, Trainer(ISSUE_676, 1.5))
    assert error.code == "no-gpu" and error.exit_code == 3
    monkeypatch.setattr(calibrate, "make_context", lambda _: SimpleNamespace(visible_gpus=("one",)))
    need, words = calibrate.calibrated(ISSUE_676, None, None, Trainer(ISSUE_676, 1.5))
    assert need.calibrated == pytest.approx(1.5) and "1.50" in words
    assert (highest_peak(need) or 0) > (highest_peak(ISSUE_676) or 0)
    smoke = replace(ISSUE_676, stack="smoke")
    need, _ = calibrate.calibrated(smoke, None, None, Trainer(smoke, 1.0))
    assert need.gaussians.typical == pytest.approx(4000 * families()["smoke"].after_two)
