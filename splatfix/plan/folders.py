"""What a folder is that a person named: a checkout, or a place in which checkouts lie, and then which of them could be meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.step import Step, run, say
from splatfix.facts import walk_extensions
from splatfix.knowledge.stacks import Stack, recognise_checkout

# A folder of clones has some dozens; the temporary folder of a server has thousands, and none is looked for there.
_LOOKED_AT = 300
_NAMED = 6

# Installed by their release: their wheel compiles at the first import, so the source is fetched and built ahead of that.
_BY_RELEASE = {"gsplat": "gsplat==1.5.3"}
_ADDRESS = re.compile(r"(?:git\+)?(?:https?|ssh|git)://|git@[\w.-]+:")


def stacks_of(folder: Path) -> tuple[Stack, ...]:
    """The stacks whose checkout this can be, the most telling first."""
    found = (*folder.glob("*"), *folder.glob("*/*"), *folder.glob("*/*/*.py"))
    return recognise_checkout([os.path.relpath(path, folder).replace(os.sep, "/") for path in found])


def is_checkout(folder: Path) -> bool:
    """Of a stack that splatfix knows, or a clone, or what has its extensions where stacks have them."""
    return any((folder / name).exists() for name in (".git", ".gitmodules", "submodules")) or bool(
        stacks_of(folder)
    )


def no_checkout(folder: Path, *options: str) -> SplatfixError:
    """That this folder is neither a checkout nor an extension, with what below it could be meant.

    Args:
        options: of ``splatfix install``, to be given with each.
    """
    below = list(islice(_candidates(folder), _NAMED + 1))
    what = f"{folder} is neither a checkout of a stack nor an extension's source folder."
    if not below:
        return usage_error(
            "not-an-extension",
            what.replace("source folder.", "source folder, and none was found in it."),
            say("Give the folder that holds the extension's setup.py, or a checkout."),
        )
    lines = [run("splatfix", "install", as_typed(path), *options) for path in below[:_NAMED]]
    more = (say("There are more of them."),) if len(below) > _NAMED else ()
    return usage_error("not-a-checkout", what, say("Name one of those that it holds:"), *lines, *more)


def as_typed(path: Path) -> str:
    """A folder as a person would name it from here: ``./2dgs``."""
    here = Path.cwd()
    return (
        f"./{path.relative_to(here).as_posix()}" if path.is_relative_to(here) and path != here else str(path)
    )


def _candidates(folder: Path) -> Iterator[Path]:
    """Checkouts and extensions one or two levels below, in order of name; nothing inside one of them."""
    budget = _LOOKED_AT
    pending = [(path, 1) for path in _folders(folder)]
    while pending and budget:
        path, level = pending.pop(0)
        budget -= 1
        try:
            if stacks_of(path) or walk_extensions(path, depth=0).found:
                yield path
            elif level == 1:
                pending[:0] = [(inner, 2) for inner in _folders(path)]
        except OSError:  # a folder of another user's holds nothing that could be meant
            continue


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as listing:
            names = sorted(item.name for item in listing if item.is_dir(follow_symlinks=False))
    except OSError:
        return []
    return [folder / name for name in names if not name.startswith(".")]


def install_of(name: str) -> str:
    """What ``splatfix install`` takes for an extension of this name where no folder of it is known."""
    return _BY_RELEASE.get(name.lower(), f"PATH/TO/{name}")


def other_spellings(text: str) -> tuple[Step, ...]:
    """What to do with a SOURCE that is no folder: a package by name, the address of a repository."""
    name = re.split(r"[=<>~!\[ ]", text)[0].lower()
    if name in _BY_RELEASE:
        release = ("splatfix", "install", _BY_RELEASE[name], "--target", "ARCH")
        return (run(*release, text="Name the release to build"),)
    if _ADDRESS.match(text):
        address = text.removeprefix("git+").partition("#")[0]
        address, at, commit = (
            address.rpartition("@") if "@" in address.rpartition("/")[2] else (address, "", "")
        )
        folder = address.rpartition("/")[2].removesuffix(".git") or "FOLDER"
        checkout = (run("git", "-C", folder, "checkout", commit, "--recurse-submodules"),) if at else ()
        return (
            run("git", "clone", "--recursive", address, text="Clone it first, then name the folder"),
            *checkout,
            run("splatfix", "install", folder, "--target", "ARCH"),
        )
    return ()
