"""Criteria: functions of one training, registered with their words as checks are, and what they measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from smoke_trainer.record import TrainingRecord
from splatfix.certify.model import Criterion, Mend, Outcome
from splatfix.core.runner import Completed
from splatfix.core.words import counted

SHORTEST = 100
"""Iterations from which on learning is judged: ten steps cannot show that an optimizer works, or that it does not."""
SMOKE, STACK = "smoke", "stack"
"""Whose criterion it is: of splatfix's own trainer, or of a stack's, which is watched from outside."""
ANY = (SMOKE, STACK)


class StackRun(Struct, frozen=True, kw_only=True):
    """What is known of a stack's own training beside its record."""

    extensions: Sequence[str] = ()
    """Top-level modules that the checkout calls."""
    mends: Sequence[Mend] = ()
    """What had to be left out or mended so that it ran at all."""
    scripts: Mapping[str, Completed] = field(default_factory=dict)
    """How ``render.py`` and ``metrics.py`` ended, by :data:`RENDERING` and :data:`METRICS`."""
    scene_problems: Sequence[Mend] = ()
    """What does not fit the trainer by its source, see :mod:`splatfix.certify.stacks.scene_layout`."""


class Training(Struct, frozen=True, kw_only=True):
    """One training as it is judged."""

    record: TrainingRecord
    done: Completed
    """How its process ended, with all that it printed."""
    device: str = "cpu"
    renderer: str = "torch"
    iterations: int | None = None
    """As many as were asked for; None: as many as the preset has, which the record repeats."""
    own_scene: bool = False
    """The scene is the user's: that it cannot be read says nothing about the environment."""
    latest: str = ""
    """How far it told that it was, in words."""
    repeated: Sequence[tuple[float, float]] | None = None
    """Losses of the first run and of a second one with the same seed; None where there was no second."""
    repeat_ended: str = ""
    """Why the second run failed."""
    stack: StackRun | None = None
    """Of a stack's own trainer; None of splatfix's."""

    @property
    def output(self) -> str:
        """Return all that was printed."""
        return f"{self.done.stdout}\n{self.done.stderr}"

    @property
    def is_long(self) -> bool:
        """Return whether it is long enough to have learned."""
        return self.record.iterations is None or self.record.iterations >= SHORTEST


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


class Registered(Struct, frozen=True, kw_only=True):
    """A criterion with its words."""

    code: str
    """Kebab-case and stable."""
    title: str
    """A statement, which is then met or failed; ``{subject}`` stands for that of a measure."""
    required: str
    why: str
    """What a failure means in practice."""
    source: str
    """Where the threshold comes from."""
    advice: str = ""
    """What to do about a failure, or what stayed open."""
    advice_in_pytorch: str = ""
    """In place of that where all that ran was plain PyTorch on the CPU: what the advice suggests is what ran."""
    of: Sequence[str] = ANY
    learning: bool = False
    """A run that is too short leaves it undetermined."""
    without_result: bool = False
    """Judged also of a training that left no result."""
    judge: Judge = lambda training: None

    def criterion(self, measure: Measure, training: Training | None = None) -> Criterion:
        """Return the criterion of a measure."""
        required, why = measure.required or self.required, measure.why or self.why
        code = f"{self.code}-{measure.subject}" if measure.subject else self.code
        outcome = Outcome.FAILED
        if measure.met is None:
            outcome, why = Outcome.NOT_MEASURED, measure.why
        elif measure.met:
            outcome, why = Outcome.MET, ""
        elif measure.undetermined:
            outcome = Outcome.UNDETERMINED
        elif training and self.learning and not training.is_long and not measure.missing:
            outcome = Outcome.UNDETERMINED
            length = counted(training.record.iterations or 0, "iteration")
            why = f"a run of {length} is too short to judge this: {SHORTEST} or more decide it."
        return Criterion(
            code=code,
            outcome=outcome,
            measured=measure.text,
            required=required,
            why=why,
            source=self.source,
            advice=measure.advice or self._advice(outcome, training),
            title=self.title.format(subject=measure.subject),
        )

    def _advice(self, outcome: Outcome, training: Training | None) -> str:
        if (
            training and training.stack
        ):  # what is said of splatfix's own trainer and its options does not fit it
            return ""
        if outcome is Outcome.UNDETERMINED:
            return f"Train for {SHORTEST} iterations or more (--iterations)."
        if outcome is not Outcome.FAILED:
            return ""
        if training and self.advice_in_pytorch and (training.renderer, training.device) == ("torch", "cpu"):
            return self.advice_in_pytorch
        return self.advice


REGISTERED: list[Registered] = []
"""Every criterion, in the order in which a certificate shows them. Two trainers may meet one code in two ways."""


def criterion(code: str, **words: object) -> Callable[[Judge], Judge]:
    """Register a function as a criterion; ``words`` are the fields of :class:`Registered`."""

    def register(judge: Judge) -> Judge:
        REGISTERED.append(Registered(code=code, judge=judge, **words))  # type: ignore[arg-type]
        return judge

    return register


def missing(text: str = "not recorded") -> Measure:
    """Return the failure of a criterion whose measurement the trainer left out."""
    return Measure(False, text, missing=True)
