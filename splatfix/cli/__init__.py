"""Typer commands: parse, call one use case, exit with its code. No logic."""

from __future__ import annotations

import gc
import sys
from copy import copy
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import __version__
from splatfix.app.result import show_traceback
from splatfix.cli import certify, diagnose, dockerfile, explain, install, process, report, vram
from splatfix.cli.options import option
from splatfix.core.errors import usage_error
from splatfix.core.streams import exit_on_broken_pipe, use_plain_signs_where_needed

FIND, FIX, PROVE = "Find out what is wrong", "Make it right", "Show that it trains"

app = typer.Typer(
    name="splatfix",
    cls=process.Commands,
    help="Doctor, installer and certifier for 3D Gaussian Splatting (3DGS) stacks.",
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
    version: Annotated[
        Optional[bool],
        option("--version", "Print the version and exit.", callback=_version, is_eager=True),
    ] = None,
    debug: Annotated[bool, option("--debug", "Show tracebacks.")] = False,
    knowledge: Annotated[
        Optional[Path],
        option(
            "--knowledge", "TOML or JSON file that extends or overrides splatfix's tables.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Options that come before the command's name."""
    context.ensure_object(process.Invocation).debug = debug
    if knowledge is not None:
        from splatfix.knowledge import KnowledgeError, using

        try:
            context.with_resource(using(knowledge))
        except KnowledgeError as error:
            raise usage_error("bad-knowledge", str(error)) from error


def _example(*lines: str) -> str:
    """The end of a command's help."""
    return "\n\n".join(f"Example: {line}" for line in lines)


app.command(
    "diagnose",
    rich_help_panel=FIND,
    epilog=_example("splatfix diagnose", "splatfix diagnose --repo ./gaussian-splatting --target sm_120"),
)(diagnose.diagnose)
app.command("inspect", rich_help_panel=FIND, epilog=_example("splatfix inspect build/_C.so --target sm_120"))(
    diagnose.inspect
)
app.command(
    "explain",
    cls=explain.WithCommand,
    rich_help_panel=FIND,
    epilog=_example(
        "pip install ./submodules/simple-knn 2>&1 | splatfix explain", "splatfix explain -- make"
    ),
)(explain.explain)
app.command(
    "vram",
    rich_help_panel=FIND,
    epilog=_example(
        'splatfix vram --gpu "RTX 3090" --stack inria --images 1362 --resolution 1600x1300 --gaussians 3000000',
        "splatfix vram --stack gsplat --scene ./garden --html vram.html",
    ),
)(vram.vram)
app.add_typer(diagnose.checks_app, name="checks", rich_help_panel=FIND)
app.command(
    "install",
    rich_help_panel=FIX,
    epilog=_example("splatfix install ./gaussian-splatting --target sm_120 --dry-run --why"),
)(install.install)
app.command(
    "dockerfile",
    rich_help_panel=FIX,
    epilog=_example(
        "splatfix dockerfile --repo ./gaussian-splatting --target sm_120 --out ./gaussian-splatting",
        "splatfix dockerfile --repo ./2d-gaussian-splatting --target sm_86 --toolkit wheels",
    ),
)(dockerfile.dockerfile)
app.command("repair", rich_help_panel=FIX, epilog=_example("splatfix repair torch --dry-run"))(install.repair)
app.command("revert", rich_help_panel=FIX, epilog=_example("splatfix revert --list"))(install.revert)
app.add_typer(install.cache_app, name="cache", rich_help_panel=FIX)
app.command("verify", rich_help_panel=PROVE, epilog=_example("splatfix verify --device cuda"))(certify.verify)
app.command(
    "certify",
    rich_help_panel=PROVE,
    epilog=_example(
        "splatfix certify --suite standard", "splatfix certify --data ./scenes --renderer gsplat"
    ),
)(certify.certify)
app.command(
    "rehearse",
    rich_help_panel=PROVE,
    epilog=_example(
        "splatfix rehearse ./gaussian-splatting",
        "splatfix rehearse ./mip-splatting --scene ./garden -- --kernel_size 0.2",
    ),
)(certify.rehearse)
# Options after the command to watch are the command's own.
app.command(
    "monitor",
    rich_help_panel=PROVE,
    context_settings={"allow_interspersed_args": False},
    epilog=_example("splatfix monitor --interval 0.5 python train.py -s scene"),
)(certify.monitor)
app.add_typer(certify.scenes_app, name="scenes", rich_help_panel=PROVE)
app.add_typer(certify.lanes_app, name="lanes", rich_help_panel=PROVE)
app.add_typer(report.report_app, name="report", rich_help_panel=PROVE)


def narrowed(name: str) -> typer.Typer:
    """The app with one command alone, if that is the name of one: to build all takes a tenth of a diagnosis."""
    narrowed = copy(app)
    narrowed.registered_commands = [info for info in app.registered_commands if info.name == name]
    narrowed.registered_groups = [info for info in app.registered_groups if info.name == name]
    if narrowed.registered_commands or narrowed.registered_groups:
        return narrowed
    return app


def main() -> None:
    """Run the command line. Only this function ends the process, and no traceback reaches a user without ``--debug``."""
    process.handle_signals()
    exit_on_broken_pipe()
    use_plain_signs_where_needed()
    invocation = process.Invocation()
    try:
        # standalone, typer would end the process itself, and show wrong usage as text where a document was asked for
        run = narrowed(" ".join(sys.argv[1:2]))
        code = run(prog_name="splatfix", standalone_mode=False, obj=invocation)
        sys.exit(code if isinstance(code, int) else 0)
    except process.UsageError as error:
        process.end_with_usage(error, invocation)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(process.end_interrupted("Interrupted.", invocation))
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        if invocation.debug:
            show_traceback()
        process.end_with(process.error_of(error), invocation)
    finally:
        gc.freeze()  # nothing is left to collect at the end but memory: a twelfth of a diagnosis
