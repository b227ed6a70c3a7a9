"""Which published torch build is advised for a machine: one choice for findings and options."""

from __future__ import annotations

from collections.abc import Sequence

from splatfix.context.commands import pip
from splatfix.context.compilers import family_of
from splatfix.context.readings import (
    best_toolkit,
    compiling_toolkits,
    glibc_of,
    installed_driver,
    platform_of,
    python_version,
    torch_cuda,
    torch_family,
    torch_of,
)
from splatfix.context.targets import listed_gpus
from splatfix.core.step import Step
from splatfix.core.versions import major_minor, release
from splatfix.facts import Facts
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.host_compilers import oldest_gcc_of_torch
from splatfix.knowledge.toolkits import provisionable
from splatfix.knowledge.torch_releases import RankedBuild, TorchBuild, builds_for_arch, replacing_words


def nearness(facts: Facts, build: TorchBuild) -> tuple[bool, bool, bool]:
    """How far a build is from what is here, for a sort: another release than the installed one, another CUDA than torch's
    or the toolkit's, another CUDA major. The nearest asks least of stack, toolkit and extensions."""
    here = torch_of(facts)
    toolkit = best_toolkit(facts, torch_cuda(facts)) or best_toolkit(facts, None)
    have = torch_cuda(facts) or (major_minor(toolkit.version) if toolkit else None)
    return (
        not (here and here.version.startswith(f"{build.release}.")),
        build.cuda != have,
        have is None or build.cuda[0] != have[0],
    )


def toolkit_trouble(facts: Facts, build: TorchBuild, archs: Sequence[Arch]) -> int:
    """What a toolkit to compile beside this build asks: 0 it is here, 1 PyPI wheels bring it, 2 a person must install it;
    3 nothing compiles for these GPUs beside it."""
    served = [_compiled_for(build, arch) for arch in archs]
    wanted = [arch for arch in served if arch is not None]
    if len(wanted) < len(served) or not any(_names(build.cuda[0], minor, wanted) for minor in range(10)):
        return 3
    for toolkit in compiling_toolkits(facts):
        version = release(toolkit.version)
        if version[0] == build.cuda[0] and all(
            arch.sm in toolkit.archs
            if toolkit.archs and not arch.variant
            else _names(version[0], version[1], [arch])
            for arch in wanted
        ):
            return 0
    from_wheels = facts.machine.system == "linux" and provisionable(build.cuda[0])
    return 1 if from_wheels and _names(*build.cuda, wanted) else 2


def _names(major: int, minor: int, archs: Sequence[Arch]) -> bool:
    """No table says that nvcc of this CUDA cannot compile for one of these."""
    return all(toolkit_supports((major, minor), arch) is not False for arch in archs)


def _compiled_for(build: TorchBuild, arch: Arch) -> Arch | None:
    """What torch's builder compiles for to serve a GPU: its own number, or the newest it knows of the same code; None: none."""
    rules = behaviour(build.torch.replace("*", "0"))
    known = [one for name in (rules.supported_arches if rules else ()) if (one := Arch.known(name))]
    if not known or arch in known:
        return arch
    return max((one for one in known if not one.variant and cubin_runs_on(one, arch)), default=None)


def compiler_trouble(facts: Facts, build: TorchBuild) -> bool:
    """Every gcc here is older than this torch's headers take."""
    oldest = oldest_gcc_of_torch(build.torch.replace("*", "0"))
    majors = [
        release(item.version)[0]
        for item in facts.machine.compilers.value or ()
        if family_of(item) == "gcc" and release(item.version)
    ]
    return bool(majors) and oldest is not None and max(majors) < oldest


def preference(facts: Facts, build: TorchBuild, archs: Sequence[Arch]) -> tuple[int | bool, ...]:
    """For a sort of builds that serve: what asks least first, then no older release than the installed one, then the nearest.

    Findings and options both take the first by it.
    """
    torch = torch_of(facts)
    older = torch is not None and release(build.release)[:2] < release(torch.version)[:2]
    trouble = toolkit_trouble(facts, build, archs)
    asks = trouble + 2 * compiler_trouble(facts, build)  # a download is half of what a step by hand asks
    return (trouble == 3, asks, older, *nearness(facts, build))


def builds_for(facts: Facts, archs: Sequence[Arch]) -> list[TorchBuild]:
    """Published builds other than the installed one that run on every one of these GPUs with this Python, glibc and, where
    one of them is here, driver; the one to advise first."""
    here = {gpu.cc for gpu in listed_gpus(facts)}
    driver = release(installed_driver(facts)) if any(arch.plain.cc in here for arch in archs) else ()
    every = (item.build for item in builds_for_all(archs, facts, driver=driver or None))
    others = (build for build in every if not _is_installed(facts, build))
    return sorted(others, key=lambda build: preference(facts, build, archs))


def _is_installed(facts: Facts, build: TorchBuild) -> bool:
    torch = torch_of(facts)
    return (
        torch is not None
        and torch.version.startswith(f"{build.release}.")
        and torch_cuda(facts) == build.cuda
    )


def no_wheels(facts: Facts) -> str:
    """Why PyTorch publishes no wheel at all that this machine could use; "" where it does."""
    libc = facts.machine.libc.value or ""
    return f"PyTorch publishes no wheel for {libc}; glibc is needed" if libc.startswith("musl") else ""


def builds_for_all(
    archs: Sequence[Arch],
    facts: Facts,
    *,
    driver: tuple[int, ...] | None = None,
    leaving_out: str = "",
    include_unknown: bool = False,
) -> list[RankedBuild]:
    """Builds that run on every one of these GPUs and have a wheel here, the best for the first GPU first.

    Args:
        driver: the driver that must start them; None: any.
        leaving_out: ``python`` or ``glibc``, which is then not asked.
        include_unknown: also those of which the tables do not know whether they run there.
    """
    platform = platform_of(facts)
    if platform is None or no_wheels(facts) or not archs:
        return []
    python = None if leaving_out == "python" else python_version(facts)
    glibc = None if leaving_out == "glibc" else glibc_of(facts)
    first, *others = (
        builds_for_arch(
            arch,
            platform,
            facts.machine.machine,
            python=python,
            glibc=glibc,
            driver=driver,
            include_unknown=include_unknown,
        )
        for arch in archs
    )
    rest = [{(item.build.release, item.build.tag) for item in other} for other in others]
    return [item for item in first if all((item.build.release, item.build.tag) in other for other in rest)]


def install_command(build: TorchBuild, facts: Facts) -> tuple[str, Step]:
    """Version and exact pip command for a build in place of what is there, companions included."""
    version, command = replacing_words(build.torch, build.tag, torch_family(facts))
    return version, pip(facts, "install", *command)
