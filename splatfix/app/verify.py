"""``splatfix verify``: compare the kernels of an environment with float64 references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result
from splatfix.core.errors import Exit

if TYPE_CHECKING:
    from splatfix.certify import KernelCheck


def verify(python: str | None, device: str) -> Result:
    """Run SSIM, kNN and the rasterizer, every implementation that is installed.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3) when the environment lacks torch.
    """
    from splatfix.certify import device_for, idle_gpu
    from splatfix.certify import verify as check_kernels
    from splatfix.facts import gather, resolve_python
    from splatfix.report import certificate

    with on_interrupt("Interrupted: no kernel was verified; nothing was changed."):
        target = resolve_python(python)
        facts = gather(target)
        where = device_for(device, facts)
        kernels = check_kernels(target, where, facts=facts)
    return Result(
        "verify",
        lambda: certificate.kernels_document(kernels, where),
        lambda console: certificate.show_kernels(console, kernels, where, idle_gpu(facts, where)),
        exit_code_of(kernels),
    )


def exit_code_of(kernels: Sequence[KernelCheck]) -> Exit:
    """1 when one is wrong; 3 when none could be measured or an installed extension was not run; else 0."""
    from splatfix.certify import Outcome

    outcomes = {item.outcome for item in kernels}
    if Outcome.FAILED in outcomes:
        return Exit.FAILURE
    not_run = any(item.native_not_run for item in kernels)
    return Exit.OK if Outcome.MET in outcomes and not not_run else Exit.UNDETERMINED
