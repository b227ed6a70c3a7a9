"""Where a certification runs when no device was named, what a GPU that stays idle means, and which renderers need one."""

from __future__ import annotations

from splatfix.checks.visible import NAME, hidden_gpus, visible_places
from splatfix.core.errors import usage_error
from splatfix.core.step import say
from splatfix.facts import Facts, Gpu

AUTO = "auto"
_RASTERIZER = "diff-gaussian-rasterization"


def device_for(asked: str, facts: Facts) -> str:
    """``cpu`` or ``cuda`` as asked; for ``auto`` the GPU wherever one is and torch is built for it.

    A GPU that then turns out not to work is a result, not a reason to take the CPU in its place.
    """
    if asked != AUTO:
        return asked
    return "cuda" if gpus_in_reach(facts) and not _torch_lacks(facts) else "cpu"


def gpus_in_reach(facts: Facts) -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that a program started here would see."""
    gpus = [gpu for gpu in facts.machine.gpus.value or () if gpu.vendor == "nvidia"]
    value = facts.machine.variables.get(NAME)
    if value is not None and visible_places(value, gpus) == ():
        return ()
    hidden = hidden_gpus(facts)
    return tuple(gpu for gpu in gpus if gpu.index not in hidden)


def idle_gpu(facts: Facts, device: str) -> str:
    """One sentence on a GPU that is here and was not used; "" where none is, or it was."""
    gpus = gpus_in_reach(facts)
    if device != "cpu" or not gpus:
        return ""
    why = _torch_lacks(facts)
    return f"The {gpus[0].name} here was not used: {why or 'the CPU was asked for (--device cpu)'}."


def require_gpu(renderer: str, device: str, facts: Facts) -> None:
    """Raise ``renderer-needs-gpu`` (exit code 2) for a renderer that has CUDA kernels only, on a CPU.

    The drop-in that splatfix itself puts in the place of Inria's rasterizer is plain PyTorch, and draws anywhere.
    """
    if device != "cpu" or renderer == "torch":
        return
    installed = facts.environment.distributions.value or ()
    swaps = {item.name.lower().replace("_", "-") for item in installed if item.made_by_splatfix == "swap"}
    if renderer == "inria" and _RASTERIZER in swaps:
        return
    why = _torch_lacks(facts) if gpus_in_reach(facts) else ""
    raise usage_error(
        "renderer-needs-gpu",
        f"The renderer {renderer} draws only on a GPU{f', and {why}' if why else ''}.",
        say("Add --device cuda where a GPU is; --renderer torch needs none."),
    )


def _torch_lacks(facts: Facts) -> str:
    """Why torch could not use an NVIDIA GPU; "" where it could."""
    torch = facts.environment.torch.value
    if torch is None:
        return "torch could not be read"
    return "" if torch.cuda else f"torch {torch.version} is a {torch.built_for} build"
