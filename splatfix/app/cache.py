"""``splatfix cache``: the wheels that installations have built, and what else is kept to be made or fetched once."""

import os
from collections.abc import Callable
from pathlib import Path

from splatfix.app.interrupts import on_interrupt
from splatfix.app.result import Result
from splatfix.core.errors import cannot_write
from splatfix.core.files import remove
from splatfix.core.resources import user_cache
from splatfix.core.scratch import sweep
from splatfix.core.visible import visible
from splatfix.core.words import counted, few
from splatfix.install import WheelCache
from splatfix.report.installation import CacheDocument, ClearedDocument


def list_wheels() -> Result[CacheDocument]:
    """List every wheel in the cache, and what else is kept there."""
    cache = WheelCache()
    wheels, (others, size) = tuple(cache.entries()), _others()
    document = CacheDocument(
        folder=str(cache.folder),
        wheels=wheels,
        refused=tuple(cache.refused),
        others=tuple(map(str, others)),
        others_bytes=size,
    )
    return Result("cache list", document)


_OTHERS = ("toolkits/cuda-*", "sources/gsplat-*", "kernels/*/*-sm_*", "kernels/*/*-compute_*")
"""What is in the cache beside wheels, by names that nothing else has there: SPLATFIX_CACHE may be any folder."""
_UNFINISHED = (("toolkits", ".making-"), ("sources", ".fetching-"))


def _others() -> tuple[list[Path], int]:
    """List what is kept beside wheels, not through links, which lead elsewhere; and its size in bytes."""
    kept = user_cache().resolve()
    paths = [path for pattern in _OTHERS for path in kept.glob(pattern)]
    others = [path for path in paths if path.parent.resolve() == path.parent]
    return others, sum(item.lstat().st_size for path in others for item in (path, *path.rglob("*")))


def clear(name: str | None, confirm: Callable[[str], None]) -> Result[ClearedDocument]:
    """Remove all that is cached, or the wheels that ``name`` (a distribution or the beginning of a key) selects.

    Args:
        confirm: asks the user, and raises to stop.

    Raises:
        SplatfixError: ``not-in-cache`` (exit code 2), or what could not be removed.
    """
    cache = WheelCache()
    chosen = cache.named(name) if name else cache.entries()
    others, others_size = ([], 0) if name else _others()
    if chosen or others:
        size = (sum(entry.size for entry in chosen) + others_size) / 2**20
        what = f"{counted(len(chosen), 'wheel')}, {len(others)} toolkits, sources and kernels"
        confirm(f"Remove {what}, {size:.1f} MiB in all, from {user_cache()}?")
    folder = visible(str(cache.folder))
    with on_interrupt(lambda: f"Interrupted: {folder} still has {counted(len(cache.entries()), 'wheel')}."):
        # without a name all goes, also what is damaged and so no entry
        removed = cache.clear(chosen if name else None)
        for path in others:
            remove(path)
        # what killed runs left; a run that goes on keeps its own
        for folder, prefix in () if name else _UNFINISHED:
            sweep([user_cache() / folder], prefix)
    if left := [path for path in others if os.path.lexists(path)]:
        raise cannot_write(f"{few([str(path) for path in left])} could not be removed.")
    document = ClearedDocument(
        folder=str(cache.folder),
        removed=removed,
        others=tuple(map(str, others)),
        others_bytes=others_size,
    )
    return Result("cache clear", document)
