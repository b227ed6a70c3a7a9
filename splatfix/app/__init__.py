"""Use cases: each puts the rooms together for one command, decides nothing of its own, and returns a :class:`Result`.

``app.certify`` is imported when it is first asked for: the command line names all of them, and ``--help`` runs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splatfix.app import (
        cache,
        certify,
        diagnose,
        dockerfile,
        explain,
        inspect,
        install,
        lanes,
        monitor,
        rehearse,
        report,
        revert,
        scenes,
        vram,
    )


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {error}") from error
