"""After an installation, where a GPU is: the kernels that were installed are run against the float64 references."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from splatfix.certify import IMPLEMENTATIONS, KernelCheck, Outcome
from splatfix.certify import verify as check_kernels
from splatfix.core.errors import SplatfixError
from splatfix.core.proof import Rung, RungName
from splatfix.install import InstallOutcome
from splatfix.model import Facts


def measured(
    outcome: InstallOutcome,
    facts: Facts,
    take_back: Callable[[str, str], object],
    verify: Callable[[str, str], tuple[KernelCheck, ...]] = check_kernels,
) -> InstallOutcome:
    """Return the outcome with the rung ``computes`` of every item whose kernels splatfix can call.

    Nothing is run where this machine has no NVIDIA GPU with a driver. A kernel that computes wrongly, crashes or hangs does
    not stay: the whole installation is taken back.

    Raises:
        SplatfixError: ``computes-wrongly`` with the errors that were measured, or how the kernel's process ended.
    """
    called = _tops(module for _, module in IMPLEMENTATIONS)
    # nouveau is a driver too, and has no CUDA level
    driver, gpus = facts.machine.driver.value, facts.machine.gpus.value or ()
    has_gpu = driver and driver.cuda and any(gpu.vendor == "nvidia" for gpu in gpus)
    if not has_gpu or not any(_tops(item.modules) & called for item in outcome.items):
        return outcome
    checks = verify(outcome.plan.python, "cuda")
    items = []
    for item in outcome.items:
        of_item = [check for check in checks if _tops([check.implementation]) & _tops(item.modules)]
        wrong = [check for check in of_item if check.outcome is Outcome.FAILED]
        if wrong:
            state = "It was installed already, and nothing was changed."
            if not all(one.up_to_date for one in outcome.items):
                take_back(outcome.plan.python, outcome.entry)
                state = "The environment was put back as it was."
            errors = "; ".join(map(_errors, wrong))
            raise SplatfixError.of(
                "app.computes-wrongly", subject=item.subject, errors=errors, state=state, log=outcome.log
            )
        details = "; ".join(check.detail for check in of_item) or "splatfix has no reference for it"
        rung = Rung(RungName.COMPUTES, None, details)
        if met := [check for check in of_item if check.outcome is Outcome.MET]:
            agree = "forward and gradient agree with float64 references on the GPU"
            rung = Rung(RungName.COMPUTES, True, f"{agree}: {'; '.join(map(_errors, met))}")
        proof = tuple(rung if old.name is rung.name else old for old in item.proof)
        items.append(replace(item, proof=proof))
    return replace(outcome, items=tuple(items))


def _tops(modules: Iterable[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def _errors(check: KernelCheck) -> str:
    if check.value_error is None:
        return f"{check.implementation}: {check.detail}"
    text = f"{check.implementation} {check.value_error:.1e}"
    if check.gradient_error is not None:
        text += f", gradient {check.gradient_error:.1e}"
    return text
