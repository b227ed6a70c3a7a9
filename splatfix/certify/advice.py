"""Why a criterion failed, and what to do about it: by what the trainer printed, or by what failed first."""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from smoke_trainer.record import TrainerError
from splatfix.certify.model import Criterion, Outcome
from splatfix.core.runner import Completed
from splatfix.core.step import Step
from splatfix.explain import cause_of
from splatfix.knowledge.failures import explain_message

# Other criteria fail by what was measured, which says itself what is wrong.
_FAIL_BY_OUTPUT = ("training-finishes", "no-cuda-error")


def explained(item: Criterion, output: str, ending: str) -> Criterion:
    """Return the criterion with the cause that the trainer's whole output names, where it failed by what was printed; ``ending``
    is the message that the trainer ended with."""
    if item.outcome is not Outcome.FAILED or item.code not in _FAIL_BY_OUTPUT:
        return item
    # lines of JSON are the trainer's progress
    lines = [line for line in output.splitlines() if not line.startswith("{")]
    if cause := cause_of("\n".join([*lines, ending])):
        why = f"{item.why} {cause.why.rstrip('.')} [{cause.name}].".strip()
        # against lack of memory a class names options of Inria's trainer, and the criterion certify's own
        advice = item.advice if cause.name == "cuda-oom-runtime" else steps_in_words(cause.fix)
        item = replace(item, why=why, advice=advice)
    # what is known of a message fits its numbers and names, which the fix of its class does not
    if message := explain_message(ending):
        item = replace(item, advice=f"{message.meaning} {steps_in_words(message.steps)}")
    return item


def steps_in_words(steps: Iterable[Step]) -> str:
    """Return what to do, in one line."""
    return "; ".join(step.line(windows=False) for step in steps)


def end_of(error: TrainerError | None, done: Completed) -> str:
    """Return why a script ended: the exception with its place in the checkout, else the last error that it printed, else its
    exit code with its last line; "" where it ended well."""
    if error is not None:
        message = error.message.strip().splitlines()[:1]
        ending = ": ".join(filter(None, (error.type, *message)))
        if error.place:
            ending += f" ({error.place}, in {error.function})"
        return " ".join(filter(None, map(sentence, (ending, error.note, error.hint))))
    if done.error or (done.returncode or 0) < 0:
        return done.why()
    # progress bars end their lines with a carriage return, and lines of JSON are progress too
    output: list[str] = re.split(r"[\r\n]+", f"{done.stdout}\n{done.stderr}")
    for line in reversed(output):
        if re.search(r"\berror\b", line, re.IGNORECASE) and not line.startswith("{"):
            return line.strip()
    return done.why()


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop; "" stays empty."""
    text = text.strip().rstrip(".")
    return text and f"{text[0].upper()}{text[1:]}."
