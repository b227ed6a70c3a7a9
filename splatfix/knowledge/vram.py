"""What is known of the memory of trainings (``data/vram.json``): cards, families of stacks, published runs, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct, field

from splatfix.knowledge import stacks
from splatfix.knowledge.published import methods
from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import cached, source_of, table

GIB = 1 << 30


class Run(Struct, frozen=True):
    """A published training: its memory, and what it depends on."""

    name: str
    """Method and scene: ``inria-30k bicycle``."""
    bytes: float
    """Highest allocated memory; its source calls GB what are GiB (``max_memory_allocated() / 1024**3`` in gsplat's trainer)."""
    gaussians: int
    seconds: float
    iterations: int
    photos: int
    width: int
    height: int
    source: str

    @property
    def pixels(self) -> int:
        """Of one photo."""
        return self.width * self.height

    def like(self, photos: int, width: int, height: int) -> bool:
        """Tell whether it was on so many photos of this size, which tools round to the pixel above or below."""
        return photos == self.photos and abs(width - self.width) < 2 and abs(height - self.height) < 2


class Family(Struct, frozen=True):
    """Stacks whose memory has the same parts."""

    key: str
    source: str
    floats: int = 0
    """Of a Gaussian's parameters, beside its spherical harmonics."""
    statistics: int = 0
    """Bytes a Gaussian that densification keeps."""
    forward: int = 0
    """Bytes a Gaussian that the rasterizer keeps of one view, beside a copy of the harmonics."""
    photo: int = 0
    """Bytes a pixel of each photo that stays on the GPU; 0: one at a time."""
    decoded: int = 0
    """Bytes a pixel of each photo in host memory while loading."""
    widest: int = 0
    """Pixels to which it reduces wider photos by itself; 0: none."""
    longest: int = 0
    """Pixels to which it reduces photos with a longer side; 0: none."""
    neighbours: int = 0
    """Of each Gaussian and SDF sample, where what they take is all that can be computed."""
    samples: int = 0
    """SDF samples of one iteration, by default."""
    runs: tuple[str, ...] = ()
    """Methods whose published runs give what is not stated."""
    counts: tuple[str, ...] = ()
    """Methods whose published runs give its count, where none gives its memory."""
    cap: int | None = None
    """Gaussians of its MCMC strategy, where nobody names another number."""
    lpips: str = ""
    """The network of its evaluation in training."""
    flat: tuple[float, ...] = ()
    """Low, typical and high bytes a Gaussian in all, where no parts are known."""
    kind: str = "computed"
    unit: str = "Gaussians"
    """What is counted."""
    view: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Measured bytes of a training view, by moment: a pixel, a pixel with alpha, a Gaussian, one in view, a tile pair."""
    view_evaluation: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    pairs: Mapping[str, float] = field(default_factory=dict)
    """Tile pairs a pixel, by strategy."""
    workspace: tuple[float, ...] = ()
    """Bytes that its kernels keep: low, typical and high."""
    process: tuple[float, ...] = ()
    """Bytes of Python and torch."""
    growth: tuple[float, ...] = ()
    """Lowest and highest final count by that at the start, of measured short runs."""
    after_two: float = 0.0
    """Final count by that after two densifications of such a run."""


class StackMemory(Struct, frozen=True):
    """What is known of one stack's memory."""

    key: str
    family: str
    source: str
    own: bool = False
    """Runs of this very stack are published."""
    extra: int = 0
    """Bytes a Gaussian that its rasterizer keeps beside its family's."""
    photo: int | None = None
    """As of its family, where it differs."""
    halved_above: int = 0
    """Pixels of the longer side above which it halves photos by itself, again and again; 0: it does not."""


class MemorySetting(Struct, frozen=True):
    """A setting that takes less memory."""

    stacks: tuple[str, ...]
    does: str
    """What it changes in the model: ``photos-on-cpu``, ``sh-degree``, ``budget``, ``resolution``, ``neighbours`` or ``samples``;
    "": no figure is known."""
    option: str
    """In the stack's own words."""
    quality: str
    """What it costs."""
    kind: str
    source: str
    value: int = 0
    """Of ``neighbours`` or ``samples``, as the option has it."""


@cached
def families() -> Mapping[str, Family]:
    """All families by name."""
    return rows(Family, "vram", "families", "key")


@cached
def stacks_by_key() -> Mapping[str, StackMemory]:
    """All stacks of which something is known."""
    return rows(StackMemory, "vram", "stacks", "key")


def stack_memory(name: str) -> StackMemory | None:
    """The stack of a key or another usual name; None for a stack that nobody here knows."""
    typed = name.strip().lower()
    key = str(table("vram")["names"].get(typed, typed))
    known = stacks_by_key().get(key)
    if known is None and stacks.stack(key) is not None:
        return StackMemory(key, "", source_named("unpublished"))
    return known


def known_names() -> Sequence[str]:
    """Every key and other usual name of a stack."""
    return sorted({*stacks_by_key(), *table("vram")["names"], *(stack.key for stack in stacks.stacks())})


def settings_of(stack: StackMemory) -> Sequence[MemorySetting]:
    """What makes a stack take less, in order of least quality lost."""
    known = rows(MemorySetting, "vram", "settings")
    return [row for row in known.values() if {stack.key, stack.family} & set(row.stacks)]


@cached
def published_runs() -> Mapping[str, Sequence[Run]]:
    """Published runs with memory, by method. A mean over seven scenes has their mean number of pixels."""
    document = table("vram")
    rows = {
        method: (row["iterations"], source_of("vram", row), row["scenes"])
        for method, row in document["runs"].items()
    }
    for method in ("gsplat-30k", "gsplat-7k"):
        published = methods()[method]
        figures = {
            scene: (row.train_gb, row.gaussians, row.seconds or 0.0)
            for scene, row in published.scenes.items()
            if row.train_gb is not None and row.gaussians is not None and scene in document["scenes"]
        }
        rows[method] = (published.iterations, published.source, figures)
    known: dict[str, list[Run]] = {}
    for method, (iterations, source, scenes) in rows.items():
        known[method] = []
        for scene, (gib, gaussians, seconds) in scenes.items():
            photos, width, height = document["scenes"][scene.partition("-")[0]]
            name = f"{method} {scene}"
            run = Run(name, gib * GIB, gaussians, seconds, iterations, photos, width, height, source)
            known[method].append(run)
    return known


def overhead(name: str) -> tuple[tuple[float, float, float], str]:
    """Low, typical and high of ``reserved`` (a share), ``context`` or ``host`` (bytes), and the source."""
    row = table("vram")["overheads"][name]
    low, typical, high = row.get("bytes") or row["share"]
    return (float(low), float(typical), float(high)), source_of("vram", row)


def source_named(key: str) -> str:
    """A source in words."""
    return str(table("vram")["source"][key])


def card_memory(name: str) -> int | None:
    """Bytes of a card by its name (``NVIDIA GeForce RTX 3090``, ``RTX 3060 12GB``, ``5080``) or of a size (``24 GB``); None: not
    known, or the name may mean cards of two sizes."""
    size = re.fullmatch(r"(.*?)[\s-]*(?<!\d)([1-9]\d{0,2})\s*Gi?B", name.strip(), re.IGNORECASE)
    if size is not None and (not size[1] or _sizes(size[1])):
        return int(size[2]) * GIB
    sizes = _sizes(name)
    if len(sizes) != 1:
        return None
    return sizes.pop() * GIB


def _sizes(name: str) -> set[int]:
    """List the GiB of the card of this name, or of those that lack only its first words (``5080``, ``rtx5080``, ``a6000``)."""
    plain, cards = _plain(name), _cards()
    if plain in cards:
        return {cards[plain][1]}
    number = re.sub(r"^(?:rtx|gtx|quadro|titan) ", "", plain)
    if not any(map(str.isdigit, number)):
        return set()
    return {gib for card, (_, gib) in cards.items() if card.endswith(f" {number}")}


def near_cards(name: str) -> Sequence[str]:
    """Up to four cards whose names have its number, else are spelled much alike."""
    numbers, cards = set(re.findall(r"\d{2,}", name)), _cards()
    near = [plain for plain in cards if numbers & set(re.findall(r"\d+", plain))]
    return [cards[plain][0] for plain in near or get_close_matches(_plain(name), cards)][:4]


_SAID_BESIDES = frozenset(
    (
        *("nvidia", "geforce", "tesla", "gpu", "generation", "blackwell", "workstation", "server", "edition"),
        *("pcie", "sxm", "sxm2", "sxm4", "sxm5", "oem"),
    )
)
"""What drivers put into a card's name, and people leave out."""


def _plain(name: str) -> str:
    spaced = re.sub(r"(?<=rtx|gtx)(?=\d)|(?<=\d)(?=ti\b|super\b)", " ", name.lower())
    parts = re.findall(r"[a-z0-9]+", spaced.replace("mobile", "laptop"))
    return " ".join(part for part in parts if part not in _SAID_BESIDES)


@cached
def _cards() -> Mapping[str, tuple[str, int]]:
    """Name and GiB of every card, by its plain name."""
    rows = table("vram")["gpus"].items()
    return {_plain(card): (card, int(gib)) for gib, cards in rows for card in cards.split(", ")}
