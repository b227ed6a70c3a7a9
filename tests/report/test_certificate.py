"""A certificate in words: what was trained, skipped, and not judged, each said once."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.certify import exit_code_of, next_step
from splatfix.certify import criteria
from splatfix.certify.criteria.criterion import REGISTERED, STACK, Measure, Registered
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun, Skipped, Verdict
from splatfix.core.errors import Exit
from splatfix.core.proof import Rung, RungName
from splatfix.core.step import Command
from splatfix.model import EnvironmentFacts, Facts, MachineFacts
from splatfix.report.certificate import CertificateDocument, certificate_page, markdown, show
from splatfix.report.forms import FORMS
from splatfix.report.view import WORDS, legend, row, tables
from tests.certify.conftest import RESULT as RECORDED
from tests.certify.conftest import record_of, trained
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
    known: dict[str, Any] = {"verdict": Verdict.CERTIFIED, "summary": "It trained.", "suite": "data"}
    known |= {"renderer": "torch", "device": "cpu", "proof": proof, "kernels": (), "scenes": (run,)}
    known |= {"environment": {}, "repeat": Command(("splatfix", "certify")), "skipped": skipped}
    known |= {"issued": "2026-01-01", "seconds": 15.0, "reasons": ()}
    return Certificate(**known | changes)


FACTS = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")


def document(subject: Certificate, **more: Any) -> CertificateDocument:
    return CertificateDocument(certificate=subject, facts=FACTS, page="report.md", **more)


def on_terminal(subject: Certificate, *, width: int = 300, verbose: bool = False, **more: Any) -> str:
    return on_screen(show, document(subject, **more), width=width, verbose=verbose)


def as_markdown(subject: Certificate) -> str:
    return markdown(document(subject))


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
    command = Command(("splatfix", "certify", "--python", "my env"))
    subject = replace(certificate(), verdict=Verdict.NOT_CERTIFIED, reasons=("garden: bad",), repeat=command)
    step = next_step(subject)
    assert step is not None and step.command is not None
    assert step.command.argv == ("splatfix", "diagnose", "--python", "my env")
    assert next_step(certificate()) is None
    lines = on_terminal(subject, width=80, next_steps=(step,)).splitlines()
    assert "    $ splatfix diagnose --python 'my env'" in lines[:6]


OURS = KernelCheck("ssim", "splatfix.kernels.ssim", Outcome.MET, 6e-8, 1e-6, 4e-7, 5e-5, kind="ours")
ABSENT = KernelCheck("ssim", "fused_ssim", Outcome.NOT_MEASURED, detail="not installed in this environment")
NATIVE = KernelCheck("knn", "simple_knn._C", Outcome.NOT_MEASURED, detail="it needs a GPU", kind="native")
WRONG = KernelCheck("knn", "simple_knn._C", Outcome.FAILED, 0.3, 1e-4, kind="native")


@pytest.mark.parametrize("rendering", [as_markdown, on_terminal])
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
    assert_golden(Path(__file__).with_name("certificate.md"), as_markdown(every_kind()))


def test_verbose_shows_every_table() -> None:
    subject = every_kind()
    lines = on_terminal(subject, verbose=True).splitlines()
    assert {*tables(subject)} <= {
        *lines
    } and "  ✗ loss-falls: failed; measured 0.3 to 0.3.; required below 80%" in lines


@pytest.mark.parametrize("name", [*NAMES.values(), CONTROL + UNICODE + MARKUP, "javascript:alert(1)"])
def test_markdown_holds_strangers_words_as_text(name: str) -> None:
    known = certificate()
    run = replace(known.scenes[0], scene=name, images=(f"{name}/1.png",), log=name)
    text = as_markdown(replace(known, scenes=(run,), summary=name, environment={name: name}, suite=name))
    assert text.encode("utf-8") and all(sign.isprintable() or sign == "\n" for sign in text)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
    assert "<b>" not in bare and "`" not in bare and "](javascript:" not in bare
    assert bare.count("](") == 2 and bare.count("[") == 2
    assert {line.count("|") for line in bare.splitlines() if line.startswith("| ")} == {3, 4, 5, 16}


RUN = SceneRun("figurine", criteria.judge(trained()), 12.0, record_of(RECORDED), log="figurine/trainer.log")


def recorded(**changes: Any) -> Certificate:
    return certificate(**{"scenes": (RUN,), "environment": {"GPU": "none"}, "suite": "quick", **changes})


def test_a_recorded_run_in_one_row() -> None:
    quality, memory, loss = RECORDED["heldout"], RECORDED["memory"]["host"], RECORDED["train_loss"]
    run = replace(RUN, record=record_of({**RECORDED, "ply": {"bytes": 1234567}}))
    found = dict(zip(WORDS["results"], row(run), strict=True))
    expected = {
        "PLY": "1.23 MB",
        "iterations": f"{RECORDED['iterations']:,}",
        "held-out PSNR": f"{quality['psnr']:.2f} dB",
        "SSIM": f"{quality['ssim']:.4f}",
        "training views": str(len(RECORDED["split"]["train"])),
        "LPIPS": "–",
        "peak memory": f"{memory['train'] / 2**20:,.0f} MiB / {memory['eval'] / 2**20:,.0f} MiB",
        "loss": f"{loss['first']:.4f} → {loss['last']:.4f}",
    }
    assert {name: found[name] for name in expected} == expected
    longer = replace(RUN, record=record_of({**RECORDED, "iterations": 7000}))
    assert legend([RUN, longer]).startswith("Short run: ") and "Short run" not in legend([longer])
    cuda = {"train": {"allocated": 3 << 30}, "eval": {"allocated": 1 << 30}}
    assert (
        row(replace(RUN, record=record_of({**RECORDED, "memory": {"cuda": cuda}})))[-1]
        == "3,072 MiB / 1,024 MiB"
    )
    assert f"| figurine | ✓ passed | {' | '.join(row(RUN))} |" in as_markdown(recorded())


def test_what_is_absent_is_a_dash() -> None:
    run = replace(RUN, record=record_of({}), seconds=3.0)
    assert set(row(run)) == {"–", "3 s"}
    as_markdown(recorded(scenes=(run,)))


def test_each_failure_has_its_meaning_and_what_to_do() -> None:
    flat = {**RECORDED, "train_loss": {"first": 0.1, "last": 0.1}, "initial_heldout": RECORDED["heldout"]}
    judged = criteria.judge(trained(flat, device="cuda"))
    run = replace(RUN, record=record_of(flat), criteria=judged)
    failed = recorded(verdict=Verdict.NOT_CERTIFIED, scenes=(run,), kernels=(WRONG,))
    lines = as_markdown(failed).partition("\n## Troubleshooting\n")[2].partition("\n## ")[0].splitlines()
    assert [line.partition(" failed: ")[0] for line in lines if line.startswith("- ")] == [
        "- **kernel: knn**",
        "- **figurine: loss-falls**",
        "- **figurine: held-out-psnr-rises**",
    ]
    page = certificate_page(document(failed))
    for form in ("\n".join(lines), page[page.index('id="what-to-do"') :]):
        assert form.count("it is the settings") == 1, "advised once for both"


OF_SMOKE = [item for item in REGISTERED if item.of != STACK]


@pytest.mark.parametrize("item", OF_SMOKE, ids=lambda item: item.code)
def test_every_criterion_has_words_of_its_own(item: Registered) -> None:
    failed = item.criterion(Measure(False, "measured"))
    assert failed.advice and failed.title and failed.source
    met = item.criterion(Measure(True, "measured"))
    assert not met.advice and not met.why, "nothing to do about what was met"
    short = item.criterion(Measure(False, "measured", undetermined=True))
    assert "100 iterations" in short.advice


HOME_IN = "/home/ada/env in /home/ada, -I/home/ada/x file:///home/ada/y"


@pytest.mark.parametrize("form", ["html", "markdown", "github"])
def test_no_form_but_json_tells_the_home(form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JSON is read again by programs, which need the path."""
    monkeypatch.setenv("HOME", "/home/ada")
    failed = Criterion("loss-trend", Outcome.FAILED, HOME_IN, "at most -0.46", HOME_IN)
    (run,) = certificate().scenes
    python = "/home/ada/env/bin/python"
    told = {"environment": {"python": python}, "reasons": (HOME_IN,), "verdict": Verdict.NOT_CERTIFIED}
    told["repeat"] = Command(("splatfix", "certify", "--python", python))
    told["kernels"] = (KernelCheck("ssim", "fused_ssim", Outcome.FAILED, detail=HOME_IN),)
    found = certificate(scenes=(replace(run, scene="/home/ada/scene", criteria=(failed,)),), **told)
    text = FORMS[CertificateDocument][form](document(found, folder=str(tmp_path)))
    assert "~/" in text and "/home/ada" not in text
