"""Failures, one record (``data/failures/NAME.toml``) for each: how a log shows it, what it means, and what to do.

A failure with a rank is a class of the vocabulary that checks, explanations and reports share. One without is a message
that only says why a build stopped, such as a full disk. Records of ``patches/`` that name a message of a build log add it
to their class, or are a failure of their own. ``data/failures/README.md`` describes a record.
"""

import contextlib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.core.step import Step, step_of
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.log_patterns import LogPattern
from splatfix.knowledge.messages import Message
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, table

POINTS = {"names": 5, "suggests": 3, "hints": 1}
"""How far a line goes towards a failure: of ten logs with one that ``names`` it eight are of it, of ``suggests`` five.
Two that suggest it, or one with two hints, are as much. Shares with two digits did no better on labelled cases."""


class Wording(LogPattern, frozen=True, eq=False, kw_only=True):
    """One wording of one tool, and how far it goes towards a failure.

    It holds no repeat inside a repeat, so that its time is bounded by the length of the line (a test reads its parse tree).
    """

    says: Literal["names", "suggests", "hints"] = "names"
    all: tuple[str, ...] = ()
    """Observations that must be in the log as well."""
    none: tuple[str, ...] = ()
    """Observations that rule it out."""
    test: str = ""
    """Name of a test of the numbers in the line (``splatfix/explain/judges.py``)."""


class KnownFailure(Struct, frozen=True):
    """One way in which installs and trainings fail."""

    name: str
    rank: int = 0
    """Place among the classes of the vocabulary, 1 being the one that reports show most; 0: it is none of them."""
    definition: str = ""
    why: str = ""
    because: str = ""
    """The same with what the log was told (``{standard}``); read where all of it is known."""
    fix: str = ""
    """What to do, in the words of the vocabulary; told where none of the steps can help."""
    steps: tuple[Any, ...] = ()
    """What to do: each as the data file has it, with the values it needs and the observations it is for."""
    settle: tuple[Any, ...] = ()
    """What tells whether it is this failure, where the log leaves that open."""
    speakers: tuple[str, ...] = ()
    """Programs, or kinds of them (``data/speakers.toml``), from which it is heard."""
    general: bool = False
    """It is said of any program: whatever is known of splatting comes before it."""
    examples: tuple[str, ...] = ()
    """Issues that show it (``owner/repository#number``)."""
    checks: tuple[str, ...] = ()
    """Codes of the checks that predict it."""
    limit: str = ""
    """What of it no check can predict, and why; "" when the checks see all of it."""
    about: tuple[str, ...] = ()
    """Observations, of which a log must make one for the failure to be named; () where its own words are enough."""
    explains: tuple[str, ...] = ()
    """Failures whose signs are its consequences."""
    sources: tuple[str, ...] = ()
    wordings: tuple[Wording, ...] = field(name="wording", default=())
    option: str = ""
    """``build`` or ``other-torch``: the least invasive such option of ``splatfix install`` answers it on a known machine."""
    without_compiler: bool = False
    """Nothing is left of it where torch's own NVRTC compiles the CUDA code."""
    pip: tuple[str, ...] = ()
    """Requirements to install in the environment where it failed."""
    messages: tuple[Message, ...] = field(name="message", default=())

    @property
    def specific(self) -> bool:
        """It is a class of the vocabulary that says more than what any program can meet."""
        return bool(self.rank) and not self.general

    def reason(self, values: Mapping[str, str]) -> str:
        """Return why it happens, with what the log was told where that is enough."""
        try:
            return self.because.format(**values) or self.why
        except KeyError:
            return self.why


def advice(rows: Sequence[Any], values: Mapping[str, str], observed: frozenset[str]) -> tuple[Step, ...]:
    """Return the steps whose values are all known, and whose observations a log makes (``all``) and lacks (``none``)."""
    steps = []
    for row in rows:
        conditions = row if isinstance(row, Mapping) else {}
        if observed.issuperset(conditions.get("all", ())) and observed.isdisjoint(conditions.get("none", ())):
            with contextlib.suppress(KeyError):
                steps.append(step_of(row, (), values))
    return tuple(steps)


@cached
def failures() -> Mapping[str, KnownFailure]:
    """All failures by name, with what the breakage records know of them."""
    known = {}
    for name, row in table("failures").items():
        # one without a rank is no class of the vocabulary
        given = {"key": name, "failure_class": name if row.get("rank") else ""}
        messages = [{**message, **given} for message in row.get("message", ())]
        known[name] = decode(KnownFailure, {**row, **row.get("answer", {}), "message": messages}, name=name)
    for record in breakages():
        name = record.failure_class or record.key
        failure = known.get(name) or KnownFailure(name, why=record.symptom, sources=record.sources)
        if not (failure.rank or record.log):
            continue
        # what the record adds; the failure's own words come first
        checks, wordings = failure.checks, failure.wordings
        if record.check:
            checks = (record.check.code, *checks)
        if record.log:
            # a record's own pattern meets logs as they are; here every quote is a plain one
            text = record.log.text.replace("`", "'")
            wordings += (Wording(text=text, any_case=False),)
        definition, fix = failure.definition or record.symptom, failure.fix or record.cure
        known[name] = replace(failure, definition=definition, fix=fix, checks=checks, wordings=wordings)
    return known


def failure_classes() -> tuple[KnownFailure, ...]:
    """The classes of the vocabulary, the commonest first."""
    classes = [failure for failure in failures().values() if failure.rank]
    return tuple(sorted(classes, key=lambda failure: failure.rank))


def failure_class(name: str) -> KnownFailure | None:
    """The class of the vocabulary of this name, or None."""
    failure = failures().get(name)
    return failure if failure and failure.rank else None


def foreseen_by(code: str) -> tuple[KnownFailure, ...]:
    """The failure classes that the check of this code predicts, the commonest first."""
    return tuple(failure for failure in failure_classes() if code in failure.checks)


@cached
def messages() -> tuple[Message, ...]:
    """Every message that says by itself what is wrong, breakages of sources first."""
    of_sources = [record.log for record in breakages() if record.log]
    others = [message for failure in failures().values() for message in failure.messages]
    return (*of_sources, *others)


def explain_message(text: str, kind: str = "") -> Message | None:
    """What a message means; None for one that is not known.

    Args:
        text: the message; only the line that says it, as code quoted below may mention anything.
        kind: the kind of message, for meanings that are known of one kind only.
    """
    for message in messages():
        if message.kind in ("", kind):
            meaning = message.read(text)
            if meaning:
                return meaning
    return None


@cached
def to_collect() -> Sequence[Any]:
    """What to give or to run where no cause is known, as :func:`advice` reads it."""
    return tuple(table("collect")["steps"])


@cached
def observations() -> Mapping[str, LogPattern]:
    """What else a log can say, by name: wordings ask for it."""
    rows = ChainMap(*table("log_observations").values()).items()
    return {name: LogPattern(text=text, any_case=False) for name, text in rows}
