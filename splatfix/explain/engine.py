"""Ranks the failures that a log shows: signs are counted, consequences are set below their causes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import IO

from msgspec import Struct, convert

from splatfix.core.redact import without_credentials
from splatfix.core.step import run, say
from splatfix.explain.failure import take_apart
from splatfix.explain.judges import LAST_LINE
from splatfix.explain.lines import first_named
from splatfix.explain.log import Log
from splatfix.explain.model import Certainty, Explanation, Failure, FailureCause, KnownClass
from splatfix.explain.reading import read_log
from splatfix.explain.signs import Sign, find_signs
from splatfix.knowledge.dropins import DROPINS
from splatfix.knowledge.failures import POINTS, advice, explain_message, failure_classes, failures, to_collect
from splatfix.knowledge.imports import requirement_of
from splatfix.knowledge.tables import table

# Lines of a cause.
_LINES_SHOWN = 6

# Points of a line that names a failure: as much as one that suggests it and two hints.
_NAMED = POINTS["names"]
# Fewer are a guess, which is not told.
_LIKELY = 2
# What a failing check adds: the machine has what it takes to fail so. A rival with so many fewer points leaves a cause named.
_PREDICTED, _LEAD = 2, 3
# Points above which more say no more: a strong sign is no consequence of a weak one, but two strong ones are of one.
_ENOUGH = 6


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
    everything = "\n".join(line.text for line in lines).replace("-", "_")
    modules = dict.fromkeys(item.host or item.module for item in DROPINS if item.cuda)
    dropins = tuple(module for module in modules if module in everything)
    log = Log(lines)
    failure = take_apart(log)
    causes = _ranked(log, failure, machine)
    certainty = causes[0].certainty if causes else Certainty.UNKNOWN
    observed = log.observations | failure.tags | set(dropins and ["dropin"])
    collect = advice(to_collect(), _told(failure, log), observed)
    return Explanation(
        certainty=certainty,
        failure=failure,
        causes=causes,
        collect=() if certainty is Certainty.NAMED else collect,
        lines_read=count,
        bytes_read=size,
        dropins=dropins,
        success="" if causes else without_credentials(log.success),
    )


def explain_text(text: str, machine: MachineEvidence = UNKNOWN) -> Explanation:
    """The same for a log that is at hand as text."""
    return explain(BytesIO(text.encode("utf-8", "replace")), machine)


def cause_of(text: str) -> FailureCause | None:
    """The cause that what a program printed shows, with its lines, why, and what to do; None where none is named."""
    explanation = explain_text(text)
    return explanation.causes[0] if explanation.certainty is Certainty.NAMED else None


def _told(failure: Failure, log: Log) -> dict[str, str]:
    """What a log says of its failure and of the program, by the names that advice has for it."""
    package = re.split(r"[=<>!~\[ ]", failure.package)[0]
    told = {name: first_named(name, log.texts) for name in table("log_lines")["told"]}
    told |= {**failure.versions, "package": package, "source": failure.source, "file": failure.file}
    told["source_file"] = re.sub(r"(:\d+)+$", "", failure.file)
    return {name: value for name, value in told.items() if value}


def _ranked(log: Log, failure: Failure, machine: MachineEvidence) -> tuple[FailureCause, ...]:
    """Causes by their points. What another cause explains comes after it; of rivals that are as strong none is named."""
    signs = find_signs(log, failure, machine.toolkit)
    points = {name: _points(name, signs[name], machine) for name in signs}
    errors = {name for name, of_failure in signs.items() if not all(sign.aside for sign in of_failure)}
    for name in points.keys() - errors:
        # a warning is evidence where it says why an error came
        if errors.isdisjoint(failures()[name].explains):
            points[name] = min(points[name], _LIKELY - 1)
    for name in points.keys() - _nameable(signs, log):
        points[name] = min(points[name], _NAMED - 1)
    explained_by = {name: _cause_among(points, name) for name in points}

    def order(name: str) -> tuple[int, int, int, str]:
        # of causes that fit as well, the one that the log speaks of first
        first_line = min(sign.line.number for sign in signs[name])
        return (-min(points[name], _ENOUGH), first_line, -points[name], name)

    told: dict[str, Certainty] = {}
    for name in sorted((name for name in points if not explained_by[name]), key=order):
        rival = max(
            (points[other] for other in points if other != name and not explained_by[other]), default=0
        )
        if points[name] >= _LIKELY and points[name] >= min(rival, _NAMED):
            leads = points[name] >= _NAMED > rival and points[name] - rival >= _LEAD
            told[name] = Certainty.NAMED if leads else Certainty.LIKELY
    effects = [name for name, cause in explained_by.items() if cause and name in failures()[cause].explains]
    while more := [name for name in effects if name not in told and explained_by[name] in told]:
        told |= dict.fromkeys(more, Certainty.LIKELY)
    return tuple(_cause(name, told[name], signs[name], explained_by[name], log, failure) for name in told)


def _points(name: str, signs: Sequence[Sign], machine: MachineEvidence) -> int:
    """Lines add up; two wordings of one line say one thing, and where a log was cut says no more than the words around it.

    Beside an error a warning adds nothing. Facts can be those of another environment than the one that failed: they
    outweigh no line that names it.
    """
    signs = [sign for sign in signs if not sign.aside] or list(signs)
    of_line: dict[int, int] = {}
    for sign in signs:
        if sign.wording.test != LAST_LINE:
            of_line[sign.line.number] = max(of_line.get(sign.line.number, 0), sign.points)
    at_cut = [sign.points for sign in signs if sign.wording.test == LAST_LINE]
    points = max([sum(of_line.values()), *at_cut])
    if name in machine.predicted:
        points += _PREDICTED
    elif name in machine.ruled_out and max(of_line.values(), default=0) < _NAMED:
        points -= 1
    return points


def _nameable(signs: Mapping[str, Sequence[Sign]], log: Log) -> set[str]:
    """The failures of what the log is about and a program said, as far as what stopped the command speaks for them.

    Where the log does not show what stopped it, all of those.

    A failure that explains one of those is one, too.
    """
    told = {name for name, of_it in signs.items() if all(sign.line.number in log.told for sign in of_it)}
    # a failure is of a log that makes one of the observations that it must be about
    elsewhere = {
        name for name in signs if (about := failures()[name].about) and log.observations.isdisjoint(about)
    }
    signs = {name: of_it for name, of_it in signs.items() if name not in told | elsewhere}
    if not log.stops:
        return set(signs)
    names = {name for name, of_it in signs.items() if any(sign.line.number in log.stops for sign in of_it)}
    return {name for name in signs if name in names or not names.isdisjoint(failures()[name].explains)}


def _cause_among(points: Mapping[str, int], name: str) -> str:
    """The failure of which this one is a consequence, the surest where several are; "" where none is."""
    others = points.keys() - {name}
    causes = {other for other in others if name in failures()[other].explains}
    least = max(_LIKELY, min(points[name], _ENOUGH) - 1)
    if not failures()[name].specific:
        # what is said of any program gives way to any class that is likely at all
        causes |= {other for other in others if failures()[other].specific}
        least = _LIKELY
    likely = [other for other in points if other in causes and points[other] >= least]
    return max(likely, key=lambda other: points[other], default="")


def _cause(
    name: str, certainty: Certainty, signs: Sequence[Sign], explained_by: str, log: Log, failure: Failure
) -> FailureCause:
    lines = {sign.line.number: sign.line.text for sign in signs}
    numbers = tuple(sorted(lines)[:_LINES_SHOWN])
    values = _told(failure, log)
    # the strongest sign's own words count most
    for sign in sorted(signs, key=lambda sign: sign.points):
        values |= sign.values
    values = {key: without_credentials(value) for key, value in values.items()}
    if module := (values.get("module") or values.get("package", "")).partition(".")[0]:
        values["distribution"] = requirement_of(module) or module
    known, observed = failures()[name], log.observations | failure.tags
    fix = advice(known.steps, values, observed)
    general = tuple(map(say, filter(None, [known.fix])))
    if not fix and not known.rank:
        # of a message that is no class of the vocabulary its record says what to do
        meanings = (explain_message(lines[number]) for number in numbers)
        fix = next((meaning.steps for meaning in meanings if meaning is not None and meaning.key == name), ())
    fix = fix or general
    if known.rank and known.checks and not known.steps:
        text = "On the machine where it failed, look for what leads there"
        fix += (run("splatfix", "diagnose", "--only", known.checks[0], text=text, kind="diagnose"),)
    return FailureCause(
        name=name,
        certainty=certainty,
        lines=tuple(without_credentials(lines[number]) for number in numbers),
        line_numbers=numbers,
        why=known.reason(values),
        fix=fix,
        settle=advice(known.settle, values, observed) if certainty is Certainty.LIKELY else (),
        consequence_of=explained_by,
    )


def known_classes() -> tuple[KnownClass, ...]:
    """Every class that can be recognised, the commonest first."""
    return tuple(convert(failure, KnownClass, from_attributes=True) for failure in failure_classes())
