"""Certification end to end: the quick suite, and stacks that are broken on purpose."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from smoke_trainer.renderers import TorchRenderer
from splatfix.app.certify import run_and_report
from splatfix.certify import (
    SUITES,
    Certificate,
    Interrupted,
    Outcome,
    Suite,
    Verdict,
    certify,
    kernels,
    verify,
)
from splatfix.certify.staging import stage
from splatfix.core.proof import RungName
from splatfix.core.runner import Runner
from splatfix.model import Facts
from tests.certify.conftest import (
    SHORT,
    RecordedKernels,
    RecordedTrainer,
    Stage,
    TrainingHere,
    failed_criteria,
    reached,
    sabotage,
    subject,
    with_dropins,
)
from tests.conftest import ROOT
from tests.files import put
from tests.plan.machines import refused

LEVELS = {*RungName} - {RungName.REHEARSED}
UNREADABLE = {"error": {"code": "unreadable-scene", "message": "no image", "note": "", "hint": ""}}


def run(
    out: Path,
    known: Facts,
    stage_files: Stage = stage,
    runner: Runner | None = None,
    suite: Suite = SHORT,
    **request: Any,
) -> Certificate:
    asked = subject(suite, out, stage_files=stage_files, **request)
    return certify(asked, known, runner=runner or RecordedTrainer())


class TestCertified:
    @pytest.mark.slow
    @pytest.mark.every_push
    def test_preset_with_its_floors(self, tmp_path: Path, known: Facts) -> None:
        certificate = run_and_report(subject(SUITES["quick"], tmp_path), known).certificate
        assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
        left_open = {RungName.BUILT, RungName.REPRODUCES}
        assert reached(certificate.proof) == {name: None if name in left_open else True for name in LEVELS}
        document = json.loads((tmp_path / "certificate.json").read_text())
        assert (document["verdict"], document["exit_code"]) == ("certified", 0)
        assert not document["unfinished"] and not (tmp_path / "previous").exists()
        text = (tmp_path / "certificate.md").read_text()
        page = (tmp_path / "certificate.html").read_text(encoding="utf-8")
        assert page.count('class="view"') == sum(len(scene.images) for scene in certificate.scenes)
        for scene in certificate.scenes:
            assert {item.outcome for item in scene.criteria} == {Outcome.MET}
            assert scene.images and (tmp_path / scene.log).is_file()
            for image in scene.images:
                assert (tmp_path / image).exists() and image in text

    @pytest.mark.slow
    def test_dropins_are_compared_and_named(self, tmp_path: Path, known: Facts) -> None:
        """One whole certification: the staged trainer with splatfix's drop-ins, metadata and all."""
        name = "diff_gaussian_rasterization"
        staged = with_dropins("diff-gaussian-rasterization", "simple-knn")
        checked = RecordedKernels(name, "simple_knn._C")
        certificate = run(tmp_path, known, staged, checked, renderer="inria")
        assert certificate.verdict is Verdict.CERTIFIED, certificate.reasons
        found = {item.implementation: item for item in certificate.kernels}
        for module in (name, "simple_knn._C"):
            assert (found[module].kind, found[module].outcome) == ("drop-in", Outcome.MET), found[module]
        ran = certificate.scenes[0].record.implementations
        assert ran["knn"].name == "simple_knn._C"
        assert (ran["renderer"].kind, ran["renderer"].engine) == ("inria", "torch-cpu")
        assert reached(certificate.proof)[RungName.BUILT] is None
        assert f"Trained with: {certificate.environment['renderer']}, " in certificate.summary


class TestNotCertified:
    def test_detached_gradients(self, tmp_path: Path, known: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rendering works, the loss is computed, but no gradient reaches the parameters."""
        render = TorchRenderer.render

        def detached(self: TorchRenderer, camera: Any, splats: Any, background: Any) -> Any:
            drawn = render(self, camera, splats, background)
            zero = sum(value.sum() * 0.0 for value in splats if hasattr(value, "sum"))
            return dataclasses.replace(drawn, color=drawn.color.detach() + zero)

        monkeypatch.setattr(TorchRenderer, "render", detached)
        brief = replace(SHORT, iterations=10)
        certificate = run(tmp_path, known, runner=TrainingHere(), suite=brief)
        assert certificate.verdict is Verdict.NOT_CERTIFIED
        assert failed_criteria(certificate) >= {"gradients-xyz", "gradients-opacity", "gradients-f-dc"}
        assert len(certificate.reasons) == len(failed_criteria(certificate))
        assert reached(certificate.proof)[RungName.TRAINS] is False

    @pytest.mark.parametrize(
        ("file", "lines", "message"),
        [
            (
                "smoke_trainer/metrics.py",
                "def photometric_loss(*a, **k):\n    raise RuntimeError('out of luck')\n",
                "out of luck",
            ),
            (
                "smoke_trainer/train.py",
                "raise OSError('libgomp.so.1: wrong ELF class')\n",
                "libgomp.so.1: wrong ELF class",
            ),
        ],
        ids=["crash", "broken package"],
    )
    def test_error_of_the_trainer_is_the_reason(
        self, tmp_path: Path, known: Facts, file: str, lines: str, message: str
    ) -> None:
        certificate = run(tmp_path, known, sabotage(file, lines), RecordedKernels())
        assert certificate.verdict is Verdict.NOT_CERTIFIED
        assert failed_criteria(certificate) == {"training-finishes"}
        assert message in certificate.reasons[0]

    def test_kernels_that_cannot_be_imported(self, tmp_path: Path, known: Facts) -> None:
        broken = sabotage("splatfix/kernels/ssim.py", "import no_such_module\n")
        certificate = run(tmp_path, known, broken, RecordedKernels("splatfix.kernels.ssim"))
        assert certificate.verdict is Verdict.NOT_CERTIFIED
        levels = reached(certificate.proof)
        assert levels[RungName.COMPUTES] is False and levels[RungName.TRAINS] is None

    def test_regression_against_the_baseline(self, tmp_path: Path, known: Facts) -> None:
        quick = SUITES["quick"]
        first = run(tmp_path / "first", known, suite=quick)
        study = dataclasses.asdict(first.scenes[1].record)
        slower = RecordedTrainer(study={**study, "iterations_per_second": 0.1})
        again = run(tmp_path / "again", known, runner=slower, suite=quick, baseline=first)
        assert again.verdict is Verdict.NOT_CERTIFIED
        levels = reached(again.proof)
        assert levels[RungName.TRAINS] is True and levels[RungName.REPRODUCES] is False
        assert len(again.reasons) == 1 and again.reasons[0].startswith("level: reproduces: study: ")


class TestUnreadableScene:
    """The loader's error about a scene of the user's is no failure of the environment."""

    @pytest.mark.parametrize("statue", [{}, {"statue": {"iterations": 200}}], ids=["good", "failed"])
    def test_of_the_user(self, tmp_path: Path, known: Facts, statue: dict[str, Any]) -> None:
        suite = Suite("data", ("attic", "statue"), 60.0, data=tmp_path, iterations=200)
        runner = RecordedTrainer(attic=UNREADABLE, **statue)
        certificate = run(tmp_path / "out", known, runner=runner, suite=suite)
        assert [(item.scene, item.reason) for item in certificate.unreadable] == [("attic", "No image.")]
        levels = reached(certificate.proof)
        assert levels[RungName.COMPUTES] is True
        if statue:
            assert certificate.verdict is Verdict.NOT_CERTIFIED
            assert all(reason.startswith("statue: ") for reason in certificate.reasons)
        else:
            assert (certificate.verdict, certificate.reasons) == (Verdict.UNDETERMINED, ())
            assert levels[RungName.TRAINS] is None

    def test_bundled(self, tmp_path: Path, known: Facts) -> None:
        certificate = run(tmp_path, known, runner=RecordedTrainer(figurine=UNREADABLE))
        assert (certificate.verdict, certificate.unreadable) == (Verdict.NOT_CERTIFIED, ())
        assert failed_criteria(certificate) == {"training-finishes"}


class TestReportFolder:
    def test_earlier_report_moves_aside(self, tmp_path: Path, known: Facts) -> None:
        """And no scene of an earlier suite stays."""
        old = ("figurine/renders/old.png", "figurine/trainer.log", "garden/trainer.log", "mine/photo.png")
        put(tmp_path, dict.fromkeys(old, ""))
        (tmp_path / "certificate.md").write_text("earlier")
        (tmp_path / "certificate.sigstore.json").write_text("says nothing about the next one")
        certificate = run(tmp_path, known)
        assert certificate.scenes[0].images == ()
        # beside no report garden may be anybody's
        assert {path.name for path in tmp_path.iterdir()} == {"figurine", "garden", "mine", "previous"}
        assert (tmp_path / "previous" / "certificate.md").read_text() == "earlier"
        assert (tmp_path / "previous" / "figurine" / "renders" / "old.png").exists()
        (tmp_path / "certificate.json").write_text("earlier")
        run(tmp_path, known)
        assert {path.name for path in tmp_path.iterdir()} == {"figurine", "mine", "previous", "previous-2"}
        assert {path.name for path in (tmp_path / "previous-2").iterdir()} >= {"certificate.json", "garden"}

    def test_sources_are_those_that_the_trainer_was_handed(self, tmp_path: Path, known: Facts) -> None:
        changed = "smoke_trainer/train.py"
        plain = run(tmp_path / "a", known).sources
        other = run(tmp_path / "b", known, sabotage(changed, "print(1)")).sources
        expected = hashlib.sha256((ROOT / changed).read_bytes()).hexdigest()
        assert plain[changed] == expected != other[changed]
        assert {name for name in plain if plain[name] != other[name]} == {changed}
        assert "splatfix/kernels/rasterizer.py" in plain and len(plain) == len(other)

    def test_data_of_the_user_is_not_overwritten(self, tmp_path: Path, known: Facts) -> None:
        (tmp_path / "figurine").mkdir()
        (tmp_path / "figurine" / "photo.png").write_bytes(b"mine")
        error = refused(run, tmp_path, known)
        assert (error.code, int(error.exit_code)) == ("not-our-folder", 2)
        assert [path.name for path in tmp_path.rglob("*.*")] == ["photo.png"]

    def test_trainer_gets_what_was_asked(self, tmp_path: Path, known: Facts) -> None:
        runner = RecordedTrainer()
        run(tmp_path, known, runner=runner, seed=7)
        words, again = runner.calls
        for argv in runner.calls:
            assert argv[3:7] == ["figurine", "--preset", "quick", "--iterations"]
            assert argv[argv.index("--seed") + 1] == "7"
        assert "--stop-after" in again and "--stop-after" not in words


class TestVerify:
    def test_ours_passes_and_a_wrong_replacement_fails(
        self, known: Facts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pure-PyTorch fused_ssim on the path, here a wrong one, is compared with the reference too."""
        rows = tuple(row for row in kernels.IMPLEMENTATIONS if row[0] == "ssim")
        monkeypatch.setattr(kernels, "IMPLEMENTATIONS", rows)

        def with_replacement(folder: Path) -> Path:
            path = stage(folder)
            (path / "fused_ssim.py").write_text(
                "from splatfix.kernels.ssim import fused_ssim as _right\n"
                "def fused_ssim(a, b, padding='same', train=True):\n    return _right(a, b, 'valid', train)\n"
            )
            return path

        ours, theirs = verify(sys.executable, "cpu", stage_files=with_replacement)
        assert (ours.outcome, ours.kind) == (Outcome.MET, "ours")
        allowed = (ours.value_allowed, ours.gradient_allowed)
        assert allowed == (1e-6, 5e-5), "the contract of kernels/ssim.py"
        assert (theirs.implementation, theirs.outcome) == ("fused_ssim", Outcome.FAILED)
        assert theirs.kind == "python", "no distribution of splatfix's holds it"

    def test_no_gpu(self, tmp_path: Path, known: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
        monkeypatch.setattr(kernels, "IMPLEMENTATIONS", kernels.IMPLEMENTATIONS[:1])
        error = refused(run, tmp_path, known, runner=Runner(), device="cuda")
        assert (error.code, int(error.exit_code)) == ("no-gpu", 3)
        assert list(tmp_path.iterdir()) == []


def test_an_interrupt_before_any_scene(tmp_path: Path, known: Facts) -> None:
    (tmp_path / "figurine").mkdir()  # of an earlier run

    def stop(where: str, state: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        certify(subject(SHORT, tmp_path), known, stop)
    assert caught.value.certificate is None
