"""The commits that a git index holds for submodules, read as bytes: git itself is not asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADER, _ENTRY, _COMMIT = 12, 62, slice(40, 60)
_GITLINK = 0o160000
_EXTENDED = 0x4000
_VERSIONS = (2, 3, 4)
_LONGEST = 1 << 13
"""Bytes of a path; in version 4 each can be one longer than the last."""


def gitlinks(index: bytes) -> dict[str, str]:
    """Path to commit of each submodule of an index with SHA-1 names; what comes before damage, and {} for another file.

    Source: gitformat-index(5), versions 2 to 4.
    """
    if index[:4] != b"DIRC" or int.from_bytes(index[4:8], "big") not in _VERSIONS:
        return {}
    return {
        path.decode("utf-8", "replace"): commit.hex()
        for mode, commit, path in _entries(index, int.from_bytes(index[4:8], "big"))
        if mode == _GITLINK
    }


def _entries(index: bytes, version: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Mode, name of the object and path of each entry."""
    at, before = _HEADER, b""
    for _ in range(int.from_bytes(index[8:12], "big")):
        entry = index[at : at + _ENTRY]
        if len(entry) < _ENTRY:
            return
        flags = int.from_bytes(entry[60:62], "big")
        start = at + _ENTRY + (2 if flags & _EXTENDED else 0)
        if version == 4:
            # how many bytes of the path before are dropped: seven bits a byte, one added for every byte that follows
            drop = re.compile(rb"[\x80-\xff]{0,4}[\x00-\x7f]").match(index, start)
            if drop is None:
                return
            count = -1
            for byte in drop.group():
                count = (count + 1) << 7 | (byte & 0x7F)
            kept = before[: max(len(before) - count, 0)]
            start = drop.end()
        else:
            kept = b""
        end = index.find(b"\0", start)
        if end < 0:
            return
        before = kept + index[start:end]
        if len(before) > _LONGEST:
            return
        # before version 4 one to eight NULs fill an entry up to a multiple of eight bytes
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
        yield int.from_bytes(entry[24:28], "big"), entry[_COMMIT], before
