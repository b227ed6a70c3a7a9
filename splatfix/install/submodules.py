"""Fetches the empty submodules of a checkout, all of them whole or none: git works in a scratch folder beside them.

The checkout's own git folder is neither asked nor changed, so that no hook, filter or command of its configuration runs.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from splatfix.checks.checkout.submodules import Needed, needed_submodules
from splatfix.context.submodules import public_address
from splatfix.core.errors import SplatfixError
from splatfix.core.isolation import find_program
from splatfix.core.runner import Completed, ProcessRunner, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.step import say
from splatfix.facts import Submodule, is_empty, read_submodules
from splatfix.facts.source.checkout import read_checkout
from splatfix.install.outcome import Fetched

_TIMEOUT = 3600.0
"""Seconds for one call of git; one that stands still for a minute ends by itself."""
_DEEPEST = 8
_MOST = 100
_KEPT = ("GIT_SSL_", "GIT_HTTP_", "GIT_SSH", "GIT_CONFIG_")
"""Beginnings of the variables of git that a person may have set for every repository; the others are about one."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
PROTOCOLS = ("https", "ssh")


def wanted_submodules(folder: Path) -> tuple[Needed, ...]:
    """The empty submodules of a checkout that something needs."""
    found = read_checkout(folder, ()).value
    return needed_submodules(found) if found else ()


def fetch_submodules(
    folder: Path,
    *,
    runner: Runner | None = None,
    doing: Callable[[str], None] = lambda _: None,
    protocols: Sequence[str] = PROTOCOLS,
) -> tuple[Fetched, ...]:
    """Fill the empty submodules of a checkout that something needs, and theirs; () when none is empty.

    Args:
        doing: told what is fetched now, and how far it is.
        protocols: what git may speak.

    Raises:
        SplatfixError: ``no-git``, ``submodules-not-fetched``; the checkout is then as it was.
    """
    wanted = wanted_submodules(folder)
    if not wanted:
        return ()
    if find_program("git") is None:
        raise SplatfixError(
            "no-git",
            "git is not on PATH, and submodules are fetched with it.",
            meaning="Nothing was changed.",
            todo=(say("Install git, or unpack each submodule's archive into its folder by hand."),),
        )
    git = _Git(runner or ProcessRunner(), doing, tuple(protocols))
    try:
        with temporary_folder(".splatfix-fetch-", folder) as scratch:
            done: list[Fetched] = []
            places: list[tuple[Path, Path]] = []
            for number, item in enumerate(wanted):
                target = _place(folder, item.submodule.path)
                staged = scratch / str(number)
                done += git.fetch(item.submodule, item.address, item.commit, staged, item.submodule.path)
                places.append((staged, target))
            _move_in(places, scratch)
    except OSError as error:
        raise _not_fetched(folder.name, f"{error.filename or folder}: {error.strerror or error}") from error
    return tuple(done)


class _Git:
    """Runs git on repositories of our own making."""

    def __init__(self, runner: Runner, doing: Callable[[str], None], protocols: Sequence[str]) -> None:
        self._runner, self._doing, self._count = runner, doing, 0
        settings = {
            "core.hooksPath": os.devnull,
            "core.fsmonitor": "false",
            "core.askPass": "",
            "credential.interactive": "false",
            "submodule.recurse": "false",
            "http.lowSpeedLimit": "1000",
            "http.lowSpeedTime": "60",
            "protocol.allow": "never",
            **{f"protocol.{name}.allow": "always" for name in protocols},
        }
        self._options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name != "SSH_ASKPASS" and (not name.startswith("GIT_") or name.startswith(_KEPT))
        }
        ssh = f"{kept.get('GIT_SSH_COMMAND', 'ssh')} -oBatchMode=yes"
        self._environment = {
            **kept,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_SSH_COMMAND": ssh,
            "SSH_ASKPASS_REQUIRE": "never",
            "GCM_INTERACTIVE": "never",
            "GIT_LFS_SKIP_SMUDGE": "1",
            "LC_ALL": "C",
        }

    def fetch(
        self, item: Submodule, address: str, commit: str, place: Path, path: str, depth: int = 0
    ) -> Iterator[Fetched]:
        """Make ``place`` the submodule at that commit ("": the newest), with its own submodules in it."""
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST:
            raise _not_fetched(path, "there are too many submodules in one another")
        if not address:
            raise _not_fetched(
                path, f"its address is {item.url or 'not in .gitmodules'}; it must be at https or ssh"
            )
        # what is written with a key is asked for without one first
        tried = [address, item.url] if public_address(item.url) == address and "@" in item.url else [address]
        # a commit of the tables may be gone; one that the checkout records may not
        commits = [commit] if not commit or commit == item.recorded else [commit, ""]
        said = []
        for url, commit in [(url, commit) for commit in commits for url in tried]:
            why = self._clone(url, commit, item.branch, place, path)
            if not why:
                break
            said.append(why if url in why else f"{url}: {why}")
            shutil.rmtree(place, ignore_errors=True)
        else:
            raise _not_fetched(path, "; ".join(dict.fromkeys(said)))
        head = self._run(["-C", str(place), "rev-parse", "HEAD"], path).stdout.strip()
        yield Fetched(path, address, head, bool(commit))
        for inner in read_submodules(place):
            if inner.empty:
                target = _place(place, inner.path)
                if target.is_dir():
                    target.rmdir()
                nested = public_address(inner.url, address if inner.listed else "")
                yield from self.fetch(
                    inner, nested, inner.recorded or "", target, f"{path}/{inner.path}", depth + 1
                )

    def _clone(self, url: str, commit: str, branch: str, place: Path, path: str) -> str:
        """Clone one repository without its submodules; why not, "" when it is there."""
        at = ["-C", str(place)]
        if _COMMIT.fullmatch(commit):  # that commit alone, where the server gives it
            for words in (
                ["init", "--quiet", "--template=", str(place)],
                [*at, "remote", "add", "origin", url],
            ):
                if why := self._run(words, path).why():
                    return why
            fetch = [*at, "fetch", "--progress", "--no-tags", "--depth=1", "origin", commit]
            if not self._run(fetch, path).ok:
                whole = self._run([*at, "fetch", "--progress", "origin"], path)
                if not whole.ok:
                    return _said(whole)
            return _said(self._run([*at, "checkout", "--quiet", "--detach", commit], path))
        named = ["--branch", branch] if branch and not branch.startswith("-") and not commit else []
        depth = [] if commit else ["--depth=1"]
        clone = ["clone", "--progress", "--template=", "--no-recurse-submodules", *named, *depth, "--", url]
        if why := _said(self._run([*clone, str(place)], path)):
            return why
        return _said(self._run([*at, "checkout", "--quiet", "--detach", commit], path)) if commit else ""

    def _run(self, words: Sequence[str], path: str) -> Completed:
        def line(text: str) -> None:
            if progress := re.match(r"(?:remote: )?(Receiving|Counting|Resolving) \w+: +(\d+%)", text):
                self._doing(f"{path}: {progress.group(1).lower()} {progress.group(2)}")

        self._doing(path)
        argv = ["git", *self._options, *words]
        return self._runner.run(argv, timeout=_TIMEOUT, env=self._environment, on_line=line)


def _said(done: Completed) -> str:
    """Why git failed, by its own last words; "" when it did not."""
    if done.ok:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("fatal:", "error:"))]
    return lines[-1].partition(": ")[2].rstrip(".") if lines else done.why()


def _place(root: Path, path: str) -> Path:
    """The folder of a submodule, which must be below ``root`` and reached without links.

    Raises:
        SplatfixError: ``submodules-not-fetched`` for any other path: a stranger has written it.
    """
    parts = PurePosixPath(path).parts
    place = root.joinpath(*parts)
    wrong = not parts or path.startswith("/") or any(part in ("..", ".git") or "\\" in part for part in parts)
    if wrong or any((root.joinpath(*parts[:end])).is_symlink() for end in range(1, len(parts) + 1)):
        raise _not_fetched(path, "that is no folder inside the checkout")
    if not is_empty(place):
        raise _not_fetched(path, "its folder is not empty any more")
    return place


def _move_in(places: Iterable[tuple[Path, Path]], scratch: Path) -> None:
    """Put every folder in its place, or leave all places as they were."""
    moved: list[tuple[Path, Path, Path]] = []
    try:
        for staged, target in places:
            before = scratch / f"before-{staged.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir():
                target.rename(before)
            moved.append((staged, target, before))
            staged.rename(target)
    except BaseException:
        for staged, target, before in reversed(moved):
            if target.is_dir():
                target.rename(staged)
            if before.is_dir():
                before.rename(target)
        raise


def _not_fetched(path: str, why: str) -> SplatfixError:
    return SplatfixError(
        "submodules-not-fetched",
        f"{path} was not fetched: {why}.",
        meaning="The checkout is as it was.",
        todo=(
            say("Check the network; a private repository needs its credentials in git's configuration."),
            say("Or clone that repository into the folder by hand, and run this again."),
        ),
    )
