"""The whole ``diagnose`` over simulated NVML and libcuda: real shared objects, loaded by nvidia-ml-py and our own probe."""

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from splatfix.context import Goal, make_context
from tests.conftest import ROOT
from tests.driver import A100, FLAGS, HERE, RTX_3090, RTX_5090, Diagnosis, Machines, Scenario
from tests.driver.scenarios import BOTH, MEDIUM, SCENARIOS, SMALL, SWAPPED
from tests.tables import data

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("gcc") is None, reason="needs gcc on Linux"
)


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Diagnoses scenarios on simulated libraries, compiled once; see :mod:`tests.driver`."""
    folder = tmp_path_factory.mktemp("driver")
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    found = Machines(folder, folder / "venv" / "bin" / "python")
    yield found
    found.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_diagnosis_of(machines: Machines, name: str) -> None:
    expected = SCENARIOS[name]
    loud, targets, first = expected.loud, expected.targets, expected.first
    found = machines.diagnose(expected.scenario, healthy=True)
    assert (found.loud, found.targets) == (loud, targets)
    assert all(item["status"] != "crash" for item in found.said.document["findings"])
    exit_code = 0
    if "unknown" in loud.values():
        exit_code = 3
    if "fail" in loud.values() or name == "driver of 2019":  # which is too old for the torch
        exit_code = 1
    said = found.healthy
    assert said is not None
    assert (said.exit_code, said.first) == (exit_code, first)
    assert not first or "rebuild" not in said.text.splitlines()[1] or name == "old driver, and hidden"
    without = found.said  # torch is missing as well
    torch = "'torch==" if targets else "splatfix diagnose --python"
    assert without.exit_code == 1
    assert without.first == first if first else torch in without.first


@pytest.mark.slow
def test_a_cuda_that_hangs_is_given_up(machines: Machines) -> None:
    found = machines.diagnose(Scenario(BOTH, cuda_does="hang"))
    assert (found.loud, found.said.exit_code) == ({"cuda-does-not-start": "unknown"}, 1)
    assert found.seconds < 40
    assert found.targets == ("sm_120", "sm_86")


@pytest.mark.parametrize(("change", "remedy"), data(__file__)["remedies"])
def test_a_container_and_a_missing_part_have_a_remedy_of_their_own(
    machines: Machines, change: dict[str, object], remedy: str
) -> None:
    found = machines.diagnose(replace(Scenario((RTX_3090,)), **change))  # type: ignore[arg-type]
    steps = [
        " ".join([step["text"], *step["argv"]])
        for item in found.said.document["findings"]
        if item["check"] == "cuda-does-not-start"
        for step in item["remedy"]
    ]
    assert remedy in "\n".join(steps)


def test_cuda_counts_in_its_own_order(machines: Machines) -> None:
    facts = machines.diagnose(Scenario(SWAPPED)).facts
    assert [item.name for item in facts.machine.cuda.value or ()] == [RTX_5090.name, RTX_3090.name]
    assert [gpu.name for gpu in facts.machine.gpus.value or ()] == [RTX_3090.name, RTX_5090.name]
    for device, name in {"cuda": RTX_5090.name, "cuda:0": RTX_5090.name, "cuda:1": RTX_3090.name}.items():
        gpu = make_context(facts).gpu_of(device)
        assert gpu is not None
        assert gpu.name == name
        assert make_context(facts, Goal(device=device)).archs[0].cc == gpu.cc
    assert make_context(facts).gpu_of("cuda:2") is None


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


def overview(found: Diagnosis) -> str:
    """What is said of the machine, below the findings."""
    _, found_it, below = found.said.text.rpartition("  system ")
    assert found_it
    return " ".join(below.split())


def test_cards_that_are_not_used_are_marked(machines: Machines) -> None:
    one = machines.diagnose(SCENARIOS["one of eight by number"].scenario)
    name = "NVIDIA H100 80GB HBM3 (9.0)"
    assert f"GPU {name}, 7 x {name}: hidden by CUDA_VISIBLE_DEVICES" in overview(one)
    assert "hidden by" in one.words("nvidia-gpu-missing")
    eight = machines.diagnose(SCENARIOS["one of eight"].scenario)
    assert "not given to this container" in overview(eight)
    words = eight.words("nvidia-gpu-missing")
    assert "7 NVIDIA cards" in words and "not given to this container" in words
    alone = overview(machines.diagnose(SCENARIOS["libcuda alone"].scenario))
    assert "not listed by CUDA with CUDA_VISIBLE_DEVICES=1" in alone


def test_a_card_for_a_virtual_machine_is_given_back(machines: Machines) -> None:
    found = machines.diagnose(SCENARIOS["one for a virtual machine, and no other"].scenario)
    (row,) = [item for item in found.said.document["findings"] if item["check"] == "gpu-without-driver"]
    assert any("0000:41:00.0" in (step["command"] or "") for step in row["remedy"])
    assert not any("Install" in step["text"] for step in row["remedy"])
    assert "10de:2204" in json.dumps(row["remedy"])


def test_a_card_that_only_the_bus_shows(machines: Machines) -> None:
    (unused,) = machines.diagnose(SCENARIOS["nouveau"].scenario).facts.machine.gpus.value or ()
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
