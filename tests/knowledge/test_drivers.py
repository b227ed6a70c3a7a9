"""Drivers: floors, levels, PTX versions, and what is not known."""

import pytest

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.drivers import (
    Platform,
    cuda_level_at_least,
    cuda_level_of_driver,
    cuda_of_ptx_isa,
    first_branch_of_cuda,
    gpu_driver_floor,
    gpu_last_branch,
    ptx_isa_of_cuda,
    ptx_jit_ok,
    runtime_floor,
)


@pytest.mark.parametrize(
    ("cuda", "platform", "floor"),
    [
        (13, "linux", (580,)),
        (12, "linux", (525, 60, 13)),
        ((11, 0), "linux", (450, 36, 6)),  # older than its major's
        (12, "windows", (528, 33)),
        ((11, 8), "windows", (452, 39)),
        (10, "linux", None),
        (14, "linux", None),
    ],
)
def test_runtime_floor(
    cuda: int | tuple[int, int], platform: Platform, floor: tuple[int, ...] | None
) -> None:
    assert runtime_floor(cuda, platform) == floor


@pytest.mark.parametrize(
    ("driver", "level"),
    [
        ("450.80.02", (11, 0)),
        ("535.183.01", (12, 2)),
        ("537.13", (12, 2)),  # Windows numbers lie between the branches
        ("580.95.05", (13, 0)),
        ("616.92", (13, 4)),
        ("440.33", None),
        ("640.10", None),
    ],
)
def test_cuda_level(driver: str, level: tuple[int, int] | None) -> None:
    assert cuda_level_of_driver(driver) == level


def test_a_newer_driver_offers_at_least_what_is_known() -> None:
    assert cuda_level_at_least("700.1") == (13, 4)
    assert cuda_level_at_least("390.1") is None


def test_ptx() -> None:
    assert ptx_isa_of_cuda((13, 0)) == (9, 0)
    assert ptx_isa_of_cuda((12, 6)) == (8, 5)
    assert ptx_isa_of_cuda((13, 6)) is None
    assert cuda_of_ptx_isa((8, 5)) == (12, 5)
    assert cuda_of_ptx_isa((9, 9)) is None
    assert first_branch_of_cuda((12, 8)) == 570
    assert first_branch_of_cuda((15, 0)) is None


@pytest.mark.parametrize(
    ("isa", "level", "ok"),
    [
        ((8, 7), (12, 8), True),
        ((9, 0), (12, 8), False),  # error 222
        ((8, 4), (13, 0), True),
        ((8, 5), (12, 6), True),
        ((9, 6), (13, 5), False),
        ((9, 0), (13, 7), True),  # level newer than the table, PTX older
        ((9, 9), (13, 7), None),
        ((6, 0), (10, 2), None),  # level older than the table
        ((9, 0), (10, 2), False),
        ((8, 0), None, None),
    ],
)
def test_ptx_jit(isa: tuple[int, int], level: tuple[int, int] | None, ok: bool | None) -> None:
    assert ptx_jit_ok(isa, level) is ok


def test_gpus() -> None:
    floor = gpu_driver_floor(Arch(12, 0))
    assert floor == (570,)
    assert gpu_driver_floor(Arch(8, 6)) is None  # no source names one
    assert gpu_last_branch(Arch(6, 1)) == (580, False)
    assert gpu_last_branch(Arch(8, 6)) is None
