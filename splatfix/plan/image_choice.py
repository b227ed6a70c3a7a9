"""Chooses what an image for a checkout is made from: the facts of the image to be, handed to the planner of ``install``."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from splatfix.context import Goal, Rejected, make_context
from splatfix.context.torch_wheels import builds_for_all
from splatfix.core.data import dataclass, replace
from splatfix.core.errors import SplatfixError
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
from splatfix.knowledge import AUTO, Arch, Auto
from splatfix.knowledge.archs import arch_info, toolkit_supports
from splatfix.knowledge.images import SystemImage, libraries_for, system_image, toolkit_image
from splatfix.knowledge.toolkits import WheelToolkit
from splatfix.knowledge.torch_releases import COMPANIONS, RankedBuild, TorchBuild, index_url, wheel_obstacle
from splatfix.plan.assessment import names_of_archs
from splatfix.plan.backends.torch import as_torch, cuda_of, oldest_driver
from splatfix.plan.checkout import sources_in, stack_in
from splatfix.plan.image import ImagePlan, ImageRequest, ImageSource
from splatfix.plan.option import InstallPlan, NotApplicable, Request
from splatfix.plan.options import plan_install
from splatfix.plan.steps import BuildWheel, InstallDependencies, Reason
from splatfix.plan.tools import KEPT_IN_STEP, toolkit_recipe, toolkit_to_be, wheels_links

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
    wheels: WheelToolkit | None = None


def plan_image(request: ImageRequest, checkout: Fact[Checkout]) -> ImagePlan:
    """The image for a checkout and its targets: the newest torch that has code for all of them, for which there is an image or
    wheels with the compiler, and beside which ``install`` has a plan for every extension.

    Raises:
        SplatfixError: what ``install`` refuses of a checkout (``no-extension-of-its-own``, ``source-incomplete``...),
            ``no-cuda-source``, ``name-unfit-for-dockerfile``, ``no-image-for-target``, ``no-target``,
            ``torch-does-not-serve``.
    """
    sources, _ = sources_in((request.checkout,), None, checkout.value)
    if not any(source.needs_cuda for source in sources):
        raise SplatfixError.of("plan.no-cuda-source", checkout=request.checkout)
    _require_fit_names(Path(request.checkout), [source.folder for source in sources])
    archs = _archs(request.targets)
    machine = "x86_64"
    if all(arch.number in _ARM_ONLY for arch in archs):
        machine = "aarch64"
    install = Request(sources=(request.checkout,), targets=archs, jobs=request.jobs, with_dependencies=True)
    rejected: list[Rejected] = []
    stopped: SplatfixError | None = None
    for ranked in _builds(request, archs, machine):
        name = f"torch {ranked.build.torch} {ranked.build.tag}"
        try:
            base = _base(request, ranked.build, archs, machine)
        except NotApplicable as obstacle:
            rejected.append(Rejected(name, str(obstacle)))
            continue
        try:
            context = make_context(_facts_inside(base, ranked.build, machine, checkout), Goal(archs))
            plan = plan_install(install, context)
        except SplatfixError as error:
            # of several builds that install has no plan for, the best one's reason is the one to tell
            stopped = stopped or error
            rejected.append(Rejected(name, error.what))
            continue
        _require_fit_names(Path(request.checkout), _copied(plan))
        image = _image(request, checkout.value, sources, plan, base, ranked, archs, machine)
        return replace(image, rejected=tuple(rejected[:_MOST_REJECTED]))
    raise stopped or _no_build(request, archs, rejected)


def _archs(targets: Sequence[Arch | Auto]) -> tuple[Arch, ...]:
    """What the image is for; an image is built where its GPU is not, so there is no default."""
    archs = tuple(item for item in targets if isinstance(item, Arch))
    if not archs or AUTO in targets:
        raise SplatfixError.of("plan.no-target")
    for arch in archs:
        info = arch_info(arch.plain)
        if info and info.tegra:
            raise SplatfixError.of("plan.no-image-for-target", sm=arch.sm, info_name=info.name)
    return archs


def _builds(request: ImageRequest, archs: Sequence[Arch], machine: str) -> Iterable[RankedBuild]:
    """Published builds for every target, the best first; of the one release that was asked for, if one was."""
    nothing = Facts(machine=MachineFacts("linux", machine), environment=EnvironmentFacts(), splatfix="")
    version, _, tag = request.torch.partition("+")
    exact = version.count(".") > 1
    for item in builds_for_all(archs, nothing):
        build = item.build
        if tag and build.tag != tag:
            continue
        if version and release(version)[:2] != release(build.release)[:2]:
            continue
        if exact and build.versions and version not in build.versions:
            continue
        pinned = version if exact else build.pinned
        yield replace(item, build=replace(build, versions=(pinned,)))


def _no_build(request: ImageRequest, archs: Sequence[Arch], rejected: Sequence[Rejected]) -> SplatfixError:
    from_wheels = request.toolkit == "wheels"
    names = names_of_archs(archs)
    if from_wheels:
        names += " with a compiler from PyPI wheels"
    todo = [say(f"{item.what}: {item.why}") for item in rejected[:_MOST_REJECTED]]
    meaning, subject = "", "No published torch serves"
    if todo:
        meaning = "Looked at, with what stands against each:"
    if request.torch:
        subject = f"torch {request.torch} does not serve"
        todo.append(say("Leave --torch out to have one chosen."))
    if from_wheels:
        text = "Without --toolkit wheels the compiler comes from NVIDIA's image, for CUDA 11.8 and newer."
        todo.append(say(text))
    if len(archs) > 1:
        todo.append(say("Or write one Dockerfile for each target."))
    return SplatfixError("torch-does-not-serve", f"{subject} {names}.", meaning=meaning, todo=tuple(todo))


def _base(request: ImageRequest, build: TorchBuild, archs: Sequence[Arch], machine: str) -> _Base:
    """Images and compiler for a build.

    Raises:
        NotApplicable: why there are none, or no wheel of this torch for the image's Python or C library.
    """
    cuda = cuda_of(build)
    for arch in archs:
        if toolkit_supports(build.cuda, arch) is False:
            raise NotApplicable(f"CUDA {cuda} does not compile for {arch.sm}")
    root, wheels = "/usr/local/cuda", None
    if request.toolkit == "wheels":
        wheels = toolkit_recipe(as_torch(build))
        if wheels is None:
            raise NotApplicable(f"PyPI has no compiler of CUDA {cuda}")
        system = system_image(_WHEELS_ON)
        build_image, root = system.image, f"{TOOLKIT}/{wheels.cuda_home}"
    else:
        image = toolkit_image(build.cuda)
        if image is None:
            raise NotApplicable(f"no image with the compiler of CUDA {cuda} is known")
        build_image, system = image.image, image.system
    obstacle = wheel_obstacle(build, "linux", machine, python=system.python, glibc=system.glibc)
    if obstacle:
        raise NotApplicable(obstacle)
    return _Base(build_image, system, toolkit_to_be(cuda, root, ("CUDA_HOME",), f"{root}/bin/nvcc"), wheels)


def _facts_inside(base: _Base, build: TorchBuild, machine: str, checkout: Fact[Checkout]) -> Facts:
    """What the probes would find in the builder stage before the extensions are built."""
    python, glibc = (".".join(map(str, pair)) for pair in (base.system.python, base.system.glibc))
    site = f"{STACK}/lib/python{python}/site-packages"
    via = "the Dockerfile"
    torch = as_torch(build)
    versions = {"pip": "25.0", "torch": torch.version, "torchvision": "0", **BUILD_TOOLS}
    distributions = tuple(Distribution(name, version, site) for name, version in versions.items())
    gcc = base.system.gcc
    compilers = tuple(Compiler(kind, f"/usr/bin/{kind}", gcc, ("PATH",)) for kind in ("gcc", "g++"))
    return Facts(
        machine=MachineFacts(
            system="linux",
            machine=machine,
            distribution=base.system.name,
            glibc=glibc,
            libc=Fact(f"glibc {glibc}", via),
            gpus=Fact((), via),
            toolkits=Fact((base.toolkit,), via),
            compilers=Fact(compilers, via),
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
            distributions=Fact(distributions, via),
            modules=Fact(
                ("ninja", "pip", "pkg_resources", "setuptools", "torch", "torchvision", "wheel"), via
            ),
        ),
        splatfix="",
        checkout=checkout,
    )


def _image(
    request: ImageRequest,
    checkout: Checkout | None,
    sources: Sequence[Source],
    plan: InstallPlan,
    base: _Base,
    ranked: RankedBuild,
    archs: Sequence[Arch],
    machine: str,
) -> ImagePlan:
    folder, build = Path(request.checkout), ranked.build
    recognition = stack_in(folder, checkout)
    stack, name = "", "this checkout"
    if recognition:
        stack, name = recognition.stack.key, recognition.stack.name
    builds = [step for step in plan.steps if isinstance(step, BuildWheel)]
    sources_by_folder = {source.folder: source for source in sources}
    first = builds[0]
    build_file = sources_by_folder[first.source].build_files[0]
    requirements, unfit = _requirements(plan)
    arch_list = _arch_list(builds, archs)
    driver = oldest_driver(build, archs)
    wheels = base.wheels
    toolkit_requirements: tuple[str, ...] = ()
    toolkit_links: tuple[tuple[str, str], ...] = ()
    toolkit_folder = ""
    if wheels:
        in_step = (f"{package}=={cuda_of(build)}.*" for package in KEPT_IN_STEP)
        toolkit_requirements = (wheels.requirement, *in_step)
        toolkit_links, toolkit_folder = wheels_links(wheels), wheels.cuda_home
    copies = tuple(dict.fromkeys(_relative(path, folder) for path in _copied(plan)))
    if "." in copies:
        copies = (".",)
    image_sources = []
    for step in builds:
        edits = tuple(f"{edit.rule}: {edit.cures}" for edit in step.edits)
        label = sources_by_folder[step.source].label
        image_sources.append(ImageSource(label, _relative(step.source, folder), edits))
    return ImagePlan(
        stack=stack,
        name=name,
        targets=tuple(archs),
        torch=build.torch,
        torch_tag=build.tag,
        torch_index=index_url(build.tag),
        cuda=cuda_of(build),
        python=".".join(map(str, base.system.python)),
        toolkit=request.toolkit,
        build_image=base.build_image,
        run_image=base.system.image,
        machine=machine,
        driver=driver,
        arch_list=arch_list,
        sources=tuple(image_sources),
        copies=copies,
        marker=str(PurePosixPath(_relative(first.source, folder)) / build_file),
        build_tools=tuple(f"{name}=={version}" for name, version in BUILD_TOOLS.items()),
        requirements=requirements,
        toolkit_requirements=toolkit_requirements,
        toolkit_links=toolkit_links,
        toolkit_folder=toolkit_folder,
        run_packages=libraries_for(requirements),
        jobs=request.jobs,
        revision=_revision(checkout),
        remote=_remote(checkout),
        reasons=tuple(_reasons(ranked, archs, base, arch_list, driver)),
        notes=_notes(plan, folder, unfit, is_known=recognition is not None),
    )


def _requirements(plan: InstallPlan) -> tuple[tuple[str, ...], list[str]]:
    fit: list[str] = []
    unfit: list[str] = []
    for step in plan.steps:
        if not isinstance(step, InstallDependencies):
            continue
        for text in step.requirements:
            if canonicalize_name(text) in ("torch", *COMPANIONS):
                continue
            if _is_requirement(text):
                fit.append(text)
            else:
                unfit.append(text)
    return tuple(fit), unfit


def _arch_list(builds: Sequence[BuildWheel], archs: Sequence[Arch]) -> str:
    for step in builds:
        if arch_list := step.variables.get("TORCH_CUDA_ARCH_LIST"):
            return arch_list
    return ";".join(arch.cc for arch in archs)


def _notes(plan: InstallPlan, folder: Path, unfit: Sequence[str], *, is_known: bool) -> tuple[str, ...]:
    notes = []
    if not is_known:
        notes.append("splatfix does not know this stack: what is here was read from its sources alone")
    notes += [f"{text!r} is no requirement that pip takes, and was left out" for text in unfit]
    for note in plan.notes:
        # what the checkout is, the image says itself
        if not note.startswith(f"{folder} is "):
            notes.append(note.replace(str(folder), "."))
    return tuple(visible(note) for note in notes)


def _reasons(
    ranked: RankedBuild, archs: Sequence[Arch], base: _Base, arch_list: str, driver: str
) -> Iterable[Reason]:
    build = ranked.build
    code = "machine code"
    if ranked.runs == "ptx":
        code = "PTX that the driver compiles"
    carries = f"torch {build.torch} {build.tag}: it carries {code} for {names_of_archs(archs)}"
    if driver:
        carries += f"; the driver where it runs must be {driver} or newer"
    yield Reason(carries, build.source)
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


# What a stranger's repository says of itself stands in the Dockerfile only where it is spelt as it should be.


def _revision(checkout: Checkout | None) -> str:
    if checkout is None or not checkout.commit or not re.fullmatch("[0-9a-f]{7,64}", checkout.commit):
        return ""
    return checkout.commit


def _remote(checkout: Checkout | None) -> str:
    if checkout is None or not _REMOTE.fullmatch(checkout.remote):
        return ""
    return checkout.remote


def _is_requirement(text: str) -> bool:
    """A plain name, with versions if any: no address, no marker, nothing that a shell reads."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return False
    if requirement.url or requirement.marker:
        return False
    return re.fullmatch(r"[A-Za-z0-9._\[\],<>=!~* -]+", text) is not None


def _copied(plan: InstallPlan) -> list[str]:
    """The folders that its builds need."""
    return [step.repository or step.source for step in plan.steps if isinstance(step, BuildWheel)]


def _relative(path: str, folder: Path) -> str:
    return Path(path).relative_to(folder).as_posix()


def _require_fit_names(checkout: Path, folders: Iterable[str]) -> None:
    """A checkout decides what its folders are called; what Docker or a shell would read in such a name is refused.

    Raises:
        SplatfixError: ``name-unfit-for-dockerfile``.
    """
    for folder in map(Path, folders):
        if not folder.is_relative_to(checkout):
            raise SplatfixError.of("plan.outside-checkout", folder=folder, checkout=checkout)
        path = folder.relative_to(checkout).as_posix()
        if path != "." and not _PATH.fullmatch(path):
            raise SplatfixError.of("plan.unfit-folder-name", path=path)
