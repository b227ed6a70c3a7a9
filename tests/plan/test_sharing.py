"""Compilers divided among builds."""

from __future__ import annotations

import pytest

from splatfix.facts import NativeModule, Source
from splatfix.plan.plan import BuildWheel, Reason
from splatfix.plan.sharing import share_jobs, shares


@pytest.mark.parametrize(
    ("total", "files", "parts"),
    [
        (16, (5, 3, 2), [5, 3, 2]),  # every one has all that it can use
        (8, (5, 3, 2), [4, 2, 2]),
        (2, (5, 3, 2), [1, 1, 1]),  # the third waits for one of the others
        (2, (4, 1), [2, 1]),  # beside a long one a short one would only take from it
        (1, (5, 5), [1, 1]),
        (4, (1, 1, 1), [1, 1, 1]),
        (6, (6,), [6]),
    ],
)
def test_shares(total: int, files: tuple[int, ...], parts: list[int]) -> None:
    assert shares(total, files) == parts


@pytest.mark.parametrize("total", [1, 2, 3, 7, 16, 64])
@pytest.mark.parametrize("files", [(5, 3, 2), (1, 9), (30, 1, 1, 1), (2, 2, 2, 2, 2, 2)])
def test_each_has_one_and_none_more_than_there_are(total: int, files: tuple[int, ...]) -> None:
    parts = shares(total, files)
    assert all(1 <= part <= min(total, count) for part, count in zip(parts, files, strict=True))


def build(name: str) -> BuildWheel:
    why = Reason("MAX_JOBS=8: 8 cores, 40.0 GiB of memory free, 2.5 GiB for each job")
    return BuildWheel(name, f"/{name}", ("sm_120",), {"MAX_JOBS": "8", "CC": "gcc"}, (), (), reasons=(why,))


def source(name: str, files: int) -> Source:
    modules = (NativeModule(f"{name}._C", tuple(f"{i}.cu" for i in range(files))),) if files else ()
    return Source(f"/{name}", ("setup.py",), name, modules=modules)


def test_the_plan_says_what_each_gets_and_why() -> None:
    (big, small), total = share_jobs([build("big"), build("small")], [source("big", 6), source("small", 2)])
    assert total == 8
    assert big.variables == {"MAX_JOBS": "6", "CC": "gcc"} and small.variables["MAX_JOBS"] == "2"
    assert big.reasons[0].text == (
        "MAX_JOBS=6 of 8, which builds side by side share: 8 cores, 40.0 GiB of memory free, 2.5 GiB for each job"
    )


def test_a_build_alone_keeps_all() -> None:
    (alone,), total = share_jobs([build("alone")], [source("alone", 1)])
    assert total == 8 and alone == build("alone")


def test_a_computed_list_of_files_may_be_long() -> None:
    (computed, small), _ = share_jobs([build("a"), build("b")], [source("a", 0), source("b", 2)])
    assert computed.variables["MAX_JOBS"] == "6" and small.variables["MAX_JOBS"] == "2"
