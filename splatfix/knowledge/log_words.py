"""Words of logs whose cause is known: what the words of another log point to where no signature recognises it.

``python -m tools.explain_words`` counts them (``data/log_words.json``) in the cases of ``tests/explain``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import log

from splatfix.knowledge.tables import cached, table

_WORD = re.compile(r"[a-z][a-z_]{2,23}(?![a-z_])|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]{2}")


def words_in(text: str) -> frozenset[str]:
    """The words of a log, in lower case: identifiers without their numbers, and pairs of signs of East Asian scripts."""
    return frozenset(_WORD.findall(text.lower()))


@dataclass(frozen=True)
class LogWords:
    """In how many logs of each failure class a word stands."""

    logs: Mapping[str, int]
    """Number of logs by class."""
    words: Mapping[str, Mapping[str, int]]
    """Number of logs by word and class."""

    @classmethod
    def counted(cls, logs: Iterable[tuple[str, Collection[str]]]) -> LogWords:
        """Count logs, each given as its class and its words."""
        number: Counter[str] = Counter()
        words: dict[str, Counter[str]] = {}
        for name, found in logs:
            number[name] += 1
            for word in found:
                words.setdefault(word, Counter())[name] += 1
        return cls(number, words)

    def without(self, names: Collection[str]) -> LogWords:
        """The same without these classes."""
        logs = {name: count for name, count in self.logs.items() if name not in names}
        words = {
            word: {name: count for name, count in rows.items() if name not in names}
            for word, rows in self.words.items()
        }
        return LogWords(logs, {word: rows for word, rows in words.items() if rows})

    def points_to(self, text: str) -> dict[str, float]:
        """How far the words of a log speak for each class, as natural logarithms of odds; the likeliest is the highest.

        Naive Bayes, of which only what speaks for a class counts: a log that was cut lacks words.
        """
        total = sum(self.logs.values())
        found = {name: log((count + 0.5) / (total + 1)) for name, count in self.logs.items()}
        for word in words_in(text) & self.words.keys():
            rows = self.words[word]
            share = sum(rows.values()) / total
            for name, count in rows.items():
                found[name] += max(0.0, log((count + share) / (self.logs[name] + 1) / share))
        return found


@cached
def log_words() -> LogWords:
    """The words that splatfix ships."""
    rows = table("log_words")["classes"]
    words: dict[str, dict[str, int]] = {}
    for name, row in rows.items():
        for word, count in row["words"].items():
            words.setdefault(word, {})[name] = count
    return LogWords({name: row["logs"] for name, row in rows.items()}, words)
