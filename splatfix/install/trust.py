"""Whether somebody else can have written what lies in splatfix's cache: what is there is installed and executed."""

import os
import stat
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import make_folder
from splatfix.core.resources import user_cache
from splatfix.core.step import run, say


def distrust(folder: Path, *, inside: bool = True) -> str:
    """Return why nothing in ``folder`` is used; "" when only this user and root can have written it, or it is not there.

    The folder itself must not be a link. Its digests say nothing about that: who writes a file there writes its digest too.

    Args:
        inside: look at everything below it too. Modes count there only where others can enter the folder.
    """
    if os.name != "posix":
        return ""
    try:
        top = folder.lstat()
        if not stat.S_ISDIR(top.st_mode):
            return f"{folder} is a link or no folder"
        if reason := _whose(folder, top, open_to_others=True):
            return reason
        for parent, folders, files in os.walk(folder) if inside else ():
            for name in (*folders, *files):
                path = Path(parent, name)
                if reason := _whose(path, path.lstat(), open_to_others=bool(top.st_mode & 0o077)):
                    return reason
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{folder} cannot be looked at: {error.strerror or error}"
    return ""


def private_cache(name: str, base: Path | None = None) -> Path:
    """Return the folder of that name in the user's cache, made if need be, for what cannot be had without a cache.

    Raises:
        SplatfixError: ``cache-not-private`` when somebody else can write there, ``cannot-write``.
    """
    folder = (base or user_cache()) / name
    own_folder = say("Set SPLATFIX_CACHE to a folder of your own, with room on its disk.")
    try:
        make_private(folder)
    except SplatfixError as error:
        error.todo = (own_folder,)
        raise
    if reason := distrust(folder.resolve(), inside=False):
        mend = run("chmod", "-R", "go-w", folder, text="If all of it is yours")
        raise SplatfixError.of("install.cache-not-private", reason=reason, todo=(mend, own_folder))
    return folder


def make_private(folder: Path) -> None:
    """Make a folder that only this user can enter.

    Raises:
        SplatfixError: ``cannot-write``.
    """
    make_folder(folder.parent)
    make_folder(folder, mode=0o700)


def _whose(path: Path, status: os.stat_result, *, open_to_others: bool) -> str:
    """Return why somebody else can have written it; "" where nobody can."""
    if status.st_uid not in (os.getuid(), 0):
        return f"{path} belongs to another user"
    if open_to_others and not stat.S_ISLNK(status.st_mode):
        by_a_group = status.st_mode & 0o020 and not _is_own_group(status.st_gid)
        if status.st_mode & 0o002 or by_a_group:
            return f"{path} can be written by others"
    return ""


def _is_own_group(number: int) -> bool:
    """Tell whether the group has this user only (Debian's and Fedora's usual one), and is nobody else."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(number), pwd.getpwuid(os.getuid())
    except KeyError:  # neither has a name here
        return False
    is_named_so = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return is_named_so and set(group.gr_mem) <= {user.pw_name}
