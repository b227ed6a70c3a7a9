"""Make it right, and undo it: ``splatfix install``, ``revert`` and ``cache``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Optional

import typer

from splatfix.cli import conflicts, options
from splatfix.cli.options import OUTPUT, confirm_unless, finish

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


Sources = Annotated[
    Optional[list[str]],
    typer.Argument(
        help="Source folders, checkouts, gsplat==VERSION; with --backend nvrtc, warp or pure also package names.",
        show_default="the current folder",
        metavar="SOURCE",
    ),
]
Target = Annotated[
    Optional[list[str]],
    typer.Option(
        "--target", "-t", help="GPU architecture such as sm_120, or auto; repeatable.", metavar="ARCH"
    ),
]
BackendOption = Annotated[
    Backend,
    typer.Option(
        help="native: compile; drop-ins: CUDA code by torch's NVRTC (nvrtc), gswarp (warp), PyTorch (pure); or auto."
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the plan and change nothing.", rich_help_panel=PLAN)
]
Why = Annotated[
    bool, typer.Option("--why", help="Explain choices and rejected alternatives.", rich_help_panel=PLAN)
]
Keep = Annotated[
    Optional[list[str]],
    typer.Option(
        "--keep",
        help="With --dry-run --why: exclude options that modify NAME, such as torch; repeatable.",
        metavar="NAME",
        rich_help_panel=PLAN,
    ),
]
FactsFile = Annotated[
    Optional[Path],
    typer.Option(
        "--facts",
        help="With --dry-run --why: the options of a machine whose facts were saved.",
        metavar="FILE",
        rich_help_panel=PLAN,
    ),
]
Jobs = Annotated[
    Optional[int],
    typer.Option("--jobs", "-j", min=1, help="Number of parallel compiler processes.", rich_help_panel=BUILD),
]
CudaHome = Annotated[
    Optional[str],
    typer.Option("--cuda-home", help="CUDA toolkit to build with.", metavar="DIR", rich_help_panel=BUILD),
]
ProvideToolkit = Annotated[
    bool,
    typer.Option(
        "--provide-toolkit",
        help="If no CUDA toolkit fits, download one into splatfix's cache.",
        rich_help_panel=BUILD,
    ),
]
ForceMismatch = Annotated[
    bool,
    typer.Option(
        "--force-cuda-mismatch",
        help="Allow a CUDA major mismatch (recorded in the wheel).",
        rich_help_panel=BUILD,
    ),
]
Ptx = Annotated[
    bool,
    typer.Option(
        "--ptx",
        help="If no toolkit supports the GPU, embed PTX for the driver to compile.",
        rich_help_panel=BUILD,
    ),
]
WithDependencies = Annotated[
    bool,
    typer.Option(
        "--with-dependencies",
        help="Also install what the code imports and is missing; reverted together.",
        rich_help_panel=RUN,
    ),
]
InPlace = Annotated[
    bool,
    typer.Option(
        "--in-place", help="Write the edits into the checkout too, with a backup.", rich_help_panel=BUILD
    ),
]
FetchSubmodules = Annotated[
    bool,
    typer.Option(
        "--fetch-submodules",
        help="Fetch the checkout's empty submodules first, with git over https.",
        rich_help_panel=BUILD,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Compile even if a cached wheel exists.", rich_help_panel=BUILD),
]
Reinstall = Annotated[
    bool, typer.Option("--reinstall", help="Install even if it is already up to date.", rich_help_panel=RUN)
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Retry the last failed installation.", rich_help_panel=RUN)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.", rich_help_panel=RUN)]
Stream = Annotated[
    bool, typer.Option("--verbose", "-v", help="Stream the build output.", rich_help_panel=OUTPUT)
]


def install(
    context: typer.Context,
    sources: Sources = None,
    target: Target = None,
    python: options.Python = None,
    backend: BackendOption = Backend.native,
    dry_run: DryRun = False,
    why: Why = False,
    keep: Keep = None,
    facts_file: FactsFile = None,
    jobs: Jobs = None,
    cuda_home: CudaHome = None,
    provide_toolkit: ProvideToolkit = False,
    force_cuda_mismatch: ForceMismatch = False,
    ptx: Ptx = False,
    in_place: InPlace = False,
    fetch_submodules: FetchSubmodules = False,
    no_cache: NoCache = False,
    reinstall: Reinstall = False,
    with_dependencies: WithDependencies = False,
    resume: Resume = False,
    yes: Yes = False,
    verbose: Stream = False,
    as_json: options.Json = False,
) -> None:
    """Build an extension for a GPU, verify the result, and install it so that it can be undone."""
    from splatfix.app import install as app
    from splatfix.plan import Request

    conflicts.refuse(conflicts.INSTALL, context)
    request = Request(
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
    command = app.InstallRequest(
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
        finish(app.explain_elsewhere(command, facts_file), as_json)
    # a dry run fetches nothing; its options name what would be fetched first
    if dry_run and why:
        finish(app.explain(command), as_json)
    if dry_run:
        finish(app.plan(command), as_json)
    finish(app.install(command, partial(confirm_unless, yes)), as_json)


def revert(
    context: typer.Context,
    entry: Annotated[
        Optional[str],
        typer.Argument(help="Journal entry.", show_default="the latest active entry", metavar="ID"),
    ] = None,
    python: options.Python = None,
    everything: Annotated[bool, typer.Option("--all", help="Undo every installation, newest first.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed and restored.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="For scripts; revert asks nothing, with or without it.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show the journal and change nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put an environment back to what it was before an installation."""
    from splatfix.app import revert as app

    conflicts.refuse(conflicts.REVERT, context)
    if listing:
        finish(app.show_journal(python), as_json)
    finish(app.revert(python, entry, everything=everything, dry_run=dry_run, as_json=as_json), as_json)


@cache_app.command("list", epilog="Example: splatfix cache list")
def list_wheels(as_json: options.Json = False) -> None:
    """List every wheel in the cache."""
    from splatfix.app import cache

    finish(cache.list_wheels(), as_json)


@cache_app.command("clear", epilog="Example: splatfix cache clear simple_knn")
def clear(
    name: Annotated[
        Optional[str],
        typer.Argument(
            help="A distribution, or the beginning of a key.", show_default="all wheels", metavar="NAME"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove all wheels from the cache, those of one distribution, or one by its key."""
    from splatfix.app import cache

    finish(cache.clear(name, partial(confirm_unless, yes, default=False)), as_json)
