"""What was found of a project's files, and what would mend them, as data."""

from __future__ import annotations

from collections.abc import Mapping

from splatfix.checks.model import Finding, Status
from splatfix.core.data import dataclass, field
from splatfix.facts.project.model import Manifest
from splatfix.knowledge.torch_releases import TorchBuild


@dataclass(frozen=True)
class BuildRepair:
    """What uv must be told of the build of one package."""

    match_runtime: bool = False
    """Its isolated build gets the torch that the project runs with."""
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: str = ""
    """For its static metadata; "" where it has such metadata already."""
    requires: tuple[str, ...] = ()
    """What goes into that."""


@dataclass(frozen=True)
class Repair:
    """The smallest change of one file."""

    torch: TorchBuild | None = None
    """The build whose index torch and its companions come from; None where that is right."""
    specifier: str | None = None
    """Another one for torch, where its own leaves out every version that would do."""
    numpy: bool = False
    """numpy below 2."""
    requires_python: str = ""
    builds: Mapping[str, BuildRepair] = field(default_factory=dict, hash=False)

    @property
    def is_empty(self) -> bool:
        return self == Repair()


@dataclass(frozen=True)
class Judgement:
    """One file, what was found of it, and what would mend it."""

    manifest: Manifest
    torch: str
    """What it installs, and why that: ``torch 2.11.0+cu130: the newest that PyPI has``; "" where it names no torch."""
    findings: tuple[Finding, ...]
    repair: Repair = field(default_factory=Repair)

    @property
    def fails(self) -> bool:
        """Something of it will fail."""
        return any(item.status in (Status.FAIL, Status.CRASH) for item in self.findings)
