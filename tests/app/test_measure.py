"""After an installation on a machine with a GPU: what is run there is shown, and what computes wrongly does not stay."""

from __future__ import annotations

import dataclasses

import pytest

from splatfix.app.measure import measured
from splatfix.certify import KernelCheck
from splatfix.certify import Outcome as Verdict
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.facts import Driver, Fact, Facts, Gpu
from splatfix.install import InstalledItem, InstallOutcome
from splatfix.plan import InstallPlan, OptionKind
from tests.archs import archs
from tests.plan.machines import machine

NOT_RUN = Rung(RungName.COMPUTES, None, "nothing of it was run beyond the import")


GOOD_DRIVER = Driver("580.95.05", "13.0")


def with_gpu(driver: Driver | None = GOOD_DRIVER) -> Facts:
    facts = machine(gpus=(Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0"),))
    return dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, driver=Fact(driver, "test")))


PLAN = InstallPlan(
    OptionKind.REBUILD, "", steps=(), targets=archs("sm_120"), python="/env/bin/python", prefix="/env"
)


def installed(*modules: str) -> InstallOutcome:
    item = InstalledItem("simple_knn", "1", "", modules, "w.whl", 1.0, (NOT_RUN,))
    return InstallOutcome(PLAN, "0007-x", (item,), "/logs")


def check(outcome: Verdict, error: float | None, detail: str = "") -> KernelCheck:
    return KernelCheck("knn", "simple_knn._C", outcome, error, 1e-4, None, None, detail, "native")


def run(
    facts: Facts, *answers: KernelCheck, modules: tuple[str, ...] = ("simple_knn._C",)
) -> tuple[Rung, list[str]]:
    """The rung ``computes`` afterwards, and the journal entries that were taken back."""
    back: list[str] = []
    outcome = measured(
        installed(*modules), facts, lambda python, device: answers, lambda python, entry: back.append(entry)
    )
    return outcome.items[0].proof[0], back


def test_a_kernel_that_agrees_reaches_the_rung() -> None:
    rung, back = run(with_gpu(), check(Verdict.MET, 2e-7))
    assert rung.reached is True and "simple_knn._C 2.0e-07" in rung.shown_by
    assert back == []


def test_a_kernel_that_computes_wrongly_is_taken_back() -> None:
    back: list[str] = []
    with pytest.raises(SplatfixError) as caught:
        measured(
            installed("simple_knn._C"),
            with_gpu(),
            lambda python, device: (check(Verdict.FAILED, 0.3),),
            lambda python, entry: back.append(entry),
        )
    assert caught.value.code == "computes-wrongly" and "3.0e-01" in caught.value.what
    assert back == ["0007-x"]


def test_wrong_earlier_installation_is_reported_and_kept() -> None:
    there = installed("simple_knn._C")
    there = dataclasses.replace(there, items=(dataclasses.replace(there.items[0], up_to_date=True),))
    back: list[str] = []
    with pytest.raises(SplatfixError) as caught:
        measured(
            there,
            with_gpu(),
            lambda python, device: (check(Verdict.FAILED, 0.3),),
            lambda python, entry: back.append(entry),
        )
    assert back == [] and "nothing was changed" in caught.value.meaning


def test_what_could_not_be_measured_is_not_claimed() -> None:
    rung, _ = run(with_gpu(), check(Verdict.NOT_MEASURED, None, "torch sees no GPU here"))
    assert rung == Rung(RungName.COMPUTES, None, "torch sees no GPU here")


@pytest.mark.parametrize("facts", [machine(), with_gpu(None), with_gpu(Driver("580.95.05", None))])
def test_without_a_gpu_and_its_driver_nothing_is_run(facts: Facts) -> None:
    def never(python: str, device: str) -> tuple[KernelCheck, ...]:
        raise AssertionError("nothing is to be run")

    outcome = measured(installed("simple_knn._C"), facts, never, lambda python, entry: None)
    assert outcome.items[0].proof == (NOT_RUN,)


def test_what_splatfix_cannot_call_is_not_run_either() -> None:
    rung, _ = run(with_gpu(), modules=("tinycudann_bindings._120_C",))
    assert rung == NOT_RUN


@pytest.mark.parametrize("end", ["ended by SIGSEGV", "no answer within 180 s"])
def test_a_kernel_that_crashes_or_hangs_is_taken_back(end: str) -> None:
    back: list[str] = []
    with pytest.raises(SplatfixError) as caught:
        measured(
            installed("diff_surfel_rasterization._C"),
            with_gpu(),
            lambda python, device: (
                KernelCheck("rasterizer", "diff_surfel_rasterization", Verdict.FAILED, detail=end),
            ),
            lambda python, entry: back.append(entry),
        )
    assert end in caught.value.what
    assert back == ["0007-x"]
