"""Options that do not go together, in one table for each command; the first row that is broken is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from splatfix.core.errors import usage_error
from splatfix.core.step import Step, run, say


@dataclass(frozen=True)
class Conflict:
    """Options that are refused beside another one; without ``beside``, wherever nothing of ``unless`` was given."""

    code: str
    refused: tuple[str, ...]
    """As they are typed; an argument by its name in the help."""
    what: str
    """The error's sentence. ``{options}`` are those of the refused that were given, other names are parameters."""
    beside: str = ""
    unless: tuple[str, ...] = ()
    """Not refused where one of these was given."""
    todo: Step | None = None
    """Its text is filled in as the sentence is."""


_WHY = run("splatfix", "install", "--dry-run", "--why", "--facts", "facts.json")
_BUILDING = (
    *("--backend", "--jobs", "--cuda-home", "--in-place", "--provide-toolkit"),
    *("--force-cuda-mismatch", "--ptx", "--fetch-submodules", "--with-dependencies"),
)

DIAGNOSE = (
    Conflict(
        "facts-and-python",
        ("--python", "--repo", "--imports", "--record"),
        "{options} cannot be combined with --facts, which diagnoses another machine.",
        beside="--facts",
    ),
)

INSTALL = (
    *(
        Conflict(
            "only-with-why",
            ("--facts", "--keep"),
            "--facts and --keep show options and change nothing; they need --dry-run --why.",
            unless=(needed,),
            todo=_WHY,
        )
        for needed in ("--dry-run", "--why")
    ),
    Conflict(
        "facts-and-options",
        ("--python", "--resume", *_BUILDING),
        "{options} cannot be combined with --facts, which shows the options of another machine.",
        beside="--facts",
        todo=_WHY,
    ),
    Conflict(
        "resume-takes-no-source",
        ("SOURCE", "--target", *_BUILDING),
        "{options} cannot be combined with --resume, which repeats an earlier request.",
        beside="--resume",
        todo=run("splatfix", "install", "--resume"),
    ),
)

REVERT = (
    Conflict(
        "one-or-all",
        ("ID",),
        "--all cannot be combined with the entry {entry}.",
        beside="--all",
        todo=say("Use one of them."),
    ),
    Conflict(
        "list-alone",
        ("ID", "--all", "--dry-run"),
        "--list only shows the journal; it takes no entry, --all or --dry-run.",
        beside="--list",
        todo=run("splatfix", "revert", "--list"),
    ),
)

LOG = "LOG"
COMMAND = "a command"
"""What ``explain`` is given after ``--``, which is no parameter."""

EXPLAIN = (
    Conflict(
        "options-conflict",
        (LOG, COMMAND, "--facts", "--python", "--jsonl", "--class"),
        "{options} cannot be combined with --list.",
        beside="--list",
    ),
    Conflict(
        "options-conflict",
        (LOG, COMMAND, "--facts", "--python", "--jsonl", "--list"),
        "{options} cannot be combined with --class.",
        beside="--class",
    ),
    Conflict("options-conflict", (COMMAND,), "{options} cannot be combined with --jsonl.", beside="--jsonl"),
    Conflict("options-conflict", (LOG,), "{options} cannot be combined with a command.", beside=COMMAND),
    Conflict(
        "options-conflict", ("--python",), "{options} cannot be combined with --facts.", beside="--facts"
    ),
)


_SCENES = ("--suite", "--scene", "--iterations", "--resolution")
_TRAINING = ("--renderer", "--seed", "--baseline")
_LEVEL = "{options} cannot be combined with --level {level}: run level {level} "
_REPO = "{options} cannot be combined with --repo: the checkout's trainer has options of its own."
_REPO_TODO = say("Leave that out, or give its train.py words after -- with splatfix rehearse.")
_ONE = say("Use one of them.")

CERTIFY = (
    Conflict(
        "suite-and-data", ("--suite",), "--suite and --data both choose the scenes.", "--data", todo=_ONE
    ),
    Conflict(
        "not-with-repo",
        ("--suite", "--data", "--seed", "--baseline", "--renderer", "--appendix"),
        _REPO,
        "--repo",
        todo=_REPO_TODO,
    ),
    Conflict(
        "not-with-repo", ("--sign", "--level"), _REPO, "--repo", unless=("--container",), todo=_REPO_TODO
    ),
    Conflict(
        "scene-and-data", ("--scene",), "--scene and --data both choose the scenes.", "--data", todo=_ONE
    ),
    *(
        Conflict(
            "not-with-level",
            (*_SCENES, "--data", *_TRAINING),
            f"{_LEVEL}trains nothing.",
            beside,
            todo=say("Leave out {options}."),
        )
        for beside in ("--level 1", "--level 2")
    ),
    *(
        Conflict(
            "not-with-level",
            _SCENES,
            f"{_LEVEL}has its own scenes, length and size.",
            beside,
            todo=say("Leave out {options}, or leave out --level to choose scenes and length yourself."),
        )
        for beside in ("--level 3", "--level 4")
    ),
    Conflict(
        "not-with-level",
        ("--data",),
        f"{_LEVEL}has its own scenes, length and size.",
        "--level 3",
        todo=say("Use --level 4, which trains the thirteen public scenes of --data, or leave out --data."),
    ),
    Conflict(
        "not-in-a-container",
        (
            *("--level", "--data", "--iterations", "--resolution", "--python", "--scene", "--renderer"),
            *("--device", "--seed", "--baseline", "--appendix", "--format", "--exit-codes"),
        ),
        "{options} cannot be combined with --container: a lane trains its suite as it is.",
        "--container",
        todo=say("Leave that out, or certify an environment of this machine with --python."),
    ),
    # Beside --repo they were never looked at.
    Conflict(
        "only-in-a-container",
        ("--docker-host", "--base-image", "--ca-certificates", "--jobs", "--extension", "--keep"),
        "{options} needs --container.",
        unless=("--container", "--repo"),
        todo=say("Add --container LANE, or leave that out."),
    ),
)
"""``--level 3`` is given beside ``--level``: what a level refuses depends on it."""


def refuse(table: Sequence[Conflict], context: Any, also_given: Set[str] = frozenset()) -> None:
    """Stop at the first conflict among what was given.

    Args:
        context: typer's, of a command whose words are parsed.
        also_given: what was given besides the command's parameters, under the names of the table.

    Raises:
        SplatfixError: with the conflict's code (exit code 2).
    """
    given = _given(context) | also_given
    for conflict in table:
        if conflict.beside and conflict.beside not in given:
            continue
        if not given.isdisjoint(conflict.unless):
            continue
        refused = [name for name in conflict.refused if name in given]
        if refused:
            values: Mapping[str, Any] = {**context.params, "options": ", ".join(refused)}
            todo = []
            if conflict.todo:
                todo.append(replace(conflict.todo, text=conflict.todo.text.format_map(values)))
            raise usage_error(conflict.code, conflict.what.format_map(values), *todo)


def _given(context: Any) -> set[str]:
    """Options and arguments that have another value than without them: who writes a default out has changed nothing."""
    names = set()
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        # an enum's default stands for the word that is typed
        default = getattr(parameter.default, "value", parameter.default)
        if value and value != default:
            names.add(_typed_name(parameter))
    return names


def _typed_name(parameter: Any) -> str:
    """``--facts``; an argument as its help calls it: ``[LOG|-]`` is ``LOG``."""
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.metavar).strip("[").partition("|")[0]
