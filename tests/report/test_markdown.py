"""The Markdown report: its sections, and what it says where something is absent or wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.app.certify import forms_of
from splatfix.certify import criteria
from splatfix.certify.criteria.criterion import REGISTERED, SMOKE, Measure, Registered
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, SceneRun, Verdict
from splatfix.certify.smoke_training import record_of
from splatfix.context import make_context
from splatfix.context.matrix import binary_matrix
from splatfix.context.model import BinaryMatrix
from splatfix.core.step import Command
from splatfix.facts.collect import playback
from splatfix.model import EnvironmentFacts, Facts, MachineFacts
from splatfix.report.html import certificate_page
from splatfix.report.markdown import markdown
from splatfix.report.results import legend, row
from splatfix.report.wording import RESULTS
from tests.certify.conftest import RESULT, trained
from tests.report.test_certificate import WRONG, certificate
from tools.machines import raw_machines

RUN = SceneRun("figurine", criteria.judge(trained()), 12.0, record_of(RESULT), log="figurine/trainer.log")


def recorded(**changes: Any) -> Certificate:
    return certificate(**{"scenes": (RUN,), "environment": {"GPU": "none"}, "suite": "quick", **changes})


def test_a_recorded_run_in_one_row() -> None:
    quality, memory = RESULT["heldout"], RESULT["memory"]["host"]
    found = dict(
        zip(RESULTS, row(replace(RUN, record=record_of({**RESULT, "ply": {"bytes": 1234567}}))), strict=True)
    )
    assert found["PLY"] == "1.23 MB" and found["iterations"] == f"{RESULT['iterations']:,}"
    longer = replace(RUN, record=record_of({**RESULT, "iterations": 7000}))
    assert legend([RUN, longer]).startswith("Short run: ") and "Short run" not in legend([longer])
    assert found["held-out PSNR"] == f"{quality['psnr']:.2f} dB" and found["SSIM"] == f"{quality['ssim']:.4f}"
    assert found["training views"] == str(len(RESULT["split"]["train"])) and found["LPIPS"] == "–"
    assert found["peak memory"] == f"{memory['train'] / 2**20:,.0f} / {memory['eval'] / 2**20:,.0f} MiB"
    loss = RESULT["train_loss"]
    assert found["loss"] == f"{loss['first']:.4f} → {loss['last']:.4f}"
    cuda = {"train": {"allocated": 3 << 30}, "eval": {"allocated": 1 << 30}}
    on_gpu = replace(RUN, record=record_of({**RESULT, "memory": {"cuda": cuda}}))
    assert row(on_gpu)[-1] == "3,072 / 1,024 MiB"
    assert "allocated on the GPU" in markdown(recorded(scenes=(on_gpu,)))
    text = markdown(recorded())
    assert f"| figurine | passed | {' | '.join(row(RUN))} |" in text and "resident" in text


def test_what_is_absent_is_a_dash() -> None:
    run = replace(RUN, record=record_of({}), seconds=3.0)
    assert set(row(run)) == {"–", "3 s"}
    markdown(recorded(scenes=(run,)))


def test_each_failure_has_its_meaning_and_what_to_do() -> None:
    flat = {**RESULT, "train_loss": {"first": 0.1, "last": 0.1}, "initial_heldout": RESULT["heldout"]}
    judged = criteria.judge(trained(flat, device="cuda"))
    run = replace(RUN, record=record_of(flat), criteria=judged)
    failed = recorded(verdict=Verdict.NOT_CERTIFIED, scenes=(run,), kernels=(WRONG,))
    lines = markdown(failed).partition("\n## Troubleshooting\n")[2].partition("\n## ")[0].splitlines()
    assert [line.partition(" failed: ")[0] for line in lines if line.startswith("- ")] == [
        f"- **kernel: {WRONG.implementation}**",
        "- **figurine: loss-falls**",
        "- **figurine: held-out-psnr-rises**",
    ]
    assert sum("--renderer torch" in line for line in lines) == 1, "advised once for both"
    facts = playback(raw_machines()["h200"])
    page = certificate_page(failed, facts, Path(), None, binary_matrix(make_context(facts)))
    assert page[page.index('id="what-to-do"') :].count("--renderer torch --device cpu") == 1


def test_nothing_is_advised_that_ran_already() -> None:
    for code in ("loss-falls", "gradients"):
        failed = [
            REGISTERED[code].criterion(Measure(False, ""), trained(renderer=renderer, device=device)).advice
            for renderer, device in (("torch", "cuda"), ("inria", "cpu"), ("torch", "cpu"))
        ]
        assert ["--renderer torch" in advice for advice in failed] == [True, True, False]


OF_SMOKE = [item for item in REGISTERED.values() if SMOKE in item.of and item.code != "scene-readable"]


@pytest.mark.parametrize("item", OF_SMOKE, ids=lambda item: item.code)
def test_every_criterion_has_words_of_its_own(item: Registered) -> None:
    failed = item.criterion(Measure(False, "measured"), trained(device="cuda"))
    assert failed.advice and failed.why and failed.title and failed.source
    met = item.criterion(Measure(True, "measured"), trained())
    assert not met.advice and not met.why, "nothing to do about what was met"
    short = item.criterion(Measure(False, "measured", undetermined=True), trained())
    assert "100 iterations" in short.advice


HOME_IN = "/home/ada/env in /home/ada, -I/home/ada/x file:///home/ada/y"


@pytest.mark.parametrize("form", ["html", *forms_of(certificate(), None)])
def test_no_form_but_json_tells_the_home(form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JSON is read again by programs, which need the path."""
    monkeypatch.setenv("HOME", "/home/ada")
    failed = Criterion("loss-trend", Outcome.FAILED, HOME_IN, "at most -0.46", HOME_IN)
    (run,) = certificate().scenes
    facts = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")
    python = "/home/ada/env/bin/python"
    told = {"environment": {"python": python}, "reasons": (HOME_IN,), "verdict": Verdict.NOT_CERTIFIED}
    told["repeat"] = Command(("splatfix", "certify", "--python", python))
    told["kernels"] = (KernelCheck("ssim", "fused_ssim", Outcome.FAILED, detail=HOME_IN),)
    found = certificate(scenes=(replace(run, scene="/home/ada/scene", criteria=(failed,)),), **told)
    forms: dict[str, Callable[[], str]] = {
        "html": lambda: certificate_page(found, facts, tmp_path, None, BinaryMatrix()),
        **forms_of(found, None),
    }
    text = forms[form]()
    assert "~/" in text and "/home/ada" not in text
