"""The data of this room: what is wanted, the GPUs to serve, and choices with what was rejected."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from splatfix.context.coverage import Coverage
from splatfix.core.errors import Rejected
from splatfix.core.words import few
from splatfix.knowledge import Arch, RequestedTarget
from splatfix.model import Considered, Fact

T = TypeVar("T")


class Goal(Struct, frozen=True):
    """The GPUs that the user wants the machine to serve."""

    targets: tuple[RequestedTarget, ...] = ()
    """Architectures, or ``AUTO``; empty means the machine's own GPUs."""
    device: str = ""
    """``cuda`` or ``cuda:1`` where one of the machine's GPUs is meant; "" for all that programs see."""


class Target(Struct, frozen=True):
    """A GPU architecture to judge for, and where it comes from."""

    arch: Arch
    label: str
    """``sm_120 (GPU 0, NVIDIA GeForce RTX 5080)`` or ``sm_120 (--target)``."""
    here: bool
    """A GPU of this architecture is in this machine, and no variable hides it."""


class NotHere(Rejected, frozen=True, kw_only=True):
    """This machine or environment rules out a native build, whatever was asked for."""


class NoToolkit(NotHere, frozen=True, kw_only=True):
    """No toolkit that is here fits; another would."""


class UnknownArch(NotHere, frozen=True, kw_only=True):
    """The installed torch builds nothing that serves a target."""


class OtherOption(Rejected, frozen=True, kw_only=True):
    """Not this way, but another option of the machine may serve."""


class BinaryFit(Struct, frozen=True):
    """One binary with GPU code, judged for every GPU."""

    path: str
    code: str
    """What it carries, for people: ``sm_86, sm_90``."""
    verdicts: tuple[Coverage, ...]
    """As many as there are GPUs, in their order."""


class BinaryMatrix(Struct, frozen=True):
    """Every binary with GPU code in an environment against every GPU."""

    gpus: tuple[str, ...] = ()
    """Labels of the targets."""
    binaries: tuple[BinaryFit, ...] = ()
    unread: tuple[str, ...] = ()
    """Binaries that could not be read, with the reason."""


def rejected_all(kind: str, objections: Mapping[str, str]) -> tuple[Considered, ...]:
    """Return the alternatives of a kind (``toolkit``), by name with what speaks against each."""
    return tuple(Considered(f"{kind} {name}", objection) for name, objection in objections.items())


def looked_at(found: Fact[tuple[T, ...]], objections: Mapping[str, str], most: int) -> str:
    """Say what was looked at; that nothing could be looked at is another thing than that nothing is there."""
    if objections:
        return few([f"{name}: {objection}" for name, objection in objections.items()], most, "; ")
    if found.value is None:
        return f"which are here is not known ({found.error})"
    return "none was found"


class Choice(Struct, Generic[T], frozen=True):
    """The value chosen; where it is None, ``problem`` says why."""

    value: T | None
    rejected: tuple[Considered, ...] = ()
    problem: Rejected | None = None
