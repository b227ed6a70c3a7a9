"""Why something failed: ``splatfix explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from splatfix import app
from splatfix.cli import conflicts, options
from splatfix.cli.options import finish, option

_COMMAND = "splatfix.explain.command"
CLASSES = options.names_of(lambda: app.explain.list_classes(), "classes", "class")


class WithCommand(TyperCommand):
    """A command whose words after ``--`` are another program's: they are kept apart before options are parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the other program's words off."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def explain(
    context: typer.Context,
    log: Annotated[
        Optional[Path],
        typer.Argument(
            help="The log; - or nothing: standard input. After --: a command to run.", metavar="[LOG|-]"
        ),
    ] = None,
    facts: Annotated[
        Optional[Path],
        option("--facts", "Facts of the machine where it failed (diagnose --save).", metavar="FILE"),
    ] = None,
    python: Annotated[
        Optional[str],
        option("--python", "It failed here, in this environment: read its facts.", metavar="ENV"),
    ] = None,
    listed: Annotated[bool, option("--list", "List the failure classes.")] = False,
    class_name: Annotated[
        str,
        option("--class", "Show one failure class and its sources.", metavar="NAME", autocompletion=CLASSES),
    ] = "",
    jsonl: Annotated[
        bool,
        option(
            "--jsonl",
            "Many logs: reads lines of JSON with id and log, prints lines with id and causes.",
            options.OUTPUT,
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Name the cause of a failed build or training by its log, and the fix."""
    command: tuple[str, ...] = context.meta.get(_COMMAND, ())
    conflicts.refuse(context, {conflicts.COMMAND} if command else set())
    if listed or class_name:
        finish(app.explain.list_classes(class_name), as_json)
    request = app.explain.ExplainRequest(log, command, facts, python)
    if jsonl:
        finish(app.explain.explain_many(request), as_json, "jsonl")
    finish(app.explain.explain(request, as_json=as_json), as_json)
