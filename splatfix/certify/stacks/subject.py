"""What is certified: a stack's own trainer, as it was prepared for one machine."""

from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from splatfix.certify.model import Certificate, Mend
from splatfix.certify.request import RehearseRequest
from splatfix.certify.scenes import Suite
from splatfix.core.step import Command, target_options, value_options
from splatfix.model import Checkout
from splatfix.model.option import Replacement

RENDER, METRICS = "render.py", "metrics.py"
PICKLES = "torch-load-pickles"
"""Of the finding of a file of pickled objects that torch refuses."""


class StackSubject(Struct, frozen=True, kw_only=True):
    """A checkout, what stands in for its extensions, and the scene it trains."""

    level: ClassVar[int | None] = None
    baseline: ClassVar[Certificate | None] = None
    published: ClassVar[str] = ""
    """Run levels and baselines are of splatfix's own trainer."""

    request: RehearseRequest
    python: str
    device: str
    checkout: Checkout
    """As far as the script reaches it."""
    source: Path
    """What is run: the checkout, or a scratch copy that was mended."""
    work: Path
    """Where it is run: a copy of the checkout, for what it opens there by relative paths and may write."""
    name: str
    key: str
    """Of the stack in the tables; "" where it is none of them."""
    script: str
    """The trainer, a file below the checkout."""
    scene: Path = Path()
    images: str = ""
    """The name of the scene's folder of images, where that is not ``images``."""
    resolution: int | None = None
    """As the trainer is told to read them; None: as it likes."""
    iterations: int
    mends: tuple[Mend, ...] = ()
    """What stops the trainer before its first step."""
    placeholders: tuple[str, ...] = ()
    """Missing modules that may be imported, though not used."""
    standins: tuple[str, ...] = ()
    """Missing compiled packages that a stand-in of splatfix's takes the place of."""
    extensions: tuple[str, ...] = ()
    """Top-level modules that the checkout calls."""
    replacement: Replacement
    """The drop-ins for its extensions, and what of these has none."""
    dropins: Path | None = None
    """A folder with them, to be searched first; None on a GPU."""
    needed: tuple[str, ...] = ()
    """Modules of others that the checkout imports and cannot do without."""
    resumes: tuple[str, ...] = ()
    """Places that load checkpoints in a way that torch may refuse."""
    threads: int | None = None
    """CPU threads of the trainer; None on a GPU, where it takes as many as it likes."""
    threads_because: str = ""

    @property
    def title(self) -> str:
        """What is certified, in words."""
        return f"{'A rehearsal of ' if self.rehearsed else ''}{self.name}'s own trainer"

    @property
    def renderer(self) -> str:
        """What it draws with."""
        return ", ".join(self.extensions) or "its own"

    @property
    def suite(self) -> Suite:
        """Its scene, as the smoke trainer's subjects have several."""
        return Suite(self.scene.name, self.scenes, 0.0)

    @property
    def rehearsed(self) -> bool:
        """It runs on the CPU, which reaches the rung of that name."""
        return self.device == "cpu"

    @property
    def folder(self) -> Path:
        """The checkout's."""
        return Path(self.checkout.folder)

    @property
    def dropin_names(self) -> tuple[str, ...]:
        """What stands in for extensions and other compiled packages."""
        if not self.rehearsed:
            return ()
        return (*self.replacement.names, *self.standins)

    @property
    def out(self) -> Path:
        """The report's folder."""
        return self.request.out.absolute()

    @property
    def scenes(self) -> tuple[str, ...]:
        """The name of the scene."""
        return (self.scene.name,)

    @property
    def command(self) -> Command:
        """The command line that asks for the same."""
        request = self.request
        arguments = ["splatfix", "certify", "--repo", str(request.checkout)]
        arguments += ["--python", self.python, "--device", self.device]
        script, face = request.script or None, request.face or None
        arguments += value_options({"--scene": request.scene, "--script": script, "--face": face})
        arguments += target_options(request.targets)
        arguments += value_options({"--iterations": request.iterations, "--resolution": request.resolution})
        if request.train_arguments:
            arguments += ["--", *request.train_arguments]
        return Command(tuple(arguments))
