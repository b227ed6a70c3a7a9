"""The plan as data: what will be done, in which order, why, and which other roads were looked at and left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from splatfix.context import Rejected
from splatfix.plan.edits import PlannedEdit

PLAN_VERSION = 1


@dataclass(frozen=True)
class Request:
    """What the person asked for, in the words of the command line."""

    sources: tuple[str, ...] = (".",)
    """Source folders; for the pure backend also the names of what to replace."""
    targets: tuple[str, ...] = ()
    """``sm_120``, ``auto``; empty means auto."""
    backend: str = "native"
    """``native``, ``pure``, or ``auto``: native where this machine can build it, else pure."""
    jobs: int | None = None
    cuda_home: str | None = None
    in_place: bool = False
    """Write the edits into the checkout too, not only into the scratch copy."""
    provide_toolkit: bool = False
    """Where no toolkit fits, download one into splatfix's own cache."""
    force_cuda_mismatch: bool = False
    """Take a toolkit of another CUDA major than torch's, and silence torch's check in the build's process."""
    ptx: bool = False
    """Where no toolkit here can name a target, compile PTX of an older architecture for the driver to translate."""


@dataclass(frozen=True)
class Reason:
    """Why something is done the way it is, and which fact says so."""

    text: str
    found_via: str = ""


@dataclass(frozen=True)
class ProvideToolkit:
    """Unpack a CUDA toolkit from PyPI wheels into splatfix's own cache; no environment is touched."""

    subject: str
    folder: str
    root: str
    """What CUDA_HOME will be; below ``folder``."""
    requirements: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    unpacked_gb: float
    reasons: tuple[Reason, ...] = ()
    kind: str = "provide-toolkit"

    def describe(self) -> str:
        """One line for a person."""
        return f"download {self.subject} into {self.folder} (about {self.unpacked_gb:.1f} GB unpacked)"


@dataclass(frozen=True)
class BuildWheel:
    """Compile one source folder into a wheel, in a scratch copy, inside the target environment."""

    subject: str
    """The distribution, as its setup.py calls itself or as its folder is called."""
    source: str
    targets: tuple[str, ...]
    variables: Mapping[str, str]
    """Set for the build, whatever they were before."""
    unset: tuple[str, ...]
    """Present now and taken out for the build."""
    path_first: tuple[str, ...]
    """Folders put in front of PATH."""
    cuda_mismatch: str = ""
    """Torch's version check is silenced for this build; both versions, in words. It brands the wheel and the journal."""
    edits: tuple[PlannedEdit, ...] = ()
    """Cures for known breakages, applied to the scratch copy."""
    reasons: tuple[Reason, ...] = ()
    kind: str = "build-wheel"

    def describe(self) -> str:
        """One line for a person."""
        goal = f" for {', '.join(self.targets)}" if self.targets else ""
        return f"build {self.subject}{goal} from a scratch copy of {self.source}"


@dataclass(frozen=True)
class MakeSwap:
    """Put a pure-PyTorch drop-in together as a wheel."""

    subject: str
    module: str
    version: str
    variant: str = ""
    """Which of the packages that share the name it answers for."""
    reasons: tuple[Reason, ...] = ()
    kind: str = "make-swap"

    def describe(self) -> str:
        """One line for a person."""
        kind = f", as {self.variant} has it" if self.variant else ""
        return f"make the drop-in distribution {self.subject} {self.version} (module {self.module}{kind}, pure PyTorch)"


@dataclass(frozen=True)
class VerifyWheel:
    """Look into the wheel before anything is installed: GPU code, tags, symbols."""

    subject: str
    targets: tuple[str, ...]
    reasons: tuple[Reason, ...] = ()
    kind: str = "verify-wheel"

    def describe(self) -> str:
        """One line for a person."""
        if not self.targets:
            return f"verify the wheel of {self.subject}: tags and contents"
        goal = ", ".join(self.targets)
        return f"verify the wheel of {self.subject}: code for {goal} in every fatbin, tags, torch's symbols"


@dataclass(frozen=True)
class EditSource:
    """Write the edits that the build needed into the person's own checkout; the files are backed up first."""

    subject: str
    source: str
    edits: tuple[PlannedEdit, ...]
    reasons: tuple[Reason, ...] = ()
    kind: str = "edit-source"

    def describe(self) -> str:
        """One line for a person."""
        files = dict.fromkeys(name for edit in self.edits for name in edit.files)
        return f"edit {len(files)} file(s) in {self.source}, which are backed up"


@dataclass(frozen=True)
class InstallWheel:
    """Install the verified wheel with pip; what it replaces is backed up first."""

    subject: str
    replaces: str = ""
    """Version installed now; "" when there is none."""
    reasons: tuple[Reason, ...] = ()
    kind: str = "install-wheel"

    def describe(self) -> str:
        """One line for a person."""
        instead = f" in place of {self.replaces}, which is backed up" if self.replaces else ""
        return f"install {self.subject}{instead}"


@dataclass(frozen=True)
class CheckImport:
    """Import what was installed in a child of the target interpreter; a failure takes the installation back."""

    subject: str
    reasons: tuple[Reason, ...] = ()
    kind: str = "check-import"

    def describe(self) -> str:
        """One line for a person."""
        return f"import {self.subject} in a child process; if that fails, put everything back"


Action = ProvideToolkit | BuildWheel | MakeSwap | VerifyWheel | EditSource | InstallWheel | CheckImport


@dataclass(frozen=True)
class Plan:
    """What ``install`` will do to one environment."""

    python: str
    prefix: str
    backend: str
    targets: tuple[str, ...]
    actions: tuple[Action, ...]
    roads_not_taken: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    """What the person should know although it stops nothing."""
    request: Request = field(default_factory=Request)
    """What was asked for, with absolute paths, so that the same can be asked again."""
    jobs: int = 0
    """How many compilers may run at once, over all builds; 0: as many as the largest build says."""
    schema_version: int = PLAN_VERSION

    @property
    def subjects(self) -> tuple[str, ...]:
        """Every distribution the plan installs, in order."""
        return tuple(action.subject for action in self.actions if isinstance(action, InstallWheel))
