"""Whether the torch that a file brings will run: by the checks of an installed one, and by what only a file can get wrong."""

from __future__ import annotations

from collections.abc import Iterator

from splatfix.checks import run_checks, select
from splatfix.checks.model import Evidence, Finding, Status
from splatfix.core.data import replace
from splatfix.core.versions import dotted, release
from splatfix.facts import Facts
from splatfix.facts.project.model import Dependency, Manager
from splatfix.knowledge.torch_releases import COMPANIONS, wheel_obstacle
from splatfix.knowledge.wheel_indexes import built_for
from splatfix.knowledge.wheel_tags import WheelTarget, tag_fits
from splatfix.projects.as_installed import how_it_runs
from splatfix.projects.resolution import (
    FAMILY,
    Resolved,
    locked_version,
    oldest_python,
    oldest_python_of,
    possible_builds,
    pythons,
)
from splatfix.projects.subject import Subject

_CHECKS = ("driver-too-old", "cpu-only-torch", "torch-arch-unsupported", "numpy2-abi-mismatch")
_FIRST_FOR_NUMPY_2 = (2, 3)


def torch_findings(subject: Subject, resolved: Resolved) -> Iterator[Finding]:
    """Whether there is such a torch, and what the checks say of it."""
    evidence = Evidence("torch", resolved.words, f"{subject.manifest.file} line {resolved.dependency.line}")
    if resolved.obstacle:
        yield subject.finding(
            "torch-not-there", Status.FAIL, resolved.obstacle, "torch", evidence=(evidence,)
        )
        return
    here, allowed = subject.python_here, pythons(subject.manifest.requires_python)
    if here in allowed and here != subject.python and not subject.pinned_python:
        summary = f"This machine's Python {here} has no such torch; what follows is for {subject.python}."
        yield subject.finding("python-without-torch", Status.WARN, summary, "torch")
    if not resolved.version or not resolved.tag:
        yield _of_unknown(subject, resolved, evidence)
        return
    context, build = subject.context_of(resolved), resolved.build
    if build and context.platform and not resolved.dependency.conda:
        machine, glibc = subject.facts.machine.machine, context.glibc
        obstacle = wheel_obstacle(build, context.platform, machine, python=context.python, glibc=glibc)
        if obstacle:
            yield subject.finding("torch-not-there", Status.FAIL, obstacle, "torch", evidence=(evidence,))
    for item in run_checks(context, select(_CHECKS)):
        # a driver that is not the target's says nothing
        if item.code != "driver-too-old" or any(target.here for target in context.targets):
            yield _of_file(subject, item, resolved, evidence)
    yield from _numpy_unnamed(subject, resolved)


def _of_file(subject: Subject, item: Finding, resolved: Resolved, evidence: Evidence) -> Finding:
    """A check's finding, told of the file: what to do is its edit, not a command."""
    if item.code == "driver-too-old":
        return replace(item, subject=subject.at("torch"))
    name, summary = "torch", item.summary
    if item.code == "numpy2-abi-mismatch" and item.status is Status.FAIL:
        name = "numpy"
        how = f"{subject.manifest.file} lets numpy {subject.numpy} in"
        if locked_version(subject.manifest, "numpy", subject.environment):
            how = f"{subject.manifest.lock} has numpy {subject.numpy}"
        summary = f"torch {resolved.version} was compiled for numpy 1; {how}."
    others = [part for part in item.evidence if part.name not in ("torch", "torch CUDA")]
    return replace(item, subject=subject.at(name), summary=summary, evidence=(evidence, *others), remedy=())


def _of_unknown(subject: Subject, resolved: Resolved, evidence: Evidence) -> Finding:
    """Which build is taken is not known; that no build runs can be, all the same."""
    builds = possible_builds(resolved.dependency)
    for arch in subject.archs:
        if builds and all(how_it_runs(subject.facts, build, arch) == "no" for build in builds):
            wanted = f"torch{resolved.dependency.specifier}"
            summary = f"No build of {wanted} has code for {arch.sm}, whichever is taken."
            return subject.finding(
                "torch-arch-unsupported", Status.FAIL, summary, "torch", evidence=(evidence,)
            )
    summary = f"Which torch is installed is not known: {resolved.why}."
    return subject.finding("torch-not-known", Status.UNKNOWN, summary, "torch")


def _numpy_unnamed(subject: Subject, resolved: Resolved) -> Iterator[Finding]:
    """What brings numpy beside an old torch may hold it back or not."""
    old = release(resolved.version)[:2] < _FIRST_FOR_NUMPY_2
    if old and not subject.numpy and release(subject.python) >= (3, 9):
        file = subject.manifest.file
        summary = f"torch {resolved.version} was compiled for numpy 1, and {file} does not keep numpy 2 out."
        yield subject.finding("numpy2-abi-mismatch", Status.WARN, summary, "torch")


def companion_findings(subject: Subject, resolved: Resolved) -> Iterator[Finding]:
    """What is compiled against torch comes from where it comes from: an index of torch's own is asked for nothing else."""
    index = resolved.dependency.index
    for item in subject.dependencies:
        if item.name in COMPANIONS and index and not item.address and item.index != index:
            summary = f"{item.name} comes from another index than torch, and is made for another build of it."
            yield subject.finding("torch-companions-mismatch", Status.FAIL, summary, item.name)
        elif item.name not in FAMILY and resolved.version and resolved.tag:
            yield from _for_another(subject, item, resolved)


def _for_another(subject: Subject, item: Dependency, resolved: Resolved) -> Iterator[Finding]:
    """A wheel whose name or list says for which torch and CUDA it was compiled, and that it is another one."""
    built = built_for(item.index or item.address.rpartition("/")[2].replace("%2B", "+"))
    if not built.torch:
        return
    same_cuda = not built.cuda or resolved.tag.startswith(f"cu{built.cuda[0]}")
    if same_cuda and release(resolved.version)[: len(built.torch)] == built.torch:
        return
    words = f"torch {dotted(built.torch)}"
    if built.cuda:
        words += f" and CUDA {dotted(built.cuda)}"
    summary = f"{item.name} is a wheel for {words}; torch {resolved.version}+{resolved.tag} is installed."
    yield subject.finding("wheel-for-another-torch", Status.FAIL, summary, item.name)


def python_findings(subject: Subject, resolved: Resolved) -> Iterator[Finding]:
    """uv and Poetry lock for every Python that the project takes: each must have a torch."""
    manifest, tag = subject.manifest, resolved.tag
    lowest = oldest_python(manifest.requires_python)
    by_index = resolved.dependency.index or manifest.indexes
    if manifest.manager not in (Manager.UV, Manager.POETRY) or not lowest or not tag or not by_index:
        return
    specifier = resolved.dependency.specifier
    first = oldest_python_of(specifier, tag)
    if first and release(first) > release(lowest):
        summary = f"requires-python takes Python {lowest}, for which {tag} has no torch{specifier}: no lock is made."
        yield subject.finding("requires-python-too-wide", Status.FAIL, summary, "python")


def wheel_findings(subject: Subject) -> Iterator[Finding]:
    """Wheels that are named or locked, with no source beside them, fit the Python and the platform."""
    target = _wheel_target(subject.facts, subject.python)
    if target is None:
        return
    for item in subject.dependencies:
        names = _wheels_of(subject, item)
        if names and not any(_fits(name, target) for name in names):
            more = ""
            if len(names) > 1:
                more = f", and so are {len(names) - 1} more"
            summary = f"{names[0]} is not for Python {subject.python} on {target.platform}{more}."
            yield subject.finding("wheel-does-not-fit", Status.FAIL, summary, item.name)


def _wheels_of(subject: Subject, item: Dependency) -> list[str]:
    """The file names of the wheels that are all there is of a dependency."""
    address = item.address.partition("#")[0]
    if address.endswith(".whl"):
        return [address.rpartition("/")[2]]
    locked = locked_version(subject.manifest, item.name, subject.environment)
    if address or locked is None or locked.sdist:
        return []
    return list(locked.wheels)


def _wheel_target(facts: Facts, python: str) -> WheelTarget | None:
    """What an installer looks at on the machine; the C library is taken to fit. None where there is no CUDA."""
    system = {"linux": "linux", "windows": "win"}.get(facts.machine.system)
    if system is None:
        return None
    major, minor = release(python)[:2]
    return WheelTarget((major, minor), f"{system}_{facts.machine.machine.lower()}")


def _fits(file: str, target: WheelTarget) -> bool:
    """One of a wheel's tags suits; so does a name that is no wheel's, which its installer will refuse."""
    parts = file.removesuffix(".whl").split("-")
    if len(parts) < 5:
        return True
    tags = [f"{python}-{abi}" for python in parts[-3].split(".") for abi in parts[-2].split(".")]
    return any(tag_fits(f"{tag}-{platform}", target) for tag in tags for platform in parts[-1].split("."))
