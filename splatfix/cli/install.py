"""``splatfix install``: changes an environment, with proof, and so that it can be taken back."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from splatfix.cli import interrupted, options
from splatfix.core.step import run, say

if TYPE_CHECKING:
    from splatfix.facts import Facts
    from splatfix.plan import Request


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
    ptx: Annotated[
        bool,
        typer.Option(
            "--ptx", help="Where no toolkit knows the GPU, compile PTX for its driver to translate."
        ),
    ] = False,
    keep: Annotated[
        Optional[list[str]],
        typer.Option(
            "--keep",
            help="With --why: ways that leave this alone, such as torch; repeatable.",
            metavar="NAME",
        ),
    ] = None,
    facts_file: Annotated[
        Optional[Path],
        typer.Option(
            "--facts",
            help="With --dry-run --why: the ways out of a machine whose facts were saved.",
            metavar="FILE",
        ),
    ] = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Compile even what was compiled before.")
    ] = False,
    reinstall: Annotated[
        bool, typer.Option("--reinstall", help="Install even what is installed already, byte for byte.")
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
    from splatfix.certify import verify
    from splatfix.cli.measure import measured
    from splatfix.cli.ways import checkout_of
    from splatfix.core.errors import usage_error
    from splatfix.core.files import dumps
    from splatfix.facts import gather, resolve_python
    from splatfix.install import WheelCache, execute, fetch_source, request_to_resume
    from splatfix.install import revert as take_back
    from splatfix.plan import Request, make_plan
    from splatfix.report import console, installation
    from splatfix.report.install_progress import InstallProgress

    if (facts_file or keep) and not (dry_run and why):
        raise usage_error(
            "only-with-why",
            "--facts and --keep ask for the ways out, which change nothing.",
            run("splatfix", "install", "--dry-run", "--why", "--facts", "facts.json"),
        )
    building: dict[str, object] = {
        "--backend": backend is not Backend.native,
        "--jobs": jobs,
        "--cuda-home": cuda_home,
        "--in-place": in_place,
        "--provide-toolkit": provide_toolkit,
        "--force-cuda-mismatch": force_cuda_mismatch,
        "--ptx": ptx,
    }
    if facts_file:
        here = {"--python": python, "--resume": resume, **building}
        if unfit := [name for name, value in here.items() if value]:
            raise usage_error(
                "facts-and-options",
                f"--facts asks for the ways out of another machine; {', '.join(unfit)} has no say there.",
                run("splatfix", "install", "[SOURCE]", "--dry-run", "--why", "--facts", "facts.json"),
            )
        _show_ways_of(
            facts_file, Request(tuple(sources or ()), tuple(target or ())), tuple(keep or ()), as_json
        )
        return
    asked = {"SOURCE": sources, "--target": target, **building}
    if resume and (unfit := [name for name, value in asked.items() if value]):
        raise usage_error(
            "resume-takes-no-source",
            f"--resume does again what was asked before, so it does not take {', '.join(unfit)}.",
            say("splatfix install --resume, or what you ask now without --resume"),
        )
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
        ptx,
    )
    if resume:
        _, request = request_to_resume(interpreter)
    explained = checkout_of(sources or ()) if dry_run and why else None
    facts = gather(interpreter, system=options.with_toolkit(request.cuda_home), repo=explained)
    if dry_run and why:
        _explain(request, facts, bool(sources), tuple(keep or ()), as_json)
        return
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
    environment = interrupted.Installing(Path(plan.prefix), plan.python)
    with interrupted.on_interrupt(environment.words):
        with InstallProgress(console.err(), verbose=verbose) as progress:
            cache = None if no_cache else WheelCache()
            outcome = execute(plan, facts, progress=progress, cache=cache, reinstall=reinstall)
            outcome = measured(outcome, facts, verify, take_back)
        if as_json:
            typer.echo(dumps(installation.outcome_document(outcome)), nl=False)
        else:
            installation.show_outcome(console.out(), outcome)


def _explain(request: Request, facts: Facts, named: bool, keep: tuple[str, ...], as_json: bool) -> None:
    """The plan for these sources with its reasons, and every way out; the ways alone where there is no plan."""
    from splatfix.cli.ways import ways_for
    from splatfix.core.errors import Exit, SplatfixError
    from splatfix.core.files import dumps
    from splatfix.plan import Aim, Plan, aim_at, make_plan
    from splatfix.report import console, installation
    from splatfix.report.ways import show_ways

    plan: Plan | None = None
    problem: SplatfixError | None = None
    try:
        plan = make_plan(request, facts)
    except SplatfixError as error:
        problem = error
        if error.exit_code is Exit.USAGE and named:
            raise
    if plan and not named and not any(getattr(action, "targets", ()) for action in plan.actions):
        plan = None  # the current folder is some project, and no extension that a GPU plays a part in
    aim = Aim(request.targets, keep=keep)
    if named or plan or (problem and problem.exit_code is not Exit.USAGE):
        aim = aim_at(request, facts, keep=keep, source=" ".join(map(shlex.quote, request.sources)))
    ways = ways_for(aim, facts)
    if as_json:
        typer.echo(dumps(installation.why_document(plan, problem if named else None, ways)), nl=False)
    else:
        if plan:
            installation.show_plan(console.out(), plan, why=True)
        show_ways(console.out(), ways)
        console.out().print("Nothing was changed: this is a dry run.")
    if problem and named and not as_json:
        raise problem
    if plan is None and ((problem and named) or not ways.plans):
        raise typer.Exit(int(Exit.FAILURE if ways.plans else Exit.UNDETERMINED))


def _show_ways_of(facts_file: Path, request: Request, keep: tuple[str, ...], as_json: bool) -> None:
    """The ways out of a machine elsewhere; SOURCE, where one is named, lies here."""
    from splatfix.cli.ways import ways_for
    from splatfix.core.errors import Exit
    from splatfix.core.files import dumps
    from splatfix.facts import load
    from splatfix.plan import Aim, aim_at
    from splatfix.report import console, installation
    from splatfix.report.ways import show_ways

    facts = load(facts_file)
    source = " ".join(map(shlex.quote, request.sources))
    aim = (
        aim_at(request, facts, keep=keep, source=source)
        if request.sources
        else Aim(request.targets, keep=keep)
    )
    ways = ways_for(aim, facts)
    if as_json:
        typer.echo(dumps(installation.why_document(None, None, ways)), nl=False)
    else:
        show_ways(console.out(), ways)
    if not ways.plans:
        raise typer.Exit(int(Exit.UNDETERMINED))
