"""What is wrong here: ``splatfix diagnose``, ``inspect`` and ``checks``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import conflicts, options
from splatfix.cli.options import finish

checks_app = typer.Typer(help="List the checks, or show the page of one.", no_args_is_help=True)

FILES = "Saving and replaying facts"

Repo = Annotated[
    Optional[Path],
    typer.Option("--repo", help="Also check this checkout of a splatting stack.", metavar="DIR"),
]
FactsFile = Annotated[
    Optional[Path],
    typer.Option(
        "--facts",
        help="Diagnose facts saved (or a machine recorded) elsewhere instead of this machine.",
        metavar="FILE",
        rich_help_panel=FILES,
    ),
]
Save = Annotated[
    Optional[Path],
    typer.Option(
        "--save",
        help="Also write the facts to FILE, for --facts on another machine.",
        metavar="FILE",
        callback=options.file_to_write,
        rich_help_panel=FILES,
    ),
]
Record = Annotated[
    Optional[Path],
    typer.Option(
        "--record",
        help="Also write the raw answers of this machine into the new folder DIR, to attach to a bug report.",
        metavar="DIR",
        rich_help_panel=FILES,
    ),
]
Redact = Annotated[
    bool,
    typer.Option(
        " /--no-redact",
        help="Keep user and host names, home folders and GPU UUIDs in --record.",
        show_default=False,
        rich_help_panel=FILES,
    ),
]
Imports = Annotated[
    bool,
    typer.Option("--imports", help="Also import torch and every extension in a child process (seconds)."),
]
Only = Annotated[
    Optional[list[str]], typer.Option("--only", help="Run only this check or family; repeatable.")
]
Skip = Annotated[Optional[list[str]], typer.Option("--skip", help="Skip this check or family; repeatable.")]
Paths = Annotated[
    list[Path], typer.Argument(help="Libraries, wheels or folders.", metavar="FILE|WHEEL|DIR...")
]


def diagnose(
    context: typer.Context,
    python: options.Python = None,
    target: options.Targets = None,
    repo: Repo = None,
    imports: Imports = False,
    only: Only = None,
    skip: Skip = None,
    facts_file: FactsFile = None,
    save: Save = None,
    record: Record = None,
    redact: Redact = True,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Find out what is wrong with this machine and one Python environment, and how to fix it."""
    from splatfix.app.diagnose import DiagnoseRequest
    from splatfix.app.diagnose import diagnose as run

    targets = options.archs(target)
    conflicts.refuse(conflicts.DIAGNOSE, context)
    request = DiagnoseRequest(
        python=python,
        targets=targets,
        repo=repo,
        facts_file=facts_file,
        save=save,
        record=record,
        redact=redact,
        try_imports=imports,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    finish(run(request, verbose=verbose, as_json=as_json), as_json)


def inspect(
    paths: Paths,
    target: options.Targets = None,
    verbose: options.Verbose = False,
    as_json: options.Json = False,
) -> None:
    """Show the SASS and PTX inside native files, and which GPU architectures can run them."""
    from splatfix.app.inspect import inspect_files

    finish(inspect_files(paths, options.arch_names(target), verbose=verbose), as_json)


@checks_app.command("list", epilog="Example: splatfix checks list")
def list_checks(as_json: options.Json = False) -> None:
    """List every check with its code, family and title."""
    from splatfix.app import checks

    finish(checks.list_checks(), as_json)


@checks_app.command("show", epilog="Example: splatfix checks show no-kernel-image")
def show_check(
    code: Annotated[str, typer.Argument(help="A check's code.")], as_json: options.Json = False
) -> None:
    """Show the page of one check: what it looks at, and why it matters."""
    from splatfix.app import checks

    finish(checks.show_check(code), as_json)
