"""Failures: the vocabulary, the messages that say by themselves what is wrong, and the checks that predict a class.

And records of known breakages: each is whole, and check, edit, build log and coverage read the same one.
"""

from __future__ import annotations

import re

import pytest

from splatfix.checks import all_checks
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.core.step import commands
from splatfix.knowledge.breakages import Breakage, breakages
from splatfix.knowledge.failures import (
    KnownFailure,
    explain_message,
    failure_class,
    failure_classes,
    foreseen_by,
    messages,
)
from tests.tables import data

TABLE = data(__file__)

RECORDS = pytest.mark.parametrize("record", breakages(), ids=lambda record: record.key)
CODES = {item.code: item for item in all_checks()}


@pytest.mark.parametrize(("line", "key", "failure"), TABLE["messages"])
def test_a_message_is_explained_by_its_record(line: str, key: str, failure: str) -> None:
    kind = "python" if line.startswith("ModuleNotFoundError") else "compiler"
    found = explain_message(line, kind)
    assert (found.key, found.failure_class) == (key, failure)
    assert found.meaning and found.steps and "{" not in found.meaning


def test_groups_of_a_message_are_filled_in() -> None:
    found = explain_message("ModuleNotFoundError: No module named 'pybind11'", "python")
    assert [command.argv[-1] for command in commands(found.steps)] == ["pybind11"]
    found = explain_message('error: namespace "cub" has no member "Sum"')
    assert found is not None and "cub::Sum" in found.meaning


def test_every_message_has_its_class() -> None:
    for message in messages():
        assert not message.failure_class or failure_class(message.failure_class), message.key


def test_the_vocabulary_of_failures() -> None:
    rows = failure_classes()
    assert len(rows) == len({row.name for row in rows}) > 76
    assert all(re.fullmatch("[a-z0-9-]+", row.name) for row in rows)
    assert all(row.definition and row.fix for row in rows)
    row = failure_class("no-kernel-image")
    assert row is not None and "TORCH_CUDA_ARCH_LIST" in row.fix and row.examples
    assert failure_class("nothing") is None


@pytest.mark.parametrize("row", failure_classes(), ids=lambda row: row.name)
def test_a_class_has_checks_or_a_reason(row: KnownFailure) -> None:
    assert row.checks or len(row.limit) > 25, "neither a check nor a reason"
    assert len(set(row.checks)) == len(row.checks)
    for code in row.checks:
        assert code in CODES, f"{code} is no check"
        assert row.name in CODES[code].page.rpartition("Predicts:")[2], "its page does not name the class"


@RECORDS
def test_a_record_is_whole(record: Breakage) -> None:
    assert len(record.symptom) > 20 and record.sources
    assert bool(record.edits or record.variables) != bool(record.no_edit)
    assert not record.stops or record.find
    assert not record.failure_class or failure_class(record.failure_class)
    if record.check:
        asked = record.uses or record.look_for
        assert asked and asked.key == record.key
        assert record.uses or record.find
        words = record.check.summary.format(source="dgr", cause="CUDA 13.0", file="a.cu", line=3, text="x")
        assert "{" not in words and ("dgr" in words or "a.cu:3" in words)


@RECORDS
def test_its_check_is_registered(record: Breakage) -> None:
    if record.check is None:
        assert record.look_for is None
        return
    assert CODES[record.check.code].title == record.check.title
    classes = [row.name for row in foreseen_by(record.check.code)]
    assert classes == ([record.failure_class] if record.failure_class else [])


def test_what_checkouts_are_searched_for() -> None:
    found = {pattern.key for pattern in source_patterns()}
    python = {item.key for item in breakages() if item.uses}
    assert found - python == {"cstdint", "cfloat", "cub-functors", "thrust-sequence"}
    assert "numpy-aliases" in python
