"""Records of known breakages: each is whole, and check, edit, build log and coverage read the same one."""

import pytest

from splatfix.checks import all_checks
from splatfix.knowledge.breakages import Breakage, breakage, breakages, source_patterns
from splatfix.knowledge.failures import failure_class, foreseen_by

RECORDS = pytest.mark.parametrize("record", breakages(), ids=lambda record: record.key)
CODES = {item.code: item for item in all_checks()}


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


@pytest.mark.parametrize(
    ("key", "versions", "system", "holds"),
    [
        ("cstdint", {"gcc": (12, 4)}, "linux", False),
        ("cstdint", {"gcc": (13, 1, 0)}, "linux", True),
        ("cstdint", {"gcc": ()}, "linux", False),
        ("cfloat", {"cuda": (12, 9)}, "linux", True),
        ("cfloat", {"cuda": (13, 0)}, "linux", False),
        ("cxx-standard-20", {"torch": (2, 12)}, "linux", False),
        ("cxx-standard-20", {"torch": (2, 13)}, "linux", True),
        ("glibc-noexcept", {"glibc": (2, 41), "cuda": (12, 9)}, "linux", True),
        ("glibc-noexcept", {"glibc": (2, 41)}, "linux", False),
        ("msvc-std-ambiguous", {"torch": (2, 9)}, "windows", True),
        ("msvc-std-ambiguous", {"torch": (2, 9)}, "linux", False),
        ("numpy-aliases", {"numpy": (1, 23, 5)}, "", False),
        ("numpy-aliases", {"numpy": (1, 24)}, "", True),
    ],
)
def test_when(key: str, versions: dict[str, tuple[int, ...]], system: str, holds: bool) -> None:
    assert breakage(key).when.holds(versions, system) is holds
