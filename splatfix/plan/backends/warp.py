"""Drop-ins on the package gswarp, whose kernels NVIDIA Warp compiles: no toolkit, no host compiler."""

from collections.abc import Sequence

from splatfix.context import Context
from splatfix.core.errors import SplatfixError
from splatfix.core.versions import release
from splatfix.facts import Torch
from splatfix.knowledge.dropins import Dropin
from splatfix.knowledge.warp import BUILDS, GLIBC, GSWARP, OLDEST_ARCH, PYTHON, WarpBuild, kernel_of
from splatfix.plan.assessment import Assessment, driver_objection, torch_obstacles
from splatfix.plan.backends.pure import GpuKernels, not_here
from splatfix.plan.option import OptionKind
from splatfix.plan.requirements import usable_targets, usable_torch
from splatfix.plan.steps import InstallDependencies, Reason


def warp_kernels(context: Context, dropins: Sequence[Dropin]) -> GpuKernels:
    """That gswarp on a build of Warp serves the targets: the newest build that the driver and the targets allow.

    Raises:
        SplatfixError: ``no-warp-kernels``, ``warp-needs-python``, ``warp-has-no-wheel``, ``target-too-old``,
            ``torch-does-not-serve``, ``driver-too-old``; what is wrong with torch or the targets.
    """
    usable_targets(context)
    torch = usable_torch(context, cuda=True)
    obstacles = []
    for dropin in dropins:
        _, obstacle = kernel_of(dropin)
        if obstacle:
            obstacles.append(f"{dropin.name}: {obstacle}")
    if obstacles:
        raise SplatfixError("no-warp-kernels", f"gswarp does not serve {'; '.join(obstacles)}.")
    if context.python is not None and context.python < PYTHON:
        needed, version = (".".join(map(str, pair)) for pair in (PYTHON, context.python))
        raise not_here("warp-needs-python", f"gswarp needs Python {needed} or newer; this is {version}.")
    if no_wheel := _no_wheel(context):
        raise not_here("warp-has-no-wheel", f"NVIDIA Warp has no wheel for this machine: {no_wheel}.")
    oldest = min(arch.number for arch in context.archs)
    if oldest < OLDEST_ARCH:
        raise not_here(
            "target-too-old", f"gswarp needs sm_{OLDEST_ARCH} or newer, and sm_{oldest} is a target."
        )
    assessment = Assessment(context)
    against, unsure = torch_obstacles(assessment)
    if against:
        raise not_here("torch-does-not-serve", f"Here {'; '.join(against)}.")
    build, open_question = _newest_build(assessment, torch, oldest)
    if open_question:
        unsure.append(open_question)
    newest = f"with CUDA {build.cuda}, the newest that these GPUs and the driver allow"
    reason = Reason(f"{build.requirement} is built {newest}", "the tables")
    return GpuKernels(
        OptionKind.WARP,
        f"gswarp and {build.requirement} come from PyPI, 150 MB; made in a minute",
        "No GPU has run gswarp here yet: on Warp's CPU device its kernels agree with the pure-PyTorch ones to rounding; "
        "the first call compiles them, for tens of seconds",
        tuple(unsure),
        (
            InstallDependencies(
                requirements=(GSWARP, build.requirement), modules=("gswarp",), reasons=(reason,)
            ),
        ),
    )


def _no_wheel(context: Context) -> str:
    """Why the machine's C library or processor is in the way; "" where neither is."""
    machine = context.machine
    libc = machine.libc.value or ""
    if libc.startswith("musl"):
        return f"its wheels need glibc, this is {libc}"
    if machine.system != "linux":
        return ""
    oldest = GLIBC.get(machine.machine)
    if oldest is None:
        return f"this is {machine.machine}"
    if context.glibc is not None and context.glibc < oldest:
        return f"its wheels need glibc {oldest[0]}.{oldest[1]}, this is {context.glibc[0]}.{context.glibc[1]}"
    return ""


def _newest_build(assessment: Assessment, torch: Torch, oldest_arch: int) -> tuple[WarpBuild, str]:
    """The build of Warp, and what is not known about it.

    Raises:
        SplatfixError: ``driver-too-old``.
    """
    builds = [build for build in BUILDS if build.oldest_arch <= oldest_arch]
    if assessment.driver is None:
        # whatever driver torch's own CUDA needs is there, so what needs no newer one starts too
        of_torch = release(torch.cuda)[0]
        fitting = [build for build in builds if release(build.cuda)[0] <= of_torch]
        build = (fitting or builds[-1:])[0]
        return build, f"whether the driver there starts CUDA {build.cuda}, which Warp is built with"
    verdicts = [(build, driver_objection(assessment, build.cuda)) for build in builds]
    for build, verdict in verdicts:
        if verdict.ok is not False:
            return build, ""
    _, verdict = verdicts[-1]
    raise not_here("driver-too-old", f"Here {verdict.reason}.")
