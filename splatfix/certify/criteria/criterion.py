"""From a measurement to a criterion: three outcomes, and a fourth for a run that was too short."""

from collections.abc import Mapping
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from splatfix.certify.model import Criterion, Outcome
from splatfix.certify.record import TrainingRecord
from splatfix.core.codec import from_json
from splatfix.core.toml import table_beside
from splatfix.core.words import counted

SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""


class CriterionText(Struct, frozen=True):
    """A table of ``criteria.toml``."""

    required: str
    why: str
    source: str


@cache
def _texts() -> Mapping[str, CriterionText]:
    document = table_beside(__file__, "criteria.toml")
    return from_json(Mapping[str, CriterionText], document)  # type: ignore[type-abstract]


def criterion(row: str, met: bool | None, measured: str, *, code: str = "", **figures: object) -> Criterion:
    """Make a criterion of a row of ``criteria.toml``, whose texts name the figures; ``met`` is None for what was not measured,
    ``code`` given where it is not the row's, up to the slash."""
    text = _texts()[row]
    required, why, source = (part.format(**figures) for part in (text.required, text.why, text.source))
    code = code or row.partition("/")[0]
    if met:
        return Criterion(code, Outcome.MET, measured, required, source=source)
    outcome = Outcome.NOT_MEASURED if met is None else Outcome.FAILED
    return Criterion(code, outcome, measured, required, why, source)


def not_measured(code: str, reason: str, required: str) -> Criterion:
    """A criterion that this run cannot be judged by."""
    return Criterion(code, Outcome.NOT_MEASURED, reason, required)


def unless_short(item: Criterion, record: TrainingRecord, *, measured: bool) -> Criterion:
    """A failure that a short run was bound to show is no failure; one whose measurement is missing stays one."""
    done = record.iterations
    if item.outcome is not Outcome.FAILED or not measured or done is None or done >= SHORTEST:
        return item
    reason = (
        f"a run of {counted(done, 'iteration')} is too short to judge this: {SHORTEST} or more decide it."
    )
    return replace(item, outcome=Outcome.UNDETERMINED, why=reason)
