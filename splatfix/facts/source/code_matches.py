"""Places in an extension's sources on which builds are known to break; the caller says what to look for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from splatfix.core.source_pattern import SourcePattern, without_comments
from splatfix.facts.model.source import CodeMatch
from splatfix.facts.source.folder import files_below, text_of


def code_matches(folder: Path, patterns: Iterable[SourcePattern]) -> Iterator[CodeMatch]:
    """The first place of each pattern in each file of an extension's source folder.

    What a pattern asks a file to lack may also stand in a local header that the file includes, one level deep.
    """
    wanted = tuple(patterns)
    for file in files_below(folder, (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc"), depth=3):
        here = [pattern for pattern in wanted if pattern.looks_at(file.name)]
        if not here:
            continue
        name, text = file.relative_to(folder).as_posix(), without_comments(file.name, text_of(file))
        included = [text_of(file.parent / header) for header in re.findall(r'#\s*include\s*"([^"]+)"', text)]
        for pattern in here:
            if match := pattern.find(text, *included):
                line = text.count("\n", 0, match.start()) + 1
                yield CodeMatch(pattern.key, name, line, text.splitlines()[line - 1].strip()[:160])
