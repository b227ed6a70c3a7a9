"""The ways out as data: every road from this machine to a working stack, the least invasive first, and those that are shut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from splatfix.context import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import Step
from splatfix.plan.plan import Reason

WAYS_VERSION = 1


class Road(str, Enum):
    """The kinds of ways out; the order here is the order of the ranking, the least invasive first."""

    KEEP = "keep"
    """What is installed serves the targets already."""
    REBUILD = "rebuild"
    """Compile the extensions with a toolkit that is here."""
    REBUILD_PTX = "rebuild-with-ptx"
    """Compile PTX for an older architecture with the toolkit here, which the driver translates for the newer GPU."""
    PROVIDE_TOOLKIT = "provide-toolkit"
    """Unpack a toolkit from PyPI wheels into splatfix's own cache, without root, and compile with it."""
    INSTALL_TOOLKIT = "install-toolkit"
    """A toolkit that only the person can install."""
    OTHER_TORCH = "other-torch"
    """Another build of torch, and every extension compiled anew."""
    CONTAINER = "container"
    """A lane: a container with a torch of its own."""
    SWAP = "swap"
    """Pure-PyTorch drop-ins in place of the extensions."""
    DRIVER = "driver"
    """Another driver: told, never done."""


@dataclass(frozen=True)
class Keep:
    """Leave these as they are."""

    subjects: tuple[str, ...]
    kind: str = "keep"

    def describe(self) -> str:
        """One line for a person."""
        return f"keep {', '.join(self.subjects)}"


@dataclass(frozen=True)
class ByHand:
    """Something that splatfix tells and never does: it needs root, a reboot, or a decision."""

    text: str
    commands: tuple[str, ...] = ()
    kind: str = "by-hand"

    def describe(self) -> str:
        """One line for a person."""
        return f"by hand: {self.text}"


def by_hand(steps: Sequence[Step], windows: bool, otherwise: str = "") -> ByHand:
    """Steps of a finding or an error as one step of a plan; ``otherwise`` stands where none of them has a text."""
    commands = tuple(item.command.shell(windows=windows) for item in steps if item.command)
    text = " ".join(item.text for item in steps if item.text)
    return ByHand(text or otherwise, commands)


@dataclass(frozen=True)
class InstallTorch:
    """Put another build of torch into the environment."""

    version: str
    tag: str
    command: str
    kind: str = "install-torch"

    def describe(self) -> str:
        """One line for a person."""
        return f"install torch {self.version} ({self.tag}): {self.command}"


@dataclass(frozen=True)
class GetToolkit:
    """Download a toolkit into splatfix's own cache."""

    cuda: str
    unpacked_gb: float
    kind: str = "get-toolkit"

    def describe(self) -> str:
        """One line for a person."""
        return f"download CUDA toolkit {self.cuda} into splatfix's own cache (about {self.unpacked_gb:.1f} GB unpacked)"


@dataclass(frozen=True)
class Rebuild:
    """Compile the extensions, prove the wheels and install them."""

    subjects: tuple[str, ...]
    """Names of the extensions; empty where none is known yet."""
    targets: tuple[str, ...]
    arch_list: str
    """What TORCH_CUDA_ARCH_LIST will be for a package that reads it."""
    toolkit: str
    """Root of the toolkit, or which one it will be."""
    compiler: str
    """Path of the C++ compiler; "" where it is not settled yet."""
    command: str
    kind: str = "rebuild"

    def describe(self) -> str:
        """One line for a person."""
        what = ", ".join(self.subjects) or "the extensions"
        by = f" and {self.compiler}" if self.compiler else ""
        return f"rebuild {what} for {self.arch_list} with {self.toolkit}{by}: {self.command}"


@dataclass(frozen=True)
class SwapIn:
    """Install pure-PyTorch drop-ins."""

    subjects: tuple[str, ...]
    command: str
    kind: str = "swap-in"

    def describe(self) -> str:
        """One line for a person."""
        return f"swap in pure PyTorch for {', '.join(self.subjects)}: {self.command}"


@dataclass(frozen=True)
class RunLane:
    """Certify inside a container."""

    lane: str
    torch: str
    command: str
    kind: str = "run-lane"

    def describe(self) -> str:
        """One line for a person."""
        return f"run lane {self.lane} ({self.torch}): {self.command}"


@dataclass(frozen=True)
class ShowIt:
    """The command that shows whether it works now."""

    command: str
    shows: str
    kind: str = "show-it"

    def describe(self) -> str:
        """One line for a person."""
        return f"then {self.shows}: {self.command}"


WayStep = Keep | ByHand | InstallTorch | GetToolkit | Rebuild | SwapIn | RunLane | ShowIt


@dataclass(frozen=True)
class Limit:
    """A rung that this machine cannot show, and why."""

    rung: RungName
    why: str


@dataclass(frozen=True)
class WayOut:
    """One whole plan for the machine."""

    road: Road
    title: str
    steps: tuple[WayStep, ...]
    can_prove: tuple[RungName, ...]
    """Rungs that this machine can show once it is done."""
    cannot_prove: tuple[Limit, ...]
    reasons: tuple[Reason, ...] = ()
    unsure: tuple[str, ...] = ()
    """What the tables do not know about it. It is no objection: it is a question that only trying answers."""

    @property
    def by_hand(self) -> bool:
        """Something in it is for the person to do."""
        return any(isinstance(step, ByHand) for step in self.steps)


@dataclass(frozen=True)
class Lane:
    """A container lane as the ranking needs it."""

    name: str
    torch: str
    """``torch==2.11.0+cu130``."""
    gpu: bool


@dataclass(frozen=True)
class Advice:
    """How a failing diagnosis ends."""

    plan: WayOut | None
    """The first of the ways that cure most of what failed; None where none cures any."""
    besides: tuple[ByHand, ...] = ()
    """For each failure that it does not cure what there is to do."""


@dataclass(frozen=True)
class Ways:
    """The answer: every way out in order, and every road that is shut with the reason."""

    targets: tuple[str, ...]
    subjects: tuple[str, ...]
    """The extensions meant."""
    plans: tuple[WayOut, ...]
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    advice: Advice | None = None
    """What of it answers the failures of a diagnosis; None where none was made."""
    schema_version: int = WAYS_VERSION
