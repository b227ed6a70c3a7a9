"""Simulated driver libraries: real shared objects of ours, loaded by the real nvidia-ml-py and splatfix' own CUDA probe.

``SIMULATED_DRIVER`` names the scenario that ``libnvidia-ml.so.1`` and ``libcuda.so.1`` answer from; LD_LIBRARY_PATH leads to
them, as to a driver's. What a machine shows beside them (PCI bus, /proc, /dev, the marks of a container) is laid into a folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splatfix.context import make_context
from splatfix.core.codec import from_json
from splatfix.model import Facts

HERE = Path(__file__).parent
LIBRARIES = {"nvml.c": "libnvidia-ml.so.1", "cuda.c": "libcuda.so.1"}
FLAGS = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation", "-D_GNU_SOURCE")


@dataclass(frozen=True)
class Card:
    """One card; clocks in MHz, power in milliwatts. A power of 0 is one that the card does not tell."""

    name: str
    cc: str
    mebibytes: int
    bus: str
    """As the kernel writes it: ``0000:01:00.0``."""
    device: str
    """PCI device id such as ``2b85``."""
    number: int = 1
    """Makes its UUID."""
    speed: int = 1
    """CUDA counts the fastest first."""
    clocks: tuple[int, int] = (2520, 10501)
    limit: int = 450_000
    default_limit: int = 450_000
    nvml: int = 1
    """NVML lists it; 2: it lists it and gives no handle."""
    cuda: bool = True
    mig: int = -1
    """-1: has no MIG, 0: off, 1: on."""
    kernel_driver: str = "nvidia"
    compute_mode: int = 0
    """nvmlComputeMode_t: 2 prohibited, 3 one process at a time."""

    @property
    def uuid(self) -> str:
        return f"GPU-{self.number:08x}-1111-2222-3333-444444444444"

    def line(self) -> str:
        values = (self.name, self.cc, self.mebibytes, f"0000{self.bus}", self.uuid, self.speed, *self.clocks)
        flags = (self.limit, self.default_limit, self.nvml, int(self.cuda), self.mig)
        return "|".join(map(str, ("gpu", *values, *flags, self.compute_mode)))


@dataclass(frozen=True)
class Instance:
    """One MIG instance of a card."""

    card: int
    name: str
    uuid: str
    mebibytes: int
    gpu_instance: int = 1

    def line(self) -> str:
        return f"mig|{self.card}|{self.name}|{self.uuid}|{self.mebibytes}|{self.gpu_instance}|0"


@dataclass(frozen=True)
class Scenario:
    """One machine's driver, its cards, and what else is seen of them."""

    cards: tuple[Card, ...] = ()
    instances: tuple[Instance, ...] = ()
    driver: str = "580.95.05"
    cuda: int = 13000
    nvml: int = 0
    """What ``nvmlInit`` returns."""
    init: int = 0
    """What ``cuInit`` returns."""
    cuda_does: str = ""
    """``hang`` or ``crash``."""
    branch: str = ""
    """``R440`` and ``R470``: a driver of 2019 and 2021, without the functions that came later."""
    libraries: tuple[str, ...] = tuple(LIBRARIES.values())
    """Those of the two that are installed."""
    on_bus_alone: tuple[Card, ...] = ()
    module: bool = True
    """The NVIDIA kernel module is loaded."""
    devices: tuple[str, ...] = ("nvidiactl", "nvidia0", "nvidia-uvm")
    container: bool = False
    wsl: bool = False
    closed_module: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        names = ("driver", "cuda", "nvml", "init", "cuda_does")
        lines = [f"{name}|{getattr(self, name)}" for name in names]
        lines += [item.line() for item in (*self.cards, *self.instances)]
        return "\n".join(lines) + "\n"

    def lay(self, root: Path) -> None:
        """The files of /sys, /proc and /dev that belong to it, and the scenario itself, below a folder."""
        root.mkdir(parents=True)
        (root / "scenario").write_text(self.text())
        written = dict(self.files)
        for card in (*self.cards, *self.on_bus_alone):
            base = f"/sys/bus/pci/devices/{card.bus}"
            written |= {f"{base}/vendor": "0x10de\n", f"{base}/device": f"0x{card.device}\n"}
            written[f"{base}/class"] = "0x030000\n"
            if card.kernel_driver:
                written[f"/sys/bus/pci/drivers/{card.kernel_driver}/bind"] = ""
        if self.module:
            kind = "x86_64 Kernel Module" if self.closed_module else "Open Kernel Module for x86_64"
            line = f"NVIDIA UNIX {kind}  {self.driver}  Release Build"
            written["/proc/driver/nvidia/version"] = f"NVRM version: {line}\n"
            written["/sys/module/nvidia/version"] = f"{self.driver}\n"
            for card in self.cards:
                text = f"Model: \t\t {card.name}\nGPU UUID: \t {card.uuid}\n"
                written[f"/proc/driver/nvidia/gpus/{card.bus}/information"] = text
        written |= {f"/dev/{name}": "" for name in self.devices}
        if self.wsl:
            written |= {"/dev/dxg": "", "/proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"}
        if self.container:
            written["/.dockerenv"] = ""
        for path, text in written.items():
            place = root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        for card in (*self.cards, *self.on_bus_alone):
            if card.kernel_driver:
                link = root / f"sys/bus/pci/devices/{card.bus}/driver"
                link.symlink_to(root / f"sys/bus/pci/drivers/{card.kernel_driver}")


def build(folder: Path, *flags: str) -> Path:
    """Both libraries compiled into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for source, name in LIBRARIES.items():
        made = [f"-Wl,-soname,{name}", "-o", str(folder / name), str(HERE / source)]
        subprocess.run(["gcc", *FLAGS, *flags, *made], check=True)
    return folder


@dataclass(frozen=True)
class Said:
    """What a person is told of one environment on a machine."""

    text: str
    exit_code: int
    document: dict[str, Any]

    @property
    def first(self) -> str:
        """The first thing to do: a command, or the sentence of a step without one; "" where nothing is suggested."""
        advice = (self.document["options"] or {}).get("advice") or {}
        steps = (advice.get("option") or {}).get("steps", [])
        steps = steps or [step for item in advice.get("also_needed", ()) for step in item["steps"]]
        return next((step["command"] or step["text"] for step in steps), "")


@dataclass(frozen=True)
class Diagnosis:
    """What ``splatfix diagnose`` said of one scenario, with an environment that has no torch."""

    facts: Facts
    seconds: float
    said: Said
    healthy: Said | None = None
    """What is told for the environment of :mod:`tests.driver.environments`, where that was asked for."""

    @property
    def loud(self) -> dict[str, str]:
        """The findings of GPU and driver that are neither pass nor skip, by code."""
        return {
            item["check"]: item["status"]
            for item in self.said.document["findings"]
            if item["status"] not in ("pass", "skip") and item["family"] in ("gpu", "driver")
        }

    def words(self, code: str) -> str:
        """Summary, evidence and remedy of the findings of one check."""
        return json.dumps([item for item in self.said.document["findings"] if item["check"] == code])

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(arch.sm for arch in make_context(self.facts).archs)


class Machines:
    """Processes that diagnose one scenario after the other, one for each folder of libraries."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self._workers: dict[Path, subprocess.Popen[str]] = {}
        self._count = 0

    def libraries(self, scenario: Scenario) -> Path:
        """The folder that holds the libraries of this driver, and no others."""
        whole = self.folder / (scenario.branch or "newest")
        if not whole.exists():
            build(whole, *((f"-D{scenario.branch}",) if scenario.branch else ()))
        if set(scenario.libraries) == set(LIBRARIES.values()):
            return whole
        part = self.folder / "-".join([whole.name, *scenario.libraries, "alone"])
        part.mkdir(exist_ok=True)
        for name in scenario.libraries:
            if not (part / name).exists():
                (part / name).symlink_to(whole / name)
        return part

    def environment(self, scenario: Scenario, root: Path) -> dict[str, str]:
        """The variables of a process on that machine."""
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
        own = {
            "PATH": str(root / "bin"),  # no compiler, toolkit or docker of the machine that runs the tests
            "LD_LIBRARY_PATH": str(self.libraries(scenario)),
            "SIMULATED_DRIVER": str(root / "scenario"),
            "SIMULATED_ROOT": str(root),
        }
        return {**kept, **own, **scenario.variables}

    def lay(self, scenario: Scenario) -> Path:
        """A new folder with the scenario's files."""
        self._count += 1
        root = self.folder / f"machine-{self._count}"
        scenario.lay(root)
        return root

    def diagnose(self, scenario: Scenario, healthy: bool = False) -> Diagnosis:
        """The whole ``diagnose`` on a scenario; and once more with a healthy environment on it, if asked for."""
        root = self.lay(scenario)
        environment = self.environment(scenario, root)
        libraries = self.libraries(scenario)
        worker = self._workers.get(libraries)
        if worker is None:
            pipe = subprocess.PIPE
            argv = [sys.executable, "-m", "tests.driver.worker"]
            worker = subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=HERE.parent.parent
            )
            self._workers[libraries] = worker
        assert worker.stdin and worker.stdout
        ask = {"env": environment, "python": str(self.python), "healthy": healthy}
        worker.stdin.write(json.dumps(ask) + "\n")
        worker.stdin.flush()
        reply = json.loads(worker.stdout.readline())
        facts = from_json(Facts, reply["facts"])
        said = [Said(**reply[name]) for name in ("said", "healthy") if name in reply]
        return Diagnosis(facts, reply["seconds"], *said)

    def close(self) -> None:
        for worker in self._workers.values():
            worker.communicate()


RTX_5090 = Card("NVIDIA GeForce RTX 5090", "12.0", 32607, "0000:01:00.0", "2b85", 0x5090, speed=9)
_SLOWER = {"speed": 5, "clocks": (2100, 9751), "limit": 280_000, "default_limit": 350_000}
RTX_3090 = Card("NVIDIA GeForce RTX 3090", "8.6", 24576, "0000:41:00.0", "2204", 0x3090, **_SLOWER)
A100 = Card("NVIDIA A100-SXM4-40GB", "8.0", 40960, "0000:07:00.0", "20b0", 0xA100, mig=1)


def h100s(number: int) -> tuple[Card, ...]:
    """Cards of an HGX board."""
    return tuple(
        Card("NVIDIA H100 80GB HBM3", "9.0", 81559, f"0000:{15 + place:02x}:00.0", "2330", place, mig=0)
        for place in range(1, number + 1)
    )
