"""Which scenes a certification trains. How long, and the quality to reach, is the trainer's own documented preset."""

from __future__ import annotations

from dataclasses import dataclass

from splatfix.core.errors import usage_error


@dataclass(frozen=True)
class Suite:
    """A named set of bundled scenes, trained with the trainer's preset of the same name."""

    name: str
    about: str
    scenes: tuple[str, ...]
    timeout: float
    """Seconds one scene may take before the run is given up."""
    iterations: int | None = None
    """Another number of iterations than the preset's."""


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
        raise usage_error("unknown-suite", f"There is no suite {name!r}.", f"Known: {', '.join(SUITES)}.")
    return SUITES[name]
