"""How the empty submodules of a checkout are filled: by git itself, or by a clone of each where git has no link to them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from splatfix.core.step import Step, run, say
from splatfix.facts import Checkout, Submodule

FETCH = "--fetch-submodules"
"""The option of ``splatfix install``."""

_SSH = re.compile(r"ssh://(?:[^@/]+@)?(?P<host>[\w.-]+)(?P<port>:\d+)?/(?P<path>.+)")
_SCP = re.compile(r"(?:[\w.-]+@)(?P<host>[\w.-]+):(?!//)/?(?P<path>.+)")
_WEB = re.compile(r"(?:https?|git)://(?P<host>[\w.-]+(?::\d+)?)/(?P<path>.+)")


def public_address(url: str, remote: str = "") -> str:
    """The https address of a repository that .gitmodules names; "" where there is none, as for a folder of some machine.

    Args:
        remote: where the checkout was cloned from; relative addresses are seen from there.
    """
    if url.startswith(("./", "../")):
        host, *path = public_address(remote).removeprefix("https://").rstrip("/").split("/")
        joined = posixpath.normpath(posixpath.join(*path, url)) if path else ".."
        return "" if joined.startswith("..") else f"https://{host}/{joined}"  # nothing is above the host
    for kind in (_WEB, _SSH, _SCP):
        if (found := kind.fullmatch(url)) and "***" not in url and "\\" not in url:
            host = found["host"].removesuffix(":9418") if url.startswith("git://") else found["host"]
            return f"https://{host}/{found['path']}"
    return ""


def how_to_fetch(
    folder: str,
    empty: Sequence[Submodule],
    *,
    clone: bool,
    remote: str = "",
    commits: Mapping[str, str] | None = None,
) -> tuple[Step, ...]:
    """The steps that fill the empty submodules of ``folder``, in order; sentences where only a person can.

    Args:
        clone: git made the folder; else it is an unpacked archive, where git knows nothing of submodules.
        remote: address that it was cloned from.
        commits: by path, what belongs there where git does not tell.
    """
    # git passes over an entry of .gitmodules that it has no link for, and stops at a link that has no entry
    linked = [
        item
        for item in empty
        if clone and item.url and item.listed and (item.recorded or not _any_link(empty))
    ]
    steps: list[Step] = []
    if linked:
        only = () if len(linked) == len(empty) else ("--", *(item.path for item in linked))
        words = ("submodule", "update", "--init", "--recursive", *only)
        steps.append(run("git", "-C", folder, *_over_https(linked), *words, text="In the checkout"))
    for item in empty:
        if item in linked:
            continue
        place, address = f"{folder}/{item.path}", public_address(item.url, remote if item.listed else "")
        if not address:
            said = f"its address is {item.url}" if item.url else ".gitmodules does not name it"
            steps.append(
                say(f"{item.path}: {said}. Ask its authors where it is, and clone it into that folder.")
            )
            continue
        commit = item.recorded or (commits or {}).get(item.path)
        branch = () if commit or not re.fullmatch(r"\w[\w./-]*", item.branch) else ("--branch", item.branch)
        steps.append(run("git", "clone", "--recursive", *branch, address, place, text=f"For {item.path}"))
        if commit:
            checkout = ("git", "-C", place, "checkout", "--recurse-submodules")
            steps.append(run(*checkout, commit, text="At the commit that belongs there"))
    return tuple(steps)


def holds(item: Submodule, path: str) -> bool:
    """A path of the checkout is a submodule's folder, or lies in it."""
    return f"{path}/".startswith(f"{item.path}/")


def module_of(item: Submodule, found: Checkout) -> str:
    """What an extension in a submodule's folder is imported as.

    The folder often has another name than the module: ``langsplat-rasterization`` brings diff_gaussian_rasterization. What
    the checkout imports and no folder has the name of tells which it is.
    """
    name = _folder_name(item)
    if name in found.imports:
        return name
    others = {_folder_name(one) for one in found.submodules} | {one.module for one in found.shadows}
    others |= {top for one in found.sources for top in (one.source.name or "", *one.source.packages)}
    left = [module for module in found.imports if module not in others]
    fitting = [module for module in left if module in name or ("raster" in module and "raster" in name)]
    return max(fitting, key=len, default=name)


def _folder_name(item: Submodule) -> str:
    return item.path.rpartition("/")[2].replace("-", "_")


def let_splatfix_fetch(install: Step) -> Step:
    """The command that fetches and goes on with an installation."""
    if install.command is None:
        return install
    argv = (*install.command.argv, FETCH)
    return Step("Or let splatfix fetch them and build", replace(install.command, argv=argv))


def _any_link(items: Iterable[Submodule]) -> bool:
    return any(item.recorded for item in items)


def _over_https(items: Iterable[Submodule]) -> Iterator[str]:
    """Options of git by which addresses that need a key are fetched without one."""
    for item in items:
        ssh, address = _SSH.fullmatch(item.url) or _SCP.fullmatch(item.url), public_address(item.url)
        if ssh and address:
            written = item.url[: ssh.start("path")]
            option = f"url.https://{ssh['host']}/.insteadOf={written}"
            yield from ("-c", option)
