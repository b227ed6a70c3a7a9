"""The whole ``diagnose`` over simulated NVML and libcuda: real shared objects, loaded by nvidia-ml-py and our own probe."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from splatfix.context import Goal, make_context
from splatfix.context.targets import gpu_of
from tests.conftest import ROOT
from tests.driver import A100, FLAGS, HERE, RTX_3090, RTX_5090, Instance, Machines, Scenario, h100s

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("gcc") is None, reason="needs gcc on Linux"
)

BOTH = (RTX_5090, RTX_3090)
# NVML counts by bus, CUDA the fastest first: here they differ
SWAPPED = (replace(RTX_3090, bus="0000:01:00.0"), replace(RTX_5090, bus="0000:41:00.0"))
SMALL = Instance(0, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "MIG-0000000a-1111-2222-3333-444444444444", 4864)
MEDIUM = Instance(0, "NVIDIA A100-SXM4-40GB MIG 2g.10gb", "MIG-0000000b-1111-2222-3333-444444444444", 9856, 3)
NO_UVM = ("nvidiactl", "nvidia0")
START = {"cuda-does-not-start": "fail"}
HIDDEN = {"no-gpu-visible": "fail"}


SCENARIOS: dict[str, tuple[Scenario, dict[str, str], tuple[str, ...]]] = {
    # what is there, the loud findings, the targets
    "mixed GPUs": (Scenario(BOTH), {}, ("sm_120", "sm_86")),
    "first by number": (Scenario(BOTH, variables={"CUDA_VISIBLE_DEVICES": "0"}), {}, ("sm_120",)),
    "second by number": (Scenario(BOTH, variables={"CUDA_VISIBLE_DEVICES": "1"}), {}, ("sm_86",)),
    "by CUDA's number": (
        Scenario(SWAPPED, variables={"CUDA_VISIBLE_DEVICES": "0"}),
        {"wrong-cuda-device": "warn"},
        ("sm_120",),
    ),
    "by bus number": (
        Scenario(SWAPPED, variables={"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        {},
        ("sm_86",),
    ),
    "by UUID": (Scenario(BOTH, variables={"CUDA_VISIBLE_DEVICES": RTX_3090.uuid}), {}, ("sm_86",)),
    "by short UUID": (Scenario(BOTH, variables={"CUDA_VISIBLE_DEVICES": "GPU-00003"}), {}, ("sm_86",)),
    "hidden by -1": (
        Scenario(BOTH, variables={"CUDA_VISIBLE_DEVICES": "-1"}),
        HIDDEN,
        ("sm_120", "sm_86"),
    ),
    "MIG": (Scenario((A100,), (SMALL, MEDIUM)), {}, ("sm_80",)),
    "MIG by UUID": (
        Scenario(
            (RTX_3090, A100),
            (replace(SMALL, card=1), replace(MEDIUM, card=1)),
            variables={"CUDA_VISIBLE_DEVICES": MEDIUM.uuid},
        ),
        {},
        ("sm_80",),
    ),
    "MIG in the old form": (
        Scenario(
            (RTX_3090, A100),
            (replace(MEDIUM, card=1),),
            variables={"CUDA_VISIBLE_DEVICES": f"MIG-{A100.uuid}/3/0"},
        ),
        {},
        ("sm_80",),
    ),
    "MIG that is gone": (
        Scenario((A100,), (SMALL,), variables={"CUDA_VISIBLE_DEVICES": MEDIUM.uuid}),
        HIDDEN,
        ("sm_80",),
    ),
    "MIG by number": (
        Scenario((A100,), (SMALL,), variables={"CUDA_VISIBLE_DEVICES": "MIG-0"}),
        HIDDEN,
        ("sm_80",),
    ),
    "MIG without instances": (Scenario((A100,)), {"nvidia-gpu-missing": "unknown", **START}, ("sm_80",)),
    "fabric manager": (Scenario(h100s(8), init=802), START, ("sm_90",)),
    "suspended": (Scenario((RTX_3090,), init=999), START, ("sm_86",)),
    "no nvidia-uvm": (Scenario((RTX_3090,), init=999, devices=NO_UVM, container=True), START, ("sm_86",)),
    "compat library": (
        Scenario((RTX_3090,), init=804),
        {"forward-compat-on-geforce": "fail"},
        ("sm_86",),
    ),
    "not initialized": (Scenario((RTX_3090,), init=3), START, ("sm_86",)),
    "busy": (Scenario((RTX_3090,), init=46), START, ("sm_86",)),
    "no device": (Scenario((RTX_3090,), init=100), START, ("sm_86",)),
    "invalid device": (Scenario((RTX_3090,), init=101), START, ("sm_86",)),
    "a code of the future": (Scenario((RTX_3090,), init=987), START, ("sm_86",)),
    "crash": (Scenario((RTX_3090,), cuda_does="crash"), START, ("sm_86",)),
    "version mismatch": (
        Scenario((RTX_3090,), nvml=18, init=803),
        {"driver-library-mismatch": "fail"},
        ("sm_86",),
    ),
    "driver of 2019": (Scenario((RTX_3090,), branch="R440", driver="440.33.01", cuda=10020), {}, ("sm_86",)),
    "one of eight": (
        Scenario(h100s(1), on_bus_alone=(*h100s(7)[1:], RTX_3090), container=True),
        {},
        ("sm_90",),
    ),
    "none of eight": (
        Scenario(on_bus_alone=h100s(8), container=True, libraries=(), devices=(), module=False),
        {},
        (),
    ),
    "one for a virtual machine": (
        Scenario((RTX_5090,), on_bus_alone=(replace(RTX_3090, kernel_driver="vfio-pci"),)),
        {},
        ("sm_120",),
    ),
    "nouveau": (
        Scenario(
            on_bus_alone=(replace(RTX_3090, kernel_driver="nouveau"),), module=False, devices=(), nvml=9
        ),
        {"gpu-without-driver": "fail"},
        (),
    ),
    "libcuda alone": (
        Scenario(BOTH, libraries=("libcuda.so.1",), variables={"CUDA_VISIBLE_DEVICES": "1"}),
        {},
        ("sm_86",),
    ),
    "NVML alone": (
        Scenario(BOTH, libraries=("libnvidia-ml.so.1",), container=True),
        START,
        ("sm_120", "sm_86"),
    ),
    "a lost GPU": (
        Scenario((RTX_5090, replace(RTX_3090, nvml=2, cuda=False))),
        {"nvidia-gpu-missing": "unknown"},
        ("sm_120",),
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_diagnosis_of(machines: Machines, name: str) -> None:
    scenario, loud, targets = SCENARIOS[name]
    found = machines.diagnose(scenario)
    assert (found.loud, found.targets) == (loud, targets)
    assert all(item["status"] != "crash" for item in found.document["findings"])


@pytest.mark.slow
def test_a_cuda_that_hangs_is_given_up(machines: Machines) -> None:
    found = machines.diagnose(Scenario(BOTH, cuda_does="hang"))
    assert (found.loud, found.exit_code) == ({"cuda-does-not-start": "unknown"}, 1)
    assert found.seconds < 40
    assert found.targets == ("sm_120", "sm_86")


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"init": 999}, "modprobe -r nvidia_uvm"),
        ({"init": 999, "devices": NO_UVM}, "nvidia-modprobe -u"),
        ({"init": 999, "devices": NO_UVM, "container": True}, "start the container anew"),
        ({"init": 802}, "enable --now nvidia-fabricmanager"),
        ({"init": 802, "container": True}, "runs on the host"),
        ({"init": 46}, "nvidia-smi -c DEFAULT"),
        ({"init": 3}, "dmesg"),
        ({"init": 100, "container": True}, "--gpus all"),
        ({"init": 101}, "CUDA_VISIBLE_DEVICES"),
        ({"init": 987}, "reboot"),
        ({"cuda_does": "crash"}, "Reinstall"),
        ({"libraries": ("libnvidia-ml.so.1",), "container": True}, "NVIDIA_DRIVER_CAPABILITIES=compute"),
        ({"libraries": ("libnvidia-ml.so.1",)}, "libnvidia-compute"),
    ],
)
def test_each_refusal_has_its_remedy(machines: Machines, change: dict[str, object], remedy: str) -> None:
    found = machines.diagnose(replace(Scenario((RTX_3090,)), **change))  # type: ignore[arg-type]
    steps = [
        " ".join([step["text"], *step["argv"]])
        for item in found.document["findings"]
        if item["check"] == "cuda-does-not-start"
        for step in item["remedy"]
    ]
    assert remedy in "\n".join(steps)


def test_cuda_counts_in_its_own_order(machines: Machines) -> None:
    facts = machines.diagnose(Scenario(SWAPPED)).facts
    assert [item.name for item in facts.machine.cuda.value or ()] == [RTX_5090.name, RTX_3090.name]
    assert [gpu.name for gpu in facts.machine.gpus.value or ()] == [RTX_3090.name, RTX_5090.name]
    for device, name in {"cuda": RTX_5090.name, "cuda:0": RTX_5090.name, "cuda:1": RTX_3090.name}.items():
        gpu = gpu_of(facts, device)
        assert gpu is not None
        assert gpu.name == name
        assert make_context(facts, Goal(device=device)).archs[0].cc == gpu.cc
    assert gpu_of(facts, "cuda:2") is None


def test_what_a_card_says_of_itself(machines: Machines) -> None:
    (card,) = machines.diagnose(Scenario((RTX_3090,))).facts.machine.gpus.value or ()
    assert (card.uuid, card.bus_id, card.cc) == (RTX_3090.uuid, f"0000{RTX_3090.bus}", "8.6")
    assert (card.max_clocks, card.power_limit, card.default_power_limit) == ((2100, 9751), 280_000, 350_000)
    assert card.memory_total == 24576 << 20


def test_a_mig_instance_is_what_programs_get(machines: Machines) -> None:
    machine = machines.diagnose(Scenario((A100,), (SMALL, MEDIUM))).facts.machine
    (card,) = machine.gpus.value or ()
    assert (card.mig, card.mig_uuids) == (True, (SMALL.uuid, MEDIUM.uuid))
    (device,) = machine.cuda.value or ()
    assert (device.name, device.uuid, device.memory_total) == (SMALL.name, SMALL.uuid, 4864 << 20)


def test_cards_left_aside_are_named(machines: Machines) -> None:
    words = machines.diagnose(SCENARIOS["one of eight"][0]).words("nvidia-gpu-missing")
    assert "7 NVIDIA cards" in words
    assert "not given to this container" in words
    (unused,) = machines.diagnose(SCENARIOS["nouveau"][0]).facts.machine.gpus.value or ()
    assert unused.shown_by == "bus"


METER = """
from splatfix.facts.machine.nvml import NvmlMeter
meter = NvmlMeter()
print(*meter.read(), meter.problem)
"""


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (Scenario((RTX_3090,)), "utilisation=93, processes={4242: 5368709120}"),
        (Scenario((A100,), (SMALL,)), "utilisation=None"),
        (Scenario((RTX_3090,), branch="R440"), "utilisation=93, processes={}"),
        (Scenario((RTX_3090,), branch="R470"), "utilisation=93, processes={4242: 5368709120}"),
        (Scenario((RTX_3090,), nvml=18), "NVML: RM has detected an NVML/RM version mismatch."),
    ],
)
def test_meter_of(machines: Machines, scenario: Scenario, said: str) -> None:
    environment = machines.environment(scenario, machines.lay(scenario))
    done = subprocess.run(
        [sys.executable, "-c", METER], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert said in done.stdout


@pytest.mark.native
def test_the_simulated_libcuda_fits_the_header() -> None:
    nvcc = shutil.which("nvcc")
    assert nvcc is not None
    said = subprocess.run([nvcc, "--dryrun", "x.cu"], capture_output=True, text=True, check=False).stderr
    include = Path(next(line.split("=", 1)[1] for line in said.splitlines() if "TOP=" in line)) / "include"
    flags = ["-fsyntax-only", "-DWITH_CUDA_H", f"-I{include}", *FLAGS[3:]]
    subprocess.run(["gcc", *flags, str(HERE / "cuda.c")], check=True)
