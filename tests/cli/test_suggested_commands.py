"""Every command that is suggested on a simulated machine parses, and says itself what is to be filled in."""

import functools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
import typer
from msgspec.structs import replace

from splatfix.app.explain import Answers
from splatfix.checks import run_checks
from splatfix.cli import app
from splatfix.context import make_context
from splatfix.core.step import BLANKS, Command, Step, step_of
from splatfix.knowledge.failures import failure_classes, to_collect
from splatfix.model import Fact, Facts
from splatfix.plan import Options
from tests.archs import goal
from tests.machines import NAMES, facts_of
from tests.plan.machines import advised_options
from tests.tables import data

PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b(?<!CUDA)|path/to|my-env", re.ASCII)
SPLATFIX = re.compile(r"splatfix [a-z-]+(?: [^ ,;]+)*")
# Programs that a machine has, or that the step before has put there.
TABLE = data(__file__)
PROGRAMS = TABLE["programs"]
GOALS = ((), ("sm_120",), ("sm_61",), ("sm_90", "sm_75"))


def all_steps(facts: Facts) -> Iterator[tuple[Step, Sequence[Step]]]:
    """Every suggested step, with those before it."""
    for targets in GOALS:
        context = make_context(facts, goal(*targets))
        for finding in (findings := run_checks(context)):
            yield from with_before(finding.remedy)
        made: Options = advised_options(findings, context)
        for option in made.available:
            yield from with_before(option.steps)
        for needed in made.advice.also_needed if made.advice else ():
            yield from with_before(needed.steps)
        answers = Answers(context)
        for failure in failure_classes():
            yield from with_before(answers.to(failure))


def with_before(steps: Sequence[Step]) -> Iterable[tuple[Step, Sequence[Step]]]:
    return ((step, steps[:at]) for at, step in enumerate(steps))


@functools.cache
def whole() -> Any:
    return typer.main.get_command(app)


@functools.cache
def parse(argv: tuple[str, ...]) -> None:
    """As the shell would hand it to splatfix.

    Raises:
        TyperException: splatfix does not know it.
    """
    command = whole()
    name, *words = argv
    while commands := getattr(command, "commands", None):
        name, *words = words
        command = commands[name]
    command.make_context(name, list(words))


def check_command(command: Command, facts: Facts, before: Sequence[Step]) -> None:
    if not command.argv:
        assert command.env or command.prepend
        return
    blanks = set(PLACEHOLDER.findall(" ".join(command.argv))) - {*TABLE["names"]}
    assert blanks == set(command.blanks) <= BLANKS.keys(), command
    program = command.argv[0]
    if program == "splatfix":
        parse(tuple("sm_120" if word == "ARCH" else word for word in command.argv))
        python = command.argv[command.argv.index("--python") + 1] if "--python" in command.argv else ""
    else:
        own = "python" in program and program not in PROGRAMS and not command.blanks
        python = program if own else ""
        assert python or program in (*PROGRAMS, "FOLDER/bin/python"), command
    known = facts.environment.interpreter.value
    if python.startswith(".venv"):
        assert any(step.command and step.command.argv[-2:] == ("venv", ".venv") for step in before), command
    elif python and python not in command.blanks:
        assert known and python == known.executable, command


@pytest.mark.parametrize("name", NAMES)
def test_suggested_commands_run(name: str) -> None:
    facts = facts_of(name)
    steps = list(all_steps(facts))
    assert steps
    for step, before in steps:
        if step.command is not None:
            check_command(step.command, facts, before)
        for words in SPLATFIX.findall(step.text):
            filled = PLACEHOLDER.sub("sm_120", words.split(" (")[0].rstrip("."))
            parse(tuple(shlex.split(filled, posix="\\" not in filled)))


@pytest.mark.parametrize("name", NAMES)
def test_and_where_python_refuses_installations(name: str) -> None:
    facts = facts_of(name)
    python = facts.environment.interpreter.value
    assert python is not None
    managed = Fact(replace(python, externally_managed=True), "a test")
    facts = replace(facts, environment=replace(facts.environment, interpreter=managed))
    for step, before in all_steps(facts):
        if step.command is not None:
            check_command(step.command, facts, before)
            assert not {"pip", python.executable} <= set(step.command.argv), step


def test_suggested_for_a_failure_of_any_machine() -> None:
    facts = facts_of("rtx-5080")
    rows = [row for item in failure_classes() for row in (*item.steps, *item.settle)] + [*to_collect()]
    told: dict[str, object] = dict.fromkeys(re.findall(r"{(\w+)}", str(rows)), "1.5.3")
    for steps in (*map(Answers().to, failure_classes()), *([step_of(row, (), told)] for row in rows)):
        for step, before in with_before(steps):
            if step.command is not None and step.command.argv[:1] != ("python",):
                check_command(step.command, facts, before)
