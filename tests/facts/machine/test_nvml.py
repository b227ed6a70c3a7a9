"""NVML asked through a stand-in for its binding: what a card does not answer is None, and a start that fails is told."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from splatfix.facts.machine import nvml


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def refuse(*_: Any) -> Any:
    raise NVMLError(3)  # not supported


def binding(**calls: Any) -> SimpleNamespace:
    """A binding in which every call is refused but those given."""
    names = (
        "nvmlInit",
        "nvmlShutdown",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetDisplayMode",
    )
    quiet = {"nvmlInit": lambda: None, "nvmlShutdown": lambda: None}
    return SimpleNamespace(NVMLError=NVMLError, **{**dict.fromkeys(names, refuse), **quiet, **calls})


def ask(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> dict[str, Any]:
    monkeypatch.setitem(sys.modules, "pynvml", binding(**calls))
    return nvml.ask()


def instance(_: str, place: int) -> str:
    if place != 1:
        raise NVMLError(6)  # not found: places may be empty
    return "instance 1"


def test_a_card_cut_into_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"card": b"NVIDIA A100-SXM4-40GB", "instance 1": b"NVIDIA A100-SXM4-40GB MIG 1g.5gb"}
    reply = ask(
        monkeypatch,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda _: "card",
        nvmlDeviceGetName=lambda handle: names[handle],
        nvmlDeviceGetMigMode=lambda _: [1, 1],
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 3,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
        nvmlDeviceGetCudaComputeCapability=lambda _: (8, 0),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=40, free=30),
        nvmlDeviceGetPciInfo=lambda _: SimpleNamespace(busId=b"00000000:07:00.0"),
    )
    (gpu,) = reply["gpus"]
    assert (gpu["mig"], gpu["mig_devices"]) == (True, ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
    assert (gpu["cc"], gpu["memory_total"], gpu["bus_id"]) == ([8, 0], 40, "00000000:07:00.0")


def test_what_is_not_answered_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = ask(monkeypatch, nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetHandleByIndex=lambda _: "card")
    assert reply["driver"] is None
    (gpu,) = reply["gpus"]
    assert {gpu[name] for name in ("name", "cc", "memory_total", "bus_id", "uuid", "mig")} == {None}


def test_a_card_that_gives_no_handle_is_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = ask(monkeypatch, nvmlDeviceGetCount=lambda: 1)["gpus"]
    assert "no handle" in gpu["name"]


def stale() -> None:
    raise NVMLError(18)


def test_a_start_that_fails_is_told_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, nvmlInit=stale) == {"error": "error 18", "error_code": 18}


def test_a_library_off_the_loaders_path_is_loaded_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    loaded: list[str] = []

    def start() -> None:
        starts.append(1)
        if not loaded:
            raise NVMLError(12)

    monkeypatch.setattr(nvml.ctypes, "CDLL", loaded.append)
    reply = ask(monkeypatch, nvmlInit=start, nvmlDeviceGetCount=lambda: 0)
    assert reply["gpus"] == []
    assert loaded == ["/usr/lib/wsl/lib/libnvidia-ml.so.1"]
    assert len(starts) == 2
