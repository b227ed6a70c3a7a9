"""Ranks the classes of failure that a log shows: signs are weighed, consequences are set below their causes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

from splatfix.core.redact import without_credentials
from splatfix.core.step import Step, run, say
from splatfix.explain.judges import LAST_LINE, Surroundings, judge, toolkit_in
from splatfix.explain.literals import required
from splatfix.explain.model import SURE, Explanation, FailureCause, KnownClass, Line
from splatfix.explain.reading import kept_lines, plain, read_log, unwrapped
from splatfix.knowledge.breakages import failure_class, failure_classes
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.log_words import LogWords, log_words, words_in
from splatfix.knowledge.signatures import Anchor, Signature, hints, observations, signatures
from splatfix.knowledge.tables import cached

_SHOWN = 6
"""Lines of a cause."""
_ENDS = 1500
"""Lines of each end of a long log that are read again where nothing is recognised."""
_GUESSES = (0.3, 0.2, 0.12)
"""Weights of the classes that hints and words point to most, where nothing is recognised."""
_HINTED = 16.0
"""What a hint counts beside the words of a log, as a logarithm of odds."""
_TELLING = 6.0
"""Least logarithm of odds of words that point to a class without a hint."""
_CUT_WITHIN = 8
"""Lines at the end among which the last one is looked for that says something."""
_LAST = 80
"""Lines at the end of a log whose words count."""
_LEAST = 0.1
"""Confidence below which a class is not named at all."""
_CONSEQUENCE = 0.35
"""What is left of a class's confidence where another explains its signs."""
_AS_SURE = 0.7
"""Least share of a class's confidence that another has which explains it."""
_NOT_PREDICTED = 0.3
"""What is left of the doubt about a class that the checks of the machine predict."""
_RULED_OUT = 0.7
"""What is left of the confidence in a class that the checks of the machine see all of, and found nothing of."""
_FIRST_ERROR = re.compile(
    r"\b(?:fatal )?error\b ?[A-Z]{0,3}\d{0,5} ?:|\bERROR\b|^[\w.]{1,200}(?:Error|Exception)\b"
    r"|\bfatal\s{0,4}:|\bFAILED\b|^Traceback"
)


@dataclass(frozen=True)
class Machine:
    """What facts say of the machine where the command failed."""

    predicted: frozenset[str] = frozenset()
    """Classes that a failing check predicts."""
    ruled_out: frozenset[str] = frozenset()
    """Classes of which the checks see all, and that none of them found."""
    toolkit: tuple[int, int] | None = None
    """Version of the nvcc that builds use."""


UNKNOWN = Machine()


@dataclass(frozen=True)
class _Needle:
    """A pattern with the literals without which it cannot match."""

    pattern: re.Pattern[str]
    literals: tuple[str, ...]

    def search(self, line: str, low: str) -> re.Match[str] | None:
        """The first match in a line; ``low`` is the line in lower case."""
        if self.literals and not any(text in low for text in self.literals):
            return None
        return self.pattern.search(line)


@dataclass(frozen=True)
class Sign:
    """An anchor of a class found in the log."""

    anchor: Anchor | None
    """None where only hints or words point to the class."""
    weight: float
    """After its numbers were tested."""
    line: Line


def explain(stream: BinaryIO, machine: Machine = UNKNOWN) -> Explanation:
    """Why a command failed, by its log.

    Args:
        stream: the log as bytes, of any size.
        machine: what facts say of the machine where it failed.
    """
    lines, count, size = read_log(stream)
    return _best_of(lines, machine, count, size)


def explain_text(
    text: str,
    machine: Machine = UNKNOWN,
    *,
    without: Collection[Anchor] = frozenset(),
    words: LogWords | None = None,
) -> Explanation:
    """The same for a short log that is at hand as text.

    Args:
        without: anchors that are not looked for, to measure what depends on them.
        words: other words than those that splatfix ships, for the same end.
    """
    return _best_of(kept_lines(text), machine, text.count("\n") + 1, len(text), without, words)


def cause_of(text: str) -> FailureCause | None:
    """The cause that what a program printed shows, with its lines, why, and what to do; None where none is recognised."""
    found = explain_text(text)
    return found.causes[0] if found.recognised else None


def _best_of(
    lines: Sequence[Line],
    machine: Machine,
    count: int,
    size: int,
    without: Collection[Anchor] = frozenset(),
    words: LogWords | None = None,
) -> Explanation:
    """What the lines say; where that is nothing, what they say with the wraps of a terminal undone, hints and words."""
    found = _explanation(lines, signs_in(lines, machine, without), machine, count, size)
    if found.recognised:
        return found
    ends = lines if len(lines) <= 2 * _ENDS else [*lines[:_ENDS], *lines[-_ENDS:]]
    whole = unwrapped(ends)
    signs = signs_in(whole, machine, without)
    again = _explanation(lines, signs, machine, count, size)
    if again.recognised:
        return again
    for name, sign in _guesses(whole, without, words or log_words()).items():
        signs.setdefault(name, []).append(sign)
    return _explanation(lines, signs, machine, count, size, most=SURE - 0.01)


def _guesses(lines: Sequence[Line], without: Collection[Anchor], words: LogWords) -> dict[str, Sign]:
    """The few classes that hints and the words of the last lines point to most."""
    hinted = _hints_in(lines, without)
    last = lines[-_LAST:]
    prior, odds = words.points_to(""), words.points_to("\n".join(plain(line.text) for line in last))
    told = {name for name in odds if name in hinted or odds[name] - prior[name] >= _TELLING}
    ranked = sorted(told, key=lambda name: (-odds[name] - _HINTED * (name in hinted), name))
    return {
        name: Sign(None, weight, hinted[name].line if name in hinted else _telling_line(last, name, words))
        for name, weight in zip(ranked, _GUESSES, strict=False)
    }


def _telling_line(lines: Sequence[Line], name: str, words: LogWords) -> Line:
    return max(lines, key=lambda line: sum(name in words.words.get(word, ()) for word in words_in(line.text)))


def _hints_in(lines: Sequence[Line], without: Collection[Anchor]) -> dict[str, Sign]:
    """The last line that hints at each class: what is cut off of a log is its end."""
    found = {}
    for name, (anchor, needle) in _hints().items():
        for line in lines if anchor not in without else ():
            if needle.search(text := plain(line.text), text.lower()):
                found[name] = Sign(anchor, anchor.weight, line)
    return found


def signs_in(
    lines: Sequence[Line], machine: Machine = UNKNOWN, without: Collection[Anchor] = frozenset()
) -> dict[str, list[Sign]]:
    """What speaks for each class, by its name; classes that nothing speaks for are left out."""
    texts = [plain(line.text) for line in lines]
    lows = [text.lower() for text in texts]
    everything = "\n".join(lows)
    seen = {name for name, needle in _observed().items() if _anywhere(needle, texts, lows, everything)}
    around = Surroundings(machine.toolkit or toolkit_in(texts), "rasterizer-call" in seen, _last_words(texts))
    found: dict[str, list[Sign]] = {}
    for name, anchors in _anchors().items():
        signs = [
            sign
            for anchor, needle in anchors
            if anchor not in without
            and (sign := _sign(anchor, needle, lines, texts, lows, everything, seen, around))
        ]
        if signs:
            found[name] = signs
    return found


def _last_words(texts: Sequence[str]) -> tuple[str, ...]:
    """The last line that says something, with the one before it where it only names the next frame of a traceback."""
    said = [text for text in texts[-_CUT_WITHIN:] if text.strip(" ^~")]
    return tuple(said[-2:] if said and said[-1].lstrip().startswith('File "') else said[-1:])


def _explanation(
    lines: Sequence[Line],
    signs: Mapping[str, Sequence[Sign]],
    machine: Machine,
    count: int,
    size: int,
    *,
    most: float = 1.0,
) -> Explanation:
    scores: dict[str, float] = {}
    for name, found in signs.items():
        score = min(_together(found), most)
        if name in machine.predicted:
            score = 1 - (1 - score) * _NOT_PREDICTED
        scores[name] = score * _RULED_OUT if name in machine.ruled_out else score
    return Explanation(
        _ranked(scores, signs),
        _first_error(lines),
        lines_read=count,
        bytes_read=size,
        dropins=_dropins_in(lines),
    )


def _together(signs: Sequence[Sign]) -> float:
    """Signs add up; where a log was cut is one of its own, as it says no more than the words around it do."""
    cut = [sign for sign in signs if sign.anchor and sign.anchor.test == LAST_LINE]
    said = 1 - prod(1 - sign.weight for sign in signs if sign not in cut)
    return max([said, *(sign.weight for sign in cut)])


def _dropins_in(lines: Sequence[Line]) -> tuple[str, ...]:
    modules = dict.fromkeys(item.module for item in DROPINS if item.cuda)
    everything = "\n".join(line.text for line in lines).replace("-", "_")
    return tuple(module for module in modules if module in everything)


@cached
def _anchors() -> Mapping[str, tuple[tuple[Anchor, _Needle], ...]]:
    return {
        name: tuple((anchor, _Needle(anchor.pattern, required(anchor.pattern))) for anchor in row.anchors)
        for name, row in signatures().items()
    }


@cached
def _hints() -> Mapping[str, tuple[Anchor, _Needle]]:
    return {
        name: (anchor, _Needle(anchor.pattern, required(anchor.pattern))) for name, anchor in hints().items()
    }


@cached
def _observed() -> Mapping[str, _Needle]:
    return {name: _Needle(pattern, required(pattern)) for name, pattern in observations().items()}


def _anywhere(needle: _Needle, texts: Sequence[str], lows: Sequence[str], everything: str) -> bool:
    if needle.literals and not any(text in everything for text in needle.literals):
        return False
    return any(needle.search(text, low) for text, low in zip(texts, lows, strict=True))


def _sign(
    anchor: Anchor,
    needle: _Needle,
    lines: Sequence[Line],
    texts: Sequence[str],
    lows: Sequence[str],
    everything: str,
    seen: Collection[str],
    around: Surroundings,
) -> Sign | None:
    """The first line that bears an anchor out; None where there is none, or something rules it out."""
    if not set(anchor.all) <= set(seen) or any(name in seen for name in anchor.none):
        return None
    if needle.literals and not any(text in everything for text in needle.literals):
        return None
    best: Sign | None = None
    for at, text in enumerate(texts):
        match = needle.search(text, lows[at])
        if match is None:
            continue
        weight = anchor.weight * (judge(anchor.test, text, match, around) if anchor.test else 1.0)
        if weight > (best.weight if best else 0.0):
            best = Sign(anchor, weight, lines[at])
        if not anchor.test:
            break
    return best


def _ranked(scores: Mapping[str, float], signs: Mapping[str, Sequence[Sign]]) -> tuple[FailureCause, ...]:
    """Causes by confidence. What another cause explains comes after it, and rivals take from each other's confidence."""
    table = signatures()
    causes: list[tuple[float, float, int, str, str]] = []
    for name, score in scores.items():
        # what is known of no class of failures gives way to any class that is likely at all
        least = max(SURE, _AS_SURE * score) if failure_class(name) else _LEAST
        cause = max(
            (other for other in scores if scores[other] >= least and _explains(table[other], name)),
            key=lambda other: scores[other],
            default="",
        )
        confidence = min(score * _CONSEQUENCE, scores[cause] * 0.9) if cause else score
        first = min(sign.line.number for sign in signs[name])
        causes.append((confidence, score, first, name, cause))
    # of causes that fit about as well, the one that the log speaks of first
    causes.sort(key=lambda item: (-round(item[0], 1), item[2], -item[0], item[3]))
    found = []
    for confidence, _, _, name, cause in causes:
        rival = max((other[0] for other in causes if other[3] != name and not other[4]), default=0.0)
        certain = confidence if cause else confidence * (1 - 0.4 * rival * rival)
        if certain >= _LEAST:
            found.append(_cause(name, certain, signs[name], cause))
    return tuple(found)


def _explains(one: Signature, name: str) -> bool:
    """A message that belongs to no class of failures gives way to any class."""
    known = failure_class(one.name) is not None
    return one.name != name and (name in one.explains or (known and failure_class(name) is None))


def _cause(name: str, confidence: float, signs: Sequence[Sign], cause: str) -> FailureCause:
    by_number = {sign.line.number: sign.line for sign in signs}
    return FailureCause(
        name=name,
        confidence=round(confidence, 3),
        lines=tuple(without_credentials(by_number[number].text) for number in sorted(by_number)[:_SHOWN]),
        line_numbers=tuple(sorted(by_number)[:_SHOWN]),
        why=signatures()[name].why,
        fix=fix_of(name),
        consequence_of=cause,
    )


def fix_of(name: str) -> tuple[Step, ...]:
    """What to do about a class, whatever the machine is."""
    known = failure_class(name)
    if known is None:
        return ()
    text = "On the machine where it failed, look for what leads there"
    look = [run("splatfix", "diagnose", "--only", code, text=text) for code in known.checks[:1]]
    return (say(known.fix), *look)


def known_classes() -> tuple[KnownClass, ...]:
    """Every class that can be recognised, the commonest first."""
    found = []
    for row in failure_classes():
        sign = signatures()[row.name]
        found.append(
            KnownClass(
                row.name, row.definition, sign.why, row.fix, row.checks, len(sign.anchors), sign.sources
            )
        )
    return tuple(found)


def _first_error(lines: Sequence[Line]) -> tuple[str, ...]:
    at = next((at for at, line in enumerate(lines) if _FIRST_ERROR.search(line.text)), None)
    if at is None:
        return ()
    return tuple(without_credentials(line.text) for line in lines[at : at + 3] if line.text.strip())
