"""Asks one of the trainer's own tools (``smoke_trainer.data``) inside the target environment."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from splatfix.certify.prepare import child_variables
from splatfix.certify.stage import stage
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import say


def ask_trainer(
    module: str, arguments: tuple[str, ...], python: str, timeout: float, runner: Runner | None = None
) -> dict[str, Any]:
    """The JSON document that ``python -m smoke_trainer.MODULE ARGUMENTS`` prints.

    Raises:
        SplatfixError: what the tool refused, with its words and exit code; ``environment-not-ready`` (exit code 3)
            where it could not even run.
    """
    with tempfile.TemporaryDirectory(prefix="splatfix-trainer-") as folder:
        variables = child_variables(stage(Path(folder)))
        argv = [python, "-m", f"smoke_trainer.{module}", *arguments]
        done = (runner or ProcessRunner()).run(argv, timeout=timeout, env=variables)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SplatfixError(
            "environment-not-ready",
            f"{python} could not list the scenes: {done.why()}",
            todo=(say("Choose another environment with --python."),),
            exit_code=Exit.UNDETERMINED,
        ) from None
    if "error" in document:
        said = document["error"]
        raise SplatfixError(
            str(said["code"]),
            _sentence(said["happened"]),
            meaning=_sentence(said["meaning"]),
            todo=(say(said["remedy"]),) if said["remedy"] else (),
            exit_code=Exit(document["exit_code"]),
        )
    return document


def _sentence(words: str) -> str:
    return words and f"{words[0].upper()}{words[1:]}."
