"""What a build leaves in the environment by itself: found by comparing lists of its files, and moved out again."""

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, write_json
from splatfix.core.words import few
from splatfix.facts import name_and_version
from splatfix.install.environment import Environment, cannot_restore
from splatfix.install.installed import find_installed

_LIST = "files-before-builds.json"


def list_files(environment: Environment, folder: Path) -> None:
    """Write down, in an entry's folder, what lies where Python finds modules and programs, before builds begin."""
    write_json(folder / _LIST, sorted(_files(environment)))


def move_out(environment: Environment, folder: Path) -> tuple[str, ...]:
    """Move what is new since :func:`list_files` into the entry's folder, and tell it; () where no builds are in progress.

    What an installer has written down in a RECORD stays: a person's pip, since builds take minutes. So does bytecode.
    """
    listed = folder / _LIST
    if not listed.exists():
        return ()
    new = _files(environment).difference(read_json(listed, "a list of files of splatfix"))
    told: list[str] = []
    for record in [Path(name) for name in new if name.endswith(f".dist-info{os.sep}RECORD")]:
        with suppress(SplatfixError):  # one that no pip has written
            for item in find_installed(environment, name_and_version(record.parent.name)[0]):
                told.append(
                    f"{item.name} {item.version} was installed during a build, by it or by somebody else"
                )
                for path in item.files:
                    new.difference_update(map(str, (path, *path.parents)))
    moved = sorted(name for name in new if name.rpartition(os.sep)[0] not in new)
    try:
        kept = Path(tempfile.mkdtemp(prefix="from-builds-", dir=folder)) if moved else folder
        for path in map(Path, moved):
            target = kept.joinpath(*path.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir() and not path.is_symlink():
                path.chmod(path.stat().st_mode | stat.S_IRWXU)  # one that nobody may write to cannot be moved
            shutil.move(path, target)
        listed.unlink()
    except OSError as error:
        raise cannot_restore(environment, folder, error) from error
    if moved:
        told.append(f"a build has put {few(moved)} into the environment by itself; that was moved to {kept}")
    return tuple(told)


def _files(environment: Environment) -> set[str]:
    """List every file and folder in site-packages, and among the programs of a virtual environment, bytecode apart."""
    found: set[str] = set()
    roots = [*environment.sites]
    if environment.virtual:
        roots.append(environment.scripts)
    for root in roots:
        for folder, folders, files in os.walk(root):
            if "__pycache__" in folders:
                folders.remove("__pycache__")
            found.update(f"{folder}{os.sep}{name}" for name in (*folders, *files))
    return found
