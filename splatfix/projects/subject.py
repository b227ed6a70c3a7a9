"""One file of a project for one machine: the Python, the packages and the torch that an installation from it would have."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from splatfix.checks.model import Evidence, Finding, Status
from splatfix.context import Context, Goal, make_context
from splatfix.core.data import dataclass
from splatfix.core.step import Step
from splatfix.core.versions import dotted, release
from splatfix.facts import Facts, Source
from splatfix.facts.project.model import BuildSettings, Dependency, Manifest, Project
from splatfix.knowledge import Arch, Auto
from splatfix.projects.as_installed import as_installed
from splatfix.projects.resolution import (
    Resolved,
    allows,
    holds,
    locked_version,
    marker_environment,
    pythons,
    resolve_torch,
)

# Whether a specifier lets numpy 2 in is asked of each.
_NUMPY_2 = ("2.4.0", "2.3.0", "2.2.0", "2.1.0", "2.0.0")
_LAST_NUMPY_1 = "1.26.4"


@dataclass(frozen=True)
class Subject:
    """What is judged. Pure."""

    project: Project
    manifest: Manifest
    facts: Facts
    """Of the machine; of its environment only the Python counts."""
    targets: tuple[Arch | Auto, ...]

    @cached_property
    def pinned_python(self) -> str:
        """The Python that the project names, ``3.11``; "" for none."""
        return self.manifest.python or self.project.python

    @cached_property
    def python_here(self) -> str:
        """The Python of this machine; "" where none is known."""
        interpreter = self.facts.environment.interpreter.value
        if interpreter is None:
            return ""
        return dotted(release(interpreter.version)[:2])

    @cached_property
    def python(self) -> str:
        """The Python of the environment to be: what is pinned, else this machine's, else the newest that is allowed; of the
        last two the first for which there is a torch."""
        if self.pinned_python:
            return self.pinned_python
        allowed = pythons(self.manifest.requires_python) or ("3.11",)
        candidates = list(reversed(allowed))
        if self.python_here in allowed:
            candidates.insert(0, self.python_here)
        for python in candidates:
            torches = resolve_torch(self.manifest, self.facts, python)
            if not torches or not all(item.obstacle for item in torches):
                return python
        return candidates[0]

    @cached_property
    def environment(self) -> dict[str, str]:
        return marker_environment(self.facts, self.python)

    @cached_property
    def dependencies(self) -> tuple[Dependency, ...]:
        """Those whose marker holds here."""
        return tuple(item for item in self.manifest.dependencies if holds(item.marker, self.environment))

    @cached_property
    def archs(self) -> tuple[Arch, ...]:
        return make_context(self.facts, Goal(self.targets)).archs

    @cached_property
    def numpy(self) -> str:
        """The numpy that is installed, as far as the file or its lock tells; "" where it does not."""
        locked = locked_version(self.manifest, "numpy", self.environment)
        if locked:
            return locked.version.partition("=")[0]
        named = [item for item in self.dependencies if item.name == "numpy" and not item.address]
        if not named:
            return ""
        for version in _NUMPY_2:
            if release(self.python) >= (3, 9) and all(allows(item.specifier, version) for item in named):
                return version
        return _LAST_NUMPY_1

    def context_of(self, resolved: Resolved) -> Context:
        """The context as it will be once the file is installed."""
        facts = as_installed(self.facts, resolved, self.archs, self.python, self.numpy)
        return make_context(facts, Goal(self.targets))

    def source(self, item: Dependency) -> Source | None:
        """The source of a dependency, where that is in the project."""
        return self.project.sources.get(item.folder)

    def settings(self, item: Dependency) -> BuildSettings:
        return self.manifest.builds.get(item.name, BuildSettings())

    def at(self, name: str) -> str:
        """Where a package is named: ``pyproject.toml:12``."""
        line = next((item.line for item in self.dependencies if item.name == name), 1)
        return f"{self.manifest.file}:{line}"

    def finding(
        self,
        code: str,
        status: Status,
        summary: str,
        name: str,
        *remedy: Step,
        evidence: Iterable[Evidence] = (),
    ) -> Finding:
        return Finding(status, summary, self.at(name), tuple(evidence), remedy, code=code, family="project")
