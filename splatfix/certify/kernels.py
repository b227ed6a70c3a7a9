"""Kernels of an environment against float64 references: one child for each implementation, and what its end means."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from splatfix.certify.model import KernelCheck, Outcome
from splatfix.core.codec import from_json, parse_json
from splatfix.core.runner import Runner

KERNEL_TIMEOUT = 180.0
"""Seconds for one implementation: torch and CUDA start within 20, PTX of a large extension is compiled within a minute or two."""
AFTER_A_HANG = 30.0
"""Seconds for each one after the first that hung: a GPU that works answers in less once torch and CUDA have started, and one
that does not must not be waited for ten times. What needs longer then is not measured, for the fault may be the other's."""
IMPLEMENTATIONS = (
    ("arithmetic", "torch"),
    ("ssim", "splatfix.kernels.ssim"),
    ("ssim", "fused_ssim"),
    ("knn", "splatfix.kernels.knn"),
    ("knn", "simple_knn._C"),
    ("rasterizer", "splatfix.kernels.rasterizer"),
    ("rasterizer", "diff_gaussian_rasterization"),
    ("rasterizer", "diff_gaussian_rasterization_fastgs"),
    ("rasterizer", "diff_plane_rasterization"),
    ("rasterizer", "diff_surfel_rasterization"),
    ("rasterizer", "diff_triangle_rasterization"),
    ("gsplat", "gsplat.csrc"),
)
"""Each kernel, and a module that implements it: torch's arithmetic, which all stand on, then ours and those that stacks
install."""
ALWAYS_NAMED = frozenset({"fused_ssim", "simple_knn._C", "diff_gaussian_rasterization"})
"""What a report names also where it is not installed."""
NOT_INSTALLED = "not installed in this environment"
NOT_RUN = "not run, because torch's own arithmetic failed: "


def check_kernels(
    runner: Runner, python: str, device: str, staged: Path, variables: Mapping[str, str]
) -> tuple[KernelCheck, ...]:
    """Run the kernel probe in the target environment, a child for each implementation; one that is not there has no answer."""
    probe = str(staged / "splatfix" / "certify" / "kernel_probe.py")
    checks: list[KernelCheck] = []
    limit, hung = KERNEL_TIMEOUT, ""
    for kernel, module in IMPLEMENTATIONS:
        check = KernelCheck(kernel, module, Outcome.NOT_MEASURED, detail=NOT_INSTALLED)
        if checks and checks[0].name == "arithmetic" and checks[0].outcome is Outcome.FAILED:
            checks.append(replace(check, detail=NOT_RUN + checks[0].sentence))
            continue
        argv = [python, probe, kernel, module, "--device", device]
        done = runner.run(argv, timeout=limit, env=variables, cwd=staged)
        answered = False
        for line in done.stdout.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # what the module printed
                check, answered = from_json(KernelCheck, parse_json(line)), True
        if hung and done.returncode is None and done.seconds >= limit:
            detail = f"no answer within {limit:g} seconds, after {hung} had hung on the same device"
            check = replace(check, outcome=Outcome.NOT_MEASURED, detail=detail)
        elif not done.ok:
            detail = f"the process that ran it failed: {done.why()}"
            check = replace(check, outcome=Outcome.FAILED, detail=detail)
            if done.returncode is None and done.seconds >= limit:
                limit, hung = min(AFTER_A_HANG, KERNEL_TIMEOUT), module
        if answered or not done.ok or module in ALWAYS_NAMED:
            checks.append(check)
    return tuple(checks)
