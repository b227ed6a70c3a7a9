"""Published figures of 3DGS methods on the thirteen public scenes, to hold a certificate against, each with its source."""

from collections.abc import Mapping

from msgspec import Struct

from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import cached


class Figures(Struct, frozen=True):
    """What a source gives for one scene; None where it does not."""

    psnr: float
    """Held-out, in dB."""
    ssim: float | None = None
    lpips: float | None = None
    """By the network that the method's ``lpips`` names."""
    seconds: float | None = None
    """Of the whole training."""
    train_gb: float | None = None
    """Training memory on the GPU, in what the source calls GB."""
    gaussians: int | None = None
    """At the end of the training."""


class Method(Struct, frozen=True):
    """One method's figures, and the conditions under which they were measured; every 8th view is held out,
    in the order of names."""

    name: str
    title: str
    source: str
    """The paper or page, in words, with its address."""
    verified: bool
    """True when the source itself was read, not another's copy of it."""
    iterations: int
    strategy: str
    """Of densification, as the smoke trainer names it."""
    renderer: str
    """As the smoke trainer names it; "" where no renderer of its is the method's."""
    gpu: str
    """On which times and memory were measured; "" where the source does not say."""
    lpips: str
    """The network of LPIPS, ``vgg`` or ``alex``; "" where the source does not say."""
    differs: str
    """Why these figures cannot be held against a training of the smoke trainer; "" where they can."""
    scenes: Mapping[str, Figures]


@cached
def methods() -> Mapping[str, Method]:
    """All published methods by name."""
    return rows(Method, "published", "methods", "name")
