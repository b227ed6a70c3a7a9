"""Typer commands: parse, call one use case, exit with its code. No logic."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from splatfix import __version__
from splatfix.app.result import show_traceback
from splatfix.cli import (
    certify,
    diagnose,
    dockerfile,
    explain,
    install,
    process,
    report,
    vram,
)
from splatfix.cli.options import examples, option
from splatfix.core.errors import usage_error
from splatfix.core.streams import exit_on_broken_pipe, use_plain_signs_where_needed

FIRST, MORE = "Get a stack running", "Beside that"

app = typer.Typer(
    name="splatfix",
    cls=process.Commands,
    help="Doctor, installer and certifier for 3D Gaussian Splatting (3DGS) stacks.\n\nBegin in the folder of your trainer, its "
    "environment activated: splatfix diagnose, then splatfix install, then splatfix certify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 a problem was found, 2 wrong usage, 3 could not be determined.",
)


def _version(asked_for: bool) -> None:
    if asked_for:
        typer.echo(f"splatfix {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[Optional[bool], option("splatfix.version", callback=_version, is_eager=True)] = None,
    debug: Annotated[bool, option("splatfix.debug")] = False,
    knowledge: Annotated[Optional[Path], option("splatfix.knowledge")] = None,
) -> None:
    context.ensure_object(process.Invocation).debug = debug
    if knowledge is not None:
        from splatfix.knowledge import KnowledgeError, using

        try:
            context.with_resource(using(knowledge))
        except KnowledgeError as error:
            raise usage_error("bad-knowledge", str(error)) from error


# Panel of the help, name, function, and what else typer is told.
_COMMANDS: tuple[tuple[str, str, Callable[..., None], dict[str, Any]], ...] = (
    (FIRST, "diagnose", diagnose.diagnose, {}),
    (FIRST, "install", install.install, {}),
    (FIRST, "revert", install.revert, {}),
    (FIRST, "certify", certify.certify, {}),
    (FIRST, "explain", explain.explain, {"cls": explain.WithCommand}),
    (MORE, "inspect", diagnose.inspect, {}),
    (MORE, "dockerfile", dockerfile.dockerfile, {}),
    (MORE, "vram", vram.vram, {}),
    # options after the command to watch are the command's own
    (MORE, "monitor", certify.monitor, {"context_settings": {"allow_interspersed_args": False}}),
)
for _panel, _name, _function, _more in _COMMANDS:
    app.command(_name, rich_help_panel=_panel, epilog=examples(_name), **_more)(_function)
app.add_typer(report.report_app, name="report", rich_help_panel=MORE)
app.add_typer(certify.scenes_app, name="scenes", rich_help_panel=MORE)
app.add_typer(install.cache_app, name="cache", rich_help_panel=MORE)


def main() -> None:
    """Run the command line. Only this function ends the process, and no traceback reaches a user without ``--debug``."""
    process.handle_signals()
    exit_on_broken_pipe()
    use_plain_signs_where_needed()
    invocation = process.Invocation()
    try:
        # standalone, typer would end the process itself, and show wrong usage as text where a document was asked for
        code = app(prog_name="splatfix", standalone_mode=False, obj=invocation)
        sys.exit(code if isinstance(code, int) else 0)
    except process.UsageError as error:
        process.end_with_usage(error, invocation)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(process.end_interrupted("Interrupted.", invocation))
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        if invocation.debug:
            show_traceback()
        process.end_with(process.error_of(error), invocation)
