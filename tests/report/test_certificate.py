"""A certificate in words: what was trained, skipped, and not judged, each said once."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.certify import exit_code_of, next_step
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun, Skipped, Verdict
from splatfix.certify.smoke_training import record_of
from splatfix.core.errors import Exit
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import Command
from splatfix.report.certificate import show
from splatfix.report.markdown import markdown
from tests.files import assert_golden
from tests.hostile.words import CONTROL, MARKUP, NAMES, UNICODE
from tests.screens import on_screen

RESULT: dict[str, Any] = json.loads(Path(__file__).with_name("certificate_result.json").read_text("utf-8"))
"""Of a scene that trained."""


def certificate(**changes: Any) -> Certificate:
    criteria = (
        Criterion("loss-falls", Outcome.MET, "0.3 to 0.1", "below 80% of the start"),
        Criterion("held-out-quality", Outcome.NOT_MEASURED, "26.10 dB", "no floor known"),
    )
    run = SceneRun("garden", criteria, 12.0, record_of(changes.pop("result", RESULT)))
    proof = (
        Rung(RungName.TRAINS, True, "every criterion met"),
        Rung(RungName.REPRODUCES, None, "no stored baseline was given (--baseline)"),
    )
    skipped = (
        Skipped("truck", "not below data"),
        Skipped("room", "data/room has images, but no reconstruction (sparse/)"),
        Skipped("stump", "not below data"),
    )
    known: dict[str, Any] = {
        "verdict": Verdict.CERTIFIED,
        "summary": "It trained.",
        "reasons": (),
        "suite": "data",
    }
    known |= {"renderer": "torch", "device": "cpu", "proof": proof, "kernels": (), "scenes": (run,)}
    known |= {"environment": {}, "repeat": Command(("splatfix", "certify")), "skipped": skipped}
    known |= {"issued": "2026-01-01", "seconds": 15.0}
    return Certificate(**known | changes)


def on_terminal(subject: Certificate, *more: Any, width: int = 300, **options: Any) -> str:
    return on_screen(show, subject, Path("report.md"), *more, width=width, **options)


def test_the_certificate_on_a_terminal() -> None:
    assert on_terminal(certificate()).splitlines() == [
        "CERTIFIED (CPU): It trained.",
        "  Report: report.md",
        "  ! garden: 1 image(s) on disk are not in the reconstruction: a|b.jpg",
        "",
        "Levels of proof",
        "  ✓ trains      every criterion met",
        "  – reproduces  no stored baseline was given (--baseline)",
        "",
        "Scenes",
        "  ✓ garden      1 of 2 criteria met, 1 not judged, held-out 26.10 dB, 12 s",
        "  – truck, stump: skipped, not below data",
        "  – room: skipped, data/room has images, but no reconstruction (sparse/)",
    ]


def test_a_failed_certificate_names_the_next_command() -> None:
    subject = replace(certificate(), verdict=Verdict.NOT_CERTIFIED, reasons=("garden: bad",))
    step = next_step(subject, "my env")
    assert step is not None and step.command is not None
    assert step.command.argv == ("splatfix", "diagnose", "--python", "my env")
    assert next_step(certificate(), None) is None
    assert (
        "    $ splatfix diagnose --python 'my env'" in on_terminal(subject, step, width=80).splitlines()[:6]
    )


OURS = KernelCheck("ssim", "splatfix.kernels.ssim", Outcome.MET, 6e-8, 1e-6, 4e-7, 5e-5, kind="ours")
ABSENT = KernelCheck("ssim", "fused_ssim", Outcome.NOT_MEASURED, detail="not installed in this environment")
NATIVE = KernelCheck("knn", "simple_knn._C", Outcome.NOT_MEASURED, detail="it needs a GPU", kind="native")
WRONG = KernelCheck("knn", "simple_knn._C", Outcome.FAILED, 0.3, 1e-4, kind="native")


@pytest.mark.parametrize("rendering", [markdown, on_terminal])
def test_an_unreadable_scene_is_named_and_no_refusal(rendering: Any) -> None:
    why = "data/attic/transforms.json is not JSON. The file is damaged. Export the scene again."
    criterion = Criterion("scene-readable", Outcome.NOT_MEASURED, why, "a scene that can be read")
    run = SceneRun("attic", (criterion,), 1.0, unreadable=why)
    subject = replace(certificate(), verdict=Verdict.UNDETERMINED, scenes=(run,))
    assert exit_code_of(subject) is Exit.UNDETERMINED
    text = rendering(subject)
    assert f"attic: {why}" in text and "determined" in text.lower()
    assert "NOT CERTIFIED" not in text and "FAILED" not in text
    failed = replace(subject, verdict=Verdict.NOT_CERTIFIED, reasons=("statue: loss-falls: 0.3 to 0.3.",))
    assert exit_code_of(failed) is Exit.FAILURE
    assert "NOT CERTIFIED" in rendering(failed) and f"attic: {why}" in rendering(failed)


def every_kind() -> Certificate:
    """Scenes that passed, failed and cannot be read, kernels of every kind, a level that is not needed."""
    known = certificate()
    run = replace(known.scenes[0], images=("my room/renders/1.png",), log="my room/trainer.log")
    failed = Criterion(
        "loss-falls", Outcome.FAILED, "0.3 to 0.3.", "below 80%", "Nothing is learned.", "a|b", "Retry."
    )
    unreadable = Criterion("scene-readable", Outcome.NOT_MEASURED, "damaged", "a scene that can be read")
    engine = {"name": "fused_ssim", "file": "fused_ssim.so", "sha256": "12ef"}
    config = {"strategy": "budget", "seed": 4, "cap": None}
    other = {**RESULT, "config": config, "implementations": {"ssim": engine}}
    scenes = (
        run,
        SceneRun("study", (failed,), 3.0, record_of(other)),
        SceneRun("attic", (unreadable,), 1.0, unreadable="damaged"),
    )
    proof = (Rung(RungName.BUILT, None, "all is PyTorch", needed=False), *known.proof)
    failing = replace(known, verdict=Verdict.NOT_CERTIFIED, reasons=("study: loss-falls",), scenes=scenes)
    about = {"environment": {"python": "3.11.7", "torch": "2.9.0"}, "sources": {"a.py": "0"}}
    return replace(failing, kernels=(OURS, ABSENT, NATIVE, WRONG), proof=proof, **about)


def test_the_report_reads_as_the_golden() -> None:
    assert_golden(Path(__file__).with_name("certificate.md"), markdown(every_kind()))


def test_verbose_shows_every_criterion_and_the_reservation_of_each() -> None:
    lines = on_terminal(every_kind(), verbose=True).splitlines()
    scenes = lines[lines.index("Scenes") :]
    codes = [line.split()[1] for line in scenes if line.startswith("      ")]
    assert codes == ["loss-falls:", "held-out-quality:", "loss-falls:"]


@pytest.mark.parametrize("name", [*NAMES.values(), CONTROL + UNICODE + MARKUP, "javascript:alert(1)"])
def test_markdown_holds_strangers_words_as_text(name: str) -> None:
    known = certificate()
    run = replace(known.scenes[0], scene=name, images=(f"{name}/1.png",), log=name)
    text = markdown(replace(known, scenes=(run,), summary=name, environment={name: name}, suite=name))
    assert text.encode("utf-8") and all(sign.isprintable() or sign == "\n" for sign in text)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
    assert "<b>" not in bare and "`" not in bare and "](javascript:" not in bare
    assert bare.count("](") == 2 and bare.count("[") == 2
    assert {line.count("|") for line in bare.splitlines() if line.startswith("| ")} == {3, 4, 5, 16}
