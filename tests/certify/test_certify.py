"""Certification for real: a granted certificate, and refusals when the stack is sabotaged."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from splatfix.app.certify import run_and_report
from splatfix.certify import Certificate, Outcome, Request, certify, verify
from splatfix.certify.stage import stage
from splatfix.certify.suites import SUITES, Suite
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.facts import Facts

pytest.importorskip("torch")

SHORT = Suite("quick", "one scene, a few steps", ("figurine",), 600.0, iterations=40)


def request(out: Path, suite: Suite = SHORT) -> Request:
    return Request(python=sys.executable, suite=suite, out=out)


def sabotage(file: str, lines: str) -> object:
    """A stage whose copy of ``file`` ends in ``lines``: the installed package stays as it is."""

    def put_in_place(folder: Path) -> Path:
        path = stage(folder)
        with (path / file).open("a", encoding="utf-8") as target:
            target.write(lines)
        return path

    return put_in_place


def refused(tmp_path: Path, file: str, lines: str) -> Certificate:
    certificate, _ = certify(request(tmp_path), put_in_place=sabotage(file, lines))  # type: ignore[arg-type]
    assert not certificate.granted
    assert certificate.reasons
    assert certificate.claim.startswith("Refused")
    return certificate


def rung(certificate: Certificate, name: RungName) -> bool | None:
    return next(item.reached for item in certificate.proof if item.name is name)


def test_the_quick_suite_is_granted_and_claims_what_it_showed(tmp_path: Path) -> None:
    certificate, facts = run_and_report(request(tmp_path, SUITES["quick"]))
    assert certificate.granted, certificate.reasons
    assert isinstance(facts, Facts)
    assert "Nothing was shown about CUDA" in certificate.claim
    assert {item.name: item.reached for item in certificate.proof} == {
        RungName.RESOLVED: True,
        RungName.BUILT: None,
        RungName.LOADS: True,
        RungName.COMPUTES: True,
        RungName.TRAINS: True,
        RungName.REPRODUCES: None,
    }
    document = json.loads((tmp_path / "certificate.json").read_text())
    assert (document["schema_version"], document["command"], document["granted"]) == (2, "certify", True)
    text = (tmp_path / "certificate.md").read_text()
    for run in certificate.scenes:
        assert run.pictures
        for picture in run.pictures:
            assert (tmp_path / picture).exists()
            assert picture in text


def test_detached_gradients_are_refused(tmp_path: Path) -> None:
    """Rendering works, the loss is computed, but nothing reaches the parameters."""
    certificate = refused(
        tmp_path,
        "smoke_trainer/renderers/torch_.py",
        "\n\nimport dataclasses\n\n_real_render = TorchRenderer.render\n\n"
        "def _detached(self, camera, splats, background):\n"
        "    drawn = _real_render(self, camera, splats, background)\n"
        "    zero = sum(value.sum() * 0.0 for value in splats if hasattr(value, 'sum'))\n"
        "    return dataclasses.replace(drawn, color=drawn.color.detach() + zero)\n\n"
        "TorchRenderer.render = _detached\n",
    )
    failed = {
        item.code for run in certificate.scenes for item in run.criteria if item.outcome is Outcome.FAILED
    }
    assert {"gradients-xyz", "gradients-opacity", "gradients-f-dc"} <= failed
    assert "densification-works" in failed
    assert any("No gradient reaches xyz" in reason for reason in certificate.reasons)
    assert rung(certificate, RungName.TRAINS) is False


@pytest.mark.parametrize(
    ("file", "lines", "kernel"),
    [
        (
            "splatfix/kernels/ssim.py",
            "\n\n_real = fused_ssim\n\ndef fused_ssim(*a, **k):\n    return _real(*a, **k) * 1.01\n",
            "ssim",
        ),
        (
            "splatfix/kernels/knn.py",
            "\n\n_real = distCUDA2\n\ndef distCUDA2(points):\n    return _real(points) * 1.2\n",
            "knn",
        ),
        (
            "splatfix/kernels/rasterizer.py",
            "\n\n_forward = GaussianRasterizer.forward\n\ndef _half(self, *a, **k):\n"
            "    color, radii = _forward(self, *a, **k)\n    return color.detach() + 0.5 * (color - color.detach()), radii\n\n"
            "GaussianRasterizer.forward = _half\n",
            "rasterizer",
        ),
    ],
)
def test_a_wrong_kernel_does_not_compute(tmp_path: Path, file: str, lines: str, kernel: str) -> None:
    """SSIM 1 % off, neighbour distances inflated as a search inside batches does, gradients halved."""
    folder = sabotage(file, lines)(tmp_path)  # type: ignore[operator]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[2] / "splatfix" / "certify" / "kernel_probe.py")],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [
        item for item in json.loads(done.stdout)["kernels"] if item["implementation"].startswith("splatfix.")
    ]
    outcomes = {item["name"]: item["outcome"] for item in ours}
    assert outcomes.pop(kernel) == "failed"
    assert set(outcomes.values()) == {"met"}


def test_a_trainer_that_crashes_is_refused_with_its_words(tmp_path: Path) -> None:
    certificate = refused(
        tmp_path,
        "smoke_trainer/losses.py",
        "\n\ndef photometric_loss(*a, **k):\n    raise RuntimeError('out of luck')\n",
    )
    assert any("out of luck" in reason for reason in certificate.reasons)


def test_a_trainer_whose_packages_do_not_load_is_refused_with_that_sentence(tmp_path: Path) -> None:
    certificate = refused(
        tmp_path,
        "smoke_trainer/needs.py",
        "\n\ndef require():\n    raise _broken('torch', OSError('libgomp.so.1: wrong ELF class'))\n",
    )
    assert any("cannot be loaded: libgomp.so.1: wrong ELF class" in reason for reason in certificate.reasons)


def test_kernels_that_cannot_be_imported_reach_no_rung_above(tmp_path: Path) -> None:
    certificate = refused(tmp_path, "splatfix/kernels/ssim.py", "\n\nimport no_such_module\n")
    assert rung(certificate, RungName.COMPUTES) is False
    assert rung(certificate, RungName.TRAINS) is False


def test_verify_finds_ours_good_and_says_what_it_could_not_measure() -> None:
    kernels = verify(sys.executable, "cpu")
    ours = [item for item in kernels if item.implementation.startswith("splatfix.")]
    assert {item.outcome for item in ours} == {Outcome.MET}
    assert len(ours) == 3
    assert {item.kind for item in ours} == {"ours"}
    allowed = {item.name: (item.value_allowed, item.gradient_allowed) for item in ours}
    assert allowed["ssim"] == (1e-6, 5e-5), "the contract, not a kinder one"
    theirs = [item for item in kernels if item not in ours]
    assert all(item.outcome is not Outcome.FAILED and item.detail for item in theirs)


def test_without_a_gpu_nothing_is_claimed_or_refused_for_one(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert {item.outcome for item in verify(sys.executable, "cuda")} == {Outcome.NOT_MEASURED}
    with pytest.raises(SplatfixError) as caught:
        certify(dataclasses.replace(request(tmp_path), device="cuda"))
    assert (caught.value.code, int(caught.value.exit_code)) == ("no-gpu", 3)


def test_a_swap_is_measured_beside_ours(tmp_path: Path) -> None:
    """A pure-PyTorch fused_ssim on the path, here one that is wrong, is held against the reference too."""

    def with_swap(folder: Path) -> Path:
        path = stage(folder)
        (path / "fused_ssim.py").write_text(
            "from splatfix.kernels.ssim import fused_ssim as _right\n"
            "def fused_ssim(a, b, padding='same', train=True):\n    return _right(a, b, 'valid', train)\n"
        )
        return path

    found = {item.implementation: item for item in verify(sys.executable, "cpu", put_in_place=with_swap)}
    assert found["fused_ssim"].outcome is Outcome.FAILED
    assert found["fused_ssim"].kind == "python", "no distribution of splatfix's holds it"
    assert found["splatfix.kernels.ssim"].outcome is Outcome.MET


def test_an_earlier_report_is_moved_aside_and_not_mixed_in(tmp_path: Path) -> None:
    (tmp_path / "figurine" / "renders").mkdir(parents=True)
    (tmp_path / "figurine" / "renders" / "old.png").write_bytes(b"old")
    (tmp_path / "figurine" / "trainer.log").write_text("trained, long ago")
    (tmp_path / "certificate.md").write_text("granted, long ago")
    certificate = refused(tmp_path, "smoke_trainer/losses.py", "\n\nraise RuntimeError('no luck')\n")
    assert certificate.scenes[0].pictures == ()
    assert not (tmp_path / "certificate.md").exists()
    assert (tmp_path / "previous" / "certificate.md").read_text() == "granted, long ago"
    assert (tmp_path / "previous" / "figurine" / "renders" / "old.png").exists()
