"""What git's own files say of a checkout: commit, remote, submodules. git itself is not asked: its configuration can run code."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from splatfix.core.reading import is_folder, read_bytes
from splatfix.core.redact import without_credentials
from splatfix.facts.source.reader import FolderReader
from splatfix.model import Submodule

_MOST_SUBMODULES = 500
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_GITLINK_MODE = 0o160000
# In version 4 each path can be one byte longer than the last, so that a small index unfolds to gigabytes.
_LONGEST_PATH = 1 << 13


def git_folder(folder: Path, reader: FolderReader | None = None) -> Path | None:
    """The folder with HEAD and config; a submodule's or worktree's ``.git`` is a file that names it."""
    inside: Path | None = folder / ".git"
    if not is_folder(folder / ".git"):
        text = (reader or FolderReader()).text(folder / ".git")
        named = re.match(r"gitdir:[ \t]*(\S.*)", text)
        inside = _resolved(folder, named[1].strip()) if named else None
    return inside if inside and is_folder(inside) else None


def commit_of(git: Path | None, reader: FolderReader | None = None) -> str | None:
    """The commit that is checked out, from HEAD, a loose or a packed reference; None where none of them tells."""
    if git is None:
        return None
    reader = reader or FolderReader()
    head = reader.text(git / "HEAD").strip()
    reference = head.removeprefix("ref:").strip()
    # a worktree has its own HEAD, and shares the references of the repository
    shared = _resolved(git, reader.text(git / "commondir").strip()) or git
    found = [head]
    if reference != head:
        found = [reader.text(folder / reference).strip() for folder in (git, shared)]
        lines = (line.partition(" ") for line in reader.text(shared / "packed-refs").splitlines())
        found += (commit for commit, _, name in lines if name == reference)
    return next(filter(_COMMIT.fullmatch, found), None)


def remote_of(git: Path | None, reader: FolderReader | None = None) -> str:
    """The address of ``origin``, without credentials; "" where there is none."""
    text = (reader or FolderReader()).text(git / "config") if git else ""
    origins = (values for name, values in sections(text) if name == 'remote "origin"')
    return without_credentials(_unquoted(next(origins, {}), "url").partition(" ")[0])


def read_submodules(root: Path, reader: FolderReader | None = None) -> tuple[Submodule, ...]:
    """The submodules that .gitmodules names, and those that only git's index has."""
    reader = reader or FolderReader()
    listed = _gitmodules(root, reader)
    if len(listed) > _MOST_SUBMODULES:
        reader.leave_out(root / ".gitmodules", f"it names more than {_MOST_SUBMODULES} submodules")
    git = git_folder(root, reader)
    recorded = gitlinks(git) if git else {}
    submodules = []
    for path in list(dict.fromkeys([*listed, *recorded]))[:_MOST_SUBMODULES]:
        entry = listed.get(path, {})
        address = _unquoted(entry or _entry_inside(root, path, reader), "url")
        submodules.append(
            Submodule(
                path=path,
                url=without_credentials(address),
                empty=is_empty(root / path),
                commit=commit_of(git_folder(root / path, reader), reader),
                listed=path in listed,
                branch=_unquoted(entry, "branch"),
                recorded=recorded.get(path),
            )
        )
    return tuple(submodules)


def is_empty(folder: Path) -> bool:
    """It is missing, cannot be listed or holds nothing but ``.git``, as a submodule that was not fetched."""
    try:
        with os.scandir(folder) as listing:
            return all(entry.name == ".git" for entry in listing)
    except (OSError, ValueError):
        return True


def sections(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The sections of an INI file (git's config, setup.cfg) with their entries, of which the first of a name counts.

    configparser refuses what git takes: keys without a value, a section twice.
    """
    name, values = "", dict[str, str]()
    for line in text.splitlines():
        if head := re.match(r"\s*\[([^\]]*)\]", line):
            yield name, values
            name, values = head.group(1).strip(), {}
        elif entry := re.match(r"\s*([\w.-]+)\s*[=:](.*)", line):
            values.setdefault(entry.group(1), entry.group(2).strip())
    yield name, values


def gitlinks(git: Path) -> dict[str, str]:
    """Path to commit of each submodule of a git index with SHA-1 names; what comes before damage, and {} for another file."""
    links = (entry for entry in _index_entries(git) if entry[0] == _GITLINK_MODE)
    return {path.decode("utf-8", "replace"): commit.hex() for _, commit, path in links}


def has_nothing_below(git: Path, path: str) -> bool:
    """The repository has no file below this path, by its index; False where that cannot be read."""
    below = os.fsencode(f"{path}/")
    paths = [name for _, _, name in _index_entries(git)]
    return bool(paths) and not any(name.startswith(below) for name in paths)


def _index_entries(git: Path) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (mode, commit, path) of each entry of the index; source: gitformat-index(5), versions 2 to 4."""
    index = read_bytes(git / "index")
    if not isinstance(index, bytes) or not re.match(rb"DIRC\0\0\0[\2-\4]", index):
        return
    version = index[7]
    offset, path = 12, b""
    for _ in range(int.from_bytes(index[8:12], "big")):
        is_extended = int.from_bytes(index[offset + 60 : offset + 61], "big") & 0x40
        start, kept = offset + (64 if is_extended else 62), b""
        if version == 4:
            # how many bytes of the path before are dropped: seven bits a byte, and one is added for every byte that follows
            count = -1
            for byte in index[start : start + 5]:
                count, start = (count + 1) << 7 | byte & 0x7F, start + 1
                if byte < 0x80:
                    break
            kept = path[: max(len(path) - count, 0)]
        end = index.find(b"\0", start)
        path = kept + index[start:end]
        if end < 0 or len(path) > _LONGEST_PATH:
            return
        yield int.from_bytes(index[offset + 24 : offset + 28], "big"), index[offset + 40 : offset + 60], path
        # but for version 4 one to eight NULs fill an entry up to a multiple of eight bytes
        offset = end + 1 if version == 4 else offset + (end - offset + 8) // 8 * 8


def _gitmodules(folder: Path, reader: FolderReader) -> dict[str, Mapping[str, str]]:
    by_path: dict[str, Mapping[str, str]] = {}
    for name, values in sections(reader.text(folder / ".gitmodules")):
        if name.startswith("submodule") and "path" in values:
            by_path.setdefault(_unquoted(values, "path").rstrip("/"), values)
    return by_path


def _unquoted(values: Mapping[str, str], name: str) -> str:
    return values.get(name, "").strip('"')


def _entry_inside(root: Path, path: str, reader: FolderReader) -> Mapping[str, str]:
    """The entry for a link that the checkout took over with a folder of another repository, which has a .gitmodules."""
    for parent in list(PurePosixPath(path).parents)[:-1]:
        inside = PurePosixPath(path).relative_to(parent).as_posix()
        if entry := _gitmodules(root / parent, reader).get(inside):
            return entry
    return {}


def _resolved(folder: Path, name: str) -> Path | None:
    """The path that a file of git names, seen from its folder; None for a name that there cannot be."""
    try:
        return Path(os.path.realpath(folder / name))
    except ValueError:  # a NUL in it
        return None
