"""Temporary folders that say whose they are, so that the next run can remove what a killed one left."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OWNER = ".splatfix-owner"
_DRAFT = f"{OWNER}.new"
_A_MOMENT = 60.0
"""Seconds within which a folder that was just made gets its note."""


def claim(folder: Path) -> None:
    """Write into the folder which process it belongs to."""
    draft = folder / _DRAFT
    draft.write_text(json.dumps({"pid": os.getpid(), **_marks(os.getpid())}), encoding="utf-8")
    draft.replace(folder / OWNER)


def remove(folder: Path) -> None:
    """Remove the folder; the note of its owner goes last, so that what cannot be removed now is found again later."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.name == OWNER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with suppress(OSError):
                entry.unlink()
    with suppress(OSError):
        left = [entry.name for entry in folder.iterdir()]
        if left == [OWNER]:
            shutil.rmtree(folder)
        elif not left:
            folder.rmdir()


def sweep(bases: Iterable[Path], pattern: str = "splatfix-*") -> tuple[Path, ...]:
    """Remove folders of this pattern whose process is dead; which they were.

    Left alone: folders without a note of ours, of other users, machines and containers, and those in which a child of
    the dead process is still at work.
    """
    swept: list[Path] = []
    for base in dict.fromkeys(bases):
        with suppress(OSError):
            for folder in sorted(base.glob(pattern)):
                if _abandoned(folder):
                    remove(folder)
                    swept.append(folder)
    return tuple(swept)


@contextmanager
def temporary_folder(prefix: str, base: Path | None = None) -> Iterator[Path]:
    """A temporary folder that is removed at the end, and by a later run where there is no end.

    Args:
        base: where, if not where temporary files go; what killed runs left there under this prefix is removed now.
    """
    if base is not None:
        sweep([base], f"{prefix}*")
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    try:
        claim(folder)
        yield folder
    finally:
        remove(folder)


def _abandoned(folder: Path) -> bool:
    if os.name != "posix":  # there is no way to ask for a process there without other packages
        return False
    try:
        note = folder / OWNER
        if folder.is_symlink() or note.stat().st_uid != os.getuid():
            return False
        said = json.loads(note.read_text(encoding="utf-8"))
        pid = int(said["pid"])
        same_place = said["place"] == _marks(os.getpid())["place"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return _bare_for_long(folder)
    except OSError:
        return False
    return same_place and not _alive(pid, said.get("started")) and not _worked_in(folder)


def _bare_for_long(folder: Path) -> bool:
    """Killed between making the folder and noting its owner, or between removing the note and the folder."""
    try:
        found = folder.stat()
        mine = found.st_uid == os.getuid()
        names = {entry.name for entry in folder.iterdir()}
        return mine and time.time() - found.st_mtime > _A_MOMENT and names <= {OWNER, _DRAFT}
    except OSError:
        return False


def _alive(pid: int, started: object) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _marks(pid)["started"] == started


def _marks(pid: int) -> dict[str, str]:
    """What tells this process from a later one of the same number (Linux), and this machine or container from another."""
    started, place = "", os.uname().nodename if hasattr(os, "uname") else ""
    with suppress(OSError, IndexError):
        # field 22 of proc(5) stat: when it started; the name in brackets before may hold blanks
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    with suppress(OSError):
        place += f" {Path('/proc/self/ns/pid').readlink()}"
        place += f" {Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()}"
    return {"started": started, "place": place}


def _worked_in(folder: Path) -> bool:
    """A process has its working folder in there: the compilers of a killed run live on until they are through."""
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if link.readlink().is_relative_to(folder):
                return True
    return False
