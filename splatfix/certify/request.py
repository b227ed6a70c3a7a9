"""What ``splatfix certify`` and ``splatfix rehearse`` were asked for, as typed; None is the default of a suite or device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splatfix.knowledge import Arch


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """What both commands take."""

    python: str | None = None
    out: Path = Path("splatfix-report")
    device: str = "auto"
    iterations: int | None = None
    resolution: int | None = None
    targets: tuple[Arch, ...] = ()
    """On the CPU: the GPU architectures that installed extensions are judged for."""
    verbose: bool = False
    monitoring: bool = False
    """Exit codes as monitoring systems read them."""


@dataclass(frozen=True, kw_only=True)
class Request(TrainingRequest):
    """Of ``certify``: scenes for splatfix's own trainer."""

    suite: str | None = None
    scene: str | None = None
    """A bundled scene, instead of all of the suite."""
    data: Path | None = None
    level: int | None = None
    """The run level, 1 to 4."""
    renderer: str = "torch"
    seed: int = 0
    baseline: str | None = None
    """The file of an earlier certificate, or the name of published figures."""
    sign: Path | None = None
    """The private key to sign the report with."""
    appendix: bool = False
    """Also write an artifact-evaluation appendix."""


@dataclass(frozen=True, kw_only=True)
class RehearseRequest(TrainingRequest):
    """Of ``rehearse``, and of ``certify --repo``: a checkout with a trainer of its own."""

    checkout: Path
    scene: Path | None = None
    """The folder of a scene; None: a bundled one."""
    train_arguments: tuple[str, ...] = ()
    """The user's own, for train.py."""
