"""NVML with a stand-in library: driver and GPUs, and the meter; memory of processes from /proc."""

import subprocess
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from splatfix.facts import System
from splatfix.facts.machine import nvml
from splatfix.facts.machine.nvml import GpuUse, NvmlMeter
from splatfix.facts.machine.resources import _PAGE, _TICKS, alive, host_use
from splatfix.model import Fact
from tests.facts.conftest import MachineOf

library_is_there = nvml._library_is_there


@pytest.fixture(autouse=True)
def _a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_library_is_there", lambda: True)


class NVMLError(Exception):
    def __init__(self, value: int = 3) -> None:
        super().__init__(f"error {value}")
        self.value = value


def binding(**answers: Any) -> types.ModuleType:
    """A pynvml whose calls give what is named (of a function, its result), and fail with "not supported" otherwise."""
    answers = {"nvmlInit": None, "nvmlShutdown": None, **answers}

    class Binding(types.ModuleType):
        NVMLError = NVMLError

        def __getattr__(self, name: str) -> Any:
            def answer(*arguments: Any) -> Any:
                said = answers.get(name, NVMLError())
                if isinstance(said, Exception):
                    raise said
                return said(*arguments) if callable(said) else said

            return answer

    return Binding("pynvml")


def ask(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> dict[str, Any]:
    monkeypatch.setitem(sys.modules, "pynvml", binding(**calls))
    return nvml.ask()


def test_a_card_cut_into_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    def instance(_: str, place: int) -> str:
        if place != 1:
            raise NVMLError(6)  # not found: places may be empty
        return "instance 1"

    names = {"card": "NVIDIA A100-SXM4-40GB", "instance 1": "NVIDIA A100-SXM4-40GB MIG 1g.5gb"}
    reply = ask(
        monkeypatch,
        nvmlDeviceGetCount=1,
        nvmlDeviceGetHandleByIndex="card",
        nvmlDeviceGetName=lambda handle: names[handle],
        nvmlDeviceGetMigMode=[1, 1],
        nvmlDeviceGetMaxMigDeviceCount=3,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
        nvmlDeviceGetCudaComputeCapability=(8, 0),
        nvmlDeviceGetMemoryInfo=SimpleNamespace(total=40, free=30),
        nvmlDeviceGetPciInfo=SimpleNamespace(busId="00000000:07:00.0"),
        nvmlDeviceGetTotalEccErrors=lambda _, kind, since: 10 * kind + since,
        nvmlDeviceGetRemappedRows=[0, 1, 1, 0],
    )
    (gpu,) = reply["gpus"]
    assert (gpu["uncorrected_errors"], gpu["remap_pending"], gpu["remap_failed"]) == (10, True, False)
    assert (gpu["mig"], gpu["mig_devices"]) == (True, ["NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
    assert (gpu["cc"], gpu["memory_total"], gpu["bus_id"]) == ([8, 0], 40, "00000000:07:00.0")


def test_what_is_not_answered_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = ask(monkeypatch, nvmlDeviceGetCount=1, nvmlDeviceGetHandleByIndex="card")
    (gpu,) = reply["gpus"]
    assert {gpu[name] for name in ("name", "cc", "memory_total", "bus_id", "uuid", "mig")} == {None}
    assert reply["driver"] is None
    assert NvmlMeter().read() == (GpuUse(0, "unknown", None, None, None, {}),)


def test_failures_are_told_with_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that gives no handle is still counted."""
    assert ask(monkeypatch, nvmlDeviceGetCount=1)["gpus"] == [{"index": 0, "error_code": 3}]
    assert ask(monkeypatch, nvmlInit=NVMLError(18)) == {"error": "error 18", "error_code": 18}
    meter = NvmlMeter()
    assert meter.read() == () and meter.problem == "NVML: error 18"


def test_a_library_off_the_loaders_path_is_loaded_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(name: str) -> None:
        loaded.append(name)
        if "wsl" not in name:
            raise OSError

    monkeypatch.setattr(nvml.ctypes, "CDLL", load)
    assert library_is_there() and loaded[1] == "/usr/lib/wsl/lib/libnvidia-ml.so.1"


def test_a_card_with_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = SimpleNamespace(pid=10, usedGpuMemory=5 << 30)
    hidden = SimpleNamespace(pid=11, usedGpuMemory=None)
    drawing = SimpleNamespace(pid=12, usedGpuMemory=1 << 30)
    card = {
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetName": "NVIDIA GeForce RTX 5090",
        "nvmlDeviceGetUUID": "GPU-1",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=32 << 30, used=9 << 30),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=93, memory=41),
        "nvmlDeviceGetComputeRunningProcesses_v3": [twice, hidden],
        "nvmlDeviceGetGraphicsRunningProcesses_v3": [twice, drawing],
    }
    monkeypatch.setitem(sys.modules, "pynvml", binding(**card))
    meter, processes = NvmlMeter(), {10: 5 << 30, 11: None, 12: 1 << 30}
    assert meter.read() == (GpuUse(0, "NVIDIA GeForce RTX 5090", 32 << 30, 9 << 30, 93, processes, "GPU-1"),)
    assert meter.problem == ""


def test_a_driver_that_hangs_is_given_up_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()
    monkeypatch.setitem(sys.modules, "pynvml", binding(nvmlDeviceGetCount=lambda: hanging.wait(30)))
    monkeypatch.setattr(nvml, "_TIMEOUT", 0.1)
    meter, problem = NvmlMeter(), "NVML: no answer within 0.1 s"
    assert meter.read() == () and meter.problem == problem
    assert meter.read() == ()
    assert nvml.ask() == {"error": problem, "error_code": None}
    hanging.set()


def stat(name: str, state: str, parent: int, user: int, system: int, pages: int) -> str:
    return f"1 ({name}) {state} {parent} " + "0 " * 9 + f"{user} {system} " + "0 " * 8 + f"{pages} 0\n"


def test_a_family_is_summed_over_all_generations(machine_of: MachineOf) -> None:
    processes = {
        100: stat("python (train) x", "R", 1, 2 * _TICKS, _TICKS, 1000),
        101: stat("loader", "S", 100, _TICKS, 0, 200),
        90: stat("grandchild with a lower number", "S", 101, 0, 0, 30),
        102: stat("ended", "Z", 100, 99 * _TICKS, 0, 9999),
        200: stat("stranger", "R", 1, 50 * _TICKS, 0, 5000),
        300: "cut short",
    }
    files = {f"/proc/{pid}/stat": content for pid, content in processes.items()}
    machine = machine_of(files={**files, "/proc/self/stat": "", "/proc/meminfo": ""})
    use = host_use(machine, 100)
    assert use is not None and set(use.processes) == {90, 100, 101}
    assert (use.rss, use.cpu_seconds) == (1230 * _PAGE, 4.0)
    assert host_use(machine, 102) is None and host_use(machine, 300) is None and host_use(machine, 7) is None
    assert alive(machine, 200) and not alive(machine, 102) and not alive(machine, 7)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_process_agrees_with_the_system() -> None:
    """In a process of its own: this one may have children, left for later tests."""
    system = System()
    code = (
        "import os; from splatfix.facts import System; from splatfix.facts.machine.resources import host_use\n"
        "use = host_use(System(), os.getpid()); print(use.cpu_seconds, sum(os.times()[:2]), use.rss, len(use.processes))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    ours, own, rss, processes = map(float, told.split())
    assert ours == pytest.approx(own, abs=0.5) and rss > 10 << 20 and processes == 1
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not alive(system, child.pid)


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 10.0), (1, 10.0), (8, 38.0)])
def test_sleeping_gpus(gpus: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is woken in turn where no persistence daemon keeps them awake."""
    for number in range(gpus):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    limits: list[float] = []
    monkeypatch.setattr(nvml, "PROC_GPUS", str(tmp_path if gpus else tmp_path / "none"))
    monkeypatch.setattr(nvml, "within", lambda limit, work: limits.append(limit) or Fact(work()))
    ask(monkeypatch)
    NvmlMeter().read()
    assert limits == [seconds] * 3
