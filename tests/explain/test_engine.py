"""Real logs are explained: the cause first, its consequences below it, and nothing loud where nothing is known."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from splatfix.explain import MachineEvidence, explain_text, known_classes
from splatfix.explain.judges import TESTS
from splatfix.explain.model import Certainty
from splatfix.knowledge.failures import failure_classes, failures, observations, to_collect
from tests.explain.conftest import cases


def verdict(log: str) -> tuple[str, bool]:
    """The first cause, and whether it is named."""
    found = explain_text(log)
    return (found.causes[0].name if found.causes else "", found.certainty is Certainty.NAMED)


def right(case: dict[str, Any], name: str, sure: bool) -> bool:
    """``none``: no class is right, and none is named."""
    return name in case["accept"] or ("none" in case["accept"] and not sure)


UNNAMED = {"given": 1, "held_out": 56, "made_here": 1, "wordings": 2}
"""Cases with a cause of which the log says too little to name it."""


# tests/frozen holds what is said of each of held_out, which takes as long again
@pytest.mark.parametrize(
    "name", ["given", "made_here", "wordings", pytest.param("held_out", marks=pytest.mark.slow)]
)
def test_cases_stay_right(name: str) -> None:
    said = [(case, *verdict(case["log"])) for case in cases(name)]
    unnamed = [case["id"] for case, name, _ in said if not name and "none" not in case["accept"]]
    wrong = [(case["id"], name, sure) for case, name, sure in said if name and not right(case, name, sure)]
    assert len(said) >= 30 and len(unnamed) <= UNNAMED[name], unnamed
    assert len(wrong) <= len(said) // 50, wrong
    assert sum(sure for _, _, sure in wrong) <= len(said) // 100, wrong


def test_a_wording_elsewhere_names_nothing() -> None:
    """In other programs, in help, in prose, where it was outlived, and as a warning beside another error."""
    said = [(case["id"], *verdict(case["log"])) for case in cases("lookalikes")]
    assert len(said) >= 100
    assert [row for row in said if row[2]] == []


def test_every_class_can_be_recognised() -> None:
    for failure in failure_classes():
        assert failure.wordings and failure.why and failure.sources and failure.speakers, failure.name
    assert [item.name for item in known_classes()] == [failure.name for failure in failure_classes()]


def conditions(row: Any) -> set[str]:
    """What a step asks for: observations, and tags of the failure."""
    return {*row.get("all", ()), *row.get("none", ())} if isinstance(row, dict) else set()


def test_what_the_records_name_exists() -> None:
    asked = {"rasterizer-call"}  # by the engine, for the judges
    for failure in failures().values():
        asked.update(failure.about, *map(conditions, (*failure.steps, *failure.settle)))
        assert set(failure.explains) <= failures().keys() - {failure.name}
        for wording in failure.wordings:
            assert not wording.test or wording.test in TESTS
            asked.update(wording.all, wording.none)
    asked.update(*map(conditions, to_collect()))
    assert {name for name in asked if ":" not in name and name not in ("hidden", "dropin")} == set(
        observations()
    )


def test_what_is_only_hinted_at_names_nothing() -> None:
    found = explain_text("NVML and the driver version, FLT_MAX, glm, submodule --recursive, CUDA_HOME")
    assert found.causes == ()


def test_a_traceback_that_was_cut_names_a_cause_only_where_facts_bear_it_out() -> None:
    log = 'scene = Scene(dataset, gaussians)\n  File "loader.py", line 3, in open\n    fp = builtins.open(filename, "rb")\n'
    predicted = MachineEvidence(frozenset({"dataset-images-missing"}))
    for tail in ("", "    ^^^^^^^^^\n", '  File "/usr/lib/py'):
        assert explain_text(log + tail).causes == ()
        (cause, *_) = explain_text(log + tail, predicted).causes
        assert cause.name == "dataset-images-missing"
    named = {cause.name for cause in explain_text(log + "KeyError: 'colour'\n", predicted).causes}
    assert "dataset-images-missing" not in named


NVCC = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'\n"


@pytest.mark.parametrize("case", cases("neighbours") + cases("kinds"), ids=itemgetter("id"))
def test_numbers_and_neighbours_decide(case: dict[str, Any]) -> None:
    """Logs that differ in a few words: each its own cause, none where the log is about something else or that stopped nothing."""
    name, sure = verdict(case["log"])
    assert right(case, name, sure) and name != case.get("not")
    assert case.get("sure", sure) is sure


WARNED = "bdist_wheel.py:4: FutureWarning: The 'wheel' package is no longer the canonical location of the 'bdist_wheel' command\n"
MINOR = "UserWarning: The detected CUDA version (12.0) has a minor version mismatch with the version that was used\n"


@pytest.mark.parametrize("warning", [WARNED, MINOR])
def test_a_warning_is_no_evidence_where_an_error_is(warning: str) -> None:
    found = explain_text(f"{warning}a.cu(6): error: something that nobody has ever seen\n")
    assert not found.causes


NO_TORCH = "ModuleNotFoundError: No module named 'torch'\n"
NO_HOME = "OSError: CUDA_HOME environment variable is not set.\n"


def test_facts_say_which_nvcc_spoke() -> None:
    log = NVCC.format(70)
    assert explain_text(log, MachineEvidence(toolkit=(8, 0))).causes[0].name == "toolkit-too-old-for-arch"
    assert explain_text(log, MachineEvidence(toolkit=(13, 0))).causes[0].name == "toolkit-dropped-arch"


def test_facts_settle_what_the_words_leave_open() -> None:
    log = "TypeError: expected string or bytes-like object\nerror: command 'setup.py' failed\n"
    assert explain_text(log).causes == ()
    (cause, *_) = explain_text(log, MachineEvidence(predicted=frozenset({"cpu-only-torch"}))).causes
    assert cause.name == "cpu-only-torch"


def test_a_consequence_stands_below_its_cause() -> None:
    log = (
        "GPU with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    found = explain_text(log)
    first, second = found.causes[:2]
    assert (first.name, second.name) == ("torch-arch-unsupported", "no-kernel-image")
    assert second.consequence_of == first.name and found.certainty is Certainty.NAMED


def test_credentials_in_a_line_are_not_repeated() -> None:
    log = "fatal: unable to access 'https://me:hunter2@github.com/a/b.git/': Could not resolve host: github.com\n"
    found = explain_text(log)
    assert found.causes[0].name == "network-fetch-fail"
    assert "hunter2" not in str(found)


def test_a_line_that_proves_a_class_outweighs_facts_of_another_environment() -> None:
    for line in (NO_HOME, NO_TORCH):
        cause = explain_text(line).causes[0]
        found = explain_text(line, MachineEvidence(ruled_out=frozenset({cause.name})))
        assert found.certainty is Certainty.NAMED and found.causes[0].name == cause.name
