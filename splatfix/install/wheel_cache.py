"""The wheel cache: the same source, built with the same tools for the same GPUs, is compiled once."""

import datetime
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from packaging.utils import canonicalize_name

from splatfix import __version__
from splatfix.core.codec import from_json
from splatfix.core.errors import SplatfixError
from splatfix.core.files import read_json, remove, write_bytes, write_json
from splatfix.core.redact import redacted
from splatfix.core.resources import user_cache
from splatfix.core.scratch import temporary_folder
from splatfix.core.toml import table_beside
from splatfix.core.words import counted
from splatfix.facts.checkout import commit_of, git_folder, remote_of
from splatfix.install.outcome import CachedWheel
from splatfix.install.trust import distrust, make_private
from splatfix.model import Facts
from splatfix.model.steps import BuildWheel

_VARIABLES = table_beside(__file__, "build_variables.toml")


class WheelCache:
    """A folder of wheels by key; an entry is used when nobody else can have written it and its digest is right."""

    def __init__(self, folder: Path | None = None) -> None:
        """``folder`` defaults to one in the user's cache."""
        self.folder = folder or user_cache() / "wheels"
        self.refused: list[str] = []
        """Why the cache, or entries that were looked for, are not used; sentences."""

    def take(self, key: str, destination: Path) -> Path | None:
        """Copy the wheel of that key into ``destination``; None when there is none, a damaged one, or one that somebody
        else may have put there."""
        entry = self._is_ours() and self._entry(self.folder / key)
        if not entry:
            return None
        try:
            content = (self.folder / key / entry.wheel).read_bytes()
        except OSError:  # cleared by another splatfix in this moment, or not ours to read
            return None
        if hashlib.sha256(content).hexdigest() != entry.digest:
            self._refuse(f"{self.folder / key} is not used: {entry.wheel} is not what was put there")
            shutil.rmtree(self.folder / key, ignore_errors=True)
            return None
        write_bytes(destination / entry.wheel, content)
        return destination / entry.wheel

    def put(self, key: str, wheel: Path, identity: Mapping[str, str], source: str = "") -> None:
        """Keep a wheel, and where its source came from. A cache that cannot be written is ignored: the wheel is there."""
        if not self._is_ours():
            return
        content = wheel.read_bytes()
        document = {"wheel": wheel.name, "size": len(content), "digest": hashlib.sha256(content).hexdigest()}
        document |= {"source": source, "identity": dict(identity)}
        with suppress(SplatfixError, OSError):
            make_private(self.folder)
            with temporary_folder(".new-", self.folder) as new:
                write_bytes(new / "entry" / wheel.name, content)
                write_json(new / "entry" / "entry.json", document)
                # the folder's mode is what a later run trusts, and the umask may have left it open to a group
                (new / "entry").chmod(0o700)
                shutil.rmtree(self.folder / key, ignore_errors=True)
                (new / "entry").rename(self.folder / key)

    def entries(self) -> tuple[CachedWheel, ...]:
        if not self.folder.is_dir() or not self._is_ours():
            return ()
        entries = [entry for entry in map(self._entry, self.folder.iterdir()) if entry is not None]
        return tuple(sorted(entries, key=lambda entry: (entry.wheel, entry.key)))

    def named(self, name: str) -> tuple[CachedWheel, ...]:
        """Return the wheels of that distribution, or the one whose key begins so; raises ``not-in-cache`` (exit 2)."""
        entries, distribution = self.entries(), canonicalize_name(name)
        of_name = [
            entry for entry in entries if canonicalize_name(entry.name) == distribution or entry.wheel == name
        ]
        matches = of_name or [entry for entry in entries if entry.key.startswith(name)]
        if not matches:
            known = ", ".join(dict.fromkeys(entry.name for entry in entries)) or "none"
            raise SplatfixError.of("install.not-in-cache", folder=self.folder, name=name, known=known)
        return tuple(matches)

    def clear(self, only: Sequence[CachedWheel] | None = None) -> int:
        """Remove everything, or only these; returns how many wheels that were, or raises ``cache-not-cleared``."""
        entries = self.entries() if only is None else only
        keys = {entry.key for entry in entries}
        # everything is not only entries: also what is damaged, or was left by a splatfix that was killed
        for path in list(self.folder.glob("*")):
            if only is None or path.name in keys:
                remove(path)
        left = sum(entry.key in keys for entry in self.entries())
        if left:
            raise SplatfixError.of(
                "install.cache-not-cleared", left=left, wheels=counted(len(keys), "wheel"), folder=self.folder
            )
        return len(keys)

    def _is_ours(self) -> bool:
        reason = distrust(self.folder.resolve(), inside=False)
        if reason:
            self._refuse(f"the wheel cache is not used: {reason}")
        return not reason

    def _refuse(self, sentence: str) -> None:
        if sentence not in self.refused:
            self.refused.append(sentence)

    def _entry(self, folder: Path) -> CachedWheel | None:
        # a link could lead to a file that changes after its digest was taken
        links = (f"{path} is a link" for path in folder.glob("*") if path.is_symlink())
        if reason := distrust(folder) or next(links, ""):
            self._refuse(f"an entry of the wheel cache is not used: {reason}")
            return None
        try:
            document = read_json(folder / "entry.json", "an entry of the wheel cache")
            written = (folder / "entry.json").stat().st_mtime
            created = datetime.datetime.fromtimestamp(written, datetime.timezone.utc).date().isoformat()
            entry = from_json(CachedWheel, {**document, "key": folder.name, "created": created})
        except (SplatfixError, OSError, TypeError, ValueError):
            return None
        return entry if (folder / entry.wheel).is_file() else None


def wheel_key(source: Path, identity: Mapping[str, str]) -> str:
    """Return a digest of every byte of ``source`` (the edited scratch copy) and of what it is built with."""
    state = hashlib.sha256(json.dumps(dict(identity), sort_keys=True).encode())
    for folder, folders, files in os.walk(source):
        folders.sort()  # os.walk gives them in the order of the disk
        for name in sorted(files):
            path = Path(folder) / name
            state.update(f"\0{path.relative_to(source).as_posix()}\0".encode("utf-8", "surrogateescape"))
            if path.is_symlink():  # what it leads to in the copy is hashed by itself
                state.update(b"link" + os.fsencode(path.readlink()))
            else:
                state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:32]


def identity_of(step: BuildWheel, facts: Facts, reads: Iterable[str] = ()) -> dict[str, str]:
    """Return everything beside the source's bytes that decides what comes out of a build.

    What lies in folders of the environment counts by its version, not by where this one environment has it: words stand for
    their paths. ``reads`` are the variables that the source's setup.py reads, such as gsplat's ``WITH_SYMBOLS``.
    """
    ignored = set(_VARIABLES["without_effect"])
    inherited = {*_VARIABLES["flags"], *reads} - ignored - set(step.unset)
    identity = {"subject": step.subject}
    if step.repository:
        identity["folder"] = os.path.relpath(step.source, step.repository)
    identity |= {"splatfix": __version__, "mismatch": step.cuda_mismatch}
    identity |= versions_of(facts, step)
    # a login in such a variable belongs in no file
    identity |= redacted({name: os.environ[name] for name in sorted(inherited) if name in os.environ})
    identity |= {name: value for name, value in step.variables.items() if name not in ignored}
    places: dict[str, str] = {}
    # the longest first: site-packages lies in the environment
    if torch := facts.environment.torch.value:
        places[str(PurePath(torch.folder).parent)] = "<site-packages>"
    if interpreter := facts.environment.interpreter.value:
        places[interpreter.prefix] = "<environment>"
    for folder, word in places.items():
        # whole names only: /envs/one is no part of /envs/one-more
        whole = re.compile(rf"{re.escape(folder)}(?![^/\\:;\s])")
        identity = {whole.sub(word, name): whole.sub(word, value) for name, value in identity.items()}
    return identity


def versions_of(facts: Facts, step: BuildWheel) -> dict[str, str]:
    """Return versions of what a build uses, from the facts: interpreter, torch, toolkit, compilers, setuptools, and NVIDIA's
    packages where they lend headers. Not pip's: it only calls setuptools."""
    versions = {"python": "", "torch": ""}
    lends_headers = False
    if interpreter := facts.environment.interpreter.value:
        versions["python"] = f"{interpreter.version} {interpreter.abi_tag}"
    if torch := facts.environment.torch.value:
        versions["torch"] = f"{torch.version} {torch.cuda}"
        lends_headers = str(PurePath(torch.folder).parent) in step.variables.get("CPATH", "")
    for toolkit in facts.machine.toolkits.value or ():
        if toolkit.root == step.variables.get("CUDA_HOME"):
            versions["toolkit"] = toolkit.version or ""
    for compiler in facts.machine.compilers.value or ():
        if compiler.path == step.variables.get("CXX", compiler.path):
            versions[f"compiler {compiler.path}"] = compiler.version or ""
    for item in facts.environment.distributions.value or ():
        builds = item.name in ("setuptools", "wheel", "pybind11")
        if builds or (lends_headers and item.name.startswith("nvidia-")):
            versions[item.name] = item.version
    return versions


def origin_of(folder: Path) -> str:
    """Return ``graphdeco-inria/diff-gaussian-rasterization at 9c5c2028f6`` for a clone or submodule, with the path inside it."""
    for root in (folder, *folder.parents):
        if git := git_folder(root):
            break
    else:
        return str(folder)
    address = remote_of(git).removesuffix(".git").replace(":", "/").rstrip("/")
    origin = folder.as_posix()
    if "/" in address:
        origin = Path(*address.split("/")[-2:], folder.relative_to(root)).as_posix()
    commit = commit_of(git)
    return f"{origin} at {commit[:10]}" if commit else origin
