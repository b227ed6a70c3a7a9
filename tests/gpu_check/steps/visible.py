"""CUDA_VISIBLE_DEVICES in its forms: which GPUs CUDA lists then, in order, and which splatfix says it has."""

from collections.abc import Sequence

from ..context import Context
from ..record import Notes
from .facts import nvidia_smi


def forms(uuids: Sequence[str]) -> tuple[str, ...]:
    """Unset; indices, good and bad; the UUID, whole, shortened and unknown; a MIG instance that is none; other orders."""
    one = (
        "unset",
        "0",
        "",
        "-1",
        "9",
        "0,0",
        "0,9",
        "none",
        uuids[0],
        uuids[0][:12],
        "GPU-ffffffff",
        "MIG-0",
    )
    return one if len(uuids) == 1 else (*one, "1", "1,0", ",".join(uuids[1::-1]))


def run(context: Context, notes: Notes) -> None:
    """Ask both under each form."""
    uuids = [row["uuid"] for row in nvidia_smi()[0]]
    values = forms(uuids)
    torch, ours = (
        context.answer("plain", "seen", who, *values, timeout=100) for who in ("torch", "splatfix")
    )
    for form in values:
        shown = repr(form)
        notes.numbers[shown] = {"torch": torch[form], "splatfix": ours[form]}
        notes.expect(
            torch[form] is not None and torch[form] == ours[form],
            f"CUDA_VISIBLE_DEVICES {shown}",
            f"torch has {torch[form]}, splatfix says {ours[form]}",
        )
