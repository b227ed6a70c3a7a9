"""How each failure class shows in a log: one record (``data/signatures/CLASS.toml``) for each, and what else logs can say.

The records of ``patches/`` that belong to a class and name a message of a build log are signatures too. A pattern is
matched against one line with plain quotes; it holds no repeat inside a repeat, so that its time is bounded by the
length of the line (a test reads its parse tree).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.tables import cached, table

_OF_HINT = 0.25
"""Weight of a hint: far below what names a cause."""
_OF_BREAKAGE = 0.93
"""Weight of the log message of a breakage record, which one line of a compiler settles."""


@dataclass(frozen=True)
class Anchor:
    """One wording of one tool, and how far it goes towards the class."""

    pattern: re.Pattern[str]
    weight: float
    """Share of logs with this line that the class is the cause of, 0 to 1."""
    all: tuple[str, ...] = ()
    """Observations that must be in the log as well, or be known from facts."""
    none: tuple[str, ...] = ()
    """Observations that rule it out."""
    test: str = ""
    """Name of a test of the numbers in the line (``splatfix/explain/judges.py``)."""


@dataclass(frozen=True)
class Signature:
    """How one failure class shows in a log."""

    name: str
    """The failure class (``data/failures.json``), or the key of a breakage record that belongs to none."""
    why: str
    anchors: tuple[Anchor, ...]
    explains: tuple[str, ...] = ()
    """Classes whose signs are its consequences."""
    sources: tuple[str, ...] = ()


@cached
def signatures() -> Mapping[str, Signature]:
    """All signatures by class, those of ``data/signatures`` with the messages of breakage records added."""
    found = {name: _signature(name, row) for name, row in table("signatures").items()}
    for record in breakages():
        if record.log is None:
            continue
        name = record.failure_class or record.key.replace("-", "_")
        # a record's own pattern meets logs as they are; here every quote is a plain one
        pattern = re.compile(record.log.pattern.pattern.replace("`", "'"))
        anchor = Anchor(pattern, _OF_BREAKAGE)
        known = found.get(name, Signature(name, record.symptom, (), (), record.sources))
        found[name] = Signature(name, known.why, (*known.anchors, anchor), known.explains, known.sources)
    return found


@cached
def observations() -> Mapping[str, re.Pattern[str]]:
    """What else a log can say, by name."""
    return {name: re.compile(text) for name, text in table("log_observations")["observations"].items()}


@cached
def hints() -> Mapping[str, Anchor]:
    """What words point to, by class, for logs in which no message is recognised."""
    rows = table("log_observations")["hints"].items()
    return {name: Anchor(re.compile(text, re.IGNORECASE), _OF_HINT) for name, text in rows}


def _signature(name: str, row: Mapping[str, Any]) -> Signature:
    return Signature(
        name=name,
        why=row["why"],
        anchors=tuple(map(_anchor, row["anchor"])),
        explains=tuple(row.get("explains", ())),
        sources=tuple(row["sources"]),
    )


def _anchor(row: Mapping[str, Any]) -> Anchor:
    return Anchor(
        pattern=re.compile(row["pattern"], re.IGNORECASE),
        weight=float(row["weight"]),
        all=tuple(row.get("all", ())),
        none=tuple(row.get("none", ())),
        test=row.get("test", ""),
    )
