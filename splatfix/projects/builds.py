"""Whether each extension of a file is compiled against the torch that it will run with, and for the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from splatfix.checks.model import Finding, Status
from splatfix.context.architectures import TORCH_VARIABLE, choose_archs
from splatfix.context.requirements import name_of
from splatfix.context.toolkits import build_arch
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, run, say
from splatfix.core.versions import release
from splatfix.facts.project.model import Dependency, Manager
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.imports import repository_of
from splatfix.projects.model import BuildRepair
from splatfix.projects.resolution import Resolved
from splatfix.projects.subject import Subject

# What is compiled against torch wherever its source comes from; forks begin with the same name. gsplat has wheels without code.
_OWN_BUILDS = tuple(sorted({canonicalize_name(item.distribution) for item in DROPINS} - {"gsplat"}))
# Repositories that are not called as their package.
_REPOSITORIES = re.compile(r"/(gsplat|tiny-cuda-nn)[\w-]*(\.git)?([@#/]|$)")
# Their setup.py names no version.
_UNVERSIONED = ("diff-gaussian-rasterization", "simple-knn", "fused-ssim")
# Before, pip ran a setup.py without a pyproject.toml beside the installed torch.
_PIP_ISOLATES_ALL = (25, 3)


def compiled(subject: Subject) -> tuple[Dependency, ...]:
    """The dependencies that are compiled against torch, each once."""
    return tuple({item.name: item for item in subject.dependencies if _compiles(subject, item)}.values())


def _compiles(subject: Subject, item: Dependency) -> bool:
    """It is built from a source that asks for torch: by that source, where it is here, else by its name."""
    source = subject.source(item)
    if source is not None:
        return source.uses_torch_builder or source.needs_cuda
    if not item.address or item.address.partition("#")[0].endswith((".whl", ".tar.gz")):
        return False
    known = item.name.startswith(_OWN_BUILDS) or repository_of(item.name.replace("-", "_")) is not None
    return known or _REPOSITORIES.search(item.address) is not None


def build_findings(subject: Subject, resolved: Resolved) -> Iterator[Finding]:
    """What is found of each extension, and of the toolkit for all."""
    items = compiled(subject)
    for item in items:
        yield from _isolation(subject, item, resolved)
        if subject.manifest.manager is Manager.UV:
            yield from _metadata(subject, item)
            yield from _arch_list(subject, item, resolved)
    if not items or not resolved.tag.startswith("cu"):
        return
    context = subject.context_of(resolved)
    problem = context.toolkit.problem
    if problem and any(target.here for target in context.targets):
        yield subject.finding(problem.code, Status.FAIL, problem.what, items[0].name, *problem.todo)


def _isolation(subject: Subject, item: Dependency, resolved: Resolved) -> Iterator[Finding]:
    """pip, uv and Poetry build each source beside its own build requirements, where no torch is, or another one."""
    settings, source, manifest = subject.settings(item), subject.source(item), subject.manifest
    if not settings.isolated or settings.match_runtime:
        return
    old_pip = manifest.pip and release(manifest.pip) < _PIP_ISOLATES_ALL
    if old_pip and not (source and "pyproject.toml" in source.build_files):
        return
    summary = f"{item.name} is built in isolation: \"No module named 'torch'\"."
    has_torch = settings.torch or (source and any(name_of(text) == "torch" for text in source.build_requires))
    if has_torch:
        summary = (
            f"{item.name} is built in isolation, against another torch than the one that it will run with."
        )
    yield subject.finding(
        "built-in-isolation", Status.FAIL, summary, item.name, *_without_isolation(subject, item)
    )


def _without_isolation(subject: Subject, item: Dependency) -> Iterator[Step]:
    """What to do where no edit of the file can say it."""
    file = subject.manifest.file
    match subject.manifest.manager:
        case Manager.PIP if file.endswith(".txt"):
            yield say("No line of a requirements file turns isolation off: install torch first, then")
            yield run("pip", "install", "--no-build-isolation", "-r", file)
        case Manager.CONDA | Manager.POETRY:
            yield say(f"Take it out of {file}, and once the environment is made")
            yield run("splatfix", "install", item.folder or item.name)
        case Manager.PIXI:
            option = f'pypi-options.no-build-isolation = ["{item.name}"]'
            yield say(f"Write {option} into {file}, and take torch from conda.")


def _metadata(subject: Subject, item: Dependency) -> Iterator[Finding]:
    """uv matches the torch of a build to the project's only where it need not build to learn the dependencies."""
    settings = subject.settings(item)
    if settings.match_runtime and not settings.metadata and not _is_static(subject, item):
        summary = (
            f"{item.name} has no static metadata: uv cannot match the torch of its build to the project's."
        )
        yield subject.finding("metadata-not-static", Status.FAIL, summary, item.name)


def _is_static(subject: Subject, item: Dependency) -> bool:
    """Its pyproject.toml says its version itself; what is not here is taken to have a setup.py."""
    source = subject.source(item)
    return source is not None and "setup.py" not in source.build_files and source.version is not None


def _arch_list(subject: Subject, item: Dependency, resolved: Resolved) -> Iterator[Finding]:
    """Without a list torch compiles for the GPUs that it sees while uv builds, and uv keeps that wheel."""
    variables = subject.settings(item).variables
    lacking = _lacking_variables(subject, item, resolved)
    given = [variables[name] for name in lacking if name in variables]
    missed = [arch.cc for arch in subject.archs if given and not any(arch.cc in text for text in given)]
    if missed:
        summary = f"{item.name} is compiled for {', '.join(given)}, and not for {', '.join(missed)}."
        yield subject.finding("arch-list-misses-gpu", Status.FAIL, summary, item.name)
    elif lacking and not given:
        pairs = ", ".join(f"{name}={value}" for name, value in lacking.items())
        summary = f"{item.name} is compiled for whatever GPU its build sees; {pairs} would say it."
        yield subject.finding("arch-list-missing", Status.WARN, summary, item.name)


def _lacking_variables(subject: Subject, item: Dependency, resolved: Resolved) -> dict[str, str]:
    """What its build must be given to serve the targets, as ``splatfix install`` chooses it, and is not."""
    torch, source = subject.context_of(resolved).torch, subject.source(item)
    if torch is None or not torch.cuda:
        return {}
    archs = tuple(dict.fromkeys(build_arch(arch, torch) or arch for arch in subject.archs))
    wanted = {TORCH_VARIABLE: ";".join(arch.cc for arch in archs)}
    if source is not None:
        choice = choose_archs(source, archs, torch.version)
        if isinstance(choice, SplatfixError):
            return {}
        wanted = {**choice.variables, **source.switches.on}
    variables = subject.settings(item).variables
    return {name: value for name, value in wanted.items() if variables.get(name) != value}


def build_repairs(subject: Subject, resolved: Resolved) -> dict[str, BuildRepair]:
    """What uv must be told of each extension, by name."""
    repairs = {}
    for item in compiled(subject):
        settings, source = subject.settings(item), subject.source(item)
        version = ""
        if settings.isolated and not settings.metadata and not _is_static(subject, item):
            version = _version_of(subject, item)
            if not version:
                continue  # with a wrong one uv installs it anew at every sync (seen with uv 0.13.9)
        match_runtime = settings.isolated and not settings.match_runtime
        variables = _lacking_variables(subject, item, resolved)
        if match_runtime or variables or version:
            requires = source.requires if source else ()
            repairs[item.name] = BuildRepair(match_runtime, variables, version, requires)
    return repairs


def _version_of(subject: Subject, item: Dependency) -> str:
    """The version that its build will have; "" where that is not known."""
    source = subject.source(item)
    if source is None:
        return "0.0.0" if item.name in _UNVERSIONED else ""
    if item.folder in subject.project.unversioned:
        return "0.0.0"
    return source.version or ""
