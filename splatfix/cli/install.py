"""Make it right, and undo it: ``splatfix install``, ``revert`` and ``cache``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix import app
from splatfix.cli import conflicts, options
from splatfix.cli.options import OUTPUT, confirm_unless, finish, option

cache_app = typer.Typer(help="List or remove the wheels that splatfix has built.", no_args_is_help=True)

PLAN = "Planning"
BUILD = "Building"
RUN = "Running"


class Backend(str, Enum):
    """What to install."""

    native = "native"
    pure = "pure"
    nvrtc = "nvrtc"
    warp = "warp"
    auto = "auto"


def _stacks_packages(incomplete: str) -> list[str]:
    """The packages of stacks that have drop-ins; none where a file may be meant, which the shell completes itself."""
    from splatfix.knowledge.dropins import DROPINS

    if any(path.name.startswith(incomplete) for path in Path().iterdir()):
        return []
    return [dropin.name for dropin in DROPINS if dropin.name.startswith(incomplete)]


def install(
    context: typer.Context,
    sources: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Source folders, checkouts, gsplat==VERSION; with --backend nvrtc, warp or pure also package names.",
            show_default="the current folder",
            metavar="SOURCE",
            autocompletion=_stacks_packages,
        ),
    ] = None,
    target: Annotated[
        Optional[list[str]],
        option("--target -t", "GPU architecture such as sm_120, or auto; repeatable.", metavar="ARCH"),
    ] = None,
    python: options.Python = None,
    backend: Annotated[
        Backend,
        option(
            "",
            "native: compile; drop-ins: CUDA code by torch's NVRTC (nvrtc), gswarp (warp), PyTorch (pure); or auto.",
        ),
    ] = Backend.native,
    dry_run: Annotated[bool, option("--dry-run", "Show the plan and change nothing.", PLAN)] = False,
    why: Annotated[bool, option("--why", "Explain choices and rejected alternatives.", PLAN)] = False,
    keep: Annotated[
        Optional[list[str]],
        option(
            "--keep",
            "With --dry-run --why: exclude options that modify NAME, such as torch; repeatable.",
            PLAN,
            "NAME",
        ),
    ] = None,
    facts_file: Annotated[
        Optional[Path],
        option(
            "--facts", "With --dry-run --why: the options of a machine whose facts were saved.", PLAN, "FILE"
        ),
    ] = None,
    jobs: Annotated[
        Optional[int], option("--jobs -j", "Number of parallel compiler processes.", BUILD, min=1)
    ] = None,
    cuda_home: Annotated[
        Optional[str], option("--cuda-home", "CUDA toolkit to build with.", BUILD, "DIR")
    ] = None,
    provide_toolkit: Annotated[
        bool,
        option("--provide-toolkit", "If no CUDA toolkit fits, download one into splatfix's cache.", BUILD),
    ] = False,
    force_cuda_mismatch: Annotated[
        bool, option("--force-cuda-mismatch", "Allow a CUDA major mismatch (recorded in the wheel).", BUILD)
    ] = False,
    ptx: Annotated[
        bool, option("--ptx", "If no toolkit supports the GPU, embed PTX for the driver to compile.", BUILD)
    ] = False,
    in_place: Annotated[
        bool, option("--in-place", "Write the edits into the checkout too, with a backup.", BUILD)
    ] = False,
    fetch_submodules: Annotated[
        bool,
        option(
            "--fetch-submodules", "Fetch the checkout's empty submodules first, with git over https.", BUILD
        ),
    ] = False,
    no_cache: Annotated[bool, option("--no-cache", "Compile even if a cached wheel exists.", BUILD)] = False,
    reinstall: Annotated[
        bool, option("--reinstall", "Install even if it is already up to date.", RUN)
    ] = False,
    with_dependencies: Annotated[
        bool,
        option(
            "--with-dependencies",
            "Also install what the code imports and is missing; reverted together.",
            RUN,
        ),
    ] = False,
    resume: Annotated[bool, option("--resume", "Retry the last failed installation.", RUN)] = False,
    yes: Annotated[bool, option("--yes -y", "Do not ask for confirmation.", RUN)] = False,
    verbose: Annotated[
        bool, option("--verbose -v", "Show every step by itself, and stream the build output.", OUTPUT)
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Build an extension for a GPU, verify the result, and install it so that it can be undone."""
    conflicts.refuse(context)
    request = app.install.Request(
        sources=tuple(sources or ()),
        targets=options.archs_or_auto(target),
        backend=backend.value,
        jobs=jobs,
        cuda_home=cuda_home,
        in_place=in_place,
        provide_toolkit=provide_toolkit,
        force_cuda_mismatch=force_cuda_mismatch,
        ptx=ptx,
        with_dependencies=with_dependencies,
    )
    command = app.install.InstallRequest(
        install=request,
        python=python,
        resume=resume,
        fetch_submodules=fetch_submodules,
        keep=tuple(keep or ()),
        use_cache=not no_cache,
        reinstall=reinstall,
        why=why,
        verbose=verbose,
        as_json=as_json,
    )
    if facts_file:
        finish(app.install.explain_elsewhere(command, facts_file), as_json)
    # a dry run fetches nothing; its options name what would be fetched first
    if dry_run and why:
        finish(app.install.explain(command), as_json)
    if dry_run:
        finish(app.install.plan(command), as_json)
    finish(app.install.install(command, partial(confirm_unless, yes)), as_json)


def repair(
    package: Annotated[str, typer.Argument(help="The installed package.", metavar="PACKAGE")],
    python: options.Python = None,
    dry_run: Annotated[bool, option("--dry-run", "Show the plan and change nothing.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Put an installed package back to what its wheel installed, so that it can be undone."""
    command = app.install.InstallRequest(
        install=app.install.Request(), python=python, reinstall=True, as_json=as_json
    )
    finish(app.install.repair(package, command, partial(confirm_unless, yes), dry_run=dry_run), as_json)


def revert(
    context: typer.Context,
    entry: Annotated[
        Optional[str],
        typer.Argument(help="Journal entry.", show_default="the latest active entry", metavar="ID"),
    ] = None,
    python: options.Python = None,
    everything: Annotated[bool, option("--all", "Undo every installation, newest first.")] = False,
    dry_run: Annotated[bool, option("--dry-run", "Show what would be removed and restored.")] = False,
    yes: Annotated[bool, option("--yes -y", "For scripts; revert asks nothing, with or without it.")] = False,
    listing: Annotated[bool, option("--list", "Show the journal and change nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put an environment back to what it was before an installation."""
    conflicts.refuse(context)
    if listing:
        finish(app.revert.show_journal(python), as_json)
    reverted = app.revert.revert(python, entry, everything=everything, dry_run=dry_run, as_json=as_json)
    finish(reverted, as_json)


@cache_app.command("list", epilog="Example: splatfix cache list")
def list_wheels(as_json: options.Json = False) -> None:
    """List every wheel in the cache."""
    finish(app.cache.list_wheels(), as_json)


@cache_app.command("clear", epilog="Example: splatfix cache clear simple_knn")
def clear(
    name: Annotated[
        Optional[str],
        typer.Argument(
            help="A distribution, or the beginning of a key.", show_default="all wheels", metavar="NAME"
        ),
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove all wheels from the cache, those of one distribution, or one by its key."""
    finish(app.cache.clear(name, partial(confirm_unless, yes, default=False)), as_json)
