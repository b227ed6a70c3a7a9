"""What a container was started with, from what real ones answered (``containers.json``)."""

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.facts.machine import confinement, probe
from splatfix.facts.system.playback import PlaybackSystem
from splatfix.model import Confinement
from tests.facts.conftest import MachineOf
from tests.tables import data

RECORDED = json.loads(Path(__file__).with_name("containers.json").read_text(encoding="utf-8"))["containers"]
FIND = "find /dev -maxdepth 1 -name nvidia* -type c ! ( -readable -writable )"
TABLE = data(__file__)


def recorded(machine_of: MachineOf, name: str) -> PlaybackSystem:
    row = RECORDED[name]
    commands = {FIND: row.get("find", "")}
    return machine_of(files=row["files"], commands=commands, exists=row.get("exists", []))


@pytest.mark.parametrize(("name", "kind", "given"), TABLE["started-with"])
def test_real_containers(name: str, kind: str, given: dict[str, Any], machine_of: MachineOf) -> None:
    facts = probe.probe(recorded(machine_of, name))
    assert facts.container == kind, RECORDED[name]["start"]
    assert facts.confinement.value == Confinement(**given)


def test_outside_of_a_container_nothing_is_asked(machine_of: MachineOf) -> None:
    facts = probe.probe(machine_of(files=TABLE["outside"]))
    assert facts.container is None and facts.confinement.value is None


@pytest.mark.parametrize("text", TABLE["damaged-mounts"])
def test_damaged_mounts_are_unknown(text: str, machine_of: MachineOf) -> None:
    found = confinement.probe(machine_of(files={"/proc/self/mountinfo": text}))
    assert found.value is None or found.value.shm is None


def test_version_2_of_control_groups_and_other_engines(machine_of: MachineOf) -> None:
    """Not recorded here: file names of cgroup v2 from the kernel's documentation, folders of the kubelet and of Podman."""
    facts = probe.probe(machine_of(files=TABLE["podman"]))
    assert facts.container == "podman" and facts.confinement.value
    assert (facts.confinement.value.processes, facts.confinement.value.memory) == (2048, None)
    assert confinement.kind_by_mounts(machine_of(files=TABLE["kubelet"])) == "kubernetes"
