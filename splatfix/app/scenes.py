"""``splatfix scenes``: the sample scenes that a certification trains on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.app.result import Result
from splatfix.core.errors import Exit

if TYPE_CHECKING:
    from rich.console import Console


def list_scenes() -> Result:
    """Every sample scene: layout, number and size of views, kind."""
    from splatfix.certify.scenes import find_samples
    from splatfix.report.console import table

    samples = find_samples()
    rows = [
        (sample.name, sample.layout, str(sample.views), "{}x{}".format(*sample.size), sample.kind)
        for sample in samples
    ]
    return Result(
        "scenes list",
        lambda: {"scenes": [sample.summary() for sample in samples]},
        lambda console: table(console, ("scene", "layout", "views", "size", "kind"), rows),
    )


def export_scenes(names: tuple[str, ...], out: Path) -> Result:
    """Copy sample scenes to ``out``.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``cannot-write`` (3).
    """
    from splatfix.certify.scenes import export_sample, find_samples

    rows = [{"name": item.name, "folder": str(export_sample(item, out))} for item in find_samples(names)]

    def text(console: Console) -> None:
        for row in rows:
            console.print(row["folder"], markup=False, soft_wrap=True)

    return Result("scenes export", lambda: {"scenes": rows}, text)


def check_scenes(names: tuple[str, ...], root: Path | None) -> Result:
    """Compare the files of sample scenes with their checksums.

    Raises:
        SplatfixError: ``unknown-scene`` (exit code 2), ``scene-not-found`` (3).
    """
    from splatfix.certify.scenes import check_sample, find_samples

    problems = {item.name: check_sample(item, root) for item in find_samples(names)}

    def text(console: Console) -> None:
        from splatfix.report.console import escape, prose

        for name, found in problems.items():
            prose(console, f"{name}: ", escape("; ".join(found) or "OK"))

    return Result(
        "scenes check",
        lambda: {"scenes": [{"name": name, "problems": list(found)} for name, found in problems.items()]},
        text,
        Exit.FAILURE if any(problems.values()) else Exit.OK,
    )
