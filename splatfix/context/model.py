"""The data of this room: what is wanted, the GPUs to serve, and choices with what was rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from splatfix.core.errors import Problem, SplatfixError
from splatfix.core.step import Step
from splatfix.facts import Source
from splatfix.knowledge import Arch

T = TypeVar("T")


@dataclass(frozen=True)
class Goal:
    """What the person wants the machine to be good for."""

    targets: tuple[str, ...] = ()
    """Architectures (``sm_120``) or ``auto``; empty means the machine's own GPUs."""
    device: str = ""
    """``cuda`` or ``cuda:1`` where one of the machine's GPUs is meant; "" for all that programs see."""
    stack: str = ""
    """Key of a stack (``taming-3dgs``), whose extensions are then meant."""
    extensions: tuple[str, ...] = ()
    """Names of extensions; empty: those of the stack, of the checkout, or those installed."""
    keep: tuple[str, ...] = ()
    """What must not be touched: ``torch``, or extensions by name."""
    sources: tuple[str, ...] = ()
    """What the commands name as SOURCE; empty for a placeholder."""
    dropins: tuple[str, ...] = ()
    """Drop-ins for the extensions, where the source itself has told; with ``no_dropins`` empty: the tables are asked."""
    no_dropins: Mapping[str, str] = field(default_factory=dict)
    """By the name of an extension that nothing replaces, why; a reason that is about all of them under ""."""
    prepare: tuple[Step, ...] = ()
    """What must be done before anything of the source can be built: submodules to fetch."""
    fetch: bool = False
    """``splatfix install`` fetches them itself; ``prepare`` says what."""
    refused: Problem | None = None
    """Why nothing of the source can be built at all, as ``splatfix install`` says it."""
    built_from: Mapping[str, Source] = field(default_factory=dict)
    """By the name of an extension, its source, as far as it is there."""
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the name of an extension, keys of the variants that its source can be; where that is not known, none."""


@dataclass(frozen=True)
class Target:
    """A GPU architecture to judge for, and where it comes from."""

    arch: Arch
    label: str
    """``sm_120 (GPU 0, NVIDIA GeForce RTX 5080)`` or ``sm_120 (--target)``."""
    here: bool
    """A GPU of this architecture is in this machine, and no variable hides it."""


@dataclass(frozen=True)
class Fit:
    """Whether a binary's code runs on one GPU."""

    usable: bool | None
    """None where it depends on PTX, and it is not known whether the driver compiles that."""
    reason: str


@dataclass(frozen=True)
class BinaryFit:
    """One binary with GPU code, judged for every GPU."""

    path: str
    code: str
    """What it carries, for people: ``sm_86, sm_90``."""
    fits: tuple[Fit, ...]
    """As many as there are GPUs, in their order."""


@dataclass(frozen=True)
class BinaryMatrix:
    """Every binary with GPU code in an environment against every GPU."""

    gpus: tuple[str, ...] = ()
    """Labels of the targets."""
    binaries: tuple[BinaryFit, ...] = ()
    unread: tuple[str, ...] = ()
    """Binaries that could not be read, with the reason."""


@dataclass(frozen=True)
class Rejected:
    """An alternative that was considered, and why it was rejected."""

    what: str
    why: str


@dataclass(frozen=True)
class Choice(Generic[T]):
    """The value chosen; where it is None, ``problem`` says why."""

    value: T | None
    rejected: tuple[Rejected, ...] = ()
    problem: Problem | None = None

    def error(self) -> SplatfixError:
        """What to tell a person who needs the value."""
        assert self.problem is not None, "there is a value"
        return self.problem.error()

    def required(self) -> T:
        """The value.

        Raises:
            SplatfixError: :meth:`error` where there is none.
        """
        if self.value is None:
            raise self.error()
        return self.value
