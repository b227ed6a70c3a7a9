"""Judges what each file of a project would install as if it were installed, and says which edit mends what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from splatfix.checks.model import Finding, Status
from splatfix.core.data import replace
from splatfix.core.step import run
from splatfix.core.versions import release
from splatfix.facts import Facts
from splatfix.facts.project.model import Manager, Manifest, Project
from splatfix.knowledge import Arch, Auto
from splatfix.knowledge.torch_releases import TorchBuild
from splatfix.knowledge.torch_releases import release as torch_release
from splatfix.projects.builds import build_findings, build_repairs, compiled
from splatfix.projects.model import Judgement, Repair
from splatfix.projects.resolution import Resolved, allows, oldest_python, oldest_python_of, resolve_torch
from splatfix.projects.subject import Subject
from splatfix.projects.torch import companion_findings, python_findings, torch_findings, wheel_findings

_MENDED_BY_ANOTHER_TORCH = {"torch-not-there", "cpu-only-torch", "torch-arch-unsupported", "driver-too-old"}


def judge(project: Project, facts: Facts, targets: tuple[Arch | Auto, ...]) -> tuple[Judgement, ...]:
    """Every file of a project, each as an environment of its own.

    Args:
        facts: of the machine; of its environment only the Python counts.
        targets: the GPUs to serve; () for those of the machine.
    """
    subjects = [Subject(project, manifest, facts, targets) for manifest in project.manifests]
    judged = tuple(map(_judgement, subjects))
    told = any(finding.code == "torch-not-named" for item in judged for finding in item.findings)
    if not subjects or told or any(item.torch for item in judged):
        return judged
    files = ", ".join(item.manifest.file for item in judged)
    summary = f"No file names torch ({files}): which one is installed is told elsewhere."
    silent = subjects[0].finding("torch-not-named", Status.UNKNOWN, summary, "")
    return (replace(judged[0], findings=(*judged[0].findings, silent)), *judged[1:])


def _judgement(subject: Subject) -> Judgement:
    resolved, findings = _torch_of(subject)
    words, repair = "", Repair()
    if resolved is None:
        findings += tuple(_without_torch(subject))
    else:
        words = resolved.words
        findings += tuple(companion_findings(subject, resolved))
        findings += tuple(python_findings(subject, resolved))
        findings += tuple(build_findings(subject, resolved))
    findings += (*wheel_findings(subject), *_unread(subject))
    is_text = subject.manifest.file.endswith(".txt")
    # what is no pyproject.toml that pip and uv take gets no edit
    is_editable = subject.manifest.manager in (Manager.UV, Manager.PIP) and (
        is_text or not subject.manifest.wrong
    )
    if resolved and is_editable:
        repair = _repair(subject, resolved, findings)
    return Judgement(subject.manifest, words, findings, repair)


def _torch_of(subject: Subject) -> tuple[Resolved | None, tuple[Finding, ...]]:
    """The torch that is installed, with what is found of it; where an extra chooses, the one with the fewest failures."""
    judged = []
    for resolved in resolve_torch(subject.manifest, subject.facts, subject.python):
        findings = tuple(torch_findings(subject, resolved))
        failures = sum(item.status is Status.FAIL for item in findings)
        # a build for the CPU is nobody's choice for a GPU
        judged.append((failures, resolved.tag == "cpu", resolved, findings))
    if not judged:
        return None, ()
    _, _, resolved, findings = min(judged, key=lambda item: item[:2])
    return resolved, findings


def _without_torch(subject: Subject) -> Iterator[Finding]:
    """Extensions of a file that names no torch are compiled against one that is told elsewhere."""
    names = [item.name for item in compiled(subject)]
    if names:
        file = subject.manifest.file
        summary = f"{file} names no torch, against which {', '.join(names)} would be compiled."
        yield subject.finding("torch-not-named", Status.UNKNOWN, summary, names[0])


def _unread(subject: Subject) -> Iterator[Finding]:
    """What could not be read, so that nothing of it is known; a lock file of another state."""
    file = subject.manifest.file
    for reason in subject.manifest.wrong:
        yield subject.finding("file-unreadable", Status.UNKNOWN, f"{file}: {reason}.", "")
    if subject.manifest.stale:
        summary = f"{subject.manifest.stale} was made of another {file}; the latter was judged."
        yield subject.finding("lock-outdated", Status.WARN, summary, "torch", run("uv", "lock"))


def _repair(subject: Subject, resolved: Resolved, findings: Iterable[Finding]) -> Repair:
    """The smallest change of the file that mends what was found."""
    failed = {item.code for item in findings if item.status is Status.FAIL}
    build, specifier = None, None
    if failed & _MENDED_BY_ANOTHER_TORCH:
        build, specifier = _better_torch(subject, resolved)
    elif "torch-companions-mismatch" in failed:
        build = resolved.build
    after = resolved
    if build:
        dependency = resolved.dependency
        if specifier is not None:
            dependency = replace(dependency, specifier=specifier)
        after = Resolved(dependency, build.pinned, build.tag)
    requires_python = ""
    if build or "requires-python-too-wide" in failed:
        requires_python = _narrower_python(subject.manifest, after)
    return Repair(
        torch=build,
        specifier=specifier,
        # beside another torch numpy 2 is as good
        numpy=build is None and "numpy2-abi-mismatch" in failed,
        requires_python=requires_python,
        builds=build_repairs(subject, after) if subject.manifest.manager is Manager.UV else {},
    )


def _better_torch(subject: Subject, resolved: Resolved) -> tuple[TorchBuild | None, str | None]:
    """The build that ``splatfix install`` advises here, of those that the file allows before all others; and the specifier
    that lets it in, where its own does not."""
    if resolved.dependency.extra:
        return None, None  # each extra is somebody's choice
    # what has wheels for every Python of the project leaves requires-python as it is
    lowest = oldest_python(subject.manifest.requires_python) or subject.python
    builds = sorted(subject.context_of(resolved).torch_wheels, key=lambda item: not _serves(item, lowest))
    if not builds:
        return None, None
    own = re.sub(r"\+\w+", "", resolved.dependency.specifier)
    allowed = next((item for item in builds if allows(own, item.pinned)), None)
    build = allowed or builds[0]
    if subject.manifest.file.endswith(".txt"):
        # pip asks all indexes of a file for everything: only the local part of the version names the build
        return build, f"=={build.pinned}+{build.tag}" if build.newest else f"=={build.torch}"
    if allowed is None:
        return build, f"=={build.torch}"
    return build, own if own != resolved.dependency.specifier else None


def _serves(build: TorchBuild, python: str) -> bool:
    row, (major, minor) = torch_release(build.release), release(python)[:2]
    return row is None or row.supports_python((major, minor)) is not False


def _narrower_python(manifest: Manifest, resolved: Resolved) -> str:
    """``requires-python`` without those for which the index has no torch; "" where it can stay."""
    lowest = oldest_python(manifest.requires_python)
    first = oldest_python_of(resolved.dependency.specifier, resolved.tag)
    if not lowest or not first or release(first) <= release(lowest):
        return ""
    others = [part.strip() for part in manifest.requires_python.split(",")]
    return ",".join([f">={first}", *(part for part in others if part.startswith(("<", "!=")))])
