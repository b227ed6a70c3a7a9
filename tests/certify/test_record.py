"""The typed record of a training: decoded from what a trainer wrote, however broken that is."""

import json
import math

import pytest

from splatfix.certify.record import TrainingRecord
from tests.certify.conftest import RESULT


def test_the_document_stays_as_it_was_written() -> None:
    record = TrainingRecord.of({**RESULT, "of_a_later_version": 1})
    assert json.dumps(record.document) == json.dumps({**RESULT, "of_a_later_version": 1})


def test_calls_of_an_extension_are_told_by_function() -> None:
    record = TrainingRecord.of({"implementations": {"a": {"calls": {"forward": 3}}, "b": {"calls": 4}}})
    assert (record.implementations["a"].calls, record.implementations["b"].calls) == ({"forward": 3}, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e80, 10**400, True, "12", None, [], {}])
def test_what_is_no_finite_number_is_none(value: object) -> None:
    record = TrainingRecord.of({"heldout": {"psnr": value, "ssim": 0.5}, "gaussians": {"final": value}})
    assert (record.heldout.psnr, record.heldout.ssim, record.gaussians.final) == (None, 0.5, None), "no other"


@pytest.mark.parametrize(
    "value", [None, 1, "text", [], [1, None], {"a": {"b": []}}, {"train": {"allocated": "x"}}]
)
def test_a_document_of_other_types_is_an_empty_record(value: object) -> None:
    record = TrainingRecord.of(dict.fromkeys(RESULT, value))
    assert record.heldout.psnr is None
    assert record.memory.rss is None


def test_a_part_that_was_left_out_is_told_from_one_that_cannot_be_known() -> None:
    record = TrainingRecord.of({"memory": None})
    assert record.has("memory")
    assert not record.has("steadiness")
