"""The one rule: a file runs on a GPU only if every fatbin has something for it."""

import pytest

from splatfix.context.coverage import judge
from splatfix.facts import Code, EntryKind, FatbinGroup
from splatfix.knowledge.archs import Arch
from tests.checks.conftest import ptx, sass


def group(*codes: Code) -> FatbinGroup:
    return FatbinGroup(codes, 1)


SM_120 = Arch.parse("sm_120")


def test_sass_of_the_same_major_and_no_newer_minor() -> None:
    assert judge([sass("sm_80")], Arch.parse("sm_89")).via == "sass"
    assert not judge([sass("sm_89")], Arch.parse("sm_86")).usable
    assert not judge([sass("sm_90")], SM_120).usable


def test_every_container_counts_and_the_missing_are_numbered() -> None:
    verdict = judge([sass("sm_120"), sass("sm_80"), sass("sm_90"), sass("sm_80", "sm_120")], SM_120)
    assert (verdict.usable, verdict.missing) == (False, (1, 2))
    assert "2 of 4 fatbins" in verdict.reason


def test_empty_containers_do_not_count() -> None:
    assert judge([group(), sass("sm_120")], SM_120).usable
    assert not judge([group()], SM_120).usable
    assert not judge([], SM_120).usable


def test_sass_wins_over_ptx_in_the_same_container() -> None:
    both = group(Code(EntryKind.PTX, "sm_90", (9, 5)), Code(EntryKind.SASS, "sm_120"))
    assert judge([both], SM_120, driver_cuda="12.8") == judge([sass("sm_120")], SM_120, driver_cuda="12.8")


@pytest.mark.parametrize(
    ("version", "driver", "usable", "unsure"),
    [
        ((8, 7), "12.8", True, False),
        ((8, 8), "12.8", False, False),
        ((9, 0), "13.0", True, False),
        ((9, 1), "13.0", False, False),
        ((8, 7), None, True, True),
    ],
)
def test_ptx_against_the_driver(
    version: tuple[int, int], driver: str | None, usable: bool, unsure: bool
) -> None:
    verdict = judge([ptx("sm_90", version)], SM_120, driver_cuda=driver)
    assert (verdict.usable, verdict.ptx_unsure) == (usable, unsure)
    assert verdict.too_new_ptx == (() if usable else (0,))


def test_one_ptx_the_driver_can_read_is_enough() -> None:
    mixed = group(Code(EntryKind.PTX, "sm_90", (9, 0)), Code(EntryKind.PTX, "sm_80", (8, 0)))
    assert judge([mixed], SM_120, driver_cuda="12.8").usable


def test_native_code_and_ptx_mixed() -> None:
    assert judge([sass("sm_120"), ptx("sm_90", (8, 0))], SM_120, driver_cuda="13.0").via == "mixed"


def test_lto_code_is_nothing_a_driver_loads() -> None:
    assert not judge([group(Code(EntryKind.LTO, "sm_120"))], SM_120).usable
