"""Why something failed: ``splatfix explain``."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from typer.core import TyperCommand

from splatfix.cli import conflicts, options
from splatfix.cli.options import finish, option

_COMMAND = "splatfix.explain.command"


CLASSES = options.names_of(lambda: import_module("splatfix.app.explain").list_classes(), "classes", "class")


class WithCommand(TyperCommand):
    """A command whose words after ``--`` are another program's: they are kept apart before options are parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


def explain(
    context: typer.Context,
    log: Annotated[Optional[Path], option("explain.log")] = None,
    facts: Annotated[Optional[Path], option("explain.facts")] = None,
    python: Annotated[Optional[str], option("explain.python")] = None,
    listed: Annotated[bool, option("explain.listed")] = False,
    class_name: Annotated[str, option("explain.class_name", autocompletion=CLASSES)] = "",
    as_json: options.Json = False,
) -> None:
    """Name the cause of a failed build or training by its log, and the fix."""
    from splatfix.app import explain as use_case

    command: tuple[str, ...] = context.meta.get(_COMMAND, ())
    conflicts.refuse(context, {conflicts.COMMAND} if command else set())
    if listed or class_name:
        finish(use_case.list_classes(class_name), as_json)
    request = use_case.ExplainRequest(log, command, facts, python)
    finish(use_case.explain(request, as_json=as_json), as_json)
