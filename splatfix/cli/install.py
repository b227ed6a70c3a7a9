"""``splatfix install`` and ``splatfix revert``: change an environment, with proof, and take it back."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Optional

import typer

from splatfix.cli import options


class Backend(str, Enum):
    """What to install."""

    native = "native"
    pure = "pure"
    auto = "auto"


def install(
    sources: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Source folders, checkouts, gsplat==VERSION; with --backend pure also names.",
            metavar="SOURCE",
        ),
    ] = None,
    target: Annotated[
        Optional[list[str]],
        typer.Option(
            "--target", "-t", help="GPU architecture such as sm_120, or auto; repeatable.", metavar="ARCH"
        ),
    ] = None,
    python: options.Python = None,
    backend: Annotated[
        Backend, typer.Option(help="Compile CUDA code, swap in pure-PyTorch drop-ins, or auto.")
    ] = Backend.native,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Give the reasons, and the roads not taken.")] = False,
    jobs: Annotated[
        Optional[int], typer.Option("--jobs", "-j", min=1, help="Compilers to run side by side.")
    ] = None,
    cuda_home: Annotated[
        Optional[str], typer.Option("--cuda-home", help="Toolkit root to build with.", metavar="DIR")
    ] = None,
    provide_toolkit: Annotated[
        bool,
        typer.Option(
            "--provide-toolkit", help="Where no CUDA toolkit fits, download one into splatfix's own cache."
        ),
    ] = False,
    force_cuda_mismatch: Annotated[
        bool,
        typer.Option(
            "--force-cuda-mismatch",
            help="Build with a toolkit of another CUDA major than torch's. Marked for good.",
        ),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Compile even what was compiled before.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Write the edits into the checkout too, with a backup.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do again what the last run that did not get through was asked.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before changing anything.")] = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Build an extension for a GPU, prove the result, and install it so that it can be taken back."""
    from splatfix.core.errors import usage_error
    from splatfix.core.files import dumps
    from splatfix.facts import gather, resolve_python
    from splatfix.install import WheelCache, carry_out, fetch_source, request_to_resume
    from splatfix.report import console, installation
    from splatfix.report.install_progress import InstallProgress
    from splatfix.resolve import Request, make_plan

    interpreter = resolve_python(python)
    request = Request(
        tuple(fetch_source(text, interpreter) for text in sources or (".",)),
        tuple(target or ()),
        backend.value,
        jobs,
        cuda_home,
        in_place,
        provide_toolkit,
        force_cuda_mismatch,
    )
    if resume and (sources or target):
        raise usage_error(
            "resume-takes-no-source",
            "--resume does again what was asked before, so it takes neither SOURCE nor --target.",
            "splatfix install --resume, or the sources without --resume",
        )
    if resume:
        _, request = request_to_resume(interpreter)
    facts = gather(interpreter)
    plan = make_plan(request, facts)
    if dry_run:
        if as_json:
            typer.echo(dumps(installation.plan_document(plan)), nl=False)
        else:
            installation.show_plan(console.out(), plan, why=why, dry_run=True)
        return
    if not as_json:
        installation.show_plan(console.out(), plan, why=why)
        if not yes and console.out().is_terminal:
            typer.confirm("Go ahead?", default=True, abort=True)
    with InstallProgress(console.err(), verbose=verbose) as progress:
        outcome = carry_out(plan, facts, progress=progress, cache=None if no_cache else WheelCache())
    if as_json:
        typer.echo(dumps(installation.outcome_document(outcome)), nl=False)
    else:
        installation.show_outcome(console.out(), outcome)


def revert(
    entry: Annotated[
        Optional[str],
        typer.Argument(help="Journal entry; the last one that stands when left out.", metavar="ID"),
    ] = None,
    python: options.Python = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the journal and change nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put an environment back to what it was before an installation."""
    from splatfix.core.files import dumps
    from splatfix.facts import resolve_python
    from splatfix.install import read_journal
    from splatfix.install import revert as take_back
    from splatfix.report import console, installation

    interpreter = resolve_python(python)
    if listing:
        entries = read_journal(interpreter)
        if as_json:
            typer.echo(dumps(installation.journal_document(entries)), nl=False)
        else:
            installation.show_journal(console.out(), entries)
        return
    outcome = take_back(interpreter, entry)
    if as_json:
        typer.echo(dumps(installation.revert_document(outcome)), nl=False)
    else:
        installation.show_revert(console.out(), outcome)
