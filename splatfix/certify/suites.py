"""Which scenes a certification trains: bundled ones by the trainer's documented presets, or those of a data folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from splatfix.certify.model import Skipped
from splatfix.core.errors import usage_error
from splatfix.core.step import say


@dataclass(frozen=True)
class Suite:
    """A named set of scenes, trained with the trainer's preset of the same name, or as ``data`` says."""

    name: str
    about: str
    scenes: tuple[str, ...]
    timeout: float
    """Seconds one scene may take before the run is given up."""
    iterations: int | None = None
    """Another number of iterations than the trainer's own choice."""
    resolution: int | None = None
    """Another size than the trainer's own choice: 1, 2, 4, 8 divide, larger is a width in pixels."""
    data: Path | None = None
    """The folder that holds the scenes; None for bundled ones."""
    skipped: tuple[Skipped, ...] = ()
    """Scenes that were looked for and are not there."""

    def trainer_arguments(self, scene: str) -> list[str]:
        """What tells the trainer which scene, how long and at which size."""
        arguments = [scene]
        arguments += ["--preset", self.name] if self.data is None else ["--data", str(self.data)]
        if self.iterations is not None:
            arguments += ["--iterations", str(self.iterations)]
        if self.resolution is not None:
            arguments += ["--resolution", str(self.resolution)]
        return arguments


SUITES = {
    item.name: item
    for item in (
        Suite(
            "quick",
            "three sample scenes, under a minute on two CPU cores",
            ("courtyard", "study", "figurine"),
            900.0,
        ),
        Suite(
            "standard",
            "all six sample scenes",
            ("courtyard", "figurine", "fruit", "plaza", "study", "trellis"),
            3600.0,
        ),
    )
}


def suite(name: str) -> Suite:
    """The suite of that name.

    Raises:
        SplatfixError: ``unknown-suite`` (exit code 2).
    """
    if name not in SUITES:
        raise usage_error(
            "unknown-suite", f"There is no suite {name!r}.", say(f"Known: {', '.join(SUITES)}.")
        )
    return SUITES[name]


def sample_suite(name: str, iterations: int | None = None, resolution: int | None = None) -> Suite:
    """:func:`suite`, trained longer, shorter or at another size; its documented quality then says nothing."""
    return replace(suite(name), iterations=iterations, resolution=resolution)
