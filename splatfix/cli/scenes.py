"""``splatfix scenes``: the sample scenes that a certification trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from splatfix.cli import options

app = typer.Typer(help="List, check or export the sample scenes.", no_args_is_help=True)

Names = Annotated[
    Optional[list[str]], typer.Argument(help="Sample scenes (default: all).", metavar="[NAME...]")
]


@app.command("list")
def list_scenes(as_json: options.Json = False) -> None:
    """List the sample scenes: layout, number and size of views, kind."""
    from splatfix.certify.samples import find_samples
    from splatfix.report.console import out
    from splatfix.report.layout import table

    samples = find_samples()
    if as_json:
        _end([sample.summary() for sample in samples])
    rows = [
        (sample.name, sample.layout, str(sample.views), "{}x{}".format(*sample.size), sample.kind)
        for sample in samples
    ]
    table(out(), ("scene", "layout", "views", "size", "kind"), rows)


@app.command("export")
def export(
    names: Names = None,
    out_folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder to write one folder per scene into.",
            metavar="DIR",
            callback=options.to_be_filled,
        ),
    ] = Path("splatfix-scenes"),
    as_json: options.Json = False,
) -> None:
    """Copy sample scenes to a folder."""
    from splatfix.certify.samples import export_sample, find_samples
    from splatfix.report.console import out

    rows = [
        {"name": sample.name, "folder": str(export_sample(sample, out_folder))}
        for sample in find_samples(names or ())
    ]
    if as_json:
        _end(rows)
    for row in rows:
        out().print(row["folder"], markup=False, soft_wrap=True)


@app.command("check")
def check(
    names: Names = None,
    root: Annotated[
        Optional[Path],
        typer.Option(
            "--root", help="Folder with one folder per scene.", show_default="the bundled ones", metavar="DIR"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare sample scenes with their checksums."""
    from rich.markup import escape

    from splatfix.certify.samples import check_sample, find_samples
    from splatfix.core.errors import Exit
    from splatfix.report.console import out
    from splatfix.report.layout import prose

    problems = {sample.name: check_sample(sample, root) for sample in find_samples(names or ())}
    exit_code = Exit.FAILURE if any(problems.values()) else Exit.OK
    if as_json:
        _end([{"name": name, "problems": list(found)} for name, found in problems.items()], exit_code)
    for name, found in problems.items():
        prose(out(), f"{name}: ", escape("; ".join(found) or "OK"))
    raise typer.Exit(exit_code)


def _end(rows: list[dict[str, Any]], exit_code: int = 0) -> None:
    """Print the JSON document and end the command."""
    from splatfix.core.errors import Exit
    from splatfix.core.files import dumps
    from splatfix.report.document import envelope

    typer.echo(dumps(envelope("scenes", Exit(exit_code), scenes=rows)), nl=False)
    raise typer.Exit(exit_code)
