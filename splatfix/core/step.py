"""What to do, as data: text for people and, apart from it, the command that does it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import force_setattr

from splatfix.core.shell import double_quoted, quoted
from splatfix.core.toml import table_beside
from splatfix.core.visible import visible

_WINDOWS = os.name == "nt"

BLANKS: dict[str, str] = table_beside(__file__, "blanks.toml")
"""Words that stand in a command for what only a person knows."""


class Command(Struct, frozen=True):
    """A command as data. Without ``argv``: variables to set in the user's own shell."""

    argv: tuple[str, ...] = ()
    env: tuple[tuple[str, str | None], ...] = ()
    """Variables by name; None removes one."""
    prepend: tuple[tuple[str, str], ...] = ()
    """Search paths by name (``PATH``), and the folder that comes before what is in them."""
    blanks: tuple[str, ...] = ()
    """Those of :data:`BLANKS` that must be filled in before it can run."""

    def __post_init__(self) -> None:
        # BLANK/folder: what is below something that only a person knows
        words = {word.split("/")[0] for word in self.argv}
        force_setattr(self, "blanks", tuple(name for name in BLANKS if name in words))

    def shell(self, *, windows: bool = _WINDOWS) -> str:
        """One line for a POSIX shell or, with ``windows``, for cmd.exe."""
        program = " ".join(quoted(word, windows=windows) for word in self.argv)
        if windows:
            lines = [f'set "{name}={value or ""}"' for name, value in self.env]
            lines += [f'set "{name}={folder};%{name}%"' for name, folder in self.prepend]
            return " && ".join(filter(None, [*map(visible, lines), program]))
        removed = [name for name, value in self.env if value is None]
        values = [f"{name}={quoted(value, windows=False)}" for name, value in self.env if value is not None]
        # ${PATH:+:$PATH}: without a colon at the end where the variable is empty, which would mean the current folder
        values += [f'{name}="{double_quoted(folder)}${{{name}:+:${name}}}"' for name, folder in self.prepend]
        if not program:
            commands = [("unset", *removed), ("export", *values)]
            return " && ".join(" ".join(words) for words in commands if len(words) > 1)
        if removed:  # only env can take a variable away for one command
            values = ["env", *(f"-u {name}" for name in removed), *values]
        return " ".join([*values, program])


class Step:
    """One thing to do: text for people and, apart from it, the command that does it."""

    __slots__ = ()
    text: str
    """A sentence; before a command, what the command is for."""
    command: Command | None
    kind: str

    def line(self, *, windows: bool = _WINDOWS) -> str:
        if self.command is None:
            return self.text
        shell = self.command.shell(windows=windows)
        if not self.text:
            return shell
        return f"{self.text.rstrip('.:')}: {shell}"

    def to_json(self, *, windows: bool = _WINDOWS) -> dict[str, Any]:
        """Return it for a JSON document, its ``command`` as the shell of that platform takes it; None without one."""
        command = self.command or Command()
        return {
            "text": self.text,
            "argv": list(command.argv),
            "env": dict(command.env),
            "prepend": dict(command.prepend),
            "command": command.shell(windows=windows) if self.command else None,
            "fill_in": {name: BLANKS[name] for name in command.blanks},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Step:
        """The inverse. Of a step that splatfix does itself this is what people read: text and command."""
        text = convert(document["text"], str)
        if document["command"] is None:
            return PlainStep(text)
        env = convert(document["env"], dict[str, str | None])
        prepend = convert(document["prepend"], dict[str, str])
        argv = convert(document["argv"], tuple[str, ...])
        return PlainStep(text, Command(argv, tuple(env.items()), tuple(prepend.items())))


class PlainStep(Step, Struct, frozen=True):
    """A step that a person takes, or their shell."""

    text: str = ""
    command: Command | None = None
    kind: str = ""
    """What its command does: ``install``, ``install-nvrtc``, ``fetch`` (and install), ``clone``, ``diagnose``; else ""."""
    sources: tuple[str, ...] = ()
    """What an ``install`` names."""


def commands(steps: Iterable[Step]) -> tuple[Command, ...]:
    """The commands among the steps that run as they are."""
    return tuple(step.command for step in steps if step.command is not None and not step.command.blanks)


def say(text: str) -> Step:
    """A step that only a person can take."""
    return PlainStep(text)


def run(*argv: str | os.PathLike[str], text: str = "", kind: str = "", sources: tuple[str, ...] = ()) -> Step:
    """A step that is a command, runnable as it is where it has no word of :data:`BLANKS`."""
    return PlainStep(text, Command(tuple(os.fspath(word) for word in argv)), kind, sources)


def target_options(targets: Iterable[object]) -> tuple[str, ...]:
    """``--target sm_120`` for each of them; the architectures are written as their text."""
    return tuple(chain.from_iterable(("--target", str(target)) for target in targets))


def value_options(values: Mapping[str, object]) -> tuple[str, ...]:
    """``--seed 0`` for each of them, by option; what is None was not given."""
    given = ((name, str(value)) for name, value in values.items() if value is not None)
    return tuple(chain.from_iterable(given))


def set_variable(name: str, value: str | None, text: str = "") -> Step:
    """Set an environment variable in the user's shell, or remove it."""
    return PlainStep(text, Command(env=((name, value),)))


def prepend_variable(name: str, folder: str) -> Step:
    """Put a folder before all others of a search path such as ``PATH``."""
    return PlainStep("", Command(prepend=((name, folder),)))


def step_of(
    row: str | Mapping[str, Any], groups: tuple[str, ...] = (), named: Mapping[str, object] | None = None
) -> Step:
    """Build a step from a data file: a text, or ``text``, and ``argv``, ``kind``, ``env`` or ``unset`` where there is a command.

    ``groups`` stand for ``{0}``, ``{1}`` in its texts, and what is ``named`` for ``{name}``.
    """
    values = named or {}
    if isinstance(row, str):
        row = {"text": row}
    text = row.get("text", "").format(*groups, **values)
    argv = tuple(word.format(*groups, **values) for word in row.get("argv", ()))
    env: dict[str, str | None] = {name: value.format(**values) for name, value in row.get("env", {}).items()}
    env |= dict.fromkeys(row.get("unset", ()))
    return PlainStep(text, Command(argv, tuple(env.items())) if argv or env else None, row.get("kind", ""))
