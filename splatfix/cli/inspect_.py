"""``splatfix inspect``: which GPU code a library, wheel or folder really carries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splatfix.cli import options


def inspect_files(
    paths: Annotated[
        list[Path], typer.Argument(help="Libraries, wheels or folders.", metavar="FILE|WHEEL|DIR...")
    ],
    target: options.Targets = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Show the SASS and PTX inside native files, and whether each GPU architecture can run them."""
    from splatfix.checks import inspection as checks
    from splatfix.core.files import dumps
    from splatfix.facts import read_files
    from splatfix.report import inspection

    result = checks.inspect_files(read_files(paths), options.arch_names(target))
    if as_json:
        typer.echo(dumps(inspection.document(result, checks.verdict(result))), nl=False)
    else:
        from splatfix.report.console import out

        inspection.terminal(out(), result, verbose=verbose)
    raise typer.Exit(int(checks.verdict(result)))
