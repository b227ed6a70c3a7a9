"""Criteria: functions of one training, registered with their words as checks are, and what they measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from smoke_trainer.record import TrainingRecord
from splatfix.certify.advice import end_of
from splatfix.certify.model import Criterion, Mend, Outcome
from splatfix.core.runner import Completed

SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""
SMOKE, STACK = "smoke", "stack"
"""Whose criterion it is: of splatfix's own trainer, or of a stack's, which is watched from outside."""


class Training(Struct, frozen=True, kw_only=True):
    """One training as it is judged."""

    record: TrainingRecord
    done: Completed
    """How its process ended, with all that it printed."""
    device: str = "cpu"
    own_scene: bool = False
    """The scene is the user's: that it cannot be read says nothing about the environment."""
    latest: str = ""
    """How far it told that it was, in words."""
    repeated: Sequence[tuple[float, float]] | None = None
    """Losses of the first run and of a second one with the same seed; None where there was no second."""
    repeat_ended: str = ""
    """Why the second run failed."""
    stack: bool = False
    """It is a stack's own trainer, of which the rest tells."""
    extensions: Sequence[str] = ()
    """Top-level modules that the checkout calls."""
    mends: Sequence[Mend] = ()
    """What had to be left out or mended so that it ran at all."""
    scripts: Mapping[str, Completed] = field(default_factory=dict)
    """How ``render.py`` and ``metrics.py`` ended."""

    @property
    def output(self) -> str:
        """Return all that was printed."""
        return f"{self.done.stdout}\n{self.done.stderr}"

    @property
    def unreadable(self) -> str:
        """Return the loader's error for a scene of the user's; of a bundled one it is splatfix's failure."""
        error = self.record.error
        if not self.own_scene or error is None or error.code != "unreadable-scene":
            return ""
        return end_of(error, self.done)


class Measure(Struct, frozen=True):
    """What a criterion measured."""

    met: bool | None
    """None: this run cannot be judged by it."""
    text: str
    subject: str = ""
    """Of several measures of one criterion: what this is of, the end of its code."""
    required: str = ""
    """In place of the criterion's, where that depends on the run."""
    why: str = ""
    advice: str = ""
    missing: bool = False
    """The trainer left it out: no excuse for a short run."""
    undetermined: bool = False
    """Not met, and a longer run may."""


Measures: TypeAlias = Measure | Iterable[Measure] | None
Judge: TypeAlias = Callable[[Training], Measures]
_Judge = TypeVar("_Judge", bound=Judge)


class Registered(Struct, frozen=True, kw_only=True):
    """A criterion with its words."""

    code: str
    """Kebab-case and stable."""
    title: str
    """A statement, which is then met or failed; ``{subject}`` stands for that of a measure."""
    required: str = ""
    """What a measure must be; "" where the title says it."""
    why: str = ""
    """What a failure means in practice."""
    source: str = ""
    """Where the threshold comes from; "" where it is what was asked for."""
    advice: str = ""
    """What to do about a failure."""
    of: str = ""
    """:data:`SMOKE` or :data:`STACK`; "" of both."""
    learning: bool = False
    """A run that is too short leaves it undetermined."""
    without_result: bool = False
    """Judged also of a training that left no result."""
    after: Literal["", "training", "rendering"] = ""
    """Of a stack's own trainer: what must have ended well for a failure to count."""
    judge: Judge = lambda training: None

    def criterion(self, measure: Measure) -> Criterion:
        """Return the criterion of a measure."""
        outcome, why, advice = Outcome.FAILED, measure.why or self.why, measure.advice or self.advice
        if measure.met is None:
            outcome, why, advice = Outcome.NOT_MEASURED, measure.why, measure.advice
        elif measure.met:
            outcome, why, advice = Outcome.MET, "", ""
        elif measure.undetermined:
            longer = f"Train for {SHORTEST} iterations or more (--iterations)."
            outcome, advice = Outcome.UNDETERMINED, measure.advice or longer
        return Criterion(
            code=f"{self.code}-{measure.subject}" if measure.subject else self.code,
            outcome=outcome,
            measured=measure.text,
            required=measure.required or self.required or self.title,
            why=why,
            source=self.source,
            advice=advice,
            title=self.title.format(subject=measure.subject),
        )


REGISTERED: list[Registered] = []
"""Every criterion of a training, in the order in which a certificate shows them."""


def criterion(code: str, **words: object) -> Callable[[_Judge], _Judge]:
    """Register a function as a criterion; ``words`` are the fields of :class:`Registered`."""

    def register(judge: _Judge) -> _Judge:
        REGISTERED.append(Registered(code=code, judge=judge, **words))  # type: ignore[arg-type]
        return judge

    return register


MISSING = Measure(False, "not recorded", missing=True)
"""Of a criterion whose measurement the trainer left out."""
