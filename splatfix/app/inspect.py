"""``splatfix inspect``: which GPU code native files carry, and which GPUs can run it."""

from collections.abc import Sequence
from pathlib import Path

from splatfix.app.result import Result
from splatfix.context import inspection
from splatfix.core.step import Step, run
from splatfix.facts import read_files
from splatfix.report.inspection import InspectionDocument


def inspect_files(paths: Sequence[Path], targets: tuple[str, ...]) -> Result[InspectionDocument]:
    """Read libraries, wheels or folders and judge them for each target.

    Raises:
        SplatfixError: a path that is not there or no native file (exit code 2).
    """
    result = inspection.inspect_files(read_files(list(paths)), targets)
    document = InspectionDocument(result, next_steps(result, paths))
    return Result("inspect", document, result.exit_code)


def next_steps(result: inspection.Inspection, paths: Sequence[Path]) -> tuple[Step, ...]:
    """Build for the targets that cannot run the files; without a target: name one. () where nothing is to be done."""
    unserved: list[str] = []
    for number, target in enumerate(result.targets):
        # a file without GPU code has no verdicts
        if any(file.verdicts and not file.verdicts[number].usable for file in result.files):
            unserved += ["--target", target]
    if unserved:
        text = "Next: rebuild it from its source folder"
        return (run("splatfix", "install", "SOURCE", *unserved, text=text),)
    if not result.targets and any(file.carries_gpu_code for file in result.files):
        text = "Next: ask whether a GPU can run it, by its architecture"
        return (run("splatfix", "inspect", *paths, "--target", "sm_120", text=text),)
    return ()
