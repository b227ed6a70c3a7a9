"""What to do, as data: text for people and, apart from it, the command that does it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from splatfix.core.shell import double_quoted, quoted
from splatfix.core.visible import visible

_WINDOWS = os.name == "nt"

BLANKS = {
    "ARCH": "the GPU it is for, such as sm_120",
    "CHECKOUT": "the trainer's folder",
    "FOLDER": "that environment's folder",
    "GID": "the number of that group",
    "IMAGE": "the image that this container was started from",
    "SOURCE": "the checkout, or the folder with the setup.py",
}
"""Words that stand in a command for what only a person knows."""


@dataclass(frozen=True)
class Command:
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
        words = " ".join(quoted(word, windows=windows) for word in self.argv)
        return self._cmd(words) if windows else self._posix(words)

    def _posix(self, words: str) -> str:
        removed = [name for name, value in self.env if value is None]
        values = [f"{name}={quoted(value, windows=False)}" for name, value in self.env if value is not None]
        values += [f'{name}="{double_quoted(value)}${{{name}:+:${name}}}"' for name, value in self.prepend]
        if words:
            unset = ["env", *(f"-u {name}" for name in removed)] if removed else []
            return " ".join([*unset, *values, words])
        lines = [f"unset {' '.join(removed)}"] if removed else []
        lines += [f"export {' '.join(values)}"] if values else []
        return " && ".join(lines)

    def _cmd(self, words: str) -> str:
        lines = [f'set "{name}={value or ""}"' for name, value in self.env]
        lines += [f'set "{name}={value};%{name}%"' for name, value in self.prepend]
        return " && ".join([*map(visible, lines), words] if words else map(visible, lines))


@dataclass(frozen=True)
class Step:
    """One thing to do: text for people and, apart from it, the command that does it."""

    text: str = ""
    """A sentence; before a command, what the command is for."""
    command: Command | None = None

    def line(self, *, windows: bool = _WINDOWS) -> str:
        """Text and command in one line."""
        if self.command is None:
            return self.text
        shell = self.command.shell(windows=windows)
        return f"{self.text.rstrip('.:')}: {shell}" if self.text else shell

    def to_json(self) -> dict[str, Any]:
        """``text``, ``argv`` and ``env``, the line for the shell of this platform in ``command``, and what is to be filled in."""
        return step_json(self)


def step_json(step: Step, *, windows: bool = _WINDOWS) -> dict[str, Any]:
    """A step for a JSON document, its ``command`` as the shell of that platform takes it; None without one."""
    command = step.command
    return {
        "text": step.text,
        "argv": list(command.argv) if command else [],
        "env": dict(command.env) if command else {},
        "prepend": dict(command.prepend) if command else {},
        "command": command.shell(windows=windows) if command else None,
        "fill_in": {name: BLANKS[name] for name in command.blanks} if command else {},
    }


def step_from_json(document: Mapping[str, Any]) -> Step:
    """The inverse of :func:`step_json`. Of a step that splatfix does itself this is what people read: text and command.

    Raises:
        KeyError, TypeError, ValueError: it is no step.
    """
    env = {name: None if value is None else _text(value) for name, value in dict(document["env"]).items()}
    command = Command(
        tuple(map(_text, document["argv"])),
        tuple(env.items()),
        tuple((name, _text(value)) for name, value in dict(document["prepend"]).items()),
        tuple(name for name in BLANKS if name in document["fill_in"]),
    )
    return Step(_text(document["text"]), None if document["command"] is None else command)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text expected, {type(value).__name__} found")
    return value


def commands(steps: Iterable[Step]) -> tuple[Command, ...]:
    """The commands among the steps that run as they are."""
    return tuple(step.command for step in steps if step.command is not None and not step.command.blanks)


def say(text: str) -> Step:
    """A step that only a person can take."""
    return Step(text)


def run(*argv: str | os.PathLike[str], text: str = "") -> Step:
    """A step that is a command, runnable as it is."""
    return Step(text, Command(tuple(os.fspath(word) for word in argv)))


def target_options(targets: Iterable[object]) -> tuple[str, ...]:
    """``--target sm_120`` for each of them; the architectures are written as their text."""
    words: list[str] = []
    for target in targets:
        words += ("--target", str(target))
    return tuple(words)


def fill_in(*argv: str | os.PathLike[str], text: str = "") -> Step:
    """A step that is a command with words of :data:`BLANKS` in it."""
    words = tuple(os.fspath(word) for word in argv)
    blanks = tuple(name for name in BLANKS if any(name == word.split("/")[0] for word in words))
    return Step(text, Command(words, blanks=blanks))


def set_variable(name: str, value: str, text: str = "") -> Step:
    """Set an environment variable in the user's shell."""
    return Step(text, Command(env=((name, value),)))


def unset_variable(name: str, text: str = "") -> Step:
    """Remove an environment variable from the user's shell."""
    return Step(text, Command(env=((name, None),)))


def prepend_variable(name: str, folder: str, text: str = "") -> Step:
    """Put a folder before all others of a search path such as ``PATH``."""
    return Step(text, Command(prepend=((name, folder),)))
