"""The diagnosis for the terminal: loud findings with evidence and way out, quiet ones in a line, nothing swallowed."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from splatfix.app.diagnose import exit_code_of
from splatfix.checks import Evidence, Finding, Status
from splatfix.core.errors import Exit
from splatfix.core.step import say, set_variable
from splatfix.facts import Driver, EnvironmentFacts, Fact, Facts, Gpu, MachineFacts
from splatfix.report import diagnosis

FACTS = Facts(
    MachineFacts(
        "linux",
        "x86_64",
        distribution="Ubuntu 24.04",
        wsl=True,
        gpus=Fact((Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0"),), "NVML"),
        driver=Fact(Driver("575.57.08", "12.9"), "NVML"),
    ),
    EnvironmentFacts(torch=Fact(None, "", "torch is not installed in this environment")),
    splatfix="0.1.0",
)
QUIET = Finding("a-check", Status.PASS, "All is [well].", evidence=(Evidence("fact", "value", "road"),))
LOUD = Finding(
    "b-check",
    Status.FAIL,
    "Something [is] wrong.",
    evidence=(Evidence("nvcc", "[13.0]", "nvcc --version"),),
    remedy=(set_variable("A", "[b]"), say("Reboot.")),
    link="https://example.org/why",
)


def shown(*findings: Finding, verbose: bool = False, width: int = 60) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False)
    diagnosis.show(console, FACTS, findings, {"a-check": "gpu", "b-check": "driver"}, verbose=verbose)
    return stream.getvalue()


def test_the_machine_in_a_few_lines() -> None:
    text = shown(QUIET)
    assert "Ubuntu 24.04 x86_64 in WSL2" in text
    assert "NVIDIA GeForce RTX 5080 (12.0)" in text
    assert "575.57.08, CUDA 12.9" in text
    assert "torch is not installed" in text


def test_loud_findings_have_evidence_and_a_way_out_and_markup_is_kept_as_text() -> None:
    lines = [line.strip() for line in shown(QUIET, LOUD).splitlines()]
    assert "✓ All is [well]." in lines
    assert "✗ Something [is] wrong. b-check" in lines
    assert "nvcc: [13.0] (nvcc --version)" in lines
    assert "$ export A='[b]'" in lines
    assert "→ Reboot." in lines
    assert "https://example.org/why" in lines
    assert "1 pass, 1 fail" in lines
    assert not any("value" in line for line in lines), "evidence of what is fine only with --verbose"


def test_verbose_shows_the_evidence_of_what_is_fine() -> None:
    assert "fact: value (road)" in shown(QUIET, verbose=True)


def test_commands_are_never_broken_over_lines() -> None:
    command = "export CUDA_HOME=" + "/a-long-folder-name" * 10
    text = shown(
        Finding("b-check", Status.FAIL, "x", remedy=(set_variable("CUDA_HOME", "/a-long-folder-name" * 10),)),
        width=40,
    )
    assert f"$ {command}" in text


@pytest.mark.parametrize(
    ("statuses", "exit_code"),
    [
        ((), Exit.OK),
        ((Status.PASS, Status.WARN, Status.SKIP), Exit.OK),
        ((Status.PASS, Status.UNKNOWN), Exit.UNDETERMINED),
        ((Status.UNKNOWN, Status.FAIL), Exit.FAILURE),
        ((Status.CRASH,), Exit.FAILURE),
    ],
)
def test_exit_codes(statuses: tuple[Status, ...], exit_code: Exit) -> None:
    findings = tuple(Finding("a-check", status, "x") for status in statuses)
    assert exit_code_of(findings) is exit_code
    assert sum(diagnosis.counts(findings).values()) == len(findings)


def test_the_overview_names_mig_instances() -> None:
    card = Gpu(
        0, "NVIDIA A100-SXM4-80GB", cc="8.0", mig=True, mig_devices=("NVIDIA A100-SXM4-80GB MIG 3g.40gb",)
    )
    machine = dataclasses.replace(FACTS.machine, gpus=Fact((card,), "NVML"))
    stream = io.StringIO()
    diagnosis.show(Console(file=stream, width=100), dataclasses.replace(FACTS, machine=machine), (QUIET,), {})
    assert "NVIDIA A100-SXM4-80GB MIG 3g.40gb (8.0)" in stream.getvalue()
