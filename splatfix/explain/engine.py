"""Ranks the failures that a log shows: signs are weighed, consequences are set below their causes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import IO

from msgspec import Struct

from splatfix.core.redact import without_credentials
from splatfix.core.step import Step, run, say
from splatfix.explain.judges import LAST_LINE
from splatfix.explain.model import LIKELY, SURE, Explanation, FailureCause, KnownClass, Line
from splatfix.explain.reading import kept_lines, read_log, unwrapped
from splatfix.explain.signs import Log, Sign, find_signs
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.failures import explain_message, failure_class, failure_classes, failures

# Lines of a cause.
_LINES_SHOWN = 6
# Lines of each end of a long log that are read again where nothing is recognised.
_ENDS = 1500

# The weights of the ranking. What each is for is its reason; its value was tried on the labelled cases of tests/explain, and
# what another value would do there is said with it. Most decide nothing there but how loud a cause is.
_LEAST_CONFIDENCE = 0.1
"""Confidence below which a consequence is not listed below its cause."""
# Most confidence of what the log only warns of: it is never named as the cause.
_UNSURE = LIKELY - 0.01
# Most confidence of a cause of which what stopped the command says nothing, or that is about something else than the log.
_ELSEWHERE = SURE - 0.01
# Least share of a failure's confidence that another must have to explain it away. A strong sign is no consequence of a weak
# one. At 0.5 one more held-out case is wrong; at 1.0 one of the given cases.
_AS_SURE = 0.7
# What is left of a failure's confidence where another explains its signs: less than :data:`LIKELY`, so never named first.
_CONSEQUENCE = 0.35
# Most confidence of a consequence as a share of its cause's: it stands below it however unsure both are.
_BELOW_CAUSE = 0.9
# What a rival as sure as can be takes from a cause's confidence: of two that fit entirely, one is wrong. Its square counts, so
# that a weak rival takes nothing; without it one unclear case of 572 is named instead of left open.
_RIVALRY = 0.4
# What is left of the doubt about a failure that a failing check predicts: the machine has what it takes to fail so.
_DOUBT_PREDICTED = 0.3
# What is left of the confidence in a failure of which the checks see all and found nothing. So much that a line that proves it
# still names it: the facts can be those of another environment than the one that failed, the log's line cannot.
_RULED_OUT = 0.87

_FIRST_ERROR = re.compile(
    r"\b(?:fatal )?error\b ?[A-Z]{0,3}\d{0,5} ?:|\bERROR\b|^[\w.]{1,200}(?:Error|Exception)\b"
    r"|\bfatal\s{0,4}:|\bFAILED\b|^Traceback"
)


class MachineEvidence(Struct, frozen=True):
    """What facts say of the machine where the command failed."""

    predicted: frozenset[str] = frozenset()
    """Classes that a failing check predicts."""
    ruled_out: frozenset[str] = frozenset()
    """Classes of which the checks see all, and that none of them found."""
    toolkit: tuple[int, int] | None = None
    """Version of the nvcc that builds use."""


UNKNOWN = MachineEvidence()


def explain(stream: IO[bytes], machine: MachineEvidence = UNKNOWN) -> Explanation:
    """Why a command failed, by its log.

    Args:
        stream: the log as bytes, of any size.
        machine: what facts say of the machine where it failed.
    """
    lines, count, size = read_log(stream)
    return _explanation(lines, machine, count, size)


def explain_text(text: str, machine: MachineEvidence = UNKNOWN) -> Explanation:
    """The same for a short log that is at hand as text."""
    return _explanation(kept_lines(text), machine, text.count("\n") + 1, len(text))


def cause_of(text: str) -> FailureCause | None:
    """The cause that what a program printed shows, with its lines, why, and what to do; None where none is recognised."""
    explanation = explain_text(text)
    if not explanation.recognised:
        return None
    return explanation.causes[0]


def _explanation(lines: Sequence[Line], machine: MachineEvidence, count: int, size: int) -> Explanation:
    everything = "\n".join(line.text for line in lines).replace("-", "_")
    modules = dict.fromkeys(item.host or item.module for item in DROPINS if item.cuda)
    dropins = tuple(module for module in modules if module in everything)
    log = Log(lines)
    causes = _ranked(log, machine)
    if not causes:  # with the wraps of a terminal undone
        ends = lines
        if len(lines) > 2 * _ENDS:
            ends = [*lines[:_ENDS], *lines[-_ENDS:]]
        causes = _ranked(Log(unwrapped(ends)), machine)
    said = "" if causes else log.success
    return Explanation(causes, _first_error(lines), count, size, dropins, without_credentials(said))


def _ranked(log: Log, machine: MachineEvidence) -> tuple[FailureCause, ...]:
    """Causes by confidence, those that are likelier than not. What another cause explains comes after it; rivals take from
    each other's confidence."""
    signs = find_signs(log, machine.toolkit)
    scores = {}
    for name, of_failure in signs.items():
        score = _together(of_failure)
        if name in machine.predicted:
            score = 1 - (1 - score) * _DOUBT_PREDICTED
        if name in machine.ruled_out:
            score *= _RULED_OUT
        scores[name] = score
    errors = {name for name, of_failure in signs.items() if not all(sign.aside for sign in of_failure)}
    for name in scores.keys() - errors:
        # a warning is evidence where it says why an error came
        if errors.isdisjoint(failures()[name].explains):
            scores[name] = min(scores[name], _UNSURE)
    for name in scores.keys() - _nameable(signs, log):
        scores[name] = min(scores[name], _ELSEWHERE)
    explained_by = {name: _cause_among(scores, name) for name in scores}
    confidences = dict(scores)
    for name, cause in explained_by.items():
        if cause:
            confidences[name] = min(scores[name] * _CONSEQUENCE, scores[cause] * _BELOW_CAUSE)

    def order(name: str) -> tuple[float, int, float, str]:
        # of causes that fit about as well, the one that the log speaks of first
        first_line = min(sign.line.number for sign in signs[name])
        return (-round(confidences[name], 1), first_line, -confidences[name], name)

    named = {}
    for name in scores:
        confidence = confidences[name]
        if not explained_by[name]:
            rivals = [confidences[other] for other in scores if other != name and not explained_by[other]]
            rival = max(rivals, default=0.0)
            confidence *= 1 - _RIVALRY * rival * rival
            if confidence >= LIKELY:
                named[name] = confidence
    # of what is not named no consequences are told either
    while more := {name for name in scores.keys() - named.keys() if explained_by[name] in named}:
        named.update({name: confidences[name] for name in more})
    return tuple(
        _cause(name, named[name], signs[name], explained_by[name])
        for name in sorted(named, key=order)
        if named[name] >= _LEAST_CONFIDENCE
    )


def _nameable(signs: Mapping[str, Sequence[Sign]], log: Log) -> set[str]:
    """The failures of what the log is about and a program said, as far as what stopped the command speaks for them.

    Where the log does not show what stopped it, all of those.

    A failure that explains one of those is one, too.
    """
    signs = {
        name: of_it
        for name, of_it in signs.items()
        if log.is_about(failures()[name]) and any(sign.line.number not in log.told for sign in of_it)
    }
    if not log.stops:
        return set(signs)
    names = {name for name, of_it in signs.items() if any(sign.line.number in log.stops for sign in of_it)}
    return {name for name in signs if name in names or not names.isdisjoint(failures()[name].explains)}


def _together(signs: Sequence[Sign]) -> float:
    """Lines add up; two wordings of one line say one thing, and where a log was cut says no more than the words around it.

    Beside an error a warning adds nothing.
    """
    signs = [sign for sign in signs if not sign.aside] or signs
    at_cut = [sign for sign in signs if sign.wording.test == LAST_LINE]
    of_line: dict[int, float] = {}
    for sign in signs:
        if sign not in at_cut:
            of_line[sign.line.number] = max(of_line.get(sign.line.number, 0.0), sign.weight)
    doubt = prod(1 - weight for weight in of_line.values())
    return max([1 - doubt, *(sign.weight for sign in at_cut)])


def _cause_among(scores: Mapping[str, float], name: str) -> str:
    """The failure of which this one is a consequence, the surest where several are; "" where none is."""
    others = scores.keys() - {name}
    causes = {other for other in others if name in failures()[other].explains}
    least = max(LIKELY, _AS_SURE * scores[name])
    if failure_class(name) is None:
        # what is no class of the vocabulary gives way to any class that is likely at all
        causes |= {other for other in others if failure_class(other) is not None}
        least = _LEAST_CONFIDENCE
    likely = [other for other in scores if other in causes and scores[other] >= least]
    return max(likely, key=lambda other: scores[other], default="")


def _cause(name: str, confidence: float, signs: Sequence[Sign], explained_by: str) -> FailureCause:
    lines = {sign.line.number: sign.line.text for sign in signs}
    numbers = tuple(sorted(lines)[:_LINES_SHOWN])
    # of a message that is no class of the vocabulary its record says what to do
    meanings = (explain_message(lines[number]) for number in numbers)
    steps = (meaning.steps for meaning in meanings if meaning is not None and meaning.key == name)
    return FailureCause(
        name=name,
        confidence=round(confidence, 3),
        lines=tuple(without_credentials(lines[number]) for number in numbers),
        line_numbers=numbers,
        why=failures()[name].why,
        fix=fix_of(name) or next(steps, ()),
        consequence_of=explained_by,
    )


def fix_of(name: str) -> tuple[Step, ...]:
    """What to do about a class, whatever the machine is."""
    failure = failure_class(name)
    if failure is None:
        return ()
    steps = [say(failure.fix)]
    if failure.checks:
        text = "On the machine where it failed, look for what leads there"
        steps.append(run("splatfix", "diagnose", "--only", failure.checks[0], text=text))
    return tuple(steps)


def known_classes() -> tuple[KnownClass, ...]:
    """Every class that can be recognised, the commonest first."""
    return tuple(
        KnownClass(
            name=failure.name,
            definition=failure.definition,
            why=failure.why,
            fix=failure.fix,
            checks=failure.checks,
            wordings=len(failure.wordings),
            sources=failure.sources,
        )
        for failure in failure_classes()
    )


def _first_error(lines: Sequence[Line]) -> tuple[str, ...]:
    """The first line that reports an error, with the two below it."""
    for index, line in enumerate(lines):
        if _FIRST_ERROR.search(line.text):
            texts = [below.text for below in lines[index : index + 3]]
            return tuple(without_credentials(text) for text in texts if text.strip())
    return ()
