"""``splatfix explain``: name the cause of a failure by its log, with a fix that fits the machine's facts."""

from __future__ import annotations

import io
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from splatfix.app.result import Result
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.step import Step, run, say

if TYPE_CHECKING:
    from rich.console import Console

    from splatfix.checks import Finding
    from splatfix.context import Context
    from splatfix.explain import Explanation, FailureCause, KnownClass, Machine
    from splatfix.facts import Facts
    from splatfix.plan.for_failure import Answers

_COPY_IN_MEMORY = 8 << 20
"""Bytes of a command's output that are kept in memory; more of it goes to a temporary file."""
_LONGEST_OBJECT = 256 << 20
"""Bytes of a line of JSON that are read."""
_ELSEWHERE = ("apptainer", "docker", "kubectl", "podman", "singularity", "ssh", "sudo", "wsl", "wsl.exe")
"""Programs that run a command somewhere else: what is true of this machine need not be true there."""


@dataclass(frozen=True)
class ExplainRequest:
    """What to read, and what is known beside it."""

    log: Path | None = None
    """None and ``-``: standard input."""
    command: tuple[str, ...] = ()
    """A command to run instead, whose output is the log."""
    facts_file: Path | None = None
    """Facts of the machine where it failed, as ``diagnose --save`` writes them."""
    python: str | None = None
    """It failed here, in this environment: its facts are read."""


def explain(request: ExplainRequest, *, as_json: bool = False) -> Result:
    """Name the cause; exit code 0 where one is recognised, 3 where none is. A command that was run keeps its own.

    Raises:
        SplatfixError: no such file, no facts, nothing to read (exit code 2).
    """
    from splatfix.explain import explain as read

    facts, told = _facts(request)
    where = _examined(facts)
    code: int | None = None
    if request.command:
        with tempfile.SpooledTemporaryFile(_COPY_IN_MEMORY) as copy:
            code = _run(request.command, copy, quiet=as_json)
            copy.seek(0)
            if code and facts is None:
                facts, told = _facts_of_command(request.command)
                where = _examined(facts)
            found = read(copy, where.machine) if code else None  # type: ignore[arg-type]
    else:
        with _opened(request.log) as stream:
            found = read(stream, where.machine)
    if found is not None:
        found = replace(found, causes=tuple(where.fitted(cause, found.dropins) for cause in found.causes))
    collect = what_to_collect(request) if found and not found.recognised else ()

    def data() -> dict[str, Any]:
        from splatfix.report import explanation

        return explanation.document(found, collect=collect, facts=told, command_exit_code=code)

    def text(console: Console) -> None:
        from splatfix.report import console as consoles
        from splatfix.report import explanation

        if found is not None:  # beside a command's own output, on standard error
            explanation.show(consoles.err() if request.command else console, found, collect)

    return Result("explain", data, text, _exit_code(found) if code is None else code)


def explain_many(request: ExplainRequest) -> Result:
    """Explain many logs: lines of JSON with ``id`` and ``log`` in, lines with ``id`` and ``causes`` out, each as it comes.

    A line that is no such object gives one with ``error`` and no causes, and its number where it has no ``id``.

    Raises:
        SplatfixError: no such file, no facts (exit code 2).
    """
    facts, _ = _facts(request)
    lines = _explained_lines(request.log, _examined(facts))
    return Result("explain", dict, lambda _: None, Exit.OK, forms={"jsonl": lambda: lines})


def _explained_lines(source: Path | None, where: _Examined) -> Iterator[str]:
    from splatfix.explain import explain as read
    from splatfix.report.explanation import causes_json

    with _opened(source) as stream:
        for number in itertools.count(1):
            line = stream.readline(_LONGEST_OBJECT)
            if not line:
                return
            if not line.strip():
                continue
            row: dict[str, Any] = {"id": None, "causes": []}
            try:
                if len(line) == _LONGEST_OBJECT and not line.endswith(b"\n"):
                    while (rest := stream.readline(_LONGEST_OBJECT)) and not rest.endswith(b"\n"):
                        pass
                    raise ValueError("longer than 256 MiB")
                entry = json.loads(line)
                row["id"] = entry["id"]
                log = entry["log"]
                if not isinstance(log, str):
                    raise TypeError("log is no text")
                found = read(io.BytesIO(log.encode("utf-8", "replace")), where.machine)
                fitted = (where.fitted(cause, found.dropins) for cause in found.causes)
                row["causes"] = causes_json(replace(found, causes=tuple(fitted)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                message = (
                    f"Line {number} is no JSON object with id and log ({type(error).__name__}: {error})."
                )
                row["error"] = {"code": "not-jsonl", "message": message[:300], "line": number}
            yield json.dumps(row, ensure_ascii=True) + "\n"


def list_classes(name: str = "") -> Result:
    """Every class that can be recognised, or the one of this name.

    Raises:
        SplatfixError: ``unknown-class`` (exit code 2).
    """
    from splatfix.explain import known_classes

    classes = known_classes()
    if name:
        classes = tuple(item for item in classes if item.name == name)
        if not classes:
            todo = run("splatfix", "explain", "--list", text="List the classes")
            raise usage_error("unknown-class", f"There is no failure class {name!r}.", todo)

    def text(console: Console) -> None:
        from splatfix.report import explanation

        if name:
            explanation.show_class(console, classes[0])
        else:
            explanation.show_list(console, classes)

    return Result("explain", lambda: _classes_json(classes), text)


def what_to_collect(request: ExplainRequest) -> tuple[Step, ...]:
    """What helps where nothing is recognised."""
    steps = [
        say("Give the whole log, from the command on: the cause stands at the first error, not the last.")
    ]
    if request.facts_file is None and request.python is None:
        steps.append(
            run("splatfix", "diagnose", "--save", "facts.json", text="Facts of the machine, for --facts")
        )
    steps.append(say("For CUDA errors while training: run it again with CUDA_LAUNCH_BLOCKING=1."))
    return tuple(steps)


def _classes_json(classes: Sequence[KnownClass]) -> dict[str, Any]:
    from splatfix.report import explanation

    return explanation.document(None, classes=classes)


def _exit_code(found: Explanation | None) -> Exit:
    return Exit.OK if found is None or found.recognised else Exit.UNDETERMINED


def _run(command: Sequence[str], copy: Any, *, quiet: bool) -> int:
    from splatfix.core.passthrough import run_and_copy

    return run_and_copy(command, copy, quiet=quiet)


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    """A log as bytes: a file, or standard input."""
    if path is None or str(path) == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise usage_error(
                "no-log",
                "There is no log: standard input is a terminal.",
                say("Name a file, or send output here: pip install ... 2>&1 | splatfix explain"),
            )
        yield sys.stdin.buffer
        return
    try:
        stream = path.open("rb")
    except OSError as error:
        raise usage_error(
            "no-such-log",
            f"{path} cannot be read: {error.strerror or error}.",
            say("Name the file with the output of what failed, or - for standard input."),
        ) from error
    with stream:
        yield stream


def _facts(request: ExplainRequest) -> tuple[Facts | None, str]:
    """Facts of the machine where it failed, and where they are from."""
    if request.facts_file is not None:
        from splatfix.facts import load

        return load(request.facts_file), str(request.facts_file)
    if request.python is not None:
        from splatfix.facts import choose_python, gather

        choice = choose_python(request.python)
        return gather(choice.python, chosen=choice.why), f"this machine, {choice.python}"
    return None, ""


def _facts_of_command(command: Sequence[str]) -> tuple[Facts | None, str]:
    """Facts of this machine and of the environment that a command ran in; none where it ran elsewhere."""
    from splatfix.facts import choose_python, gather

    program = Path(command[0])
    if program.name in _ELSEWHERE:
        return None, ""
    beside = (program.with_name(name) for name in ("python", "python.exe") if program.parent.name)
    named = next((str(path) for path in beside if path.exists()), None)
    try:
        choice = choose_python(named)
        return gather(choice.python, chosen=choice.why), f"this machine, {choice.python}"
    except SplatfixError:
        return None, ""


@dataclass(frozen=True)
class _Examined:
    """The machine where it failed: what the checks find on it, and what answers a class there."""

    machine: Machine
    answers: Answers
    findings: tuple[Finding, ...] = ()
    known: bool = False
    """Its facts are known."""

    def fitted(self, cause: FailureCause, dropins: Sequence[str] = ()) -> FailureCause:
        """The cause with commands: the remedies of the checks that found it there, else what its class asks for there.

        What helps everywhere comes after them; where to look is no question any more once the facts are known.
        """
        from splatfix.checks import Status
        from splatfix.knowledge.breakages import failure_class

        known = failure_class(cause.name)
        if known is None:
            return cause
        answer = self.answers.to(cause.name)
        free = self.answers.without_compiler(cause.name, dropins)
        if not self.known:
            return replace(cause, fix=(*cause.fix[:1], *answer, *free, *cause.fix[1:]))
        found = [item for item in self.findings if item.status in (Status.FAIL, Status.WARN)]
        steps = [step for item in found if item.code in known.checks for step in item.remedy]
        if not any(step.command for step in steps):
            steps += answer
        if not any(step.command and "nvrtc" in step.command.argv for step in steps):
            steps += free
        return replace(cause, fix=tuple(dict.fromkeys([*steps, *cause.fix[: 1 if steps else None]])))


def _examined(facts: Facts | None) -> _Examined:
    from splatfix.explain import Machine
    from splatfix.plan.for_failure import Answers

    if facts is None:
        return _Examined(Machine(), Answers())
    from splatfix.checks import run_checks, select
    from splatfix.context import Goal, make_context

    context = make_context(facts, Goal())
    findings = tuple(run_checks(context, select((), ())))
    return _Examined(_machine(context, findings), Answers(context), findings, known=True)


def _machine(context: Context, findings: Sequence[Finding]) -> Machine:
    """Which classes the checks predict on that machine, and of which they see all and found nothing."""
    from splatfix.checks import Status
    from splatfix.explain import Machine
    from splatfix.knowledge.breakages import failure_classes
    from splatfix.knowledge.tables import pair

    # a warning is what may fail; here something has failed
    failed = {item.code for item in findings if item.status in (Status.FAIL, Status.CRASH, Status.WARN)}
    passed = {item.code for item in findings if item.status is Status.PASS} - failed
    # what was not looked at says nothing
    passed -= {item.code for item in findings if item.status is Status.UNKNOWN}
    toolkit = context.build_toolkit
    return Machine(
        predicted=frozenset(row.name for row in failure_classes() if failed & set(row.checks)),
        ruled_out=frozenset(
            row.name
            for row in failure_classes()
            if row.checks and not row.limit and passed >= set(row.checks)
        ),
        toolkit=pair(toolkit.version) if toolkit and toolkit.version else None,
    )


def not_with(option: str, others: Sequence[str]) -> SplatfixError:
    """Options that answer another question than ``option``."""
    return usage_error("options-conflict", f"{', '.join(others)} cannot be combined with {option}.")
