"""The machine itself: libc, container, resources under control groups, adapters; probes side by side, under a limit."""

import os
import sys
import time
from pathlib import Path

import pytest

from splatfix.facts import System
from splatfix.facts.machine import adapters, nvml, resources
from splatfix.facts.machine import probe as machine
from splatfix.facts.system.parallel import parallel
from tests.facts.conftest import MachineOf
from tests.tables import data

TABLE = data(__file__)


@pytest.mark.parametrize(("files", "found"), TABLE["resources"])
def test_resources_and_their_limits(
    machine_of: MachineOf, files: dict[str, str], found: tuple[int, ...]
) -> None:
    """Under control groups of both versions, of which those above limit too."""
    given = resources.probe(machine_of(files={**TABLE["host"], **files}))
    assert (given.cores, given.memory_total, given.memory_available, given.swap_total) == found


@pytest.mark.parametrize("files", TABLE["limits"])
@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="sysconf(3)")
def test_the_limit_of_the_trainer_is_the_one_that_a_diagnosis_finds(
    files: dict[str, str], tmp_path: Path, machine_of: MachineOf
) -> None:
    """Two readers of the same files, because the trainer runs without splatfix."""
    memory = pytest.importorskip("smoke_trainer.memory")
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if files and "memory/" not in "".join(files):
        files = {**files, "sys/fs/cgroup/cgroup.controllers": "cpu memory\n"}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    known = {f"/{name}": content for name, content in files.items()}
    known["/proc/meminfo"] = f"MemTotal: {total // 1024} kB\n"
    assert memory.memory_limit(tmp_path) == resources.probe(machine_of(files=known)).memory_total


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_both_find_the_limit_of_this_machine() -> None:
    memory = pytest.importorskip("smoke_trainer.memory")
    found = resources.probe(System()).memory_total
    assert found is not None and memory.memory_limit() == pytest.approx(found, abs=4096)


MUSL = {"returncode": 1, "stderr": "musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader\n"}


def test_musl_is_told_from_glibc(machine_of: MachineOf) -> None:
    found = machine.probe(machine_of(commands={("ldd", "--version"): MUSL}))
    assert found.libc.value == "musl 1.2.5"
    assert found.glibc is None


@pytest.mark.parametrize(("given", "container"), TABLE["containers"])
def test_containers(machine_of: MachineOf, given: dict[str, object], container: str | None) -> None:
    assert machine.probe(machine_of(**given)).container == container


def test_without_vulkaninfo_the_drivers_are_named(machine_of: MachineOf) -> None:
    found = adapters.probe(machine_of(files={"/usr/share/vulkan/icd.d/nvidia_icd.json": "{}"}))
    assert (found.value, found.found_via) == (None, "Vulkan drivers: nvidia_icd.json")


def test_without_any_vulkan_driver_there_is_no_adapter(machine_of: MachineOf) -> None:
    assert adapters.probe(machine_of()).value == ()


def test_probes_run_side_by_side_and_none_holds_up_the_others() -> None:
    begun = time.monotonic()
    works = {
        "a": lambda: time.sleep(0.2) or 1,
        "b": lambda: time.sleep(0.2) or 2,
        "hangs": lambda: time.sleep(30),
        "breaks": lambda: 1 / 0,
    }
    found = parallel(0.8, works)
    assert time.monotonic() - begun < 5
    assert (found["a"].value, found["b"].value) == (1, 2)
    assert found["hangs"].value is None and found["hangs"].error
    assert "ZeroDivisionError" in found["breaks"].error


def test_an_nvml_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_ask", lambda: time.sleep(30))
    monkeypatch.setattr(nvml, "_TIMEOUT", 0.1)
    assert nvml.ask() == {"error": "NVML: no answer within 0.1 s", "error_code": None}


def test_this_machine() -> None:
    found = machine.probe(System())
    assert found.resources.cores
    assert found.resources.memory_total
    assert found.libc.known or found.system != "linux"
    assert found.gpus.known or found.gpus.error
