"""Whether this host has the memory to load a scene."""

from collections.abc import Iterator

from splatfix.budget.memory import host_phases
from splatfix.budget.model import Need, Span
from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check
from splatfix.facts.scene.model import Scene
from splatfix.facts.scene.size import size_of
from splatfix.model import Finding

_STACK = "inria"
"""Whose loader decodes every photo before the first step, as that of most forks."""


@check("scene-host-memory", "The host has the memory to load the scene")
def too_large_for_host(scene: Scene, this: Check) -> Iterator[Finding]:
    """Most loaders decode every photo before the first step, and hold them all."""
    needed, memory = host_bytes(scene), scene.host_memory
    if needed is None or memory is None or needed <= memory:
        return
    yield this.warn(
        f"Loading takes {needed / 2**30:.1f} GiB of host memory with trainers that decode every photo first, as Inria's does; "
        f"this host has {memory / 2**30:.1f} GiB.",
        remedy=(
            "Train on smaller copies (-r 4 or -i images_4), or with a trainer that loads photos when it needs them."
        ),
    )


def host_bytes(scene: Scene) -> int | None:
    """Return what loading takes of host memory at its peak; None where the scene's size is not known."""
    size = size_of(scene)
    if size is None:
        return None
    need = Need(
        stack=_STACK,
        photos=size.photos,
        width=size.width,
        height=size.height,
        gaussians=Span(0.0, 0.0, 0.0),
        points=size.points,
        source_pixels=size.width * size.height,
        channels=size.channels,
    )
    loading = host_phases(need)["loading"]
    if loading is None:
        return None
    return loading.peak_bytes
