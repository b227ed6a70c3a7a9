"""``splatfix monitor`` beside an allocation of known size."""

from __future__ import annotations

from ..context import Context
from ..plan import Notes

MIB = 4096
CONTEXT_MIB = 1536
"""At most for the CUDA context and torch's own reserve beside the allocation."""


def run(context: Context, notes: Notes) -> None:
    """Watch a program that holds so much; the driver may hide its process in a container, which the notes then say."""
    size = context.size(MIB, 256)
    out = context.folder("monitor") / "series"
    argv = context.child_argv("plain", "allocate", str(size), "3")
    words = ("monitor", "--interval", "0.1", "--out", out)
    code, found = context.splatfix(*words, command=argv, timeout=60)
    notes.numbers["summary"] = found
    notes.expect(code == 0, "the watched command's exit code is passed on", f"{code}")
    # a rehearsal allocates in host memory
    measured = found.get("rss_peak_gb" if context.rehearsal else "vram_peak_gb")
    shown = f"{size} MiB held, {'nothing' if measured is None else f'{measured * 1024:.0f} MiB'} measured"
    close = measured is not None and size <= measured * 1024 <= size + CONTEXT_MIB
    notes.expect(close, "the peak is the allocation and a CUDA context", f"{shown}; {found.get('notes')}")
