"""Makes a lane for a checkout: torch, where its compiler comes from, and what its image starts from."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.containers.image import CHECKOUT
from splatfix.context.torch_wheels import builds_for_all
from splatfix.core.errors import Rejected, SplatfixError, require
from splatfix.core.step import say
from splatfix.core.versions import dotted, release
from splatfix.knowledge import AUTO, Arch, RequestedTarget
from splatfix.knowledge.archs import arch_info, toolkit_supports
from splatfix.knowledge.images import SystemImage, system_image, toolkit_image
from splatfix.knowledge.lanes import Lane, ToolkitFrom, find_lane
from splatfix.knowledge.torch_releases import RankedBuild, TorchBuild, index_url, wheel_obstacle
from splatfix.model import Checkout, Considered, EnvironmentFacts, Facts, MachineFacts
from splatfix.model.steps import Reason
from splatfix.plan.backends.torch import as_torch, oldest_driver
from splatfix.plan.case import names_of_archs
from splatfix.plan.checkout import read_sources, stack_of
from splatfix.plan.tools import own_toolkit

_LIKE = "inria-v1"
"""The lane with the build tools, and the libraries that a stack's Python packages load."""
_WHEELS_ON = "debian12"
_ARM_ONLY = frozenset({121})
"""GB10 is the one GPU that is not a Jetson and only sits beside an Arm processor."""
_MOST_REJECTED = 8


class CheckoutLane(Struct, frozen=True):
    """A lane, all from splatfix's tables, and why it is so; ``sources`` and ``notes`` have names that the checkout chose."""

    lane: Lane
    machine: str
    """``x86_64`` or ``aarch64``: of the machine that builds and runs it."""
    sources: tuple[str, ...]
    """The folders of its extensions, relative to the checkout, with '/'; ``.`` for the checkout itself."""
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...]
    """What is not known, or left to the user, each as a sentence."""
    rejected: tuple[Considered, ...]


def lane_for(
    folder: Path,
    checkout: Checkout | None,
    targets: Sequence[RequestedTarget],
    toolkit: ToolkitFrom,
    torch: str,
) -> CheckoutLane:
    """Choose the lane for a checkout and its targets: the newest torch that has code for all of them, and an image or wheels
    with the compiler for it. Whether every extension can be built beside it, ``install`` says while the image is built.

    Args:
        folder: the checkout's, resolved.
        toolkit: ``IMAGE``: the stages that compile start from NVIDIA's image; ``PYPI``: the compiler is from PyPI wheels.
        torch: ``2.11.0``, ``2.11.0+cu130``, ``2.11``; "" for the newest that serves.

    Raises:
        SplatfixError: what ``install`` refuses of a checkout (``no-extension-of-its-own``, ``source-incomplete``...),
            ``no-cuda-source``, ``no-image-for-target``, ``no-target``, ``torch-does-not-serve``.
    """
    read = require(read_sources((str(folder),), None, checkout))
    sources = read.built_from.values()
    if not any(source.needs_cuda for source in sources):
        raise SplatfixError.of("containers.no-cuda-source", checkout=folder)
    name, description, notes = "splats", "this checkout", read.notes
    if stack := checkout and stack_of(checkout):
        name, description = stack.key, stack.name
    else:
        notes = ("splatfix does not know this stack", *notes)
    archs = tuple(item for item in targets if isinstance(item, Arch))
    # an image is built where its GPU is not, so there is no default
    if not archs or AUTO in targets:
        raise SplatfixError.of("containers.no-target")
    for arch in archs:
        info = arch_info(arch.plain)
        if info and info.tegra:
            raise SplatfixError.of("containers.no-image-for-target", sm=arch.sm, info_name=info.name)
    machine = "aarch64" if all(arch.number in _ARM_ONLY for arch in archs) else "x86_64"
    rejected: list[Considered] = []
    for ranked in _builds(torch, archs, machine):
        build = ranked.build
        title = f"torch {build.torch} {build.tag}"
        base = _base(toolkit, build, archs, machine)
        if isinstance(base, str):
            rejected.append(Considered(title, base))
            continue
        build_image, system, downloads = base
        code = "PTX that the driver compiles" if ranked.runs == "ptx" else "machine code"
        carries = f"{title}: it carries {code} for {names_of_archs(archs)}"
        if driver := oldest_driver(build, archs):
            carries += f"; the driver where it runs must be {driver} or newer"
        compiler = f"the compiler of CUDA {dotted(build.cuda)}, which this torch was built with, is from "
        compiler += "PyPI wheels: no registry but pip's is needed" if downloads else build_image
        runs = f"{system.image} to run it: torch's wheels bring the CUDA runtime, the driver's libraries come from the host"
        like = find_lane(_LIKE)
        lane = replace(
            like,
            name=name,
            description=description,
            base_image=system.image,
            build_image=build_image,
            python=".".join(map(str, system.python)),
            torch=f"torch=={build.torch}+{build.tag}",
            torch_index=index_url(build.tag),
            toolkit=toolkit,
            downloads=downloads,
            # beside its torch, or pip would take one that was built with another CUDA
            requirements=("torchvision", *like.requirements),
            targets=tuple(map(str, archs)),
            extensions=(CHECKOUT,),
            repository="",
            shown="",
            sources=(),
        )
        for source in sources:
            if not Path(source.folder).is_relative_to(folder):
                raise SplatfixError.of("containers.outside-checkout", folder=source.folder, checkout=folder)
        return CheckoutLane(
            lane,
            machine,
            sources=tuple(Path(source.folder).relative_to(folder).as_posix() for source in sources),
            reasons=(Reason(carries, build.source), Reason(compiler), Reason(runs)),
            # what the checkout is, the image says itself
            notes=tuple(note.replace(str(folder), ".") for note in notes if f"{folder} is " not in note),
            rejected=tuple(rejected[:_MOST_REJECTED]),
        )
    todo = tuple(say(f"{item.what}: {item.why}") for item in rejected[:_MOST_REJECTED])
    raise SplatfixError.of(
        "containers.torch-does-not-serve",
        torch=torch or "published",
        compiler=toolkit.value,
        names=names_of_archs(archs),
        todo=todo,
    )


def _builds(torch: str, archs: Sequence[Arch], machine: str) -> Iterable[RankedBuild]:
    """Published builds for every target, the best first; of the one release that was asked for, if one was."""
    nothing = Facts(machine=MachineFacts("linux", machine), environment=EnvironmentFacts(), splatfix="")
    asked = re.fullmatch(r"(\d+\.\d+(?:\.\d+)?)?(?:\+(\w+))?", torch)
    if asked is None:
        return
    version, tag = asked[1] or "", asked[2]
    exact = version.count(".") > 1
    for item in builds_for_all(archs, nothing):
        build = item.build
        if tag and build.tag != tag:
            continue
        if version and release(version)[:2] != release(build.release)[:2]:
            continue
        if exact and build.versions and version not in build.versions:
            continue
        yield replace(item, build=replace(build, versions=(version if exact else build.pinned,)))


def _base(
    toolkit: ToolkitFrom, build: TorchBuild, archs: Sequence[Arch], machine: str
) -> tuple[str, SystemImage, tuple[str, ...]] | str:
    """Return the image to build in, the system of both, and the wheels of the compiler.

    Else why there are none, or no wheel of this torch for the image's Python or C library.
    """
    cuda = dotted(build.cuda)
    if build.torch.endswith("*"):
        return "its newest patch release is not known here: name one with --torch"
    for arch in archs:
        if toolkit_supports(build.cuda, arch) is False:
            return f"CUDA {cuda} does not compile for {arch.sm}"
    downloads: tuple[str, ...] = ()
    if toolkit is ToolkitFrom.PYPI:
        provided = own_toolkit(as_torch(build), "linux")
        if isinstance(provided, Rejected):
            return f"PyPI has no compiler of CUDA {cuda}"
        system, downloads = system_image(_WHEELS_ON), provided.requirements
        image = system.image
    else:
        found = toolkit_image(build.cuda)
        if found is None:
            return f"no image with the compiler of CUDA {cuda} is known"
        image, system = found.image, found.system
    if obstacle := wheel_obstacle(build, "linux", python=system.python, glibc=system.glibc):
        return obstacle
    return image, system, downloads
