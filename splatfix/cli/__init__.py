"""Typer commands: parse, call one function, hand the result to the report, exit with its code. No logic."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import cache, certify, checks, diagnose, inspect_, install, monitor, options, scenes, verify

app = typer.Typer(
    name="splatfix",
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
app.command("revert")(install.revert)
app.command("verify")(verify.verify)
app.command("certify")(certify.certify)
# Options after the command to watch are the command's own.
app.command("monitor", context_settings={"allow_interspersed_args": False})(monitor.monitor)
app.add_typer(checks.app, name="checks")
app.add_typer(cache.app, name="cache")
app.add_typer(scenes.app, name="scenes")


def _interrupt(_number: int, _frame: object) -> None:
    """SIGTERM ends a command as Ctrl-C does, so that containers and children are cleaned up."""
    raise KeyboardInterrupt


def _end_with_os_error(error: OSError) -> None:
    """The operating system refused something that no command foresaw: told as such, not as a defect of splatfix."""
    from splatfix.core.errors import Exit, SplatfixError
    from splatfix.report.console import show_error

    place = f" {error.filename}" if error.filename else ""
    problem = SplatfixError(
        "os-error",
        f"The operating system refused:{place}: {error.strerror or error}.",
        meaning="The command could not go on.",
        todo=(
            "Check permissions and free space there; --debug before the command's name shows where it happened.",
        ),
    )
    with contextlib.suppress(OSError):  # standard output itself may be what is full
        show_error(problem)
    sys.exit(int(Exit.FAILURE))


def main() -> None:
    """Run the command line; nothing but this function ends the process, and no traceback reaches a person."""
    from splatfix.core.errors import Exit, SplatfixError
    from splatfix.report.console import be_plain_where_needed

    signal.signal(signal.SIGTERM, _interrupt)
    be_plain_where_needed()
    try:
        app(prog_name="splatfix")
    except SplatfixError as problem:
        if "--debug" in sys.argv:
            raise
        problem.todo = tuple(options.naming_python(item, sys.argv) for item in problem.todo)
        if "--json" in sys.argv:
            from splatfix.core.files import dumps
            from splatfix.report import document

            typer.echo(dumps(document.error(problem)), nl=False)
        else:
            from splatfix.report.console import show_error

            show_error(problem)
        sys.exit(int(problem.exit_code))
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)
    except OSError as error:
        if "--debug" in sys.argv:
            raise
        _end_with_os_error(error)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        from splatfix.report.console import show_error

        show_error(
            SplatfixError(
                "internal-error",
                f"splatfix itself failed: {type(error).__name__}: {error}",
                meaning="This is a defect of splatfix, not of your machine.",
                todo=("Run the same command with --debug before its name and report what it prints.",),
                exit_code=Exit.UNDETERMINED,
            )
        )
        sys.exit(int(Exit.UNDETERMINED))
