"""``splatfix revert``: puts an environment back, by one installation or by all of them, or says what that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from splatfix.cli import interrupted, options
from splatfix.core.step import run, say

if TYPE_CHECKING:
    from splatfix.install import RevertOutcome


def revert(
    entry: Annotated[
        Optional[str],
        typer.Argument(help="Journal entry; the last one that stands when left out.", metavar="ID"),
    ] = None,
    python: options.Python = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Take every installation back, the newest first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed and what would be back.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show the journal and change nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put an environment back to what it was before an installation."""
    from splatfix.core.errors import usage_error
    from splatfix.core.runner import ProcessRunner
    from splatfix.facts import resolve_python
    from splatfix.install.target import open_target

    if everything and entry:
        raise usage_error(
            "one-or-all", f"--all takes back every entry, and {entry} names one.", say("Leave one out.")
        )
    if listing and (everything or dry_run or entry):
        raise usage_error(
            "list-alone",
            "--list shows the whole journal and takes nothing back.",
            run("splatfix", "revert", "--list"),
        )
    interpreter = resolve_python(python)
    if listing:
        _show_journal(interpreter, as_json)
        return
    environment = interrupted.Installing(open_target(interpreter, ProcessRunner()).prefix, interpreter)
    with interrupted.on_interrupt(environment.words):
        _take_back(interpreter, entry, everything, dry_run, as_json)


def _take_back(python: str, entry: str | None, everything: bool, dry_run: bool, as_json: bool) -> None:
    from splatfix.core.files import dumps
    from splatfix.install import revert as take_back
    from splatfix.install import revert_all
    from splatfix.report import console, installation

    def show(outcome: RevertOutcome) -> None:
        if not as_json:
            installation.show_revert(console.out(), outcome)

    if everything:
        document = installation.reverts_document(revert_all(python, dry_run=dry_run, each=show))
    else:
        outcome = take_back(python, entry, dry_run=dry_run)
        show(outcome)
        document = installation.revert_document(outcome)
    if as_json:
        typer.echo(dumps(document), nl=False)
    elif dry_run:
        console.out().print("Nothing was changed: this is a dry run.")


def _show_journal(python: str, as_json: bool) -> None:
    from splatfix.core.files import dumps
    from splatfix.install import read_journal
    from splatfix.report import console, installation

    entries = read_journal(python)
    if as_json:
        typer.echo(dumps(installation.journal_document(entries)), nl=False)
    else:
        installation.show_journal(console.out(), entries)
