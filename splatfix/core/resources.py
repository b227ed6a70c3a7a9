"""Finds the folders that travel with splatfix (patches, dockerfiles, constraints) in a checkout and in an installed wheel."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
KERNELS, SMOKE_TRAINER = _PACKAGE / "kernels", _PACKAGE.parent / "smoke_trainer"
"""The folders of these packages as files, to be staged into a target environment."""

TOOLKIT_MARKER = "splatfix-toolkit.json"
"""Written last into a toolkit of splatfix's cache: a folder without it is not whole."""


def toolkit_folder(minor: str, cache: Path) -> Path:
    """Name the folder of a toolkit (``13.0``) in splatfix's cache."""
    return cache / "toolkits" / f"cuda-{minor}"


def bundled(name: str) -> Path:
    """Return the path of a top-level data file or folder, e.g. ``dockerfiles``.

    In a wheel it lies under ``splatfix/_bundled``; in a checkout beside the package.

    Raises:
        FileNotFoundError: when this installation of splatfix is incomplete.
    """
    for candidate in (_PACKAGE / "_bundled" / name, _PACKAGE.parent / name):
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"splatfix's own {name!r} is missing; reinstall splatfix")


def user_cache(env: Mapping[str, str] = os.environ) -> Path:
    """Return where splatfix keeps what can be made again: ``$SPLATFIX_CACHE``, else the platform's user cache folder."""
    if chosen := env.get("SPLATFIX_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(env.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "splatfix" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/splatfix").expanduser()
    return Path(env.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "splatfix"
