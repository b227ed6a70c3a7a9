"""Paths in a journal: named by the environment's own folders, and held inside them.

A copied or moved environment names its own files by its journal, never those of the environment it was copied from. And where
a link has come into a path since, nothing behind it is touched: what lies there is not the installation's.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from splatfix.install.environment import Environment

_ANCHORED = re.compile(r"<(\w+)>/(.+)", re.DOTALL)


class OutsidePath(ValueError):
    """A path that leads out of the environment, or into splatfix's own journal."""


class JournalPaths(Struct, frozen=True, dict=True):
    """The folders that paths of one journal may name, and their names in it; a path goes by the first that it is in."""

    anchors: tuple[tuple[str, Path], ...]
    state: Path
    """The environment's ``.splatfix``, which is splatfix's own and is never restored or removed."""

    @cached_property
    def _real(self) -> tuple[tuple[str, ...], str]:
        """The folders and :attr:`state` with links followed; found once, because a package can have ten thousand files."""
        return tuple(os.path.realpath(folder) for _, folder in self.anchors), os.path.realpath(self.state)

    @classmethod
    def of(cls, environment: Environment, checkout: str = "") -> JournalPaths:
        """The folders pip installs into; with ``checkout`` that folder, which ``--in-place`` edited, and nothing else."""
        if checkout:
            return cls((("checkout", Path(checkout)),), environment.state_folder)
        # Debian's Python installs below /usr/local with the prefix /usr; in a venv all of these are in the prefix, and
        # site-packages is often a link to another disk
        names = ("prefix", "purelib", "platlib", "scripts", "data", "headers", "user_site")
        anchors = [(name, getattr(environment, name)) for name in names]
        return cls(tuple(anchor for anchor in anchors if anchor[1]), environment.state_folder)

    def to_text(self, path: str | Path) -> str:
        """The path as the journal names it: ``<prefix>/lib/python3.11/site-packages/foo.py``.

        Raises:
            OutsidePath: it lies in none of the folders.
        """
        for name, folder in self.anchors:
            if Path(path).is_relative_to(folder):
                return f"<{name}>/{Path(path).relative_to(folder).as_posix()}"
        raise OutsidePath(f"{path} lies outside of {self.anchors[0][1]}")

    def to_path(self, text: str) -> Path:
        """The path in this environment that the journal's ``text`` names; see :meth:`check`.

        Raises:
            OutsidePath
        """
        anchored = _ANCHORED.fullmatch(text)
        folder = dict(self.anchors).get(anchored[1]) if anchored else None
        if anchored is None or folder is None:
            raise OutsidePath(f"{text!r} names no folder of this environment")
        path = folder / anchored[2]
        self.check(path)
        return path

    def check(self, path: Path) -> None:
        """See that writing to ``path`` changes nothing outside of these folders, whatever links lie on the way.

        Raises:
            OutsidePath
        """
        folders, state = self._real
        # the last part may be a link: links are replaced and removed, never followed
        parent = os.path.realpath(path.parent)
        if path == self.state or _is_below(parent, state):
            raise OutsidePath(f"{path} is splatfix's own")
        if not any(_is_below(parent, folder) for folder in folders):
            raise OutsidePath(f"{path} leads out of {self.anchors[0][1]} by a link")

    def inside(self, path: Path) -> bool:
        """The path lies in these folders, links followed."""
        try:
            self.to_text(path)
            self.check(path)
        except OutsidePath:
            return False
        return True


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
