"""After an installation on a machine with a GPU: what is run there is shown, and what computes wrongly does not stay."""

import pytest
from msgspec.structs import replace

from splatfix.app.measure import measured
from splatfix.certify import KernelCheck
from splatfix.certify import Outcome as Verdict
from splatfix.core.proof import Rung, RungName
from splatfix.install import InstalledItem, InstallOutcome
from splatfix.model import Driver, Fact, Facts, Gpu
from splatfix.plan import OptionKind, Plan
from tests.archs import archs
from tests.plan.machines import machine, refused

NOT_RUN = Rung(RungName.COMPUTES, None, "nothing of it was run beyond the import")


GOOD_DRIVER = Driver("580.95.05", "13.0")


def with_gpu(driver: Driver | None = GOOD_DRIVER) -> Facts:
    facts = machine(gpus=(Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0"),))
    return replace(facts, machine=replace(facts.machine, driver=Fact(driver, "test")))


PLAN = Plan(
    OptionKind.REBUILD, "", steps=(), targets=archs("sm_120"), python="/env/bin/python", prefix="/env"
)
NO_GPU_ANSWER = KernelCheck("knn", "simple_knn._C", Verdict.NOT_MEASURED, detail="torch sees no GPU here")
AGREES = KernelCheck("knn", "simple_knn._C", Verdict.MET, 2e-7, 1e-4)
WRONG = KernelCheck("knn", "simple_knn._C", Verdict.FAILED, 0.3, 1e-4)
CRASHED = replace(WRONG, value_error=None, detail="ended by SIGSEGV")
HUNG = replace(WRONG, value_error=None, detail="no answer within 180 s")


def rung(
    facts: Facts,
    *answers: KernelCheck,
    back: list[str] | None = None,
    up_to_date: bool = False,
    module: str = "simple_knn._C",
) -> Rung:
    """The rung ``computes`` after its measurement by these answers; ``back`` gets the journal entries that are taken back."""
    item = InstalledItem("simple_knn", "1", "", (module,), "w.whl", 1.0, (NOT_RUN,), up_to_date=up_to_date)
    outcome = InstallOutcome(PLAN, "0007-x", (item,), "/logs")
    taken = [] if back is None else back

    def verify(python: str, device: str) -> tuple[KernelCheck, ...]:
        assert answers, "nothing is to be run"
        return answers

    return measured(outcome, facts, lambda python, entry: taken.append(entry), verify).items[0].proof[0]


def test_a_kernel_that_agrees_reaches_the_rung_and_what_could_not_be_measured_claims_none() -> None:
    back: list[str] = []
    assert rung(with_gpu(), AGREES, back=back).reached is True and back == []
    assert rung(with_gpu(), NO_GPU_ANSWER) == replace(NOT_RUN, shown_by=NO_GPU_ANSWER.detail)


@pytest.mark.parametrize("answer", [WRONG, CRASHED, HUNG], ids=["wrong", "crashed", "hung"])
@pytest.mark.parametrize("up_to_date", [False, True])
def test_what_does_not_compute_is_taken_back_unless_it_was_there_before(
    answer: KernelCheck, up_to_date: bool
) -> None:
    back: list[str] = []
    error = refused(rung, with_gpu(), answer, back=back, up_to_date=up_to_date)
    assert error.code == "computes-wrongly" and (answer.detail or "3.0e-01") in error.what
    assert back == ([] if up_to_date else ["0007-x"])


def test_without_a_gpu_its_driver_or_a_reference_nothing_is_run() -> None:
    for facts in (machine(), with_gpu(None), with_gpu(Driver("580.95.05", None))):
        assert rung(facts) == NOT_RUN
    assert rung(with_gpu(), module="tinycudann_bindings._120_C") == NOT_RUN
