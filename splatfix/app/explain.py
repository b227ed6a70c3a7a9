"""``splatfix explain``: name the cause of a failure by its log, with a fix that fits the machine's facts."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO

from msgspec import Struct, convert
from msgspec.structs import replace

from splatfix.app.result import Result
from splatfix.checks import run_checks, select
from splatfix.context import Context, Goal, make_context
from splatfix.context.commands import pip, python_option
from splatfix.core.errors import Exit, Rejected, SplatfixError
from splatfix.core.step import PlainStep, Step, run
from splatfix.explain import Certainty, Explanation, FailureCause, MachineEvidence, known_classes
from splatfix.explain import explain as read_log
from splatfix.explain.passthrough import run_and_copy
from splatfix.facts import choose_python, gather, load
from splatfix.knowledge.dropins import dropin_named
from splatfix.knowledge.failures import KnownFailure, failure_class, failure_classes
from splatfix.knowledge.tables import pair
from splatfix.model import Facts, Finding, Status
from splatfix.model.option import BUILDING, REPLACING, OptionKind, Plan
from splatfix.model.steps import MakeDropin
from splatfix.plan import Case, rank
from splatfix.plan.tools import usable_torch
from splatfix.report.explanation import ExplanationDocument

_COPY_IN_MEMORY = 8 << 20
"""Bytes of a command's output that are kept in memory; more of it goes to a temporary file."""
_ELSEWHERE = ("apptainer", "docker", "kubectl", "podman", "singularity", "ssh", "sudo", "wsl", "wsl.exe")
"""Programs that run a command somewhere else: what is true of this machine need not be true there."""
_NO_COMPILER = "Or with no compiler at all: drop-ins whose CUDA code the NVRTC of a CUDA torch compiles"


class ExplainRequest(Struct, frozen=True):
    """What to read, and what is known beside it."""

    log: Path | None = None
    """None and ``-``: standard input."""
    command: tuple[str, ...] = ()
    """A command to run instead, whose output is the log."""
    facts_file: Path | None = None
    """Facts of the machine where it failed, as ``diagnose --save`` writes them."""
    python: str | None = None
    """It failed here, in this environment: its facts are read."""
    words: str = ""
    """The log itself, where it is no file."""


def explain(request: ExplainRequest, *, as_json: bool = False) -> Result[ExplanationDocument]:
    """Name the cause; exit code 0 where one is recognised, 3 where none is. A command that was run keeps its own.

    Raises:
        SplatfixError: no such file, no facts, nothing to read (exit code 2).
    """
    facts, facts_from = None, ""
    if request.facts_file is not None:
        facts, facts_from = load(request.facts_file), str(request.facts_file)
    elif request.python is not None:
        facts, facts_from = _facts_here(request.python)
    exit_code: int | None = None
    if request.command:
        # read twice: by the person as it comes, and for the cause when the command has failed
        with tempfile.SpooledTemporaryFile(_COPY_IN_MEMORY) as copy:
            exit_code = run_and_copy(request.command, copy, quiet=as_json)
            if exit_code == 0:
                return Result("explain", ExplanationDocument(facts=facts_from, command_exit_code=0))
            if facts is None:
                facts, facts_from = _facts_of_command(request.command)
            copy.seek(0)
            explanation = replace(_explained(copy, facts), success="")
    else:
        with _opened(request) as stream:
            explanation = _explained(stream, facts)
    document = convert(explanation, ExplanationDocument, from_attributes=True)
    # what was run whole need not be given whole, nor facts that are there
    collect = [step for step in document.collect if step.command or not request.command]
    collect = [step for step in collect if facts is None or step.kind != "facts"]
    document = replace(document, collect=tuple(collect), facts=facts_from, command_exit_code=exit_code)
    if exit_code is None:
        exit_code = Exit.OK if explanation.certainty is Certainty.NAMED else Exit.UNDETERMINED
    return Result("explain", document, exit_code)


def list_classes(name: str = "") -> Result[ExplanationDocument]:
    """Every class that can be recognised, or the one of this name.

    Raises:
        SplatfixError: ``unknown-class`` (exit code 2).
    """
    classes = known_classes()
    if name:
        classes = tuple(item for item in classes if item.name == name.replace("_", "-"))
        if not classes:
            raise SplatfixError.of("app.unknown-class", name=name)
    return Result("explain", ExplanationDocument(classes=tuple(classes)))


def _opened(request: ExplainRequest) -> IO[bytes]:
    """Open a log as bytes: a text, a file, or standard input."""
    path = request.log
    if request.words:
        return io.BytesIO(request.words.encode("utf-8", "replace"))
    if path is None or str(path) == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise SplatfixError.of("app.no-log")
        return sys.stdin.buffer
    try:
        return path.open("rb")
    except OSError as error:
        raise SplatfixError.of("app.no-such-log", path=path, reason=error.strerror or error) from error


def _facts_here(python: str | None) -> tuple[Facts, str]:
    choice = choose_python(python)
    return gather(choice.python, chosen=choice.why), f"this machine, {choice.python}"


def _facts_of_command(command: Sequence[str]) -> tuple[Facts | None, str]:
    """Facts of this machine and of the environment that a command ran in; none where it ran elsewhere."""
    program = Path(command[0])
    if program.name in _ELSEWHERE:
        return None, ""
    # a program of an environment stands beside its interpreter
    beside = [program.with_name(name) for name in ("python", "python.exe") if program.parent.name]
    return _facts_here(next((str(path) for path in beside if path.is_file()), None))


def _explained(log: IO[bytes], facts: Facts | None) -> Explanation:
    """Return why it failed by its words, and by what the checks find on the machine where it failed, if that is known; with
    commands for it."""
    context, evidence, findings = None, MachineEvidence(), None
    if facts is not None:
        context = make_context(facts, Goal())
        findings = run_checks(context, select((), ()))
        # which classes the checks predict on that machine, and of which they see all and found nothing
        codes: dict[Status, set[str]] = {status: set() for status in Status}
        for finding in findings:
            codes[finding.status].add(finding.code)
        # a warning is what may fail; here something has failed
        failed = codes[Status.FAIL] | codes[Status.CRASH] | codes[Status.WARN]
        # what was not looked at says nothing
        passed = codes[Status.PASS] - failed - codes[Status.UNKNOWN]
        known = failure_classes()
        predicted = (item.name for item in known if failed.intersection(item.checks))
        # of a class with a limit the checks do not see all: that they found nothing does not rule it out
        seen = (item for item in known if item.checks and not item.limit)
        ruled_out = (item.name for item in seen if passed.issuperset(item.checks))
        toolkit = context.build_toolkit
        version = pair(toolkit.version) if toolkit and toolkit.version else None
        evidence = MachineEvidence(frozenset(predicted), frozenset(ruled_out), version)
    explanation, answers = read_log(log, evidence), Answers(context)
    causes = [_fitted(cause, explanation.dropins, answers, findings) for cause in explanation.causes]
    return replace(explanation, causes=tuple(causes))


def _fitted(
    cause: FailureCause, dropins: Sequence[str], answers: Answers, findings: Sequence[Finding] | None
) -> FailureCause:
    """Return the cause with commands: the remedies of the checks that found it there, else what its class asks for there.

    What helps everywhere is said where no check has a command; where to look is no question any more once the facts
    are known.
    """
    failure = failure_class(cause.name)
    if failure is None:
        return cause
    answer = answers.to(failure)
    without_compiler = answers.without_compiler(failure, dropins)
    look = tuple(step for step in cause.fix if step.kind == "diagnose")
    general = tuple(step for step in cause.fix if step.kind != "diagnose")
    if findings is None:
        return replace(cause, fix=(*general, *answer, *without_compiler, *look))
    # what the checks that predict the class and found something ask for
    steps: list[Step] = []
    for finding in findings:
        if finding.code in failure.checks and finding.status in (Status.FAIL, Status.WARN):
            steps.extend(finding.remedy)
    # a check's own command is the fix on this machine: "install a toolkit" below it would contradict it
    if any(step.command for step in steps):
        general = ()
    elif not steps and answer and answer[0].command is None:
        # a plan that begins by hand speaks of what stands in its way next: the log's own cause leads
        steps = [*general, *answer]
    else:
        steps += answer
    if not any(step.kind == "install-nvrtc" for step in steps):
        steps += without_compiler
    return replace(cause, fix=tuple(dict.fromkeys([*steps, *general] if steps else cause.fix)))


class Answers:
    """What answers each class of failure, as commands: on one machine, else where any machine takes them."""

    def __init__(self, context: Context | None = None) -> None:
        """Take the machine where it failed; None where its facts are not known."""
        self._context = context

    def without_compiler(self, failure: KnownFailure, dropins: Sequence[str]) -> tuple[Step, ...]:
        """Return drop-ins with CUDA code, for a class that a compiler has a part in; () where no CUDA torch is published for it.

        Args:
            dropins: modules it concerns that have such a drop-in.
        """
        context = self._context
        if not dropins or not failure.without_compiler:
            return ()
        text, named = _NO_COMPILER, tuple(dropins)
        if not all(dropin_named(name) for name in dropins):
            # several packages share the name of a rasterizer: the checkout says which of them is meant
            text, named = f"{text} (in the trainer's folder)", (".",)
        argv: tuple[str, ...] = ("splatfix", "install", *named, "--backend", "nvrtc")
        if context is None:
            return (run(*argv, text=text),)
        # why there is no usable torch is told by the plan, to who asks for one
        if isinstance(usable_torch(context, cuda=True), Rejected):
            if context.platform is None:
                return ()
            text = f"{text}; install a CUDA build of torch first"
        argv += python_option(context.facts)
        if not context.archs:
            argv += ("--target", "ARCH")
        return (run(*argv, text=text),)

    def to(self, failure: KnownFailure) -> tuple[Step, ...]:
        """Return the commands that answer a class of failure; () where none is known to."""
        context = self._context
        if failure.pip and context:
            return (pip(context.facts, "install", *failure.pip),)
        if failure.pip:
            text = "In the environment where it failed"
            return (run("python", "-m", "pip", "install", *failure.pip, text=text),)
        if context is None and failure.option:
            text = "On the machine where it failed (in the trainer's folder), what to build or to replace, and why"
            return (run("splatfix", "install", "--dry-run", "--why", text=text),)
        if failure.option == "other-torch":
            return self._first((OptionKind.OTHER_TORCH,))
        if failure.option == "build":
            return self._first(BUILDING) or self._first(REPLACING)
        return ()

    @cached_property
    def _options(self) -> tuple[Plan, ...]:
        if self._context is None:
            return ()
        return rank(Case(context=self._context)).available

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
