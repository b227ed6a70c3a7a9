"""What answers a class of failure, as commands: on a machine whose facts are known, else where any machine takes them."""

from collections.abc import Collection, Sequence
from functools import cached_property

from splatfix.context import Context
from splatfix.context.commands import pip, python_option
from splatfix.core.errors import Rejected
from splatfix.core.step import PlainStep, Step, run
from splatfix.knowledge.dropins import dropin_named
from splatfix.knowledge.failures import Failure
from splatfix.model.option import BUILDING, REPLACING, OptionKind, Plan
from splatfix.model.steps import MakeDropin
from splatfix.plan import Case, rank
from splatfix.plan.requirements import usable_torch

_NO_COMPILER = "Or with no compiler at all: drop-ins whose CUDA code the NVRTC of a CUDA torch compiles"


class Answers:
    """What answers each class of failure: on one machine, or on any. The records say what kind of answer it is."""

    def __init__(self, context: Context | None = None) -> None:
        """Take the machine where it failed.

        Args:
            context: None where its facts are not known.
        """
        self._context = context

    @cached_property
    def _options(self) -> tuple[Plan, ...]:
        if self._context is None:
            return ()
        return rank(Case(context=self._context)).available

    def without_compiler(self, failure: Failure, dropins: Sequence[str]) -> tuple[Step, ...]:
        """Return drop-ins with CUDA code, for a class that a compiler has a part in; () where no CUDA torch is published for it.

        Args:
            dropins: modules it concerns that have such a drop-in.
        """
        context = self._context
        if not dropins or not failure.answer.without_compiler:
            return ()
        text, named = _NO_COMPILER, tuple(dropins)
        if not all(dropin_named(name) for name in dropins):
            # several packages share the name of a rasterizer: the checkout says which of them is meant
            text, named = f"{text} (in the trainer's folder)", (".",)
        # why there is no usable torch is told by the plan, to who asks for one
        if context and isinstance(usable_torch(context, cuda=True), Rejected):
            if context.platform is None:
                return ()
            text = f"{text}; install a CUDA build of torch first"
        argv: tuple[str, ...] = ("splatfix", "install", *named, "--backend", "nvrtc")
        if context is not None:
            argv += python_option(context.facts)
            if not context.archs:
                argv += ("--target", "ARCH")
        return (run(*argv, text=text),)

    def to(self, failure: Failure) -> tuple[Step, ...]:
        """Return the commands that answer a class of failure; () where none is known to."""
        answer = failure.answer
        if answer.pip and self._context is None:
            text = "In the environment where it failed"
            return (run("python", "-m", "pip", "install", *answer.pip, text=text),)
        if answer.pip and self._context is not None:
            return (pip(self._context.facts, "install", *answer.pip),)
        if answer.option == "other-torch":
            return self._first((OptionKind.OTHER_TORCH,))
        if answer.option == "build":
            return self._first(BUILDING) or self._first(REPLACING)
        return answer.steps

    def _first(self, kinds: Collection[OptionKind]) -> tuple[Step, ...]:
        """Return the steps of the least invasive available option of these kinds."""
        plan = next((plan for plan in self._options if plan.kind in kinds), None)
        steps = []
        for step in plan.steps if plan else ():
            by_nvrtc = isinstance(step, MakeDropin) and step.backend == "nvrtc"
            # a step of a plan begins in lower case, behind its number
            text = step.text[:1].upper() + step.text[1:]
            steps.append(PlainStep(text, step.command, "install-nvrtc" if by_nvrtc else ""))
        return tuple(steps)
