"""What git's own files say about a checkout, read as text; git itself is not asked."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from splatfix.facts.model.source import Submodule
from splatfix.facts.source.folder import is_empty, text_of


def git_folder(folder: Path) -> Path | None:
    """The folder with HEAD and config; a submodule's or worktree's ``.git`` is a file that names it."""
    place = folder / ".git"
    if place.is_dir():
        return place
    match = re.match(r"gitdir:\s*(.+)", text_of(place))
    if not match:
        return None
    named = (folder / match.group(1).strip()).resolve()
    return named if named.is_dir() else None


def commit_of(git: Path | None) -> str | None:
    """The commit that is checked out, from HEAD, a loose or a packed reference; None where none of them tells."""
    if git is None:
        return None
    head = text_of(git / "HEAD").strip()
    if not head.startswith("ref:"):
        return head if re.fullmatch(r"[0-9a-f]{40,64}", head) else None
    ref = head.removeprefix("ref:").strip()
    common = (git / text_of(git / "commondir").strip()).resolve() if (git / "commondir").is_file() else git
    for place in (git, common):
        loose = text_of(place / ref).strip()
        if re.fullmatch(r"[0-9a-f]{40,64}", loose):
            return loose
    packed = re.search(
        rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", text_of(common / "packed-refs"), re.MULTILINE
    )
    return packed.group(1) if packed else None


def remote_of(git: Path | None) -> str:
    """The address of ``origin``, without a user name or token in it."""
    config = text_of(git / "config") if git else ""
    match = re.search(r'\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', config, re.MULTILINE | re.DOTALL)
    if not match:
        return ""
    url = match.group(1)
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, "", ""))
    return url


def read_submodules(root: Path) -> tuple[Submodule, ...]:
    """The submodules that .gitmodules names."""
    found = []
    text = text_of(root / ".gitmodules")
    for block in re.split(r"^\s*\[submodule\b.*$", text, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(path|url)\s*=\s*(\S.*?)\s*$", block, re.MULTILINE))
        if "path" not in values:
            continue
        place = root / values["path"]
        found.append(
            Submodule(
                path=values["path"],
                url=values.get("url", ""),
                empty=is_empty(place),
                commit=commit_of(git_folder(place)),
            )
        )
    return tuple(found)
