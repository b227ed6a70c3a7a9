"""Looks in a log for what speaks for each failure: its wordings and, where none is recognised, hints and words."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from splatfix.explain.judges import Surroundings, judge, toolkit_in
from splatfix.explain.model import Line
from splatfix.explain.reading import plain
from splatfix.explain.words import WordCounts, words_in
from splatfix.knowledge.failures import Wording, failures, observations
from splatfix.knowledge.tables import cached

_GUESS_WEIGHTS = (0.3, 0.2, 0.12)
"""Weights of the classes that hints and words point to most.

Measured on the cases: of 91 first guesses on wordings held out, 45 % are right. They fall, so that the order of the
guesses stays; with three alike ten more cases are wrong."""
_TELLING_ODDS = 6.0
"""Least gain in logarithm of odds by which words point to a class without a hint.

e^6 is 400 to 1: the words of any long log speak a little for every class. At 12, two more held-out cases are wrong."""
_TAIL_LINES = 80
"""Lines at the end of a log whose words count: the rest of a long log is about what went well."""
_CUT_WITHIN = 8
"""Lines at the end among which the last one with a text is looked for: carets and blank lines follow it."""

# the parser of the re module; Python 3.11 renamed it
PARSER: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
"""Its names of what repeats."""


@dataclass(frozen=True)
class Sign:
    """A line of a log that speaks for a failure."""

    wording: Wording | None
    """None where only hints or words point to the class."""
    weight: float
    """After its numbers were tested."""
    line: Line


@dataclass(frozen=True)
class _Needle:
    """A pattern with the literals without which it cannot match: nearly every line is passed over by them alone."""

    pattern: re.Pattern[str]
    literals: tuple[str, ...]

    @classmethod
    def of(cls, pattern: re.Pattern[str]) -> _Needle:
        return cls(pattern, required(pattern))

    def possible_in(self, text: str) -> bool:
        """Whether a text (in lower case) has what the pattern needs."""
        return not self.literals or any(literal in text for literal in self.literals)

    def search(self, text: str, lower: str) -> re.Match[str] | None:
        """The first match in a line; ``lower`` is the line in lower case."""
        if not self.possible_in(lower):
            return None
        return self.pattern.search(text)


@dataclass(frozen=True)
class Log:
    """The lines of a log as patterns are looked for in them."""

    lines: Sequence[Line]

    @cached_property
    def texts(self) -> list[str]:
        """The lines with plain quotes."""
        return [plain(line.text) for line in self.lines]

    @cached_property
    def lower(self) -> list[str]:
        """The same in lower case."""
        return [text.lower() for text in self.texts]

    @cached_property
    def everything(self) -> str:
        """All of it in lower case."""
        return "\n".join(self.lower)

    @cached_property
    def observations(self) -> frozenset[str]:
        """Names of the observations that it makes."""
        return frozenset(name for name, needle in _observation_needles().items() if self.has(needle))

    @cached_property
    def last_texts(self) -> tuple[str, ...]:
        """The last line with a text, with the one before it where it only names the next frame of a traceback."""
        texts = [text for text in self.texts[-_CUT_WITHIN:] if text.strip(" ^~")]
        if texts and texts[-1].lstrip().startswith('File "'):
            return tuple(texts[-2:])
        return tuple(texts[-1:])

    def has(self, needle: _Needle) -> bool:
        """Whether some line matches."""
        if not needle.possible_in(self.everything):
            return False
        return any(needle.search(text, low) for text, low in zip(self.texts, self.lower, strict=True))


def find_signs(
    log: Log, toolkit: tuple[int, int] | None, without: Collection[Wording] = frozenset()
) -> dict[str, list[Sign]]:
    """What speaks for each failure, by its name; failures that nothing speaks for are left out.

    Args:
        toolkit: version of the nvcc that builds use, where facts tell it.
        without: wordings that are not looked for.
    """
    around = Surroundings(
        toolkit or toolkit_in(log.texts), "rasterizer-call" in log.observations, log.last_texts
    )
    signs: dict[str, list[Sign]] = {}
    for name, wordings in _wording_needles().items():
        for wording, needle in wordings:
            if wording in without:
                continue
            sign = _sign(wording, needle, log, around)
            if sign is not None:
                signs.setdefault(name, []).append(sign)
    return signs


def _sign(wording: Wording, needle: _Needle, log: Log, around: Surroundings) -> Sign | None:
    """The line that bears a wording out best; None where there is none, or something rules it out."""
    if not log.observations.issuperset(wording.all) or not log.observations.isdisjoint(wording.none):
        return None
    if not needle.possible_in(log.everything):
        return None
    best: Sign | None = None
    for line, text, low in zip(log.lines, log.texts, log.lower, strict=True):
        match = needle.search(text, low)
        if match is None:
            continue
        if not wording.test:
            return Sign(wording, wording.weight, line)
        weight = wording.weight * judge(wording.test, text, match, around)
        if weight > (best.weight if best else 0.0):
            best = Sign(wording, weight, line)
    return best


def find_guesses(log: Log, counts: WordCounts, without: Collection[Wording] = frozenset()) -> dict[str, Sign]:
    """The few classes that hints and the words of the last lines point to most."""
    hinted = _hints_in(log, without)
    tail = log.lines[-_TAIL_LINES:]
    before, after = counts.log_odds(""), counts.log_odds("\n".join(log.texts[-_TAIL_LINES:]))
    candidates = [name for name in after if name in hinted or after[name] - before[name] >= _TELLING_ODDS]
    candidates.sort(key=lambda name: (name not in hinted, -after[name], name))
    guesses = {}
    for name, weight in zip(candidates, _GUESS_WEIGHTS, strict=False):
        line = hinted.get(name) or _telling_line(tail, name, counts)
        guesses[name] = Sign(None, weight, line)
    return guesses


def _telling_line(lines: Sequence[Line], name: str, counts: WordCounts) -> Line:
    """The line with most words that speak for a class."""
    return max(
        lines, key=lambda line: sum(name in counts.words.get(word, ()) for word in words_in(line.text))
    )


def _hints_in(log: Log, without: Collection[Wording]) -> dict[str, Line]:
    """The last line that hints at each class: what is cut off of a log is its end."""
    lines = {}
    for name, (hint, needle) in _hint_needles().items():
        if hint in without:
            continue
        for line, text, low in zip(log.lines, log.texts, log.lower, strict=True):
            if needle.search(text, low):
                lines[name] = line
    return lines


@cached
def _wording_needles() -> Mapping[str, list[tuple[Wording, _Needle]]]:
    return {
        name: [(wording, _Needle.of(wording.pattern)) for wording in failure.wordings]
        for name, failure in failures().items()
    }


@cached
def _hint_needles() -> Mapping[str, tuple[Wording, _Needle]]:
    hints = {name: failure.hint for name, failure in failures().items()}
    return {name: (hint, _Needle.of(hint.pattern)) for name, hint in hints.items() if hint}


@cached
def _observation_needles() -> Mapping[str, _Needle]:
    return {name: _Needle.of(pattern) for name, pattern in observations().items()}


def required(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Literals in lower case, one of which is in every line that the pattern matches (in lower case too).

    Empty where there is none: such a pattern is tried on every line.
    """
    return _best(list(PARSER.parse(pattern.pattern, pattern.flags & ~re.UNICODE)))


def _best(tokens: Sequence[Any]) -> tuple[str, ...]:
    """The set of literals of a sequence whose shortest is the longest."""
    candidates: list[tuple[str, ...]] = []
    run = ""
    for operator, argument in tokens:
        name = str(operator)
        if name == "LITERAL":
            run += chr(argument)
            continue
        if run:
            candidates.append((run,))
            run = ""
        if name == "SUBPATTERN":
            candidates.append(_best(list(argument[-1])))
        elif name == "BRANCH":
            candidates.append(_of_branches([_best(list(branch)) for branch in argument[1]]))
        elif name in REPEATS and argument[0] > 0:
            candidates.append(_best(list(argument[2])))
    if run:
        candidates.append((run,))
    candidates = [texts for texts in candidates if texts]
    if not candidates:
        return ()
    # long literals are rare in logs, so they spare most searches; of equally long ones fewer are cheaper to look for
    best = max(candidates, key=lambda texts: (min(map(len, texts)), -len(texts)))
    return tuple(dict.fromkeys(text.lower() for text in best))


def _of_branches(branches: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One literal of each alternative; none where an alternative has none, as it can match without any."""
    if not all(branches):
        return ()
    return tuple(text for branch in branches for text in branch)
