"""``splatfix inspect``: which GPU code native files carry, and which GPUs can run it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from splatfix.app.result import Result


def inspect_files(paths: Sequence[Path], targets: tuple[str, ...], *, verbose: bool = False) -> Result:
    """Read libraries, wheels or folders and judge them for each target.

    Raises:
        SplatfixError: a path that is not there or no native file (exit code 2).
    """
    from splatfix.checks import inspection as checks
    from splatfix.facts import read_files
    from splatfix.report import inspection

    result = checks.inspect_files(read_files(list(paths)), targets)
    return Result(
        "inspect",
        lambda: inspection.document(result),
        lambda console: inspection.show(console, result, verbose=verbose),
        checks.verdict(result),
    )
