"""Installs one wheel file with the target environment's pip, and nothing else: no index, no dependencies."""

from __future__ import annotations

from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Runner
from splatfix.install.target import Target, child_environment

_TIMEOUT = 900.0


def pip_install(wheel: Path, target: Target, runner: Runner, log: Path) -> None:
    """``pip install --no-deps --no-index --force-reinstall WHEEL`` in the target environment.

    Raises:
        SplatfixError: ``pip-failed``; what pip has changed until then is for the caller to take back.
    """
    argv = [target.python, "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
    argv += ["--no-deps", "--no-index", "--force-reinstall", "--no-warn-script-location", str(wheel)]
    done = runner.run(argv, timeout=_TIMEOUT, cwd=wheel.parent, env=child_environment(), log=log)
    if not done.ok:
        said = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or [done.why()]
        raise SplatfixError(
            "pip-failed",
            f"pip could not install {wheel.name}: {said[0]}",
            meaning="Everything is as it was before.",
            todo=(f"Full log: {log}",),
        )
