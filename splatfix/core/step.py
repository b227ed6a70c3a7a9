"""What to do, as data: text for people and, apart from it, the command that does it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, convert

from splatfix.core.shell import double_quoted, quoted
from splatfix.core.visible import visible

_WINDOWS = os.name == "nt"

BLANKS = {
    "ARCH": "the GPU it is for, such as sm_120",
    "CHECKOUT": "the trainer's folder",
    "COPY": "a new folder for the mended scene",
    "FOLDER": "that environment's folder",
    "GID": "the number of that group",
    "IMAGE": "the image that this container was started from",
    "SCENE": "the folder of the scene",
    "SOURCE": "the checkout, or the folder with the setup.py",
    "STACK": "the trainer, such as inria or gsplat",
}
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

    def shell(self, *, windows: bool = _WINDOWS) -> str:
        """One line for a POSIX shell or, with ``windows``, for cmd.exe."""
        program = " ".join(quoted(word, windows=windows) for word in self.argv)
        if windows:
            lines = [f'set "{name}={value or ""}"' for name, value in self.env]
            lines += [f'set "{name}={folder};%{name}%"' for name, folder in self.prepend]
            return " && ".join(filter(None, [*map(visible, lines), program]))
        removed: list[str] = []
        values: list[str] = []
        for name, value in self.env:
            if value is None:
                removed.append(name)
            else:
                values.append(f"{name}={quoted(value, windows=False)}")
        for name, folder in self.prepend:
            # ${PATH:+:$PATH}: without a colon at the end where the variable is empty, which would mean the current folder
            values.append(f'{name}="{double_quoted(folder)}${{{name}:+:${name}}}"')
        if program:
            # only env can take a variable away for one command
            if removed:
                values = ["env", *(f"-u {name}" for name in removed), *values]
            return " ".join([*values, program])
        commands = []
        if removed:
            commands.append(f"unset {' '.join(removed)}")
        if values:
            commands.append(f"export {' '.join(values)}")
        return " && ".join(commands)


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

    def to_json(self) -> dict[str, Any]:
        """``text``, ``argv`` and ``env``, the line for the shell of this platform in ``command``, and what is to be filled in."""
        return step_json(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Step:
        """The inverse. Of a step that splatfix does itself this is what people read: text and command.

        Raises:
            ValueError: it is no step.
        """
        written = convert(document, _Written)
        if written.command is None:
            return PlainStep(written.text)
        blanks = tuple(name for name in BLANKS if name in written.fill_in)
        command = Command(written.argv, tuple(written.env.items()), tuple(written.prepend.items()), blanks)
        return PlainStep(written.text, command)


class _Written(Struct):
    """A step as it is in JSON."""

    text: str
    argv: tuple[str, ...]
    env: dict[str, str | None]
    prepend: dict[str, str]
    command: str | None
    fill_in: dict[str, str]


class PlainStep(Step, Struct, frozen=True):
    """A step that a person takes, or their shell."""

    text: str = ""
    command: Command | None = None
    kind: str = ""
    """What its command does: ``install``, ``install-nvrtc``, ``fetch`` (and install), ``clone``, ``diagnose``; else ""."""
    sources: tuple[str, ...] = ()
    """What an ``install`` names."""


def step_json(step: Step, *, windows: bool = _WINDOWS) -> dict[str, Any]:
    """A step for a JSON document, its ``command`` as the shell of that platform takes it; None without one."""
    command = step.command or Command()
    return {
        "text": step.text,
        "argv": list(command.argv),
        "env": dict(command.env),
        "prepend": dict(command.prepend),
        "command": command.shell(windows=windows) if step.command else None,
        "fill_in": {name: BLANKS[name] for name in command.blanks},
    }


def commands(steps: Iterable[Step]) -> tuple[Command, ...]:
    """The commands among the steps that run as they are."""
    return tuple(step.command for step in steps if step.command is not None and not step.command.blanks)


def say(text: str) -> Step:
    """A step that only a person can take."""
    return PlainStep(text)


def run(*argv: str | os.PathLike[str], text: str = "", kind: str = "", sources: tuple[str, ...] = ()) -> Step:
    """A step that is a command, runnable as it is."""
    return PlainStep(text, Command(tuple(os.fspath(word) for word in argv)), kind, sources)


def target_options(targets: Iterable[object]) -> tuple[str, ...]:
    """``--target sm_120`` for each of them; the architectures are written as their text."""
    arguments: list[str] = []
    for target in targets:
        arguments += ("--target", str(target))
    return tuple(arguments)


def value_options(values: Mapping[str, object]) -> tuple[str, ...]:
    """``--seed 0`` for each of them, by option; what is None was not given."""
    arguments: list[str] = []
    for name, value in values.items():
        if value is not None:
            arguments += (name, str(value))
    return tuple(arguments)


def fill_in(
    *argv: str | os.PathLike[str], text: str = "", kind: str = "", sources: tuple[str, ...] = ()
) -> Step:
    """A step that is a command with words of :data:`BLANKS` in it."""
    parts = tuple(os.fspath(part) for part in argv)
    # BLANK/folder: what is below something that only a person knows
    beginnings = {part.split("/")[0] for part in parts}
    blanks = tuple(name for name in BLANKS if name in beginnings)
    return PlainStep(text, Command(parts, blanks=blanks), kind, sources)


def set_variable(name: str, value: str, text: str = "") -> Step:
    """Set an environment variable in the user's shell."""
    return PlainStep(text, Command(env=((name, value),)))


def unset_variable(name: str, text: str = "") -> Step:
    """Remove an environment variable from the user's shell."""
    return PlainStep(text, Command(env=((name, None),)))


def prepend_variable(name: str, folder: str) -> Step:
    """Put a folder before all others of a search path such as ``PATH``."""
    return PlainStep("", Command(prepend=((name, folder),)))


def step_of(
    row: str | Mapping[str, Any], groups: tuple[str, ...] = (), named: Mapping[str, object] | None = None
) -> Step:
    """Build a step from a data file: a text, or ``text``, and ``argv``, ``kind``, ``env`` or ``unset`` where there is a command.

    Args:
        groups: what stands for ``{0}``, ``{1}`` in its texts.
        named: what stands for ``{name}``.
    """
    named = named or {}
    if isinstance(row, str):
        return PlainStep(row.format(*groups, **named))
    text = row.get("text", "").format(*groups, **named)
    argv = tuple(word.format(*groups, **named) for word in row.get("argv", ()))
    env: dict[str, str | None] = {**row.get("env", {}), **dict.fromkeys(row.get("unset", ()))}
    if not argv and not env:
        return PlainStep(text)
    blanks = tuple(word for word in argv if word in BLANKS)
    return PlainStep(text, Command(argv, tuple(env.items()), blanks=blanks), row.get("kind", ""))
