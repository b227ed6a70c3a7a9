"""After an installation, where a GPU is: the kernels that were installed are run against the float64 references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from splatfix.core.step import run, say

if TYPE_CHECKING:
    from splatfix.certify import KernelCheck
    from splatfix.facts import Facts
    from splatfix.install import InstalledItem, InstallOutcome

    Verify = Callable[[str, str], tuple[KernelCheck, ...]]


def measured(
    outcome: InstallOutcome, facts: Facts, verify: Verify, take_back: Callable[[str, str], object]
) -> InstallOutcome:
    """The outcome with the rung ``computes`` of every item whose kernels splatfix can call.

    Nothing is run where this machine has no NVIDIA GPU with a driver. A kernel that computes wrongly, crashes or hangs does
    not stay: the whole installation is taken back.

    Raises:
        SplatfixError: ``computes-wrongly`` with the errors that were measured, or how the kernel's process ended.
    """
    from splatfix.certify import IMPLEMENTATIONS
    from splatfix.certify import Outcome as Verdict
    from splatfix.core.errors import SplatfixError
    from splatfix.core.proof import Rung, RungName

    called = {module.partition(".")[0] for _, module in IMPLEMENTATIONS}
    if not _has_gpu(facts) or not any(_tops(item) & called for item in outcome.items):
        return outcome
    python = outcome.plan.python
    checks = verify(python, "cuda")
    items = []
    for item in outcome.items:
        mine = [check for check in checks if check.implementation.partition(".")[0] in _tops(item)]
        wrong = [check for check in mine if check.outcome is Verdict.FAILED]
        if wrong:
            changed = not all(one.up_to_date for one in outcome.items)
            if changed:
                take_back(python, outcome.entry)
            raise SplatfixError(
                "computes-wrongly",
                f"{item.subject} loads, but fails on this GPU: {'; '.join(map(_words, wrong))}.",
                meaning="The environment was put back as it was."
                if changed
                else "It was installed already, and nothing was changed.",
                todo=(
                    run("splatfix", "diagnose", text="Look at the GPU and its driver"),
                    say(f"Logs of the build: {outcome.log}"),
                ),
            )
        shown = [check for check in mine if check.outcome is Verdict.MET]
        if shown:
            text = "forward and gradient agree with float64 references on the GPU: " + "; ".join(
                map(_words, shown)
            )
            rung = Rung(RungName.COMPUTES, True, text)
        else:
            why = "; ".join(check.detail for check in mine) or "splatfix has no reference for it"
            rung = Rung(RungName.COMPUTES, None, why)
        proof = tuple(rung if old.name is RungName.COMPUTES else old for old in item.proof)
        items.append(replace(item, proof=proof))
    return replace(outcome, items=tuple(items))


def _has_gpu(facts: Facts) -> bool:
    driver = facts.machine.driver.value
    gpus = facts.machine.gpus.value or ()
    return any(gpu.vendor == "nvidia" for gpu in gpus) and driver is not None and bool(driver.cuda)


def _tops(item: InstalledItem) -> set[str]:
    return {module.partition(".")[0] for module in item.modules}


def _words(check: KernelCheck) -> str:
    if check.value_error is None:
        return f"{check.implementation}: {check.detail}"
    gradient = f", gradient {check.gradient_error:.1e}" if check.gradient_error is not None else ""
    return f"{check.implementation} {check.value_error:.1e}{gradient}"
