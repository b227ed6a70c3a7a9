"""How the empty submodules of a checkout are filled: by git itself, or by a clone of each where git has no link to them."""

import posixpath
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from splatfix.core.step import PlainStep, Step, run, say
from splatfix.model import Checkout, Submodule

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
        joined = posixpath.normpath(posixpath.join(*path, url))
        if not path or joined.startswith(".."):
            return ""  # nothing is above the host
        return f"https://{host}/{joined}"
    if "***" in url or "\\" in url:
        return ""  # redacted, or a folder on Windows
    for kind in (_WEB, _SSH, _SCP):
        match = kind.fullmatch(url)
        if match:
            host = match["host"]
            if url.startswith("git://"):  # its own port, which https does not answer at
                host = host.removesuffix(":9418")
            return f"https://{host}/{match['path']}"
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
    any_link = any(submodule.recorded for submodule in empty)
    linked = []
    for submodule in empty:
        # git passes over an entry of .gitmodules that it has no link for, and stops at a link that has no entry
        named = submodule.url and submodule.listed
        if clone and named and (submodule.recorded or not any_link):
            linked.append(submodule)
    steps: list[Step] = []
    if linked:
        # addresses that need a key are fetched without one
        https: list[str] = []
        for submodule in linked:
            ssh = _SSH.fullmatch(submodule.url) or _SCP.fullmatch(submodule.url)
            if ssh and public_address(submodule.url):
                before_path = submodule.url[: ssh.start("path")]
                https += ["-c", f"url.https://{ssh['host']}/.insteadOf={before_path}"]
        arguments = ["submodule", "update", "--init", "--recursive"]
        if len(linked) < len(empty):
            arguments += ["--", *(submodule.path for submodule in linked)]
        steps.append(run("git", "-C", folder, *https, *arguments, text="In the checkout"))
    for submodule in empty:
        if submodule not in linked:
            steps += _clone(folder, submodule, remote, (commits or {}).get(submodule.path, ""))
    return tuple(steps)


def _clone(folder: str, submodule: Submodule, remote: str, known_commit: str) -> list[Step]:
    """Clone one submodule into its folder, at the commit that belongs there where that is known."""
    path = f"{folder}/{submodule.path}"
    # an address that was guessed, and is not of .gitmodules, is never relative
    if not submodule.listed:
        remote = ""
    address = public_address(submodule.url, remote)
    if not address:
        obstacle = ".gitmodules does not name it"
        if submodule.url:
            obstacle = f"its address is {submodule.url}"
        ask = "Ask its authors where it is, and clone it into that folder."
        return [say(f"{submodule.path}: {obstacle}. {ask}")]
    commit = submodule.recorded or known_commit
    branch: tuple[str, ...] = ()
    # a name from a stranger's file: nothing that git could take for an option
    if not commit and re.fullmatch(r"\w[\w./-]*", submodule.branch):
        branch = ("--branch", submodule.branch)
    text = f"For {submodule.path}"
    steps = [run("git", "clone", "--recursive", *branch, address, path, text=text, kind="clone")]
    if commit:
        checkout = ("git", "-C", path, "checkout", "--recurse-submodules", commit)
        steps.append(run(*checkout, text="At the commit that belongs there"))
    return steps


def holds(submodule: Submodule, path: str) -> bool:
    """A path of the checkout is a submodule's folder, or lies in it."""
    return f"{path}/".startswith(f"{submodule.path}/")


def module_of(submodule: Submodule, checkout: Checkout) -> str:
    """What an extension in a submodule's folder is imported as.

    The folder often has another name than the module: ``langsplat-rasterization`` brings diff_gaussian_rasterization. What
    the checkout imports and no folder has the name of tells which it is.
    """
    name = _folder_name(submodule)
    if name in checkout.imports:
        return name
    provided = {_folder_name(other) for other in checkout.submodules}
    provided |= {shadow.module for shadow in checkout.shadows}
    for item in checkout.sources:
        provided |= {item.source.name or "", *item.source.packages}
    fitting = []
    for module in checkout.imports:
        both_rasterize = "raster" in module and "raster" in name
        if module not in provided and (module in name or both_rasterize):
            fitting.append(module)
    return max(fitting, key=len, default=name)


def _folder_name(submodule: Submodule) -> str:
    return submodule.path.rpartition("/")[2].replace("-", "_")


def let_splatfix_fetch(install: Step) -> Step:
    """Return the command that fetches and goes on with an installation."""
    if install.command is None:
        return install
    argv = (*install.command.argv, FETCH)
    return PlainStep("Or let splatfix fetch them and build", replace(install.command, argv=argv), "fetch")
