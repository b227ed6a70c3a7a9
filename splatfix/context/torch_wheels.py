"""Which published torch build is advised for a machine: one choice for findings and options."""

from collections.abc import Sequence
from functools import partial

from splatfix.context.commands import pip
from splatfix.context.compilers import family_of
from splatfix.context.installed import Inventory, torch_family
from splatfix.context.toolchain import Toolchain, compiles_for
from splatfix.core.step import Step
from splatfix.core.versions import major_minor, release
from splatfix.knowledge import Arch, toolkit_supports
from splatfix.knowledge.archs import newest_serving
from splatfix.knowledge.cpp_extension import behaviour
from splatfix.knowledge.host_compilers import oldest_gcc_of_torch
from splatfix.knowledge.toolkits import provision
from splatfix.knowledge.torch_releases import RankedBuild, TorchBuild, builds_for_arch, replacing_words
from splatfix.model import Facts


def _toolkit_trouble(here: Toolchain, build: TorchBuild, archs: Sequence[Arch]) -> int:
    """Rate what a toolkit to compile beside this build asks: 0 it is here, 1 PyPI wheels bring it, 2 a person must install it;
    3 nothing compiles for these GPUs beside it."""
    # what torch's builder compiles for to serve a GPU: its own number, or the newest it knows of the same code; of a torch
    # that nobody read nothing is known against the GPU's own number
    rules = behaviour(build.torch.replace("*", "0"))
    known = list(archs)
    if rules is not None:
        listed = Arch.known_among(rules.supported_arches)
        served = [arch if arch in listed else newest_serving(listed, arch) for arch in archs]
        known = [arch for arch in served if arch is not None]
    major, minor = build.cuda
    # no CUDA major has had more than ten minors
    if len(known) < len(archs) or not any(_names(major, number, known) for number in range(10)):
        return 3
    for toolkit in here.toolkits:
        if release(toolkit.version)[0] == major and all(compiles_for(toolkit, arch) for arch in known):
            return 0
    offer = provision(major)
    if here.machine.system == "linux" and offer and offer.compiler and _names(major, minor, known):
        return 1
    return 2


def _names(major: int, minor: int, archs: Sequence[Arch]) -> bool:
    """Tell whether no table says that nvcc of this CUDA cannot compile for one of these."""
    return all(toolkit_supports((major, minor), arch) is not False for arch in archs)


def preference(facts: Facts, build: TorchBuild, archs: Sequence[Arch]) -> tuple[int | bool, ...]:
    """Rank a build that serves: what asks least first, then no older release than the installed one, then the nearest.

    Findings and options both take the first by it.
    """
    here = Toolchain(facts)
    older = release(build.release)[:2] < release(here.torch_version)[:2]
    trouble = asks = _toolkit_trouble(here, build, archs)
    oldest = oldest_gcc_of_torch(build.torch.replace("*", "0"))
    majors = []
    for compiler in here.machine.compilers.value or ():
        if family_of(compiler) == "gcc" and release(compiler.version):
            majors.append(release(compiler.version)[0])
    # every gcc here is older than this torch's headers take; a download is half of what a step by hand asks
    if majors and oldest is not None and max(majors) < oldest:
        asks += 2
    # the nearest to what is here asks least of stack, toolkit and extensions
    cuda, toolkit = here.torch_cuda, here.best_toolkit(None)
    if cuda is None and toolkit is not None:
        cuda = major_minor(toolkit.version)
    other_release = not here.torch_version.startswith(f"{build.release}.")
    other_major = cuda is None or build.cuda[0] != cuda[0]
    return (trouble == 3, asks, older, other_release, build.cuda != cuda, other_major)


def builds_for(facts: Facts, archs: Sequence[Arch]) -> list[TorchBuild]:
    """Return :func:`builds_for_all` for the driver here, where one of these GPUs is here; the one to advise first."""
    here = Toolchain(facts)
    own = {gpu.cc for gpu in here.nvidia_gpus}
    driver = None
    if any(arch.plain.cc in own for arch in archs):
        driver = release(here.driver_version) or None
    builds = [ranked.build for ranked in builds_for_all(archs, facts, driver=driver)]
    return sorted(builds, key=lambda build: preference(facts, build, archs))


def no_wheels(facts: Facts) -> str:
    """Say why PyTorch publishes no wheel at all that this machine could use; "" where it does."""
    libc = facts.machine.libc.value or ""
    if not libc.startswith("musl"):
        return ""
    return f"PyTorch publishes no wheel for {libc}; glibc is needed"


def builds_for_all(
    archs: Sequence[Arch],
    facts: Facts,
    *,
    driver: tuple[int, ...] | None = None,
    leaving_out: str = "",
    include_unknown: bool = False,
) -> list[RankedBuild]:
    """Return the builds other than the installed one that run on every one of these GPUs and have a wheel here, the best for
    the first GPU first.

    Args:
        driver: the driver that must start them; None: any.
        leaving_out: ``python`` or ``glibc``, which is then not asked.
        include_unknown: also those of which the tables do not know whether they run there.
    """
    here = Inventory(facts)
    if here.platform is None or no_wheels(facts) or not archs:
        return []
    python = None if leaving_out == "python" else here.python
    glibc = None if leaving_out == "glibc" else here.glibc
    builds_on = partial(builds_for_arch, python=python, glibc=glibc, driver=driver)
    machine = (here.platform, facts.machine.machine)
    rows = [builds_on(arch, *machine, include_unknown=include_unknown) for arch in archs]
    others = []
    for ranked in rows[0]:
        build = ranked.build
        # a build is its row of the table, so that the same one is equal for every GPU
        on_all = all(build in [item.build for item in row] for row in rows)
        installed = here.torch_version.startswith(f"{build.release}.") and here.torch_cuda == build.cuda
        if on_all and not installed:
            others.append(ranked)
    return others


def install_command(build: TorchBuild, facts: Facts) -> tuple[str, Step]:
    """Return version and exact pip command for a build in place of what is there, companions included."""
    version, command = replacing_words(build.torch, build.tag, torch_family(facts))
    return version, pip(facts, "install", *command)
