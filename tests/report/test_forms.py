"""A certificate as JUnit's XML, for Prometheus, and as an issue."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from splatfix.app.certify import forms_of, monitoring_code_of
from splatfix.certify.interim import incomplete
from splatfix.certify.model import Certificate, Criterion, KernelCheck, Outcome, Verdict
from splatfix.context.model import BinaryMatrix
from splatfix.core.step import Command
from splatfix.facts.model import EnvironmentFacts, Facts, MachineFacts
from splatfix.report.appendix import latex
from splatfix.report.badge import badge
from splatfix.report.forms import issue, junit, prometheus
from splatfix.report.html import certificate_page
from tests.report.test_certificate import certificate

FAILED = Criterion("loss-trend", Outcome.FAILED, "tau 0.1", "at most -0.46", "It rose \x1b[31magain\x00.")


def refused(**changes: Any) -> Certificate:
    (run,) = certificate().scenes
    scenes = (dataclasses.replace(run, scene='a"b\n<c>', criteria=(*run.criteria, FAILED)),)
    kernels = (KernelCheck("ssim", "fused_ssim", Outcome.FAILED, detail="out of tolerance"),)
    verdict, reasons = Verdict.NOT_CERTIFIED, ("a: loss-trend",)
    return certificate(verdict=verdict, scenes=scenes, kernels=kernels, reasons=reasons, **changes)


def test_junit_has_a_case_for_each_criterion() -> None:
    root = ElementTree.fromstring(junit(refused()))
    kernels, scene, levels = root.findall("testsuite")
    assert [suite.get("name") for suite in (kernels, levels)] == ["kernels", "levels"]
    assert kernels.get("failures") == "1"
    assert (scene.get("tests"), scene.get("failures"), scene.get("skipped")) == ("3", "1", "1")
    (failure,) = scene.iter("failure")
    assert failure.get("message") == "tau 0.1 (required: at most -0.46)"
    assert "again" in str(failure.text) and "\x1b" not in str(failure.text)


@pytest.mark.parametrize("how", ["interrupted", "unfinished"])
def test_a_run_that_did_not_come_to_its_end_is_not_green(how: str) -> None:
    begun = certificate(verdict=Verdict.UNDETERMINED)
    found = incomplete(begun, ("garden", "study"), {"where": "study"}, interrupted=how == "interrupted")
    suites = {item.get("name"): item for item in ElementTree.fromstring(junit(found)).findall("testsuite")}
    errors = {name: item.get("errors") for name, item in suites.items()}
    assert errors == {"garden": "0", "levels": "0", "run": "1", "study": "1"}, (
        "that truck is not there is none"
    )
    assert [case.get("name") for case in suites["run"]] == [how]
    (error,) = suites["study"].iter("error")
    assert "did not come to its end" in str(error.get("message"))
    lines = prometheus(found).splitlines()
    states = {
        line.partition('verdict="')[2].partition('"')[0]: line[-3:] for line in lines if "verdict=" in line
    }
    assert states == {"certified": "0.0", "rehearsed": "0.0", "not-certified": "0.0", "undetermined": "1.0"}
    (finished,) = (line for line in lines if line.startswith("splatfix_certificate_finished{"))
    assert finished.endswith(" 0.0") and not any(line.startswith("splatfix_certified{") for line in lines)
    text = issue(dataclasses.replace(found, scenes=()))
    assert "- Not finished: it was " in text and "not trained to its end: study." in text
    assert "Nothing." not in text and "### Scenes" not in text and "### Scenes" in issue(found)


SAMPLE = re.compile(r'(splatfix_[a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parsed(text: str) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Prometheus' text format 0.0.4, strictly: each family is in one piece behind its HELP and TYPE, each sample once."""
    families: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    lines = iter(text.removesuffix("\n").split("\n"))
    name = ""
    for line in lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families and next(lines) == f"# TYPE {name} gauge"
            families[name] = {}
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample and sample[1] == name, line
        labels = LABEL.findall(sample[2])
        assert len(dict(labels)) == len(labels) and frozenset(labels) not in families[name], line
        families[name][frozenset(labels)] = float(sample[3])
    assert all(families.values())
    return families


def test_prometheus_has_verdict_criteria_levels_and_kernels() -> None:
    made = refused()
    twice = dataclasses.replace(made.kernels[0], outcome=Outcome.MET, value_error=1e-8, value_allowed=1e-6)
    families = parsed(prometheus(dataclasses.replace(made, kernels=(twice, *made.kernels, *made.kernels))))
    assert list(families["splatfix_certified"].values()) == [0.0]
    assert sorted(families["splatfix_criterion_met"].values()) == [0.0, 1.0]

    def by(family: str, *names: str) -> dict[tuple[str, ...], float]:
        samples = families[f"splatfix_{family}"].items()
        return {tuple(dict(labels)[name] for name in names): value for labels, value in samples}

    assert by("proof_level_reached", "proof_level") == {("trains",): 1.0}
    kernel = ("kernel", "implementation")
    assert by("kernel_agrees", *kernel) == {("ssim", "fused_ssim"): 0.0}
    assert by("kernel_value_error_ratio", *kernel) == {("ssim", "fused_ssim"): 1e-8}
    assert by("kernel_value_error_allowed_ratio", *kernel) == {("ssim", "fused_ssim"): 1e-6}


@pytest.mark.parametrize(
    ("changes", "text", "colour"),
    [
        ({}, "certified · CPU · 2026-01-01", "#176f33"),
        ({"verdict": Verdict.NOT_CERTIFIED}, "not certified · CPU · 2026-01-01", "#b3231f"),
        (
            {"device": "cuda:1", "environment": {"GPU": "<b>\x1b\"'&日 (cuda:1)"}},
            "certified · <b>\\x1b\"'&日 · 2026-01-01",
            "#176f33",
        ),
    ],
)
def test_a_badge_says_verdict_target_and_date(changes: dict[str, Any], text: str, colour: str) -> None:
    root = ElementTree.fromstring(badge(certificate(**changes)))
    space = "{http://www.w3.org/2000/svg}"
    title = root.findtext(f"{space}title")
    assert title == root.get("aria-label") == f"splatfix: {text}" and root.get("role") == "img"
    assert [item.text for item in root.iter(f"{space}text")] == ["splatfix", text]
    assert [item.get("fill") for item in root.iter(f"{space}rect")][-1] == colour
    assert not re.search(r"href|url\((?!#)|@import", badge(certificate(**changes)))


def test_an_issue_names_the_reason() -> None:
    assert "- a: loss-trend" in issue(refused())


HOME_IN = "/home/ada/env in /home/ada, -I/home/ada/x file:///home/ada/y"


@pytest.mark.parametrize("form", ["html", "latex", *forms_of(certificate(), None)])
def test_no_form_but_json_tells_the_home(form: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JSON is read again by programs, which need the path."""
    monkeypatch.setenv("HOME", "/home/ada")
    failed = dataclasses.replace(FAILED, measured=HOME_IN, why=HOME_IN)
    (run,) = certificate().scenes
    facts = Facts(MachineFacts("linux", "x86_64"), EnvironmentFacts(), "0")
    found = certificate(
        verdict=Verdict.NOT_CERTIFIED,
        scenes=(dataclasses.replace(run, scene="/home/ada/scene", criteria=(failed,)),),
        kernels=(KernelCheck("ssim", "fused_ssim", Outcome.FAILED, detail=HOME_IN),),
        reasons=(HOME_IN,),
        environment={"python": "/home/ada/env/bin/python"},
        repeat=Command(("splatfix", "certify", "--python", "/home/ada/env/bin/python")),
    )
    forms: dict[str, Callable[[], str]] = {
        "html": lambda: certificate_page(found, facts, tmp_path, None, BinaryMatrix()),
        "latex": lambda: latex(found),
        **forms_of(found, None),
    }
    text = forms[form]()
    assert "~/" in text or "textasciitilde" in text
    assert "/home/ada" not in text


def test_scenes_that_were_left_out_are_a_warning_to_monitoring_systems() -> None:
    """The other codes are held in tests/certify/test_run_levels.py."""
    assert monitoring_code_of(certificate(result={})) == 1
    assert monitoring_code_of(certificate(result={}, skipped=())) == 0
