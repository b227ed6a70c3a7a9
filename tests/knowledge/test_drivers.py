"""Drivers: floors, levels, PTX versions, and what is not known."""

from __future__ import annotations

import pytest

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.drivers import (
    Platform,
    cuda_level_at_least,
    cuda_level_of_driver,
    cuda_of_ptx_isa,
    driver_runs_ptx,
    error_by_name,
    error_code,
    first_branch_of_cuda,
    forward_compat,
    gpu_driver_floor,
    gpu_last_branch,
    max_ptx_of_driver,
    native_driver,
    open_modules,
    parse_cuda,
    parse_driver,
    ptx_isa_of_cuda,
    ptx_jit_ok,
    runtime_floor,
)
from splatfix.knowledge.uv_torch_backend import uv_backends


def test_parsing() -> None:
    assert parse_driver("550.144.03") == (550, 144, 3)
    assert parse_driver(" 580 ") == (580,)
    assert parse_cuda("13.0.2") == (13, 0)
    assert parse_cuda((12, 8)) == (12, 8)
    with pytest.raises(ValueError, match="not a version"):
        parse_driver("N/A")


@pytest.mark.parametrize(
    ("cuda", "platform", "floor"),
    [
        (13, "linux", (580,)),
        (12, "linux", (525, 60, 13)),
        (12, "windows", (528, 33)),
        (11, "linux", (450, 80, 2)),
        ((11, 0), "linux", (450, 36, 6)),
        ((11, 8), "windows", (452, 39)),
        ((13, 2), "windows", (580,)),
        (10, "linux", None),
        (14, "linux", None),
    ],
)
def test_runtime_floor(
    cuda: int | tuple[int, int], platform: Platform, floor: tuple[int, ...] | None
) -> None:
    assert runtime_floor(cuda, platform) == floor


def test_native_drivers() -> None:
    assert native_driver("13.0") == (580, 65, 6)
    assert native_driver("13.0", update=2) == (580, 95, 5)
    assert native_driver((12, 8), "windows") == (570, 65)
    assert native_driver("13.0", "windows") is None  # not bundled
    assert native_driver("13.4") is None  # not in the sources


@pytest.mark.parametrize(
    ("driver", "level"),
    [
        ("450.80.02", (11, 0)),
        ("470.223.02", (11, 4)),
        ("525.60.13", (12, 0)),
        ("535.183.01", (12, 2)),
        ("537.13", (12, 2)),  # Windows numbers lie between the branches
        ("550.144.03", (12, 4)),
        ("552.44", (12, 4)),
        ("565.90", (12, 7)),
        ("570.124.06", (12, 8)),
        ("580.95.05", (13, 0)),
        ("596.49", (13, 2)),
        ("610.43.02", (13, 3)),
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
    assert driver_runs_ptx("700.1", (9, 0)) is True
    assert driver_runs_ptx("700.1", (9, 5)) is None
    assert driver_runs_ptx("570.1", (9, 0)) is False
    assert driver_runs_ptx("570.1", (8, 7)) is True


def test_levels_agree_with_the_drivers_shipped_with_toolkits() -> None:
    """The driver bundled with CUDA X.Y shows X.Y: two tables of different origin."""
    compared = 0
    for major, minor in (
        [(11, m) for m in range(9)] + [(12, m) for m in range(10)] + [(13, m) for m in range(4)]
    ):
        driver = native_driver((major, minor))
        if driver is not None:
            assert cuda_level_of_driver(driver) == (major, minor)
            compared += 1
    assert compared >= 20


def test_ptx() -> None:
    assert ptx_isa_of_cuda((13, 0)) == (9, 0)
    assert ptx_isa_of_cuda((12, 6)) == (8, 5)
    assert ptx_isa_of_cuda((13, 6)) is None
    assert cuda_of_ptx_isa((8, 5)) == (12, 5)
    assert cuda_of_ptx_isa((9, 9)) is None
    assert max_ptx_of_driver("550.54.14") == (8, 4)
    assert max_ptx_of_driver("999.1") is None
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


def test_errors() -> None:
    row = error_code(209)
    assert row is not None and row.name == "cudaErrorNoKernelImageForDevice"
    assert error_by_name("cudaErrorUnsupportedPtxVersion") == error_code(222)
    assert error_code(4242) is None
    assert error_by_name("cudaErrorNothing") is None


def test_gpus() -> None:
    floor = gpu_driver_floor(Arch(12, 0))
    assert floor is not None and floor.version == (570,) and not floor.verified
    assert gpu_driver_floor(Arch(8, 6)) is None  # no source names one
    assert gpu_last_branch(Arch(6, 1)) == (580, False)
    assert gpu_last_branch(Arch(8, 6)) is None
    assert open_modules(Arch(12, 0)) == "required"
    assert open_modules(Arch(8, 6)) == "supported"
    assert open_modules(Arch(7, 0)) == "unsupported"
    assert open_modules(Arch(13, 0)) is None


def test_forward_compat() -> None:
    facts = forward_compat()
    assert facts.error_elsewhere == 804 and error_code(804) is not None
    assert not any("GeForce" in where for where in facts.supported_on)


def test_uv_never_looks_at_the_gpu() -> None:
    assert uv_backends((580, 65, 6))[0] == "cu132"
    assert uv_backends((575, 57, 8))[:2] == ("cu129", "cu128")
    assert uv_backends((528, 0), "windows")[0] == "cu118"
    assert uv_backends((300,)) == ("cpu",)
