"""Fetches the empty submodules of a checkout, all of them whole or none: git works in a scratch folder beside them.

The checkout's own git folder is neither asked nor changed, so that no hook, filter or command of its configuration runs.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path, PurePosixPath

from msgspec import Struct

from splatfix.checks.checkout.submodules import Needed, needed_submodules
from splatfix.context.submodules import public_address
from splatfix.core.errors import SplatfixError
from splatfix.core.isolation import find_program
from splatfix.core.runner import Completed, Runner
from splatfix.core.scratch import temporary_folder
from splatfix.core.toml import table_beside
from splatfix.facts.checkout import is_empty, read_submodules
from splatfix.facts.source.checkout import read_checkout
from splatfix.install.outcome import FetchedSubmodule
from splatfix.model import Submodule

_TIMEOUT = 3600.0
"""Seconds for one call of git; one that stands still for a minute ends by itself."""
_MOST = 100
"""Submodules of one checkout, in one another."""
PROTOCOLS = ("https", "ssh")
_GIT = table_beside(__file__, "git.toml")


def wanted_submodules(folder: Path) -> tuple[Needed, ...]:
    """Return the empty submodules of a checkout that something needs."""
    checkout = read_checkout(folder, ()).value
    return needed_submodules(checkout) if checkout else ()


def fetch_submodules(
    folder: Path,
    *,
    runner: Runner | None = None,
    tell: Callable[[str], None] = lambda _: None,
    protocols: Sequence[str] = PROTOCOLS,
) -> tuple[FetchedSubmodule, ...]:
    """Fill the empty submodules of a checkout that something needs, and theirs; () when none is empty.

    ``tell`` is called with what is fetched now, and how far it is. Raises ``no-git``, ``submodules-not-fetched``; the checkout
    is then as it was.
    """
    needed = wanted_submodules(folder)
    if not needed:
        return ()
    if find_program("git") is None:
        raise SplatfixError.of("install.no-git")
    git = _Git(runner or Runner(), tell, protocols)
    try:
        with temporary_folder(".splatfix-fetch-", folder) as scratch, ExitStack() as undo:
            fetched: list[FetchedSubmodule] = []
            targets: dict[Path, Path] = {}
            for number, item in enumerate(needed):
                path, staged = item.submodule.path, scratch / str(number)
                targets[staged] = _target_folder(folder, path)
                fetched += git.fetch(item.submodule, item.address, item.commit, staged, path)
            # every folder where it belongs, or everything as it was
            for staged, target in targets.items():
                before = scratch / f"before-{staged.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.is_dir():
                    target.rename(before)
                    undo.callback(before.rename, target)
                staged.rename(target)
                undo.callback(target.rename, staged)
            undo.pop_all()
    except OSError as error:
        raise _not_fetched(folder.name, f"{error.filename or folder}: {error.strerror or error}") from error
    return tuple(fetched)


class _Git(Struct):
    """Runs git on repositories of our own making."""

    runner: Runner
    tell: Callable[[str], None]
    protocols: Sequence[str]
    count: int = 0

    def fetch(
        self, item: Submodule, address: str, commit: str, folder: Path, path: str
    ) -> Iterator[FetchedSubmodule]:
        """Make ``folder`` the submodule at that commit ("": the newest), with its own submodules in it."""
        self.count += 1
        if self.count > _MOST:
            raise _not_fetched(path, "there are too many submodules in one another")
        if not address:
            url = item.url or "not in .gitmodules"
            raise _not_fetched(path, f"its address is {url}; it must be at https or ssh")
        urls, commits = [address], [commit]
        # what is written with a key is asked for without one first
        if "@" in item.url and public_address(item.url) == address:
            urls.append(item.url)
        # a commit of the tables may be gone; one that the checkout records may not
        if commit and commit != item.recorded:
            commits.append("")
        failures: dict[str, None] = {}
        for candidate, url in product(commits, urls):
            failure = self._clone(url, candidate, item.branch, folder, path)
            if not failure:
                break
            if url not in failure:
                failure = f"{url}: {failure}"
            failures[failure] = None
            shutil.rmtree(folder, ignore_errors=True)
        else:
            raise _not_fetched(path, "; ".join(failures))
        head = self._run(["-C", str(folder), "rev-parse", "HEAD"], path).stdout.strip()
        yield FetchedSubmodule(path, address, head, bool(candidate))
        for inner in read_submodules(folder):
            if inner.empty:
                target = _target_folder(folder, inner.path)
                if target.is_dir():
                    target.rmdir()
                nested = public_address(inner.url, address if inner.listed else "")
                yield from self.fetch(inner, nested, inner.recorded or "", target, f"{path}/{inner.path}")

    def _clone(self, url: str, commit: str, branch: str, folder: Path, path: str) -> str:
        """Get one repository without its submodules, no more of it than is needed; the failure, "" when it is there."""
        in_folder = ["-C", str(folder)]
        fetch = [*in_folder, "fetch", "--progress", "--no-recurse-submodules"]
        if branch.startswith("-"):
            branch = ""
        wanted = commit or branch or "HEAD"
        made = self._run(["init", "--quiet", "--template=", str(folder)], path)
        if made.ok:
            made = self._run([*in_folder, "remote", "add", "origin", url], path)
        # without a repository of our own git would take the next one above: the person's checkout
        if not made.ok:
            return _failure(made)
        done = self._run([*fetch, "--depth=1", "origin", wanted], path)
        if done.ok:
            wanted = "FETCH_HEAD"
        elif commit:
            done = self._run([*fetch, "--tags", "origin"], path)  # the server gives no single commits
        if done.ok:
            done = self._run([*in_folder, "checkout", "--quiet", "--detach", wanted], path)
        return _failure(done)

    def _run(self, arguments: Sequence[str], path: str) -> Completed:
        def line(text: str) -> None:
            progress = re.match(r"(?:remote: )?(Receiving|Counting|Resolving) \w+: +(\d+%)", text)
            if progress:
                self.tell(f"{path}: {progress.group(1).lower()} {progress.group(2)}")

        self.tell(path)
        argv = ["git"]
        settings = _GIT["settings"] | {f"protocol.{name}.allow": "always" for name in self.protocols}
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        kept: dict[str, str] = {}
        for name, value in os.environ.items():
            # a window that asks for a password would wait for ever in a script
            if name != "SSH_ASKPASS" and (
                name.startswith(tuple(_GIT["kept"])) or not name.startswith("GIT_")
            ):
                kept[name] = value
        ssh = f"{kept.get('GIT_SSH_COMMAND', 'ssh')} -oBatchMode=yes"
        variables = {**kept, **_GIT["variables"], "GIT_SSH_COMMAND": ssh}
        return self.runner.run([*argv, *arguments], timeout=_TIMEOUT, env=variables, on_line=line)


def _failure(completed: Completed) -> str:
    """Return why git failed, by its own last words; "" when it did not."""
    if completed.ok:
        return ""
    lines = [line for line in completed.stdout.splitlines() if line.startswith(("fatal:", "error:"))]
    return lines[-1].partition(": ")[2].rstrip(".") if lines else completed.why()


def _target_folder(root: Path, path: str) -> Path:
    """Return a submodule's folder; raises ``submodules-not-fetched`` unless it is below ``root``: a stranger has written it."""
    parts = PurePosixPath(path).parts
    target = root.joinpath(*parts)
    strange = any(part in ("..", ".git") or "\\" in part for part in parts)
    linked = any(root.joinpath(*parts[:end]).is_symlink() for end in range(1, len(parts) + 1))
    if not parts or path.startswith("/") or strange or linked:
        raise _not_fetched(path, "that is no folder inside the checkout")
    if not is_empty(target):
        raise _not_fetched(path, "its folder is not empty any more")
    return target


def _not_fetched(path: str, reason: str) -> SplatfixError:
    return SplatfixError.of("install.submodules-not-fetched", path=path, reason=reason)
