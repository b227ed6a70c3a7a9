"""Whether this host has the memory to load a scene."""

from collections.abc import Iterator

from splatfix.budget.memory import host_phases
from splatfix.budget.model import Need, Span
from splatfix.checks.registry import Check
from splatfix.checks.scene.model import check
from splatfix.checks.scene.size import size_of
from splatfix.facts.scene.model import Scene
from splatfix.model import Finding

_STACK = "inria"
"""Whose loader decodes every photo before the first step, as that of most forks."""


@check("scene-host-memory")
def scene_host_memory(scene: Scene, this: Check) -> Iterator[Finding]:
    needed, memory = host_bytes(scene), scene.host_memory
    if needed is not None and memory is not None and needed > memory:
        yield this.warn(needed=needed / 2**30, memory=memory / 2**30)


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
