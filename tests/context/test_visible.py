"""Which GPUs CUDA_VISIBLE_DEVICES leaves: held against torch's own count, and what follows for every other check.

And which architectures are here, and what their driver says of PTX.
"""

import itertools

import pytest
from msgspec.structs import replace

from splatfix.app.result import archs, archs_or_auto
from splatfix.context import Goal, make_context
from splatfix.context.gpus import Gpus
from splatfix.context.visible import read_value
from splatfix.knowledge import Arch
from splatfix.model import Fact, Facts, Gpu
from tests.archs import goal
from tests.checks.conftest import Changer, with_facts
from tests.plan.machines import OLD_DRIVER, RTX_4090, RTX_5080, find_options, machine, refused
from tests.tables import data

UUIDS = ("GPU-1a2b3c4d-0000", "GPU-1a2b9999-1111", "GPU-77777777-2222")
CARDS = tuple(Gpu(place, f"card {place}", cc="12.0", uuid=uuid) for place, uuid in enumerate(UUIDS))

WORDS = "0 1 2 3 7 -1 1gpu +2 x 007 GPU-1a2b3c4d GPU-1a2b GPU-7 GPU-none MIG-1 gpu-7"
ENTRIES = (*WORDS.split(), "", " 1", UUIDS[2])


def test_as_many_as_torch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pytest.importorskip("torch").cuda
    monkeypatch.setattr(cuda, "_raw_device_count_nvml", lambda: len(UUIDS))
    monkeypatch.setattr(cuda, "_raw_device_uuid_nvml", lambda: list(UUIDS))
    checked = 0
    for length in (1, 2, 3):
        # of the triples one in seven, which is no divisor of the entries
        every = itertools.product(ENTRIES, repeat=length)
        for entries in itertools.islice(every, 0, None, 7 if length == 3 else 1):
            value = ",".join(entries)
            ours = read_value(value, CARDS).places
            if ours is None:
                assert value.startswith("MIG-")
                continue
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
            assert len(ours) == cuda._device_count_nvml(), value
            assert len(set(ours)) == len(ours) and set(ours) <= {0, 1, 2}
            checked += 1
    assert checked > 1200


@pytest.mark.parametrize(("value", "order", "hidden"), data(__file__)["hidden"])
def test_hidden_only_where_that_is_certain(
    changed: Changer, value: str, order: str, hidden: tuple[int, ...]
) -> None:
    variables = {"CUDA_VISIBLE_DEVICES": value} | ({"CUDA_DEVICE_ORDER": order} if order else {})
    assert Gpus(changed(gpus=Fact(CARDS, "NVML"), variables=variables)).hidden_gpus == set(hidden)


@pytest.mark.parametrize(("value", "places", "lost", "valid"), data(__file__)["told"])
def test_what_cuda_drops_is_told(value: str, places: tuple[int, ...] | None, lost: str, valid: str) -> None:
    reading = read_value(value, CARDS)
    assert (reading.places, reading.valid) == (places, valid)
    assert lost in reading.lost
    assert bool(lost) == bool(reading.lost)


def test_the_archs_here_are_those_of_nvidia_gpus_once_each() -> None:
    radeon = Gpu(3, "AMD Radeon RX 7900 XTX", vendor="amd")
    unread = Gpu(2, "NVIDIA PCI device 2b85")
    facts = machine(gpus=(RTX_5080, RTX_4090, unread, radeon, replace(RTX_4090, index=4)))
    assert tuple(Gpus(facts).own_archs()) == (Arch(12, 0), Arch(8, 9))
    assert archs_for(("auto", "sm_90"), facts) == (Arch(12, 0), Arch(8, 9), Arch(9, 0))


def archs_for(requested: tuple[str, ...], facts: Facts) -> tuple[Arch, ...]:
    return make_context(facts, goal(*requested)).archs


@pytest.mark.parametrize(("target", "level"), [("sm_120", "12.8"), ("sm_120a", "12.8"), ("sm_90", None)])
def test_a_driver_speaks_for_the_gpus_that_are_here(target: str, level: str | None) -> None:
    facts = machine(gpus=(RTX_5080,), driver=OLD_DRIVER)
    assert Gpus(facts).driver_level(Arch.parse(target)) == level
    unknown = with_facts(facts, driver=Fact(None, "", "could not be read"))
    assert Gpus(unknown).driver_level(Arch.parse(target)) is None


def test_gpus_that_could_not_be_asked_for_are_not_called_absent() -> None:
    facts = with_facts(machine(), gpus=Fact(None, "", "NVML did not answer in time"))
    problem = make_context(facts).no_target
    assert problem and "is not known (NVML did not answer in time)" in problem.what
    assert "shows no NVIDIA GPU" not in find_options(Goal(), facts).rejected[0].rejected_because


def test_a_list_is_several_targets() -> None:
    facts = machine(gpus=(RTX_5080,))
    assert archs_for(("auto,sm_90", "8.9;9.0"), facts) == (Arch(12, 0), Arch(9, 0), Arch(8, 9))
    assert archs(["12.0;8.9", "sm_90,sm_89"]) == (Arch(12, 0), Arch(8, 9), Arch(9, 0))
    error = refused(archs_or_auto, ["sm_120,blackwell"])
    assert error.code == "unknown-arch" and "'blackwell' may mean" in error.what
