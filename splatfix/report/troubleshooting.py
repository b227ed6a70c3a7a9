"""What went wrong or stayed open in a certificate, with what it means, grouped by what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatfix.certify.model import Certificate, Criterion, Outcome

_OPEN = (Outcome.FAILED, Outcome.UNDETERMINED)


@dataclass(frozen=True)
class Trouble:
    """One thing that went wrong, or could not be judged."""

    where: str
    """The scene; ``diagnosis``, ``kernel`` or ``level`` for what is no scene's."""
    code: str
    """Of the criterion or finding; the name of the kernel or level."""
    outcome: Outcome
    means: str


def troubles(certificate: Certificate) -> dict[str, list[Trouble]]:
    """Everything that failed or stayed open, by what to do about it ("" where only a diagnosis can tell), in the order of the
    certificate. A level that failed is told where nothing below it did."""
    found: dict[str, list[Trouble]] = {}
    for kernel in certificate.kernels:
        if kernel.outcome is Outcome.FAILED:
            means = kernel.detail or "its error is above what is allowed"
            item = Trouble("kernel", kernel.implementation or kernel.name, kernel.outcome, means)
            found.setdefault("", []).append(item)
    for run in certificate.scenes:
        _add(found, run.scene, run.criteria)
    _add(found, "diagnosis", certificate.diagnosis)
    if not found:
        failed = [rung for rung in certificate.proof if rung.reached is False]
        levels = [Trouble("level", rung.name.value, Outcome.FAILED, rung.shown_by) for rung in failed]
        return {"": levels} if levels else {}
    return found


def _add(found: dict[str, list[Trouble]], where: str, criteria: Sequence[Criterion]) -> None:
    for item in criteria:
        if item.advice or item.outcome in _OPEN:
            means = f"{item.measured.rstrip('.')}. {item.why}".strip()
            found.setdefault(item.advice, []).append(Trouble(where, item.code, item.outcome, means))
