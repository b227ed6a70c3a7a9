"""NVML and the fat binary format: names for numbers."""

from __future__ import annotations

import pytest

from splatfix.knowledge import fatbin, nvml


def test_nvml_errors() -> None:
    row = nvml.nvml_error(18)
    assert row is not None and "reboot" in row.meaning
    assert nvml.nvml_error(7777) is None


def test_nvml_numbers_agree_with_the_binding() -> None:
    pynvml = pytest.importorskip("pynvml")
    for code in (3, 4, 9, 12, 13, 15, 18, 999):
        row = nvml.nvml_error(code)
        assert row is not None
        assert getattr(pynvml, f"NVML_ERROR_{row.name}") == code
    for number, name in (
        (3, "MAXWELL"),
        (4, "PASCAL"),
        (7, "AMPERE"),
        (8, "ADA"),
        (9, "HOPPER"),
        (10, "BLACKWELL"),
    ):
        generation = nvml.generation(number)
        assert generation is not None and generation.upper() == name
        assert getattr(pynvml, f"NVML_DEVICE_ARCH_{name}") == number
    assert nvml.generation(77) is None


def test_nvml_versions_and_libraries() -> None:
    assert nvml.decode_cuda_version(12040) == (12, 4)
    assert nvml.decode_cuda_version(13000) == (13, 0)
    assert nvml.library_names("linux") == ("libnvidia-ml.so.1",)
    assert nvml.library_names("darwin") == ()


def test_fatbin_constants() -> None:
    assert fatbin.kinds() == {1: "PTX", 2: "cubin", 8: "LTO-IR"}
    assert fatbin.magics() == {"container": 0xBA55ED50, "wrapper": 0x466243B1}
    assert fatbin.flags()[0x100000] == "'a' variant" and fatbin.flags()[0x200000] == "'f' variant"
    assert ".nv_fatbin" in fatbin.sections("elf") and ".nv_fatb" in fatbin.sections("pe")
    assert all(len(name) <= 8 for name in fatbin.sections("pe")) and len(fatbin.sections("pe")) == 4
