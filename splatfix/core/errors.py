"""Errors that reach a person: what happened, what it means, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from splatfix.core.redact import redacted, without_credentials
from splatfix.core.step import Step, step_of
from splatfix.core.toml import parse_toml


class Exit(IntEnum):
    """Process exit codes of every splatfix command."""

    OK = 0
    FAILURE = 1
    """A failure was found, or the command did not reach what it was asked for."""
    USAGE = 2
    """The command was called wrongly; nothing was done."""
    UNDETERMINED = 3
    """It could not be determined (something needed to look is not there)."""
    INTERRUPTED = 130
    """Ctrl-C, SIGTERM or a hang-up ended it. 128 + SIGINT, the exit code a shell shows for a program that this signal ended."""


R = TypeVar("R", bound="Rejected")


class Rejected(Struct, frozen=True, kw_only=True):
    """A "no" as a value: why something is not done here, and what to do about it. :meth:`error` makes what a person is told."""

    code: str
    """Stable kebab-case name, for scripts and searches; nothing in splatfix decides by it."""
    what: str
    """One sentence: what happened."""
    meaning: str = ""
    """What that means for the person."""
    todo: tuple[Step, ...] = ()
    exit_code: Exit = Exit.FAILURE
    details: Mapping[str, Any] = {}
    """JSON-able extras for ``--json``."""

    @classmethod
    def of(
        cls: type[R],
        name: str,
        /,
        *,
        todo: tuple[Step, ...] | None = None,
        details: Mapping[str, Any] = {},
        exit_code: Exit | None = None,
        **values: object,
    ) -> R:
        """Return the rejection that a room's ``errors.toml`` states under a name, such as ``install.no-git``.

        ``todo`` and ``exit_code`` stand in place of what the file says, ``values`` in its blanks: of a tuple and the like each,
        with a comma between them.
        """
        room, _, row_name = name.partition(".")
        row = stated(room)[row_name]
        blanks = dict(values)
        for key, value in values.items():
            if isinstance(value, (tuple, list, set, frozenset, dict)):
                blanks[key] = ", ".join(map(str, value))
        if todo is None:
            todo = tuple(step_of(item, named=blanks) for item in row.get("todo", ()))
        if exit_code is None:
            exit_code = Exit[row.get("exit", "failure").upper()]
        return cls(
            code=row.get("code", row_name),
            what=row["what"].format_map(blanks),
            meaning=row.get("meaning", "").format_map(blanks),
            todo=todo,
            exit_code=exit_code,
            details=details,
        )

    def error(self) -> SplatfixError:
        """Return the exception that ends a command with it."""
        return SplatfixError(**{name: getattr(self, name) for name in Rejected.__struct_fields__})

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`SplatfixError.to_json` does."""
        return self.error().to_json()


class SplatfixError(Exception):
    """Anything splatfix has to tell a person instead of finishing; without the credentials of what it quotes.

    As long as it is an expected alternative that nobody needs yet, a :class:`Rejected` of the same parts stands for it.
    """

    def __init__(
        self,
        code: str,
        what: str,
        *,
        meaning: str = "",
        todo: tuple[Step, ...] = (),
        exit_code: Exit = Exit.FAILURE,
        details: Mapping[str, Any] = {},
    ) -> None:
        self.code = code
        self.what = without_credentials(what)
        self.meaning = without_credentials(meaning)
        self.todo = redacted(todo)
        self.exit_code = exit_code
        self.details = redacted(dict(details))
        super().__init__(self.what)

    def __reduce__(self) -> Any:
        """Pickle it whole: it crosses from the processes of a pool, where what cannot be read again hangs the pool."""
        return SplatfixError, (self.code, self.what), vars(self)

    @classmethod
    def of(cls, name: str, /, **values: Any) -> SplatfixError:
        """Return the error that a room's ``errors.toml`` states; as :meth:`Rejected.of`."""
        return Rejected.of(name, **values).error()

    def to_json(self) -> dict[str, Any]:
        """The error as the ``error`` object of a versioned JSON document."""
        return {
            "code": self.code,
            "what": self.what,
            "meaning": self.meaning,
            "todo": [Step.to_json(step) for step in self.todo],
            "exit_code": int(self.exit_code),
            "details": self.details,
        }


@cache
def stated(room: str) -> Mapping[str, Mapping[str, Any]]:
    """The errors whose words are fixed, by name: ``what``, and where they have one ``code``, ``meaning``, ``todo``, ``exit``."""
    path = Path(__file__).parents[1] / room / "errors.toml"
    return parse_toml(path.read_text(encoding="utf-8"))


T = TypeVar("T")


def require(answer: T | Rejected) -> T:
    """Return an answer; raise the error of a rejection."""
    if isinstance(answer, Rejected):
        raise answer.error()
    return answer


def usage_error(code: str, what: str, *todo: Step) -> SplatfixError:
    """A wrong call: nothing was done, exit code 2."""
    return SplatfixError(code, what, todo=todo, exit_code=Exit.USAGE)


def cannot_write(what: str, *todo: Step, meaning: str = "") -> SplatfixError:
    """``cannot-write``, exit code 3: the call was right, and a full disk says nothing of what was to be found out."""
    return SplatfixError("cannot-write", what, meaning=meaning, todo=todo, exit_code=Exit.UNDETERMINED)
