"""Reads folders that somebody else filled, within budgets: whatever lies in them, it ends soon and in little memory."""

import ast
import os
import re
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from splatfix.core.limits import MOST_SOURCE, MOST_SOURCES
from splatfix.core.reading import Unread, is_folder, is_regular_file, read_text
from splatfix.facts.source.names import any_of

MOST_TOKENS = 50_000
"""Words and signs of one Python file, some five thousand lines. A syntax tree takes two kilobytes for each, and its depth,
that Python 3.10 does not watch, cannot be more."""
_MOST_ENTRIES = 50_000
_MOST_IN_FOLDER = 10_000
_MOST_FILES = 600
_MOST_TOKENS_IN_ALL = 12 * MOST_TOKENS

_TOKEN = re.compile(r"\w+|[^\w\s]")
_NOT_CODE = any_of("not-code")


class NotPython(ValueError):
    """A text is not Python that this version can read; the message says why."""


class FolderReader:
    """Reads files below a folder and keeps what was left out, with the reason. One serves for one look at a checkout."""

    def __init__(self) -> None:
        self._bytes_left = MOST_SOURCES
        self._entries_left = _MOST_ENTRIES
        self._tokens_left = _MOST_TOKENS_IN_ALL
        self._left_out: dict[str, str] = {}

    @property
    def left_out(self) -> tuple[Unread, ...]:
        """What is there and was not read, in order of name."""
        return tuple(Unread(path, reason) for path, reason in sorted(self._left_out.items()))

    def was_left_out(self, path: Path) -> bool:
        return str(path) in self._left_out

    def leave_out(self, path: Path, reason: str) -> None:
        self._left_out.setdefault(str(path), reason)

    def text(self, path: Path) -> str:
        """A text file's content; "" when there is none, or when it was left out."""
        content = self.text_or_reason(path)
        return content if isinstance(content, str) else ""

    def text_or_reason(self, path: Path) -> str | Unread | None:
        """The same, with the reason why it was left out; None when there is no such file."""
        content = read_text(path, min(MOST_SOURCE, self._bytes_left))
        if isinstance(content, str):
            self._bytes_left -= len(content)
        elif content is not None:
            if self._bytes_left < MOST_SOURCE and is_regular_file(path):
                content = Unread(str(path), f"more than {MOST_SOURCES >> 20} MiB were read before it")
            self.leave_out(path, content.reason)
        return content

    def python(self, path: Path, text: str) -> ast.Module | None:
        """The syntax tree of a file's text; None when it was left out."""
        try:
            return self.parse(text)
        except NotPython as error:
            self.leave_out(path, f"it is not Python that this version can read: {error}")
            return None

    def parse(self, text: str) -> ast.Module:
        """Return the syntax tree of a stranger's file; raises NotPython where it is none, is nested too deeply, or too long, by
        itself or with what was parsed before."""
        count = len(_TOKEN.findall(text))
        if count > self._tokens_left:
            raise NotPython(
                f"{_MOST_TOKENS_IN_ALL} words and signs are read in all, and it has more than are left"
            )
        self._tokens_left -= count
        if count > MOST_TOKENS:
            raise NotPython(f"it has {count} words and signs, and at most {MOST_TOKENS} are read")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the escapes in the stranger's texts
                return ast.parse(text)
        except (RecursionError, MemoryError) as error:
            # MemoryError is how Python says that its parser's stack is full
            raise NotPython("its expressions are nested too deeply") from error
        except SyntaxError as error:
            raise NotPython(f"{error.msg} (line {error.lineno})") from error
        except ValueError as error:  # a NUL in it
            raise NotPython(str(error)) from error

    def children(self, folder: Path) -> list[os.DirEntry[str]]:
        """Entries of a folder in order of name, without hidden ones; none when it cannot be listed."""
        most = min(self._entries_left, _MOST_IN_FOLDER)
        try:
            with os.scandir(folder) as listing:
                entries = list(islice(listing, most + 1))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return []
        except OSError as error:
            self.leave_out(folder, error.strerror or str(error))
            return []
        if len(entries) > most:
            holder = "it holds" if most == _MOST_IN_FOLDER else "the checkout holds"
            self.leave_out(folder, f"{holder} more than {most} entries; the others are not looked at")
        self._entries_left -= len(entries)
        shown = [entry for entry in entries[:most] if not entry.name.startswith(".")]
        return sorted(shown, key=lambda entry: entry.name)

    def folders(
        self, folder: Path, depth: int, enters: Callable[[str], bool] = lambda name: True
    ) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
        """Yield a folder and those inside that ``enters`` takes, with their entries, ``depth`` levels down, the nearest first.

        Links are not followed.
        """
        pending = [(folder, depth)]
        for current, levels in pending:  # which grows
            entries = self.children(current)
            yield current, entries
            for entry in entries if levels else ():
                if enters(entry.name) and entry.is_dir(follow_symlinks=False):
                    pending.append((Path(entry.path), levels - 1))

    def files_below(
        self, folder: Path, endings: tuple[str, ...], *, depth: int, skip: tuple[str, ...] = ()
    ) -> Iterator[Path]:
        """Files of these endings, ``depth`` levels down, in order of name; at most six hundred."""
        count = 0
        for _, entries in self.folders(
            folder, depth, lambda name: name not in skip and not _NOT_CODE.fullmatch(name)
        ):
            for entry in entries:
                if not entry.name.endswith(endings) or is_folder(entry.path):
                    continue
                if count == _MOST_FILES:
                    self.leave_out(folder, f"it has more than {_MOST_FILES} sources; the others are not read")
                    return
                yield Path(entry.path)
                count += 1
