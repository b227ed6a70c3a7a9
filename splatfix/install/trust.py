"""Whether somebody else can have written what lies in splatfix's cache: what is there is installed and executed."""

import os
import stat
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder
from splatfix.core.resources import user_cache
from splatfix.core.step import say


def distrust(folder: Path, *, inside: bool = True) -> str:
    """Return why nothing in ``folder`` is used; "" when only this user and root can have written it, or it is not there.

    The folder itself must not be a link. Its digests say nothing about that: who writes a file there writes its digest too.
    ``inside`` looks at everything below it too; modes count there only where others can enter the folder.
    """
    if os.name != "posix" or not os.path.lexists(folder):
        return ""
    try:
        top = folder.lstat()
        if not stat.S_ISDIR(top.st_mode):
            return f"{folder} is a link or no folder"
        paths = [folder]
        if inside:
            paths += folder.rglob("*")
        for path in paths:
            status = path.lstat()
            if status.st_uid not in (os.getuid(), 0):
                return f"{path} belongs to another user"
            is_entered = path == folder or top.st_mode & 0o077
            if status.st_mode & 0o022 and is_entered and not stat.S_ISLNK(status.st_mode):
                return f"{path} can be written by others"
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror or error}"
    return ""


def private_cache(name: str, base: Path | None = None) -> Path:
    """Return the folder of that name in the user's cache, made if need be, for what cannot be had without a cache."""
    folder = (base or user_cache()) / name
    try:
        make_private(folder)
    except SplatfixError as error:
        error.todo = (say("Set SPLATFIX_CACHE to a folder of your own, with room on its disk."),)
        raise
    if reason := distrust(folder.resolve(), inside=False):
        raise SplatfixError.of("install.cache-not-private", reason=reason, folder=folder)
    return folder


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter."""
    make_folder(folder.parent)
    make_folder(folder, mode=0o700)
