"""The sample scenes, listed, made and checked by the trainer's own code inside the target environment (it needs numpy)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from splatfix.certify.trainer_tool import ask_trainer
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner

TIMEOUT = 1800.0  # making all six takes a few minutes on two cores


def samples(
    action: str, names: tuple[str, ...], root: Path | None, python: str, *, runner: Runner | None = None
) -> dict[str, Any]:
    """What ``python -m smoke_trainer.scenes ACTION --json`` says: ``exit_code``, and a row per scene in ``scenes``.

    Args:
        action: ``list``, ``make`` or ``check``.
        root: the folder with one folder per scene; None for the bundled ones.

    Raises:
        SplatfixError: a name that no sample has, a folder that is not there, an environment that cannot run it.
    """
    where = () if root is None else ("--root", str(root.absolute()))
    try:
        return ask_trainer("scenes", (action, *names, "--json", *where), python, TIMEOUT, runner)
    except SplatfixError as error:
        error.todo = tuple(_in_our_words(item) for item in error.todo)
        raise


def _in_our_words(advice: str) -> str:
    """The trainer's advice names its own command and option; a person here has those of ``splatfix scenes make``."""
    ours = re.sub(r"\bpython -m smoke_trainer\.scenes make\b", "splatfix scenes make", advice)
    return re.sub(r"(?<=\s)--root\b", "--out", ours)
