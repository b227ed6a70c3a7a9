"""Folders ``~name`` in site-packages: pip renames what it uninstalls so until it has succeeded; a killed pip leaves them."""

from pathlib import Path

from splatfix.core.files import sha256_of
from splatfix.install.environment import Environment


def find_stashes(environment: Environment) -> list[Path]:
    """Every stash in the environment's own folders."""
    stashes: list[Path] = []
    for site in environment.sites:
        if site.is_dir():
            stashes += sorted(site.glob("~*"))
    return stashes


def remove_stash(stash: Path, digests: set[str]) -> bool:
    """Remove a stash whose every file is in a backup; False for one that holds anything else, which is left alone.

    Args:
        digests: SHA-256 of the files that the backup has.
    """
    contents = [stash]
    if stash.is_dir() and not stash.is_symlink():
        # a folder comes after what is in it
        contents = [*sorted(stash.rglob("*"), reverse=True), stash]
    for path in contents:
        # bytecode is made anew by itself, and pip stashes no links of its own
        replaceable = path.is_symlink() or path.suffix == ".pyc" or path.is_dir()
        if not replaceable and not (path.is_file() and sha256_of(path) in digests):
            return False
    for path in contents:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    return True
