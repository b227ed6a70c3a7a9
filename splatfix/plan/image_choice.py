"""Chooses what an image for a checkout is made from: the facts of the image to be, handed to the planner of ``install``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from splatfix.context import Goal, Rejected, make_context
from splatfix.context.torch_wheels import builds_for_all
from splatfix.core.errors import Problem, usage_problem
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.core.visible import visible
from splatfix.facts import (
    Checkout,
    Compiler,
    Distribution,
    EnvironmentFacts,
    Fact,
    Facts,
    Interpreter,
    MachineFacts,
    Resources,
    Source,
    Toolkit,
)
from splatfix.knowledge import AUTO, Arch, Auto, drivers
from splatfix.knowledge.archs import arch_info, toolkit_supports
from splatfix.knowledge.drivers import driver_words
from splatfix.knowledge.images import SystemImage, libraries_for, system_image, toolkit_image
from splatfix.knowledge.toolkits import Recipe
from splatfix.knowledge.torch_releases import COMPANIONS, RankedBuild, TorchBuild, index_url, wheel_obstacle
from splatfix.plan.checkout import sources_in, stack_in
from splatfix.plan.image import ImagePlan, ImageRequest, ImageSource
from splatfix.plan.install_plan import plan_install
from splatfix.plan.option import InstallPlan, Request
from splatfix.plan.provided import KEPT_IN_STEP, toolkit_recipe, toolkit_to_be
from splatfix.plan.steps import BuildWheel, InstallDependencies, Reason
from splatfix.plan.torch import as_torch, cuda_words

STACK = "/opt/stack"
"""The environment with torch and the extensions."""
TOOLKIT = "/opt/cuda"
"""What the toolkit's wheels are unpacked into."""
BUILD_TOOLS = {"ninja": "1.13.0", "setuptools": "80.9.0", "wheel": "0.45.1"}
"""Versions that are installed before anything is built. setuptools 80 is the last with pkg_resources, which older setup.py
files import."""
_WHEELS_ON = "debian12"
# GB10 is the one GPU that is not a Jetson and only sits beside an Arm processor.
_ARM_ONLY = frozenset({121})
# What a name may be made of to stand in an instruction of a Dockerfile: nothing that a shell, Docker's own variables, its
# patterns or its parser read as something else.
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)*")
_REMOTE = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9._/~-]+")
_MOST_REJECTED = 8


@dataclass(frozen=True)
class _Base:
    """What the stages start from, and where the compiler comes from."""

    build_image: str
    system: SystemImage
    toolkit: Toolkit
    wheels: Recipe | None = None


def plan_image(asked: ImageRequest, checkout: Fact[Checkout]) -> ImagePlan | Problem:
    """The image for a checkout and its targets: the newest torch that has code for all of them, for which there is an image or
    wheels with the compiler, and beside which ``install`` has a plan for every extension.

    Refused: what ``install`` refuses of a checkout (``no-extension-of-its-own``, ``source-incomplete``...), ``no-cuda-source``,
    ``name-unfit-for-dockerfile``, ``no-image-for-target``, ``no-target``, ``torch-does-not-serve``.
    """
    read = sources_in((asked.checkout,), None, checkout.value)
    if isinstance(read, Problem):
        return read
    sources, _ = read
    if not any(source.needs_cuda for source in sources):
        return Problem(
            "no-cuda-source",
            f"{asked.checkout} has nothing with CUDA code to build.",
            meaning="An image for a GPU architecture is for that.",
            todo=(say("Any image with Python and torch will do: pip install it there."),),
        )
    if problem := _unfit_names(Path(asked.checkout), [source.folder for source in sources]):
        return problem
    archs = _archs(asked.targets)
    if isinstance(archs, Problem):
        return archs
    machine = "aarch64" if all(arch.number in _ARM_ONLY for arch in archs) else "x86_64"
    rejected: list[Rejected] = []
    stopped: Problem | None = None
    for ranked in _builds(asked, archs, machine):
        build = ranked.build
        name = f"torch {build.torch} {build.tag}"
        base = _base(asked, build, archs)
        if isinstance(base, str):
            rejected.append(Rejected(name, base))
            continue
        if obstacle := wheel_obstacle(
            build, "linux", machine, python=base.system.python, glibc=base.system.glibc
        ):
            rejected.append(Rejected(name, obstacle))
            continue
        facts = _facts_inside(base, build, machine, checkout)
        request = Request(sources=(asked.checkout,), targets=archs, jobs=asked.jobs, with_dependencies=True)
        plan = plan_install(request, make_context(facts, Goal(archs)))
        if isinstance(plan, Problem):
            stopped = stopped or plan
            rejected.append(Rejected(name, plan.what))
            continue
        if problem := _unfit_names(Path(asked.checkout), _copied(plan)):
            return problem
        made = _image(asked, checkout.value, sources, plan, base, ranked, archs, machine)
        return replace(made, rejected=tuple(rejected[:_MOST_REJECTED]))
    return stopped or _no_build(asked, archs, rejected)


def _archs(targets: Sequence[Arch | Auto]) -> tuple[Arch, ...] | Problem:
    """What the image is for; an image is built where its GPU is not, so there is no default."""
    archs = tuple(item for item in targets if isinstance(item, Arch))
    if not archs or AUTO in targets:
        return usage_problem(
            "no-target",
            "An image is built where its GPU is not, so the GPU must be named.",
            say("Name it with --target, such as --target sm_120; several with one --target each."),
        )
    for arch in archs:
        info = arch_info(arch.plain)
        if info and info.tegra:
            return Problem(
                "no-image-for-target",
                f"{arch.sm} is a Jetson ({info.name}), whose torch is not PyTorch's own.",
                meaning="Its images come with NVIDIA's JetPack (nvcr.io/nvidia/l4t-*), of which splatfix knows none.",
                todo=(say("Start from such an image and run splatfix install in it, on the Jetson."),),
            )
    return archs


def _builds(asked: ImageRequest, archs: Sequence[Arch], machine: str) -> Iterable[RankedBuild]:
    """Published builds for every target, the best first; of the one release that was asked for, if one was."""
    nothing = Facts(machine=MachineFacts("linux", machine), environment=EnvironmentFacts(), splatfix="")
    wanted, _, tag = asked.torch.partition("+")
    for item in builds_for_all(archs, nothing):
        if tag and item.build.tag != tag:
            continue
        if wanted and release(wanted)[:2] != release(item.build.release)[:2]:
            continue
        exact = wanted.count(".") > 1
        if exact and item.build.versions and wanted not in item.build.versions:
            continue
        yield replace(item, build=replace(item.build, versions=(wanted,))) if exact else item


def _no_build(asked: ImageRequest, archs: Sequence[Arch], rejected: Sequence[Rejected]) -> Problem:
    words = ", ".join(arch.sm for arch in archs)
    how = " with a compiler from PyPI wheels" if asked.toolkit == "wheels" else ""
    reasons = tuple(say(f"{item.what}: {item.why}") for item in rejected[:_MOST_REJECTED])
    what = f"torch {asked.torch} does not serve" if asked.torch else "No published torch serves"
    return Problem(
        "torch-does-not-serve",
        f"{what} {words}{how}.",
        meaning="Looked at, with what stands against each:" if reasons else "",
        todo=(
            *reasons,
            *((say("Leave --torch out to have one chosen."),) if asked.torch else ()),
            *(
                (
                    say(
                        "Without --toolkit wheels the compiler comes from NVIDIA's image, for CUDA 11.8 and newer."
                    ),
                )
                if asked.toolkit == "wheels"
                else ()
            ),
            *((say("Or write one Dockerfile for each target."),) if len(archs) > 1 else ()),
        ),
    )


def _base(asked: ImageRequest, build: TorchBuild, archs: Sequence[Arch]) -> _Base | str:
    """Images and compiler for a build; else why there are none."""
    words = ".".join(map(str, build.cuda))
    for arch in archs:
        if toolkit_supports(build.cuda, arch) is False:
            return f"CUDA {words} does not compile for {arch.sm}"
    if asked.toolkit == "wheels":
        recipe = toolkit_recipe(as_torch(build))
        if recipe is None:
            return f"PyPI has no compiler of CUDA {words}"
        system = system_image(_WHEELS_ON)
        root = f"{TOOLKIT}/{recipe.cuda_home}"
        found = toolkit_to_be(words, root, ("CUDA_HOME",), f"{root}/bin/nvcc")
        return _Base(system.image, system, found, recipe)
    known = toolkit_image(build.cuda)
    if known is None:
        return f"no image with the compiler of CUDA {words} is known"
    root = "/usr/local/cuda"
    return _Base(known.image, known.system, toolkit_to_be(words, root, ("CUDA_HOME",), f"{root}/bin/nvcc"))


def _facts_inside(base: _Base, build: TorchBuild, machine: str, checkout: Fact[Checkout]) -> Facts:
    """What the probes would find in the builder stage before the extensions are built."""
    python, glibc = (".".join(map(str, pair)) for pair in (base.system.python, base.system.glibc))
    site = f"{STACK}/lib/python{python}/site-packages"
    via = "the Dockerfile"
    torch = as_torch(build)
    distributions = {"pip": "25.0", "torch": torch.version, "torchvision": "0", **BUILD_TOOLS}
    return Facts(
        machine=MachineFacts(
            system="linux",
            machine=machine,
            distribution=base.system.name,
            glibc=glibc,
            libc=Fact(f"glibc {glibc}", via),
            gpus=Fact((), via),
            toolkits=Fact((base.toolkit,), via),
            compilers=Fact(
                tuple(
                    Compiler(kind, f"/usr/bin/{kind}", base.system.gcc, ("PATH",)) for kind in ("gcc", "g++")
                ),
                via,
            ),
            resources=Resources(cores=1),
            variables={},
        ),
        environment=EnvironmentFacts(
            interpreter=Fact(
                Interpreter(
                    executable=f"{STACK}/bin/python",
                    version=f"{python}.0",
                    implementation="CPython",
                    abi_tag=f"cpython-{python.replace('.', '')}-{machine}-linux-gnu",
                    platform_tag=f"linux-{machine}",
                    prefix=STACK,
                    base_prefix="/usr",
                    kind="venv",
                    site_packages=(site,),
                ),
                via,
            ),
            torch=Fact(torch, via),
            torch_installed=Fact(True, via),
            distributions=Fact(
                tuple(Distribution(name, text, site) for name, text in distributions.items()), via
            ),
            modules=Fact(
                ("ninja", "pip", "pkg_resources", "setuptools", "torch", "torchvision", "wheel"), via
            ),
        ),
        splatfix="",
        checkout=checkout,
    )


def _image(
    asked: ImageRequest,
    checkout: Checkout | None,
    sources: Sequence[Source],
    plan: InstallPlan,
    base: _Base,
    ranked: RankedBuild,
    archs: Sequence[Arch],
    machine: str,
) -> ImagePlan:
    folder, build = Path(asked.checkout), ranked.build
    seen = stack_in(folder, checkout)
    builds = [step for step in plan.steps if isinstance(step, BuildWheel)]
    wanted = next((step.requirements for step in plan.steps if isinstance(step, InstallDependencies)), ())
    requirements = [text for text in wanted if canonicalize_name(text) not in ("torch", *COMPANIONS)]
    good = tuple(text for text in requirements if _is_requirement(text))
    odd = [text for text in requirements if text not in good]
    arch_lists = (step.variables.get("TORCH_CUDA_ARCH_LIST", "") for step in builds)
    arch_list = next(filter(None, arch_lists), ";".join(arch.cc for arch in archs))
    copies = [_relative(place, folder) for place in _copied(plan)]
    first = _relative(builds[0].source, folder)
    name = seen.stack.name if seen else "this checkout"
    made_by = {source.folder: source for source in sources}
    driver = _driver(build, archs)
    minor = ".".join(map(str, base.system.python))
    notes = [
        *(f"{text!r} is no requirement that pip takes, and was left out" for text in odd),
        *(note.replace(str(folder), ".") for note in plan.notes if not note.startswith(f"{folder} is ")),
    ]
    if seen is None:
        notes.insert(0, "splatfix does not know this stack: what is here was read from its sources alone")
    return ImagePlan(
        stack=seen.stack.key if seen else "",
        name=name,
        targets=tuple(archs),
        torch=build.torch,
        torch_tag=build.tag,
        torch_index=index_url(build.tag),
        cuda=cuda_words(build),
        python=minor,
        toolkit=asked.toolkit,
        build_image=base.build_image,
        run_image=base.system.image,
        machine=machine,
        driver=driver,
        arch_list=arch_list,
        sources=tuple(
            ImageSource(
                made_by[step.source].label,
                _relative(step.source, folder),
                tuple(f"{edit.rule}: {edit.cures}" for edit in step.edits),
            )
            for step in builds
        ),
        copies=("." in copies and (".",)) or tuple(dict.fromkeys(copies)),
        marker=str(PurePosixPath(first) / made_by[builds[0].source].build_files[0]),
        build_tools=tuple(f"{name}=={version}" for name, version in BUILD_TOOLS.items()),
        requirements=good,
        toolkit_requirements=_toolkit_requirements(base, build),
        toolkit_links=tuple((fix.path, fix.links_to) for fix in base.wheels.fixes if fix.path)
        if base.wheels
        else (),
        toolkit_folder=base.wheels.cuda_home if base.wheels else "",
        run_packages=libraries_for(good),
        jobs=asked.jobs,
        revision=_revision(checkout),
        remote=checkout.remote if checkout and _REMOTE.fullmatch(checkout.remote) else "",
        reasons=tuple(_reasons(ranked, archs, base, arch_list, driver)),
        notes=tuple(visible(note) for note in notes),
    )


def _toolkit_requirements(base: _Base, build: TorchBuild) -> tuple[str, ...]:
    if base.wheels is None:
        return ()
    return (base.wheels.requirement, *(f"{name}=={cuda_words(build)}.*" for name in KEPT_IN_STEP))


def _reasons(
    ranked: RankedBuild, archs: Sequence[Arch], base: _Base, arch_list: str, driver: str
) -> Iterable[Reason]:
    build, words = ranked.build, ", ".join(arch.sm for arch in archs)
    how = "PTX that the driver compiles" if ranked.runs == "ptx" else "machine code"
    under = f"; the driver where it runs must be {driver} or newer" if driver else ""
    yield Reason(f"torch {build.torch} {build.tag}: it carries {how} for {words}{under}", build.source)
    if base.wheels:
        yield Reason(
            f"CUDA {base.toolkit.version} from PyPI wheels: no image of NVIDIA's and no registry but pip's is needed",
            base.wheels.source,
        )
    else:
        yield Reason(f"{base.build_image}: the compiler of the CUDA release that this torch was built with")
    yield Reason(f"TORCH_CUDA_ARCH_LIST={arch_list}: where it is built, no GPU can be asked")
    yield Reason(
        f"{base.system.image} to run it: torch's wheels bring the CUDA runtime, the driver's libraries come from the host"
    )


def _driver(build: TorchBuild, archs: Sequence[Arch]) -> str:
    floors = [known.version for arch in archs if (known := drivers.gpu_driver_floor(arch))]
    runtime = drivers.runtime_floor(build.cuda, "linux")
    return driver_words(max([*floors, *([runtime] if runtime else [])])) if floors or runtime else ""


def _revision(checkout: Checkout | None) -> str:
    commit = (checkout.commit if checkout else None) or ""
    return commit if re.fullmatch("[0-9a-f]{7,64}", commit) else ""


def _relative(place: str, folder: Path) -> str:
    return Path(place).relative_to(folder).as_posix()


def _is_requirement(text: str) -> bool:
    """A plain name, with versions if any: no address, no marker, nothing that a shell reads."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return False
    return not (found.url or found.marker) and re.fullmatch(r"[A-Za-z0-9._\[\],<>=!~* -]+", text) is not None


def _copied(plan: InstallPlan) -> list[str]:
    """The folders that its builds need."""
    return [step.repository or step.source for step in plan.steps if isinstance(step, BuildWheel)]


def _unfit_names(folder: Path, places: Iterable[str]) -> Problem | None:
    """A checkout decides what its folders are called; what Docker or a shell would read in such a name is refused."""
    for place in map(Path, places):
        if not place.is_relative_to(folder):
            return Problem(
                "name-unfit-for-dockerfile",
                f"{place} lies outside of the checkout {folder}, and Docker takes nothing from outside of it.",
                todo=(say("Replace the link by what it points to."),),
            )
        path = place.relative_to(folder).as_posix()
        if path != "." and not _PATH.fullmatch(path):
            return Problem(
                "name-unfit-for-dockerfile",
                f"The folder {path!r} has a name that cannot stand in a Dockerfile.",
                meaning="Docker and the shell read blanks, quotes, $ and the like as something else.",
                todo=(say("Rename it: letters, digits and . _ + @ - are good."),),
            )
    return None
