"""The sample scenes, listed, made and checked by the trainer's own code inside the target environment (it needs numpy)."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from splatfix.certify.stage import stage
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.runner import ProcessRunner, Runner

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
    with tempfile.TemporaryDirectory(prefix="splatfix-scenes-") as folder:
        argv = [python, "-m", "smoke_trainer.scenes", action, *names, "--json"]
        argv += [] if root is None else ["--root", str(root.absolute())]
        # Only the staged copy on the path: splatfix's own packages must not shadow the target's.
        variables = {**os.environ, "PYTHONPATH": str(stage(Path(folder))), "PYTHONDONTWRITEBYTECODE": "1"}
        done = (runner or ProcessRunner()).run(argv, timeout=TIMEOUT, env=variables)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SplatfixError(
            "environment-not-ready",
            f"The sample scenes could not be looked at with {python}: {done.why()}",
            meaning="They are rendered by the smoke trainer, which needs numpy and Pillow in that environment.",
            todo=(f'"{python}" -m pip install numpy pillow', "Or name another one with --python."),
            exit_code=Exit.UNDETERMINED,
        ) from None
    if "error" in document:
        said = document["error"]
        raise SplatfixError(
            str(said["code"]),
            _sentence(said["happened"]),
            meaning=_sentence(said["meaning"]),
            todo=(said["remedy"],) if said["remedy"] else (),
            exit_code=Exit(document["exit_code"]),
        )
    return document


def _sentence(words: str) -> str:
    return words and f"{words[0].upper()}{words[1:]}."
