"""What ``splatfix certify`` was asked for, as typed; None is the default of a suite or device."""

from pathlib import Path

from msgspec import Struct

from splatfix.knowledge import Arch


class CertifyRequest(Struct, frozen=True, kw_only=True):
    """Of ``certify``: scenes for splatfix's own trainer, or with ``--repo`` a checkout with a trainer of its own."""

    python: str | None = None
    out: Path = Path("splatfix-report")
    device: str = "auto"
    scene: str | None = None
    """A bundled scene, instead of all of the suite; with a checkout the folder of a scene."""
    iterations: int | None = None
    resolution: int | None = None
    targets: tuple[Arch, ...] = ()
    """On the CPU: the GPU architectures that installed extensions are judged for."""

    suite: str | None = None
    data: Path | None = None
    level: int | None = None
    """The run level, 1 to 4."""
    renderer: str = "auto"
    seed: int = 0
    baseline: str | None = None
    """The file of an earlier certificate, or the name of published figures."""

    checkout: Path = Path()
    script: str = ""
    """The trainer, a file below the checkout; "" for ``train.py``, or the only one there is."""
    face: str = ""
    """What rasterizers that no table lists give back, in order: ``color,radii,depth``."""
    train_arguments: tuple[str, ...] = ()
    """The user's own, for train.py."""
