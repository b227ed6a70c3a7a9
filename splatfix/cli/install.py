"""Make it right, and undo it: ``splatfix install``, ``revert`` and ``cache``."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer
from msgspec.structs import replace

from splatfix.cli import conflicts, options
from splatfix.cli.options import confirm_unless, examples, finish, option

cache_app = typer.Typer(help="List the wheels that were built, or clear the cache.", no_args_is_help=True)


def _stacks_packages(incomplete: str) -> list[str]:
    """The packages of stacks that have drop-ins; none where a file may be meant, which the shell completes itself."""
    from splatfix.knowledge.dropins import DROPINS

    if any(path.name.startswith(incomplete) for path in Path().iterdir()):
        return []
    return [dropin.name for dropin in DROPINS if dropin.name.startswith(incomplete)]


def install(
    context: typer.Context,
    sources: Annotated[
        Optional[list[str]], option("install.sources", autocompletion=_stacks_packages)
    ] = None,
    target: Annotated[Optional[list[str]], option("install.target")] = None,
    python: options.Python = None,
    backend: Annotated[
        Literal["native", "wheels", "pure", "nvrtc", "auto"], option("install.backend")
    ] = "native",
    dry_run: Annotated[bool, option("install.dry_run")] = False,
    why: Annotated[bool, option("install.why")] = False,
    ask_setup: Annotated[bool, option("install.ask_setup")] = False,
    keep: Annotated[Optional[list[str]], option("install.keep")] = None,
    facts_file: Annotated[Optional[Path], option("install.facts_file")] = None,
    jobs: Annotated[Optional[int], option("install.jobs")] = None,
    cuda_home: Annotated[Optional[str], option("install.cuda_home")] = None,
    provide_toolkit: Annotated[bool, option("install.provide_toolkit")] = False,
    force_cuda_mismatch: Annotated[bool, option("install.force_cuda_mismatch")] = False,
    ptx: Annotated[bool, option("install.ptx")] = False,
    in_place: Annotated[bool, option("install.in_place")] = False,
    fetch_submodules: Annotated[bool, option("install.fetch_submodules")] = False,
    index: Annotated[Optional[list[str]], option("shared.indexes")] = None,
    no_find: Annotated[bool, option("install.no_find")] = False,
    offline: Annotated[bool, option("shared.offline")] = False,
    no_cache: Annotated[bool, option("install.no_cache")] = False,
    reinstall: Annotated[bool, option("install.reinstall")] = False,
    with_dependencies: Annotated[bool, option("install.with_dependencies")] = False,
    resume: Annotated[bool, option("install.resume")] = False,
    repair: Annotated[Optional[str], option("install.repair")] = None,
    yes: Annotated[bool, option("install.yes")] = False,
    verbose: Annotated[bool, option("install.verbose")] = False,
    as_json: options.Json = False,
) -> None:
    """Build an extension for a GPU, verify the result, and install it so that it can be undone."""
    from splatfix.app import install as use_case

    conflicts.refuse(context)
    request = options.request_of(
        use_case.Request,
        locals(),
        sources=tuple(sources or ()),
        targets=options.archs_or_auto(target),
        find=not no_find,
    )
    command = options.request_of(
        use_case.InstallRequest,
        locals(),
        install=request,
        use_cache=not no_cache,
        indexes=tuple(index or ()),
    )
    if repair is not None:
        command = replace(command, reinstall=True)
        repaired = use_case.repair(repair, command, partial(confirm_unless, yes), dry_run=dry_run)
        finish(repaired, as_json, verbose=verbose)
    if facts_file:
        finish(use_case.explain_elsewhere(command, facts_file), as_json, verbose=verbose)
    if dry_run:
        finish(use_case.plan(command), as_json, verbose=verbose)
    finish(use_case.install(command, partial(confirm_unless, yes)), as_json, verbose=verbose)


def revert(
    context: typer.Context,
    entry: Annotated[Optional[str], option("revert.entry")] = None,
    python: options.Python = None,
    everything: Annotated[bool, option("revert.everything")] = False,
    dry_run: Annotated[bool, option("revert.dry_run")] = False,
    yes: Annotated[bool, option("revert.yes")] = False,
    listing: Annotated[bool, option("revert.listing")] = False,
    as_json: options.Json = False,
) -> None:
    """Put an environment back to what it was before an installation."""
    from splatfix.app import revert as use_case

    conflicts.refuse(context)
    if listing:
        finish(use_case.show_journal(python), as_json)
    reverted = use_case.revert(python, entry, everything=everything, dry_run=dry_run)
    finish(reverted, as_json)


@cache_app.command("list", epilog=examples("cache-list"))
def list_wheels(as_json: options.Json = False) -> None:
    """List every wheel in the cache."""
    from splatfix.app import cache as use_case

    finish(use_case.list_wheels(), as_json)


@cache_app.command("clear", epilog=examples("cache-clear"))
def clear(
    name: Annotated[Optional[str], option("cache-clear.name")] = None,
    yes: Annotated[bool, option("shared.yes")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove all that is cached (wheels, toolkits, sources, kernels), or the wheels of one name."""
    from splatfix.app import cache as use_case

    finish(use_case.clear(name, partial(confirm_unless, yes, default=False)), as_json)
