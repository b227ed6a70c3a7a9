"""What is asked of the budget of a training, and what it answers. All sizes are in bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

LIMIT = 0.97
"""Share of a card above which trainings become slow: Windows moves memory to the host (as `certify` judges it)."""
PHASES = ("loading", "training", "evaluation")


class Span(Struct, frozen=True):
    """A figure with its error."""

    low: float
    typical: float
    high: float

    def times(self, factor: float) -> Span:
        return Span(self.low * factor, self.typical * factor, self.high * factor)


IN_VIEW = Span(0.5, 0.9, 1.0)  # where nothing was measured


class Need(Struct, frozen=True):
    """A training, by its numbers."""

    stack: str
    photos: int
    width: int
    height: int
    gaussians: Span
    points: int = 0
    """Gaussians at the start."""
    size_option: str = ""
    """In the stack's own words, without which it does not train on photos of this size."""
    source_pixels: int = 0
    """Of one photo as it lies on the disk; 0: as it is trained on."""
    channels: int = 3
    """Of a photo: 4 with alpha."""
    sh_degree: int = 3
    photos_on_cpu: bool = False
    strategy: str = "default"
    """``default`` or ``mcmc``."""
    autograd: bool = False
    """Its evaluation runs without ``torch.no_grad``."""
    lpips: str | None = None
    """The network that its evaluation measures with, where that is not its stack's own."""
    in_view: Span = IN_VIEW
    """Share of the Gaussians in the view that shows most of them."""
    calibrated: float = 1.0
    """What short runs measured of the parts that are published, by what those say."""
    neighbours: int = 0
    """Of each Gaussian, and of each SDF sample, as SuGaR keeps them; 0: as its family has it."""
    samples: int = 0
    """SDF samples of an iteration of SuGaR; 0: as its family has it."""

    @property
    def pixels(self) -> int:
        """Of one photo as it is trained on."""
        return self.width * self.height


class Part(Struct, frozen=True):
    """One part of what a phase takes at its peak."""

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    kind: str
    """``computed`` from shapes, ``published`` by runs, ``claimed`` in threads."""
    source: str


class Phase(Struct, frozen=True):
    """What a phase takes at its peak."""

    peak_bytes: int
    low_bytes: int
    high_bytes: int
    parts: tuple[Part, ...]
    sources: tuple[str, ...]
    at_least: bool = False
    """These parts are all that can be computed, and it takes more."""


class Expected(Struct, frozen=True):
    """A range with the published runs that it rests on."""

    low: float
    high: float
    runs: tuple[str, ...]
    note: str
    source: str


class SettingChange(Struct, frozen=True):
    """A setting to change."""

    option: str
    """In the stack's own words."""
    quality: str
    """What it costs."""
    saves_bytes: int | None
    """Of the most that the highest peak may be, beside the changes before it; null: not known."""
    peak_bytes: int | None
    """The most that the highest peak may be, with it and those before it."""
    fits: bool | None
    kind: str
    source: str


class Largest(Struct, frozen=True):
    """The largest that the card takes, all else as it is; 0: none fits; null: no limit, or not known."""

    gaussians: int | None
    resolution: tuple[int, int] | None
    photos: int | None


class Verdict(str, Enum):
    """Whether a training stays under LIMIT of a card, at the most that it may take."""

    FITS = "fits"
    EXCEEDS = "exceeds"
    UNKNOWN = "unknown"


class Card(Struct, frozen=True):
    """What the training is to fit."""

    name: str
    memory_bytes: int
    found_via: str


class Budget(Struct, frozen=True):
    """What is foretold of a training."""

    card: Card
    limit_bytes: int
    need: Need
    scene: str
    """The folder whose numbers these are; "" where none was read."""
    scenes: int
    """How many can be read in the folder that was named; the one with the most pixels counts."""
    verdict: Verdict
    loading: Phase | None
    training: Phase | None
    evaluation: Phase | None
    host: Mapping[str, Phase | None]
    """The same phases, in host memory."""
    gaussians: Expected | None
    minutes: Expected | None
    changes: tuple[SettingChange, ...]
    largest: Largest
    unit: str
    """What is counted as ``gaussians``: Gaussians, or triangles."""
    calibration: str
    """What short runs here changed; "" where none were run."""

    @property
    def phases(self) -> Mapping[str, Phase | None]:
        """By name."""
        return {"loading": self.loading, "training": self.training, "evaluation": self.evaluation}


def phase_of(parts: Sequence[Part], error: float = 0.0, *, at_least: bool = False) -> Phase:
    """The sum of parts.

    Args:
        error: relative, of the sum, where published runs tell it.
        at_least: it takes more than these.
    """
    peak, low, high = (
        sum(getattr(part, name) for part in parts) for name in ("bytes", "low_bytes", "high_bytes")
    )
    return Phase(
        peak,
        min(low, round(peak * (1 - error))),
        max(high, round(peak * (1 + error))),
        tuple(part for part in parts if part.high_bytes),
        tuple(dict.fromkeys(part.source for part in parts if part.high_bytes)),
        at_least,
    )
