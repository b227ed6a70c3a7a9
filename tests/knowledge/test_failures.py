"""Failures: the vocabulary, the messages that say by themselves what is wrong, and the checks that predict a class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from splatfix.checks import all_checks
from splatfix.core.step import commands
from splatfix.knowledge import using
from splatfix.knowledge.failures import (
    Failure,
    explain_message,
    failure_class,
    failure_classes,
    failures,
    messages,
)
from tests.tables import data

TABLE = data(__file__)

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


def test_old_spellings_of_a_class_are_accepted(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[failures.no_kernel_image]\nfix = "Mine."\n')
    with using(mine):
        assert failure_class("no_kernel_image") is failure_class("no-kernel-image")
        assert failures()["no-kernel-image"].fix == "Mine."
        assert not [name for name in failures() if "_" in name]


def test_the_vocabulary_of_failures() -> None:
    rows = failure_classes()
    assert len(rows) == len({row.name for row in rows}) > 76
    assert all(re.fullmatch("[a-z0-9-]+", row.name) for row in rows)
    assert all(row.definition and row.fix for row in rows)
    row = failure_class("no-kernel-image")
    assert row is not None and "TORCH_CUDA_ARCH_LIST" in row.fix and row.examples
    assert failure_class("nothing") is None


@pytest.mark.parametrize("row", failure_classes(), ids=lambda row: row.name)
def test_a_class_has_checks_or_a_reason(row: Failure) -> None:
    assert row.checks or len(row.limit) > 25, "neither a check nor a reason"
    assert len(set(row.checks)) == len(row.checks)
    for code in row.checks:
        assert code in CODES, f"{code} is no check"
        assert row.name in CODES[code].page.rpartition("Predicts:")[2], "its page does not name the class"
