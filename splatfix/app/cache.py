"""``splatfix cache``: the wheels that installations have built and kept."""

from collections.abc import Callable

from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result
from splatfix.core.codec import to_json
from splatfix.core.visible import visible
from splatfix.core.words import counted
from splatfix.install import WheelCache
from splatfix.report import installation
from splatfix.report.console import escape, prose


def list_wheels() -> Result:
    """Every wheel in the cache."""
    cache = WheelCache()
    entries = cache.entries()
    return Result(
        "cache list",
        lambda: {
            "folder": str(cache.folder),
            "wheels": to_json(entries),
            "refused": list(cache.refused),
        },
        lambda console: installation.show_cache(console, cache.folder, entries, cache.refused),
    )


def clear(name: str | None, confirm: Callable[[str], None]) -> Result:
    """Remove all wheels, or those that ``name`` (a distribution or the beginning of a key) selects.

    Args:
        confirm: asks the user, and raises to stop.

    Raises:
        SplatfixError: ``not-in-cache`` (exit code 2), or what could not be removed.
    """
    cache = WheelCache()
    chosen = cache.named(name) if name else cache.entries()
    number = counted(len(chosen), "wheel")
    if chosen:
        size = sum(entry.size for entry in chosen) / 2**20
        confirm(f"Remove {number}, {size:.1f} MiB, from {cache.folder}?")
    with on_interrupt(
        lambda: (
            f"Interrupted: {visible(str(cache.folder))} still has {counted(len(cache.entries()), 'wheel')}."
        )
    ):
        # without a name all goes, also what is damaged and so no entry
        removed = cache.clear(chosen if name else None)
    return Result(
        "cache clear",
        lambda: {"folder": str(cache.folder), "removed": removed},
        lambda console: prose(console, "", escape(f"Removed {number} from {cache.folder}")),
    )
