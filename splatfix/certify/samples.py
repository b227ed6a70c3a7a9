"""The sample scenes, listed, made and checked by the trainer's own code inside the target environment (it needs numpy)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from splatfix.certify.trainer_tool import ask_trainer
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
    return ask_trainer("scenes", (action, *names, "--json", *where), python, TIMEOUT, runner)
