"""The memory that one program can have of this machine's GPUs."""

import re

from splatfix.context.context import Context


def largest_card(context: Context) -> tuple[str, int] | None:
    """Name and bytes of the largest NVIDIA GPU that one program can have, whole or a MIG instance (MIG 3g.40gb) of it; None
    where none is known."""
    cards: list[tuple[str, int]] = []
    for gpu in context.machine.gpus.value or ():
        # a card that CUDA does not list for a reason of its own counts: only a variable takes it away
        if gpu.vendor != "nvidia" or gpu.index in context.hidden_gpus:
            continue
        if gpu.mig:
            sizes = re.findall(r"\b\d+g\.(\d+)gb", " ".join(gpu.mig_devices))
            cards += [(f"{gpu.name}, MIG {size}gb", int(size) * 10**9) for size in sizes]
        elif gpu.memory_total:
            cards.append((gpu.name, gpu.memory_total))
    return max(cards, key=lambda card: card[1], default=None)
