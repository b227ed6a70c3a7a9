"""CUDA_VISIBLE_DEVICES in its forms: how many GPUs torch has then, and how many splatfix says it has."""

from __future__ import annotations

from ..context import Context
from ..plan import Notes
from .facts import nvidia_smi


def forms(uuid: str) -> tuple[str, ...]:
    """Unset; indices, good and bad; the UUID, whole, shortened and unknown; a MIG instance that is none."""
    return ("unset", "0", "", "-1", "9", "0,0", "0,9", "none", uuid, uuid[:12], "GPU-ffffffff", "MIG-0")


def run(context: Context, notes: Notes) -> None:
    """Ask both under each form."""
    rows, _ = nvidia_smi()
    asked = forms(rows[0]["uuid"])
    torch, ours = (context.answer("stack", "seen", who, *asked, timeout=100) for who in ("torch", "splatfix"))
    for form in asked:
        shown = repr(form.replace(rows[0]["uuid"], "GPU-<uuid>"))
        notes.numbers[shown] = {"torch": torch[form], "splatfix": ours[form]}
        notes.expect(
            torch[form] is not None and torch[form] == ours[form],
            f"CUDA_VISIBLE_DEVICES {shown}",
            f"torch has {torch[form]}, splatfix says {ours[form]}",
        )
