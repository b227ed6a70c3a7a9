"""The record: its schema, what it may not say, and the records of real visits."""

from dataclasses import replace
from pathlib import Path

import pytest

from splatfix.core.codec import CodecError, to_json
from splatfix.core.files import read_json

from .record import SCHEMA_VERSION, Claim, Outcome, Record, StepResult, exit_code_of, read_record, table

ROOT = Path(__file__).resolve().parents[2]
RECORDS = sorted((ROOT / "tests" / "records").glob("gpu_check_*.json"))

GOOD = StepResult(1, "facts", "Facts", Outcome.PASSED, 2.0, (Claim("name", "H200 | H200"),), numbers={"n": 1})
SKIPPED = StepResult(2, "compiled", "Kernels", Outcome.SKIPPED, problems=("none yet",))


def record(*steps: StepResult, rehearsal: bool = False) -> Record:
    date, machine = "2026-11-22T02:00:00+00:00", {"gpu": "H200", "driver": "580.1", "torch": "2.11.0"}
    code = exit_code_of(steps)
    return Record(
        SCHEMA_VERSION, "gpu-check", rehearsal, date, "0.1.0", "abc", machine, 3.0, code, tuple(steps)
    )


def test_a_record_comes_back_as_it_was() -> None:
    written = record(GOOD, SKIPPED)
    assert read_record(to_json(written)) == written


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ((GOOD,), 0),
        ((GOOD, SKIPPED), 3),
        ((SKIPPED,), 3),
        ((), 3),
        ((GOOD, SKIPPED, replace(GOOD, outcome=Outcome.FAILED)), 1),
    ],
)
def test_a_skipped_step_is_not_passed(steps: tuple[StepResult, ...], code: int) -> None:
    assert exit_code_of(steps) == code


@pytest.mark.parametrize(
    "wrong",
    [
        replace(record(GOOD), schema_version=2),
        replace(record(GOOD), kind="certify"),
        replace(record(GOOD), exit_code=1),
        replace(record(GOOD), date="yesterday"),
        record(replace(GOOD, claims=())),
        record(replace(GOOD, problems=("but",))),
        record(replace(SKIPPED, problems=())),
        record(replace(GOOD, outcome=Outcome.FAILED)),
        record(replace(GOOD, outcome=Outcome.REHEARSED)),
        record(GOOD, rehearsal=True),
    ],
)
def test_a_record_cannot_contradict_itself(wrong: Record) -> None:
    with pytest.raises(CodecError):
        read_record(to_json(wrong))


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(CodecError):
        read_record({**to_json(record(GOOD)), "proven": True})


def test_the_table_says_what_is_proven() -> None:
    text = table(record(GOOD, SKIPPED))
    assert "On H200, driver 580.1" in text and "1 passed, 1 skipped; 3 s; exit code 3" in text
    assert "| 1 | Facts | passed | name: H200 \\| H200 |" in text
    assert "| 2 | Kernels | skipped | NOT: none yet |" in text


def test_a_rehearsal_never_says_passed() -> None:
    text = table(record(replace(GOOD, outcome=Outcome.REHEARSED), rehearsal=True))
    assert text.startswith("REHEARSAL") and "passed" not in text and "proven" not in text


def test_records_of_visits_are_whole() -> None:
    for path in RECORDS:
        assert not read_record(read_json(path, "a record")).rehearsal, path.name


def test_documents_claim_no_more_than_the_records() -> None:
    for page, texts in (
        ("README.md", "Not run on a GPU"),
        ("docs/verified.md", "Nothing has been run on a GPU"),
    ):
        assert (texts in (ROOT / page).read_text(encoding="utf-8")) == (not RECORDS), page
