"""Counts the words of the logs in ``tests/explain/cases``, by failure class: ``python -m tools.explain_words``.

It writes ``splatfix/knowledge/data/log_words.json``. A class's definition and fix count as one of its logs, each wording that a
signature knows as another.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from splatfix.knowledge.breakages import failure_classes
from splatfix.knowledge.log_words import LogWords, words_in
from splatfix.knowledge.signatures import signatures
from splatfix.knowledge.tables import DATA

_SYNTAX = re.compile(r"\\[a-zA-Z]|\(\?[a-zA-Z:<!=-]{0,4}|\{[\d,]{1,9}\}|[\\^$|?*+()\[\]]")
"""What is no letter of a message in a pattern."""
FILE = DATA / "log_words.json"
CASES = Path(__file__).resolve().parent.parent / "tests" / "explain" / "cases"
_HEAD = {"date": "2026-11-22", "source": "tests/explain/cases, counted by tools/explain_words.py"}


def counted(cases: Iterable[Mapping[str, Any]], *, wordings: bool = True) -> LogWords:
    """The words of cases, each of the first class that is right for it.

    Args:
        wordings: those of the signatures too.
    """
    known = [(row.name, words_in(f"{row.definition} {row.fix}")) for row in failure_classes()]
    if wordings:
        known += [
            (row.name, words_in(_SYNTAX.sub(" ", anchor.pattern.pattern)))
            for row in failure_classes()
            for anchor in signatures()[row.name].anchors
        ]
    return LogWords.counted([*known, *((case["accept"][0], words_in(case["log"])) for case in cases)])


def all_cases() -> list[Mapping[str, Any]]:
    """Every case that is kept."""
    files = [CASES / f"{name}.jsonl" for name in ("given", "held_out", "made_here", "wordings")]
    return [json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()]


def text_of(found: LogWords) -> str:
    """The data file: a line for each class."""
    by_class: dict[str, Counter[str]] = {name: Counter() for name in sorted(found.logs)}
    for word, rows in found.words.items():
        for name, count in rows.items():
            by_class[name][word] = count
    lines = [
        f'{json.dumps(name)}: {{"logs": {found.logs[name]}, "words": '
        f"{json.dumps(dict(sorted(words.items())), ensure_ascii=False)}}}"
        for name, words in by_class.items()
    ]
    head = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in _HEAD.items())
    return "{\n" + head + '"classes": {\n' + ",\n".join(lines) + "\n}\n}\n"


def main() -> None:
    """Write the data file."""
    FILE.write_text(text_of(counted(all_cases())), encoding="utf-8")


if __name__ == "__main__":
    main()
