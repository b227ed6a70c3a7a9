"""``splatfix scenes``: the sample scenes that a certification trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from splatfix.cli import interrupted, options

app = typer.Typer(help="The sample scenes: list them, make them anew, check them.", no_args_is_help=True)

Names = Annotated[
    Optional[list[str]], typer.Argument(help="Sample scenes (default: all).", metavar="[NAME...]")
]


@app.command("list")
def list_scenes(python: options.Python = None, as_json: options.Json = False) -> None:
    """Every sample scene: kind, layout, number and size of its views."""
    document = _ask("list", (), None, python, as_json)
    from splatfix.report.console import out
    from splatfix.report.layout import table

    rows = [
        (row["name"], row["layout"], str(row["views"]), "{}x{}".format(*row["size"]), row["kind"])
        for row in document["scenes"]
    ]
    table(out(), ("scene", "layout", "views", "size", "kind"), rows)


@app.command("make")
def make(
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
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """Render sample scenes from their recipes (10 to 60 s each)."""
    with interrupted.on_interrupt(lambda: _half_made(out_folder)):
        document = _ask("make", tuple(names or ()), out_folder, python, as_json)
    from splatfix.report.console import out

    for row in document["scenes"]:
        said = f"{row['folder']}: {row['bytes'] / 1e6:.2f} MB in {row['seconds']:.1f} s"
        out().print(said, markup=False, soft_wrap=True)


def _half_made(folder: Path) -> str:
    if not folder.is_dir():
        return ""
    return f"Interrupted: the last scene in {folder} may be there in part only; make it again."


@app.command("check")
def check(
    names: Names = None,
    root: Annotated[
        Optional[Path],
        typer.Option(
            "--root", help="Folder with one folder per scene.", show_default="the bundled ones", metavar="DIR"
        ),
    ] = None,
    python: options.Python = None,
    as_json: options.Json = False,
) -> None:
    """Render a few views of stored scenes again and compare them."""
    document = _ask("check", tuple(names or ()), root, python, as_json)
    from rich.markup import escape

    from splatfix.report.console import out
    from splatfix.report.layout import prose

    for row in document["scenes"]:
        said = "; ".join(row["problems"]) or "as its recipe makes it"
        prose(out(), f"{row['name']}: ", escape(said))
    raise typer.Exit(document["exit_code"])


def _ask(
    action: str, names: tuple[str, ...], root: Path | None, python: str | None, as_json: bool
) -> dict[str, Any]:
    """The trainer's answer; with ``--json`` it is printed and the command ends here."""
    from splatfix import facts
    from splatfix.certify.samples import samples
    from splatfix.core.errors import Exit
    from splatfix.core.files import dumps
    from splatfix.report.document import envelope

    document = samples(action, names, root, facts.resolve_python(python))
    if as_json:
        typer.echo(
            dumps(envelope("scenes", Exit(document["exit_code"]), scenes=document["scenes"])), nl=False
        )
        raise typer.Exit(document["exit_code"])
    return document
