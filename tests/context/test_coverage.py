"""The one rule: a file runs on a GPU only if every fatbin has something for it."""

import pytest

from splatfix.context.coverage import judge
from splatfix.facts import EntryKind
from splatfix.knowledge.archs import Arch
from splatfix.model import Code, FatbinGroup
from tests.checks.conftest import ptx, sass


def group(*codes: Code) -> FatbinGroup:
    return FatbinGroup(codes, 1)


PTX_90, PTX_95 = (Code(EntryKind.PTX, "sm_90", (9, minor)) for minor in (0, 5))
PTX_80, SASS_120 = Code(EntryKind.PTX, "sm_80", (8, 0)), Code(EntryKind.SASS, "sm_120")


@pytest.mark.parametrize(
    ("groups", "arch", "via"),
    [
        # machine code of the same major and no newer minor
        ([sass("sm_80")], "sm_89", "sass"),
        ([sass("sm_89")], "sm_86", None),
        ([sass("sm_90")], "sm_120", None),
        # empty containers do not count
        ([group(), sass("sm_120")], "sm_120", "sass"),
        ([group()], "sm_120", None),
        ([], "sm_120", None),
        # machine code wins over PTX in the same container, and one PTX that the driver can read is enough
        ([group(PTX_95, SASS_120)], "sm_120", "sass"),
        ([group(PTX_90, PTX_80)], "sm_120", "ptx"),
        ([sass("sm_120"), group(PTX_80)], "sm_120", "mixed"),
        # no driver loads this
        ([group(Code(EntryKind.LTO, "sm_120"))], "sm_120", None),
    ],
)
def test_what_serves_a_gpu(groups: list[FatbinGroup], arch: str, via: str | None) -> None:
    verdict = judge(groups, Arch.parse(arch), driver_cuda="12.8")
    assert (verdict.usable, verdict.via if via else None) == (via is not None, via)


SM_120 = Arch.parse("sm_120")


def test_every_container_counts_and_the_missing_are_numbered() -> None:
    verdict = judge([sass("sm_120"), sass("sm_80"), sass("sm_90"), sass("sm_80", "sm_120")], SM_120)
    assert (verdict.usable, verdict.missing) == (False, (1, 2))
    assert "2 of 4 fatbins" in verdict.reason


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
