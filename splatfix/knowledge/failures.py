"""Failures, one record (``data/failures/NAME.toml``) for each: how a log shows it, what it means, and what to do.

A failure with a rank is a class of the vocabulary that checks, explanations and reports share. One without is a message
that only says why a build stopped, such as a full disk. Records of ``patches/`` that name a message of a build log add it
to their class, or are a failure of their own. ``data/failures/README.md`` describes a record.
"""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from splatfix.core.step import Step
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.log_patterns import LogPattern
from splatfix.knowledge.messages import Meaning, Message
from splatfix.knowledge.rows import decode
from splatfix.knowledge.tables import cached, table

# One line of a compiler that names the missing declaration settles the cause, but for code that another edit broke.
_BREAKAGE_WEIGHT = 0.93


class Wording(LogPattern, frozen=True, eq=False, kw_only=True):
    """One wording of one tool, and how far it goes towards a failure.

    It holds no repeat inside a repeat, so that its time is bounded by the length of the line (a test reads its parse tree).
    """

    weight: float
    """Share of logs with this line that the failure is the cause of, 0 to 1."""
    all: tuple[str, ...] = ()
    """Observations that must be in the log as well."""
    none: tuple[str, ...] = ()
    """Observations that rule it out."""
    test: str = ""
    """Name of a test of the numbers in the line (``splatfix/explain/judges.py``)."""


class Answer(Struct, frozen=True):
    """What a failure asks for, as commands."""

    option: str = ""
    """``build`` or ``other-torch``: the least invasive such option of ``splatfix install`` answers it on a known machine."""
    without_compiler: bool = False
    """Nothing is left of it where torch's own NVRTC compiles the CUDA code."""
    pip: tuple[str, ...] = ()
    """Requirements to install in the environment where it failed."""
    steps: tuple[Step, ...] = ()
    """What answers it on any machine."""


class Failure(Struct, frozen=True):
    """One way in which installs and trainings fail."""

    name: str
    rank: int = 0
    """Place among the classes of the vocabulary, 1 being the one that reports show most; 0: it is none of them."""
    definition: str = ""
    why: str = ""
    fix: str = ""
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
    answer: Answer = field(default_factory=Answer)
    messages: tuple[Message, ...] = field(name="message", default=())


@cached
def failures() -> Mapping[str, Failure]:
    """All failures by name, with what the breakage records know of them."""
    known = {}
    for name, row in table("failures").items():
        # one without a rank is no class of the vocabulary
        given = {"key": name, "failure_class": name if row.get("rank") else ""}
        messages = [{**message, **given} for message in row.get("message", ())]
        known[name] = decode(Failure, {**row, "message": messages}, name=name)
    for record in breakages():
        name = record.failure_class or record.key
        failure = known.get(name) or Failure(name, why=record.symptom, sources=record.sources)
        if not (failure.rank or record.log):
            continue
        # what the record adds; the failure's own words come first
        checks, wordings = failure.checks, failure.wordings
        if record.check:
            checks = (record.check.code, *checks)
        if record.log:
            # a record's own pattern meets logs as they are; here every quote is a plain one
            text = record.log.text.replace("`", "'")
            wordings += (Wording(text=text, weight=_BREAKAGE_WEIGHT, any_case=False),)
        definition, fix = failure.definition or record.symptom, failure.fix or record.cure
        known[name] = replace(failure, definition=definition, fix=fix, checks=checks, wordings=wordings)
    return known


def failure_classes() -> tuple[Failure, ...]:
    """The classes of the vocabulary, the commonest first."""
    classes = [failure for failure in failures().values() if failure.rank]
    return tuple(sorted(classes, key=lambda failure: failure.rank))


def failure_class(name: str) -> Failure | None:
    """The class of the vocabulary of this name, or None."""
    failure = failures().get(name)
    return failure if failure and failure.rank else None


def foreseen_by(code: str) -> tuple[Failure, ...]:
    """The failure classes that the check of this code predicts, the commonest first."""
    return tuple(failure for failure in failure_classes() if code in failure.checks)


@cached
def messages() -> tuple[Message, ...]:
    """Every message that says by itself what is wrong, breakages of sources first."""
    of_sources = [record.log for record in breakages() if record.log]
    others = [message for failure in failures().values() for message in failure.messages]
    return (*of_sources, *others)


def explain_message(text: str, kind: str = "") -> Meaning | None:
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
def observations() -> Mapping[str, LogPattern]:
    """What else a log can say, by name: wordings ask for it."""
    rows = table("log_observations")["observations"].items()
    return {name: LogPattern(text=text, any_case=False) for name, text in rows}
