"""Options that several commands share, so that each has one name and one meaning everywhere."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from splatfix.core.step import Command, Step, say

if TYPE_CHECKING:
    from splatfix.facts import LiveSystem

Python = Annotated[
    Optional[str],
    typer.Option(
        "--python",
        help="Target environment: its interpreter, or a venv or conda folder; the activated one when left out.",
        metavar="ENV",
    ),
]
Targets = Annotated[
    Optional[list[str]],
    typer.Option("--target", "-t", help="GPU architecture such as sm_120; repeatable.", metavar="ARCH"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one versioned JSON document instead of text.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show the evidence of what is fine.")]


class Device(str, Enum):
    """Where the kernels run; ``auto`` is the GPU where one is and torch is built for it."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def arch_names(targets: list[str] | None) -> tuple[str, ...]:
    """``--target`` values as canonical names (``12.0`` -> ``sm_120``), each once, in the order given.

    Raises:
        SplatfixError: ``unknown-arch`` (exit code 2).
    """
    from splatfix.core.errors import usage_error
    from splatfix.knowledge import parse_targets

    try:
        return tuple(dict.fromkeys(arch.sm for text in targets or () for arch in parse_targets(text)))
    except ValueError as error:
        raise usage_error("unknown-arch", str(error)) from error


def with_toolkit(cuda_home: str | None) -> LiveSystem | None:
    """This machine as it is when CUDA_HOME names that folder, so that a toolkit off the usual paths is looked at too."""
    if cuda_home is None:
        return None
    from splatfix.facts import LiveSystem

    return LiveSystem(env={**os.environ, "CUDA_HOME": str(Path(cuda_home).expanduser().absolute())})


def to_be_written(path: Path | None) -> Path | None:
    """A file that a command will write, in a folder that is there: a folder made from a typing error helps nobody.

    Raises:
        SplatfixError: ``cannot-save`` (exit code 2), before anything else is done.
    """
    from splatfix.core.errors import usage_error

    if path is None:
        return None
    if path.is_dir():
        raise usage_error(
            "cannot-save", f"{path} is a folder.", say(f"Name a file in it: {path / 'facts.json'}")
        )
    if not path.parent.is_dir():
        raise usage_error(
            "cannot-save",
            f"There is no folder {path.parent}.",
            say("Make it first, or name a file elsewhere."),
        )
    return path


def to_be_filled(folder: Path) -> Path:
    """A folder that a command will write into, made by it where it is not there yet.

    Raises:
        SplatfixError: ``cannot-write`` (exit code 2) where that is plainly impossible, before anything is started.
    """
    from splatfix.core.errors import usage_error

    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise usage_error("cannot-write", f"{there} is no folder.", say("Name another one with --out."))
    if not os.access(there, os.W_OK | os.X_OK):
        raise usage_error(
            "cannot-write", f"{there} cannot be written to.", say("Name another one with --out.")
        )
    return folder


def naming_python(step: Step, typed: Sequence[str]) -> Step:
    """A step that is a splatfix command, for the environment that was named on the command line."""
    given = next((pair[1] for pair in pairwise(typed) if pair[0] == "--python"), "")
    python = given or next((word.partition("=")[2] for word in typed if word.startswith("--python=")), "")
    argv = step.command.argv if step.command else ()
    if not python or argv[:1] != ("splatfix",) or argv[1:2] not in _FOR_ENVIRONMENT or "--python" in argv:
        return step
    return Step(step.text, Command((*argv, "--python", python)))


_FOR_ENVIRONMENT = {(name,) for name in ("install", "revert", "diagnose", "verify", "certify")}
