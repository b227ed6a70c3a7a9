"""``splatfix checks``: what splatfix looks at, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from splatfix.cli import options
from splatfix.core.step import run

app = typer.Typer(help="List the checks, or show one's page.", no_args_is_help=True)


@app.command("list")
def list_checks(as_json: options.Json = False) -> None:
    """Every check with its code, family and title."""
    from splatfix.checks import all_checks
    from splatfix.core.errors import Exit
    from splatfix.core.files import dumps
    from splatfix.report.document import envelope

    checks = all_checks()
    if as_json:
        rows = [{"code": c.code, "family": c.family, "title": c.title, "page": c.page} for c in checks]
        typer.echo(dumps(envelope("checks", Exit.OK, checks=rows)), nl=False)
        return
    from splatfix.report.console import out
    from splatfix.report.layout import table

    cells = [(item.code, item.family, item.title) for item in checks]
    table(out(), ("code", "family", "what it looks at"), cells)


@app.command("show")
def show(code: Annotated[str, typer.Argument(help="A check's code.")], as_json: options.Json = False) -> None:
    """One check's page: what it looks at, why it matters."""
    from rich.markup import escape

    from splatfix.checks import all_checks
    from splatfix.core.errors import Exit, usage_error
    from splatfix.core.files import dumps
    from splatfix.report.console import out
    from splatfix.report.document import envelope
    from splatfix.report.layout import prose

    item = next((item for item in all_checks() if item.code == code), None)
    if item is None:
        raise usage_error("unknown-check", f"There is no check {code!r}.", run("splatfix", "checks", "list"))
    if as_json:
        page = {"code": item.code, "family": item.family, "title": item.title, "page": item.page}
        typer.echo(
            dumps(envelope("check", Exit.OK, check={**page, "foresees": list(item.foresees)})), nl=False
        )
        return
    # pages quote messages with brackets in them
    text = escape(f"({item.family}): {item.title}\n\n{item.page}")
    prose(out(), "", f"[bold]{item.code}[/] {text}")
