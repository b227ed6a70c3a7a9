"""Which architectures are here, and what their driver says of PTX."""

import dataclasses

import pytest

from splatfix.cli.options import archs, archs_or_auto
from splatfix.context import Goal, make_context
from splatfix.context.gpus import Gpus
from splatfix.facts import Fact, Facts, Gpu
from splatfix.knowledge import Arch
from tests.archs import goal
from tests.plan.machines import OLD_DRIVER, RTX_4090, RTX_5080, changed, find_options, machine, refused


def test_the_archs_here_are_those_of_nvidia_gpus_once_each() -> None:
    radeon = Gpu(3, "AMD Radeon RX 7900 XTX", vendor="amd")
    unread = Gpu(2, "NVIDIA PCI device 2b85")
    facts = machine(gpus=(RTX_5080, RTX_4090, unread, radeon, dataclasses.replace(RTX_4090, index=4)))
    assert tuple(Gpus(facts).own_archs()) == (Arch(12, 0), Arch(8, 9))
    assert archs_for(("auto", "sm_90"), facts) == (Arch(12, 0), Arch(8, 9), Arch(9, 0))


def archs_for(requested: tuple[str, ...], facts: Facts) -> tuple[Arch, ...]:
    return make_context(facts, goal(*requested)).archs


@pytest.mark.parametrize(("target", "level"), [("sm_120", "12.8"), ("sm_120a", "12.8"), ("sm_90", None)])
def test_a_driver_speaks_for_the_gpus_that_are_here(target: str, level: str | None) -> None:
    facts = machine(gpus=(RTX_5080,), driver=OLD_DRIVER)
    assert Gpus(facts).driver_level(Arch.parse(target)) == level
    unknown = changed(facts, driver=Fact(None, "", "could not be read"))
    assert Gpus(unknown).driver_level(Arch.parse(target)) is None


def test_gpus_that_could_not_be_asked_for_are_not_called_absent() -> None:
    facts = changed(machine(), gpus=Fact(None, "", "NVML did not answer in time"))
    problem = make_context(facts).no_target
    assert problem and "is not known (NVML did not answer in time)" in problem.what
    assert "shows no NVIDIA GPU" not in find_options(Goal(), facts).rejected[0].rejected_because


def test_a_list_is_several_targets() -> None:
    facts = machine(gpus=(RTX_5080,))
    assert archs_for(("auto,sm_90", "8.9;9.0"), facts) == (Arch(12, 0), Arch(9, 0), Arch(8, 9))
    assert archs(["12.0;8.9", "sm_90,sm_89"]) == (Arch(12, 0), Arch(8, 9), Arch(9, 0))
    error = refused(archs_or_auto, ["sm_120,blackwell"])
    assert error.code == "unknown-arch" and "'blackwell' may mean" in error.what
