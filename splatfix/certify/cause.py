"""Why a trainer failed, by the engine of ``splatfix explain``: the class that its output shows, and the fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from splatfix.certify.model import Criterion, Outcome
from splatfix.core.step import Step
from splatfix.explain import cause_of, explain_message

# Other criteria fail by what was measured, which says itself what is wrong.
_FAIL_BY_OUTPUT = ("training-finishes", "no-cuda-error")


def explained(criterion: Criterion, output: str, *, own: Collection[str] = (), error: str = "") -> Criterion:
    """The criterion with the cause that the output names, where it failed and has no advice yet.

    Args:
        output: all that the trainer printed, and its error; lines of JSON are its progress, and are left out.
        own: classes for which the criterion's own advice is the better.
        error: the message that the trainer ended with, for what is known of it alone.
    """
    failed = criterion.outcome is Outcome.FAILED and criterion.code in _FAIL_BY_OUTPUT
    if not failed or criterion.advice:
        return criterion
    cause = cause_of("\n".join(line for line in output.splitlines() if not line.startswith("{")))
    if cause is not None:
        criterion = replace(criterion, why=f"{criterion.why} {cause.why.rstrip('.')} [{cause.name}].".strip())
        if cause.name not in own:
            criterion = replace(criterion, advice=steps_in_words(cause.fix))
    # what is known of a message fits its numbers and names, which the fix of its class does not
    message = explain_message(error)
    if message is not None:
        criterion = replace(criterion, advice=f"{message.meaning} {steps_in_words(message.steps)}")
    return criterion


def steps_in_words(steps: Iterable[Step]) -> str:
    """What to do, in one line."""
    lines = []
    for step in steps:
        if step.command is None:
            lines.append(step.text)
        else:
            lines.append(f"{step.text}: {step.command.shell(windows=False)}")
    return "; ".join(lines)
