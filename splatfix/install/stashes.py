"""Folders ``~name`` in site-packages: pip renames what it uninstalls so until it has succeeded; a killed pip leaves them."""

from collections.abc import Collection
from pathlib import Path

from splatfix.core.files import sha256_of
from splatfix.install.environment import Environment

# What pip puts between the tilde and the rest of a name (pip/_internal/utils/temp_dir.py, AdjacentTempDirectory).
_LETTERS = "-~.=%0123456789"


def find_stashes(environment: Environment) -> list[Path]:
    """Every stash in the environment's own folders."""
    stashes: list[Path] = []
    for site in environment.sites:
        if site.is_dir():
            stashes += sorted(site.glob("~*"))
    return stashes


def remove_stash(environment: Environment, stash: Path, saved: Collection[Path], digests: set[str]) -> bool:
    """Remove a stash whose every file is in a backup; False for one that holds anything else, which is left alone.

    Args:
        saved: the files that the backup has.
        digests: SHA-256 of their contents.
    """
    # the files and folders in site-packages that the saved ones lie in
    sites = [(site, path) for path in saved for site in environment.sites if path.is_relative_to(site)]
    tops = {path.relative_to(site).parts[0] for site, path in sites}
    if not any(_is_stash_of(stash.name, top) for top in tops):
        return False
    contents = [stash]
    if stash.is_dir() and not stash.is_symlink():
        # a folder comes after what is in it
        contents = [*sorted(stash.rglob("*"), reverse=True), stash]
    if not all(_is_saved(path, digests) for path in contents):
        return False
    for path in contents:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    return True


def _is_stash_of(stash: str, name: str) -> bool:
    """pip would stash ``name`` so: ``~`` and letters of its own stand before it, or in place of as many of its first ones."""
    for replaced in range(len(name)):
        rest = name[replaced:]
        letters = stash[1:].removesuffix(rest)
        fits = stash.endswith(rest) and not letters.strip(_LETTERS)
        if fits and (replaced == 0 or len(letters) == replaced - 1):
            return True
    return False


def _is_saved(path: Path, digests: set[str]) -> bool:
    # bytecode is made anew by itself, and pip stashes no links of its own
    if path.is_symlink() or path.suffix == ".pyc" or path.is_dir():
        return True
    return path.is_file() and sha256_of(path) in digests
