"""The Markdown report: its sections in the order of a field report, and what it says where something is absent or wrong."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import criteria
from splatfix.certify.advice import advised
from splatfix.certify.model import Certificate, Criterion, Outcome, SceneRun, Verdict
from splatfix.context import make_context
from splatfix.context.matrix import binary_matrix
from splatfix.core.proof import Rung, RungName
from splatfix.facts.collect import playback
from splatfix.report.field_report import markdown
from splatfix.report.html import certificate_page
from splatfix.report.results import HEADERS, legend, row
from tests.report.test_certificate import WRONG, certificate
from tools.machines import raw_machines

RESULT = json.loads(
    (Path(__file__).parents[1] / "certify" / "figurine_result.json").read_text(encoding="utf-8")
)
RUN = SceneRun("figurine", criteria.judge(RESULT, "torch"), 12.0, RESULT, log="figurine/trainer.log")


def recorded(**changes: Any) -> Certificate:
    found = dataclasses.replace(certificate(), scenes=(RUN,), environment={"GPU": "none"}, suite="quick")
    return dataclasses.replace(found, **changes)


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_its_sections_are_those_of_a_field_report() -> None:
    titles = [line[3:] for line in markdown(recorded()).splitlines() if line.startswith("## ")]
    assert titles == [
        "Summary",
        "Configuration",
        "Results by scene",
        "Technical validation",
        "Troubleshooting",
        "How to reproduce",
    ]


def test_a_recorded_run_in_one_row() -> None:
    quality, memory = RESULT["heldout"], RESULT["memory"]["host"]
    found = dict(
        zip(HEADERS, row(dataclasses.replace(RUN, result={**RESULT, "ply": {"bytes": 1234567}})), strict=True)
    )
    assert found["PLY"] == "1.23 MB" and found["iterations"] == f"{RESULT['iterations']:,}"
    longer = dataclasses.replace(RUN, result={**RESULT, "iterations": 7000})
    assert legend([RUN, longer]).startswith("Short run: ") and "Short run" not in legend([longer])
    assert found["held-out PSNR"] == f"{quality['psnr']:.2f} dB" and found["SSIM"] == f"{quality['ssim']:.4f}"
    assert found["training views"] == str(len(RESULT["split"]["train"])) and found["LPIPS"] == "–"
    assert found["peak memory"] == f"{memory['train'] / 2**20:,.0f} / {memory['eval'] / 2**20:,.0f} MiB"
    loss = RESULT["train_loss"]
    assert found["loss"] == f"{loss['first']:.4f} → {loss['last']:.4f}"
    cuda = {"train": {"allocated": 3 << 30}, "eval": {"allocated": 1 << 30}}
    on_gpu = dataclasses.replace(RUN, result={**RESULT, "memory": {"cuda": cuda}})
    assert row(on_gpu)[-1] == "3,072 / 1,024 MiB"
    assert "allocated on the GPU" in markdown(recorded(scenes=(on_gpu,)))
    text = markdown(recorded())
    assert f"| figurine | passed | {' | '.join(row(RUN))} |" in text and "resident" in text


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"memory": 3, "heldout": [], "ply": {"bytes": True}, "split": {"train": 5}, "resolution": [1]},
        {"train_loss": {"first": "x", "last": None}, "gaussians": None, "iterations_per_second": "fast"},
    ],
)
def test_what_is_absent_or_no_number_is_a_dash(result: dict[str, Any]) -> None:
    run = dataclasses.replace(RUN, result=result, seconds=3.0)
    assert set(row(run)) == {"–", "3 s"}
    markdown(recorded(scenes=(run,)))


def test_settings_that_differ_are_told_by_scene() -> None:
    config = RESULT["config"]
    other = dataclasses.replace(
        RUN, scene="study", result={**RESULT, "config": {**config, "background": "white", "cap": None}}
    )
    text = section(markdown(recorded(scenes=(RUN, other))), "Configuration")
    assert f"| seed | {config['seed']} |" in text
    assert f"| background | figurine {config['background']}, study white |" in text and "| cap |" not in text


def test_code_is_told_by_its_digest_and_scenes() -> None:
    parts = {name: {"name": name, "file": f"{name}.py", "sha256": "ab" * 32} for name in ("ssim", "renderer")}
    other = {**parts, "ssim": {**parts["ssim"], "sha256": "cd" * 32}}
    runs = tuple(
        dataclasses.replace(RUN, scene=name, result={**RESULT, "implementations": ran})
        for name, ran in (("one", parts), ("two", other))
    )
    text = section(markdown(recorded(scenes=runs, sources={"a.py": "1", "b.py": "2"})), "Configuration")
    assert f"| renderer | renderer | – | – | renderer.py | {'ab' * 32} | all |" in text
    assert f"| ssim | ssim | – | – | ssim.py | {'ab' * 32} | one |" in text
    assert f"| ssim | ssim | – | – | ssim.py | {'cd' * 32} | two |" in text
    assert "are 2 source files" in text


def test_nothing_wrong_is_said_so() -> None:
    assert section(markdown(recorded()), "Troubleshooting").strip() == "Nothing went wrong."
    unfinished = recorded(verdict=Verdict.UNDETERMINED, unfinished=True)
    assert section(markdown(unfinished), "Troubleshooting").startswith("\nThe run did not come to its end")


def test_each_failure_has_its_meaning_and_what_to_do() -> None:
    flat = {**RESULT, "train_loss": {"first": 0.1, "last": 0.1, "windows": [0.1] * 10}}
    run = dataclasses.replace(
        RUN,
        result=flat,
        criteria=tuple(advised(item, "gsplat", "cuda") for item in criteria.judge(flat, "torch")),
    )
    failed = recorded(verdict=Verdict.NOT_CERTIFIED, scenes=(run,), kernels=(WRONG,))
    text = section(markdown(failed), "Troubleshooting")
    lines = text.strip().splitlines()
    assert [line.partition("**:")[0] for line in lines if line.startswith("- ")] == [
        f"- **kernel: {WRONG.implementation}** failed: its error is above what is allowed",
        "- **figurine: loss-falls** failed: 0.1000 to 0.1000. The optimizer does not improve its training views.",
        "- **figurine: loss-trend** failed: Kendall's tau 0.00 over 10 parts, the last 1.00 times the best. "
        "The loss fell and rose again: first and last alone do not show it.",
    ]
    assert sum(line.startswith("  What to do: Certify again with --renderer torch") for line in lines) == 1
    facts = playback(raw_machines()["h200"])
    page = certificate_page(failed, facts, Path(), None, binary_matrix(make_context(facts)))
    told = page[page.index('id="what-to-do"') :]
    assert "Loss falls from start to end (figurine), Loss falls all the way (figurine)" in told
    assert told.count("Certify again with --renderer torch --device cpu") == 1


def test_nothing_is_advised_that_ran_already() -> None:
    for code in ("loss-falls", "gradients-xyz"):
        failed = Criterion(code, Outcome.FAILED, "", "")
        assert "--renderer torch" in advised(failed, "torch", "cuda").advice
        assert "--renderer torch" in advised(failed, "inria", "cpu").advice
        assert "--renderer" not in advised(failed, "torch", "cpu").advice


def test_a_level_that_failed_alone_is_told() -> None:
    proof = (Rung(RungName.RESOLVED, False, "the driver is too old"),)
    text = section(markdown(recorded(verdict=Verdict.NOT_CERTIFIED, proof=proof)), "Troubleshooting")
    assert text.strip() == "- **level: resolved** failed: the driver is too old"


@pytest.mark.parametrize(
    "item", [*RUN.criteria, Criterion("no-cuda-error", Outcome.MET, "", "")], ids=lambda item: item.code
)
def test_every_criterion_has_advice_of_its_own(item: Criterion) -> None:
    failed = advised(dataclasses.replace(item, outcome=Outcome.FAILED), "gsplat", "cuda")
    unknown = advised(Criterion("no-such-criterion", Outcome.FAILED, "", ""), "gsplat", "cuda")
    assert failed.advice not in ("", unknown.advice)
    assert advised(item, "gsplat", "cuda") == item and not item.advice, "nothing to do about what was met"
    short = advised(dataclasses.replace(item, outcome=Outcome.UNDETERMINED), "torch", "cpu")
    assert "100 iterations" in short.advice


def test_how_to_reproduce_is_one_command() -> None:
    text = section(markdown(recorded()), "How to reproduce")
    assert [line for line in text.splitlines() if line.startswith("    ")] == ["    splatfix certify"]
    assert f"| figurine | {RESULT['scene_sha256']} |" in text
