"""``splatfix inspect``: which GPU code native files carry, and which GPUs can run it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.app.result import Result
from splatfix.core.step import Step, fill_in, run

if TYPE_CHECKING:
    from splatfix.checks.inspection import Inspection


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
        lambda console: inspection.show(console, result, next_step(result, paths), verbose=verbose),
        checks.verdict(result),
    )


def next_step(result: Inspection, paths: Sequence[Path]) -> Step | None:
    """Build for the targets that cannot run the files; without a target: name one. None where nothing is to be done."""
    bad = [
        target
        for at, target in enumerate(result.targets)
        if any(item.verdicts and not item.verdicts[at].usable for item in result.files)
    ]
    if bad:
        named = [word for target in bad for word in ("--target", target)]
        return fill_in(
            "splatfix", "install", "SOURCE", *named, text="Next: rebuild it from its source folder"
        )
    if not result.targets and any(item.carries_gpu_code for item in result.files):
        text = "Next: ask whether a GPU can run it, by its architecture"
        return run("splatfix", "inspect", *paths, "--target", "sm_120", text=text)
    return None
