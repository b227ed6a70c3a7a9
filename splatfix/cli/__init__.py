"""Typer commands: parse, call one function, hand the result to the report, exit with its code. No logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import (
    cache,
    certify,
    checks,
    diagnose,
    errors,
    inspect_,
    install,
    interrupted,
    monitor,
    revert,
    scenes,
    verify,
)

app = typer.Typer(
    name="splatfix",
    cls=interrupted.Commands,
    help="Doctor, installer and certifier for 3D Gaussian Splatting (3DGS) stacks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a failure found, 2 wrong usage, 3 could not determine.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from splatfix import __version__

        typer.echo(f"splatfix {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        Optional[bool],
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    knowledge: Annotated[
        Optional[Path],
        typer.Option(
            "--knowledge",
            help="TOML or JSON file that extends or overrides splatfix's tables.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Options that come before the command's name."""
    if knowledge is not None:
        from splatfix.core.errors import usage_error
        from splatfix.knowledge import KnowledgeError, using

        try:
            context.with_resource(using(knowledge))
        except KnowledgeError as error:
            raise usage_error("bad-knowledge", str(error)) from error


app.command("diagnose")(diagnose.diagnose)
app.command("inspect")(inspect_.inspect_files)
app.command("install")(install.install)
app.command("revert")(revert.revert)
app.command("verify")(verify.verify)
app.command("certify")(certify.certify)
# Options after the command to watch are the command's own.
app.command("monitor", context_settings={"allow_interspersed_args": False})(monitor.monitor)
app.add_typer(checks.app, name="checks")
app.add_typer(cache.app, name="cache")
app.add_typer(scenes.app, name="scenes")


# What typer raises for an unknown option or a missing argument. It has no name of its own in typer's face.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line; nothing but this function ends the process, and no traceback reaches a person."""
    from splatfix.core.errors import SplatfixError
    from splatfix.report.console import be_plain_where_needed, end_when_nobody_reads

    interrupted.listen()
    end_when_nobody_reads()
    be_plain_where_needed()
    try:
        # standalone, typer shows wrong usage itself, as text for people
        code = app(prog_name="splatfix", standalone_mode=not errors.wants_json())
        sys.exit(code if isinstance(code, int) else 0)
    except SplatfixError as problem:
        if "--debug" in sys.argv:
            raise
        errors.end_with(problem)
    except _UsageError as error:
        errors.end_with(errors.of_usage(error.format_message()))  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("Interrupted.\n")
        sys.exit(interrupted.EXIT_CODE)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        errors.end_with(errors.of_system(error))
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        errors.end_with(errors.of_splatfix(error))
