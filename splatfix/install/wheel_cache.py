"""Keeps built wheels: the same source, with the same tools, for the same GPUs, is compiled once."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import read_json, write_bytes, write_json
from splatfix.core.resources import user_cache
from splatfix.core.step import say
from splatfix.install.outcome import CachedWheel


class WheelCache:
    """A folder of wheels by key; every entry is checked before it is used."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` None: in the user's cache."""
        self.folder = folder or user_cache() / "wheels"

    def take(self, key: str, destination: Path) -> Path | None:
        """Copy the wheel of that key into ``destination``; None when there is none, or a damaged one."""
        entry = self._entry(self.folder / key)
        if entry is None:
            return None
        try:
            content = (self.folder / key / entry.wheel).read_bytes()
        except OSError:  # cleared by another splatfix in this moment, or not ours to read
            return None
        if hashlib.sha256(content).hexdigest() != entry.digest:
            shutil.rmtree(self.folder / key, ignore_errors=True)
            return None
        destination.mkdir(parents=True, exist_ok=True)
        path = destination / entry.wheel
        write_bytes(path, content)
        return path

    def put(self, key: str, wheel: Path, identity: Mapping[str, str], source: str = "") -> None:
        """Keep a wheel. A cache that cannot be written is no reason to fail: the wheel is there all the same.

        Args:
            source: where it came from, in words for a person.
        """
        content = wheel.read_bytes()
        document = {
            "wheel": wheel.name,
            "size": len(content),
            "digest": hashlib.sha256(content).hexdigest(),
            "identity": dict(identity),
            "source": source,
        }
        try:
            write_bytes(self.folder / key / wheel.name, content)
            write_json(self.folder / key / "entry.json", document)
        except SplatfixError:
            shutil.rmtree(self.folder / key, ignore_errors=True)

    def entries(self) -> tuple[CachedWheel, ...]:
        """Everything in the cache, in order of wheel name."""
        folders = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        found = [entry for entry in map(self._entry, folders) if entry is not None]
        return tuple(sorted(found, key=lambda entry: (entry.wheel, entry.key)))

    def named(self, name: str) -> tuple[CachedWheel, ...]:
        """The wheels of that distribution, or the one whose key begins so.

        Raises:
            SplatfixError: ``not-in-cache`` (exit 2).
        """
        entries = self.entries()
        wanted = canonicalize_name(name)
        found = [one for one in entries if canonicalize_name(one.name) == wanted or one.wheel == name]
        found = found or [one for one in entries if name and one.key.startswith(name)]
        if not found:
            known = ", ".join(dict.fromkeys(one.name for one in entries)) or "none"
            raise usage_error(
                "not-in-cache",
                f"No wheel in {self.folder} is called {name!r}.",
                say(f"Wheels there: {known}"),
            )
        return tuple(found)

    def clear(self, only: Sequence[CachedWheel] | None = None) -> int:
        """Remove everything, or only these; how many wheels there were.

        Raises:
            SplatfixError: ``cache-not-cleared`` with how many could not be removed.
        """
        keys = {entry.key for entry in (self.entries() if only is None else only)}
        count = len(keys)
        for folder in [self.folder] if only is None else [self.folder / key for key in keys]:
            shutil.rmtree(folder, ignore_errors=True)
        left = len([entry for entry in self.entries() if entry.key in keys])
        if left:
            raise SplatfixError(
                "cache-not-cleared",
                f"{left} of {count} wheels in {self.folder} could not be removed.",
                meaning="They stay in use.",
                todo=(say(f"Make {self.folder} and all below it writable, then run this again."),),
            )
        return count

    def _entry(self, folder: Path) -> CachedWheel | None:
        try:
            document = read_json(folder / "entry.json", "an entry of the wheel cache")
            entry = CachedWheel(
                key=folder.name,
                wheel=Path(str(document["wheel"])).name,
                size=int(document["size"]),
                digest=str(document["digest"]),
                identity={str(name): str(value) for name, value in document["identity"].items()},
                source=str(document.get("source", "")),
                kept=_day((folder / "entry.json").stat().st_mtime),
            )
        except (SplatfixError, OSError, KeyError, TypeError, ValueError, AttributeError):
            return None
        return entry if (folder / entry.wheel).is_file() else None


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date().isoformat()


def wheel_key(source: Path, identity: Mapping[str, str]) -> str:
    """A key for what building ``source`` (the edited scratch copy) gives: its every byte, and what it is built with."""
    state = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode())
    for folder, folders, files in os.walk(source):
        folders.sort()
        for name in sorted(files):
            path = Path(folder) / name
            state.update(f"\0{path.relative_to(source).as_posix()}\0".encode("utf-8", "surrogateescape"))
            if path.is_symlink():
                state.update(b"link" + os.fsencode(path.readlink()))
            else:
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:32]
