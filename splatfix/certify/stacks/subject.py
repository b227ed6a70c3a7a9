"""What is certified: a stack's own trainer, as it was prepared for one machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splatfix.certify.model import Mend
from splatfix.certify.request import RehearseRequest
from splatfix.certify.stacks.threads import Threads
from splatfix.core.step import Command, target_options, value_options

TRAIN, RENDER, METRICS = "train.py", "render.py", "metrics.py"


@dataclass(frozen=True, kw_only=True)
class StackSubject:
    """A checkout, what stands in for its extensions, and the scene it trains."""

    request: RehearseRequest
    python: str
    device: str
    checkout: Path
    source: Path
    """What is run: the checkout, or a scratch copy that was mended."""
    name: str
    key: str
    """Of the stack in the tables; "" where it is none of them."""
    remote: str
    commit: str
    scene: Path
    iterations: int
    resolution: int | None = None
    images: str = ""
    """The scene's folder of images, where it is not called so."""
    extensions: tuple[str, ...] = ()
    """Top-level modules that the checkout calls."""
    dropins: Path | None = None
    """A folder with them, to be searched first."""
    dropin_names: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()
    """Missing modules that may be imported, though not used."""
    standins: tuple[str, ...] = ()
    """Missing compiled packages that a stand-in takes the place of."""
    needed: tuple[str, ...] = ()
    """Modules of others that the checkout imports and cannot do without."""
    mends: tuple[Mend, ...] = ()
    resumes: tuple[str, ...] = ()
    """Places that load checkpoints in a way that torch may refuse."""
    threads: Threads | None = None
    """That the trainer gets; None on a GPU, where it has as many as it takes."""

    @property
    def rehearsed(self) -> bool:
        """On the CPU."""
        return self.device == "cpu"

    @property
    def out(self) -> Path:
        """The report's folder."""
        return self.request.out.absolute()

    @property
    def scenes(self) -> tuple[str, ...]:
        """The one scene."""
        return (self.scene.name,)

    @property
    def command(self) -> Command:
        """The command line that asks for the same."""
        request = self.request
        arguments = ["splatfix", "rehearse", str(request.checkout)]
        arguments += ["--python", self.python, "--device", self.device]
        arguments += value_options({"--scene": request.scene})
        arguments += target_options(request.targets)
        arguments += value_options({"--iterations": request.iterations, "--resolution": request.resolution})
        if request.train_arguments:
            arguments += ["--", *request.train_arguments]
        return Command(tuple(arguments))


@dataclass(frozen=True)
class Started:
    """What is known of a stack's training however it ends."""

    arguments: tuple[str, ...] = ()
    """What followed train.py."""
    weights: tuple[str, ...] = ()
    """Pretrained weights that could not be had."""
    mends: tuple[Mend, ...] = ()
    """What stopped it, and was passed over so that it went on."""
