"""``splatfix verify``: compare the kernels of an environment with float64 references."""

from collections.abc import Sequence

from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.certify import KernelCheck, Outcome, device_for, idle_gpu
from splatfix.certify import verify as check_kernels
from splatfix.certify.advice import way_out
from splatfix.core.errors import Exit
from splatfix.core.step import Step, run, value_options
from splatfix.facts import gather
from splatfix.report import certificate


def verify(python: str | None, device: str) -> Result:
    """Run SSIM, kNN and the rasterizer, every implementation that is installed.

    Raises:
        SplatfixError: ``environment-not-ready`` (exit code 3) when the environment lacks torch.
    """
    with on_interrupt("Interrupted: no kernel was verified; nothing was changed."):
        target = target_python(python)
        facts = gather(target)
        where = device_for(device, facts)
        kernels = check_kernels(target, where, facts=facts)
    return Result(
        "verify",
        lambda: certificate.kernels_document(kernels, where),
        lambda console: certificate.show_kernels(
            console, kernels, where, idle_gpu(facts, where), next_step(kernels, where, python)
        ),
        exit_code_of(kernels),
    )


def next_step(kernels: Sequence[KernelCheck], device: str, python: str | None) -> Step | None:
    """Training where all is well, else the way out of what failed; None where a GPU is missing."""
    named = value_options({"--python": python})
    exit_code = exit_code_of(kernels)
    if exit_code is Exit.FAILURE:
        return way_out(kernels, (), python)
    if exit_code is not Exit.OK:
        return None
    installed = any(item.kind and "diff_gaussian_rasterization" in item.implementation for item in kernels)
    # a training should show the rasterizer that is installed; on a CPU it does not run
    if installed and device != "cpu":
        named = ("--renderer", "inria", *named)
    return run("splatfix", "certify", *named, text="Next: test training")


def exit_code_of(kernels: Sequence[KernelCheck]) -> Exit:
    """1 when one is wrong; 3 when none could be measured or an installed extension was not measured; else 0."""
    outcomes = {item.outcome for item in kernels}
    if Outcome.FAILED in outcomes:
        return Exit.FAILURE
    if Outcome.MET not in outcomes or any(item.native_not_measured for item in kernels):
        return Exit.UNDETERMINED
    return Exit.OK
