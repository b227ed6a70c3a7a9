"""What certificates say: ``splatfix report``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from splatfix.cli import options
from splatfix.cli.options import examples, finish, folder_to_write, one_form, option

report_app = typer.Typer(help="Show, compare and merge certificates.", no_args_is_help=True)


@report_app.command("show", epilog=examples("report-show"))
def show(
    file: Annotated[Path, option("shared.certificate_file")],
    form: Annotated[Literal["text", "markdown", "github", "html"], option("report-show.form")] = "text",
    verbose: Annotated[bool, option("report-show.verbose")] = False,
    as_json: options.Json = False,
) -> None:
    """Print a certificate in any form, as certify did; exits with 0 whatever its verdict is."""
    from splatfix.app import report as use_case

    one_form(as_json, form)
    finish(use_case.show(file), as_json, form, verbose=verbose)


@report_app.command("diff", epilog=examples("report-diff"))
def diff(
    a: Annotated[Path, option("report-diff.a")],
    b: Annotated[Path, option("report-diff.b")],
    form: Annotated[Literal["text", "markdown"], option("report-diff.form")] = "text",
    as_json: options.Json = False,
) -> None:
    """Compare two certificates as certify --baseline does; exits with 1 when B does not reproduce A."""
    from splatfix.app import report as use_case

    one_form(as_json, form)
    finish(use_case.diff(a, b), as_json, form)


@report_app.command("merge", epilog=examples("report-merge"))
def merge(
    paths: Annotated[list[Path], option("report-merge.paths")],
    out: Annotated[Path, option("report-merge.out", callback=folder_to_write)] = Path("splatfix-matrix"),
    as_json: options.Json = False,
) -> None:
    """Write many certificates as one matrix (GPU, driver, torch, stack), with failures grouped by cause."""
    from splatfix.app import report as use_case

    finish(use_case.merge(paths, out), as_json)
