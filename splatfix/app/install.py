"""``splatfix install``: plan, explain, and execute an installation that can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatfix.app.interrupts import EnvironmentState, on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.context import Goal, make_context
from splatfix.context.commands import target_options
from splatfix.core.errors import Exit, Problem, SplatfixError, require, usage_error
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run, say
from splatfix.core.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from splatfix.facts import Facts, LiveSystem
    from splatfix.install import InstallOutcome
    from splatfix.plan import InstallPlan, Request

NO_CHANGE = "Nothing was changed: this is a dry run. Install with"


@dataclass(frozen=True)
class InstallOptions:
    """How an installation is carried out, apart from what is installed."""

    use_cache: bool = True
    reinstall: bool = False
    why: bool = False
    verbose: bool = False
    as_json: bool = False
    fetch_submodules: bool = False


def prepare(
    request: Request, python: str | None, *, resume: bool = False, fetch: bool = False
) -> tuple[str, Request]:
    """The interpreter and the request with its sources at hand; with ``resume`` the last one that failed.

    Args:
        fetch: fill the empty submodules of the sources.

    Raises:
        SplatfixError: a source that cannot be fetched, an interpreter that is none, nothing to resume.
    """
    from splatfix.install import fetch_source, request_to_resume

    interpreter = target_python(python)
    if resume:
        return interpreter, request_to_resume(interpreter)
    if fetch:
        _fetch_submodules(request.sources or (".",))
    sources = tuple(fetch_source(text, interpreter) for text in request.sources or (".",))
    return interpreter, replace(request, sources=sources)


def _fetch_submodules(sources: Sequence[str]) -> None:
    """Fetch what is lacking, and say on standard error what came from where.

    Raises:
        SplatfixError: ``no-git``, ``submodules-not-fetched``; the checkout is then as it was.
    """
    from splatfix.install.submodules import fetch_submodules
    from splatfix.report import console
    from splatfix.report.installation import show_fetched
    from splatfix.report.progress import one_line

    for folder in _checkouts(sources):
        message = f"Nothing was changed: {visible(str(folder))} is as it was."
        with on_interrupt(message), one_line(console.err(), "Fetching submodules") as doing:
            fetched = fetch_submodules(folder, doing=doing)
        show_fetched(console.err(), folder, fetched)


def _checkouts(sources: Sequence[str]) -> list[Path]:
    """The checkouts that the sources are, or are of: what an extension's build lacks may be a submodule above it."""
    from splatfix.facts import checkout_around, resolved_folder

    folders = filter(None, map(resolved_folder, sources))
    return list(dict.fromkeys(map(checkout_around, folders)))


def _to_fetch(sources: Sequence[str]) -> tuple[Step, ...]:
    """What ``--fetch-submodules`` would fetch, one step each; () where nothing that is needed is empty."""
    from splatfix.install.submodules import wanted_submodules

    return tuple(
        say(f"fetch {item.words}") for folder in _checkouts(sources) for item in wanted_submodules(folder)
    )


def install(
    request: Request,
    python: str | None,
    options: InstallOptions,
    confirm: Callable[[str], None],
    *,
    resume: bool = False,
) -> Result:
    """Build, install, verify the kernels on the GPU where there is one, and undo it all if they compute wrongly.

    Args:
        confirm: asks the user, and raises to stop.

    Raises:
        SplatfixError: no plan, or a step that failed; the environment is then as it was before.
    """
    from splatfix.app.measure import measured
    from splatfix.certify import verify
    from splatfix.facts import gather
    from splatfix.install import WheelCache, execute, revert
    from splatfix.report import console, installation
    from splatfix.report.progress import install_progress

    named = resume or bool(request.sources)
    interpreter, request = prepare(request, python, resume=resume, fetch=options.fetch_submodules)
    facts = gather(interpreter, system=with_toolkit(request.cuda_home))
    plan = planned(request, facts, named=named)
    if not plan.steps:
        return _nothing_to_do(plan)
    if not options.as_json:
        installation.show_plan(console.out(), plan, why=options.why)
        confirm("Go ahead?")
    state = EnvironmentState(Path(plan.prefix), plan.python)
    with (
        on_interrupt(state.describe),
        install_progress(console.err(), verbose=options.verbose) as progress,
    ):
        cache = WheelCache() if options.use_cache else None
        outcome = execute(plan, facts, progress=progress, cache=cache, reinstall=options.reinstall)
        outcome = measured(outcome, facts, verify, revert)
    return Result(
        "install",
        lambda: installation.install_document(outcome=outcome),
        lambda console: installation.show_outcome(console, outcome, next_step(outcome)),
    )


def _nothing_to_do(plan: InstallPlan, *, dry_run: bool = False) -> Result:
    from splatfix.report import installation

    return Result(
        "install",
        lambda: installation.install_document(plan=plan, dry_run=dry_run),
        lambda console: installation.show_plan(console, plan),
    )


def planned(request: Request, facts: Facts, *, named: bool) -> InstallPlan:
    """The plan for a request.

    Args:
        named: the user named a source. Else it is the current folder, and only a stack or a CUDA extension there is meant.

    Raises:
        SplatfixError: what is in the way of a plan; ``no-source`` (exit code 2) where nothing can be meant.
    """
    from splatfix.plan import plan_install, stacks_of

    made = plan_install(request, make_context(facts, Goal(request.targets)))
    if named or request.backend in ("pure", "nvrtc", "warp") or stacks_of(Path.cwd()):
        return require(made)
    if isinstance(made, Problem):
        if made.code in ("not-an-extension", "not-a-checkout"):
            raise _no_source(request, facts, made.what, made.todo)
    elif not made.targets:
        what = f"{Path.cwd()} has no CUDA extension and is no splatting stack."
        raise _no_source(
            request, facts, what, (run("splatfix", "install", ".", text="To install it all the same"),)
        )
    return require(made)


def _no_source(request: Request, facts: Facts, what: str, todo: tuple[Step, ...]) -> SplatfixError:
    """No SOURCE was typed, and the current folder is none; what is installed could be meant."""
    context = make_context(facts, Goal(request.targets))
    rebuild = [context.reinstall(name, text=f"To rebuild the installed {name}") for name in context.owners]
    return usage_error(
        "no-source",
        f"No SOURCE was named. {what}",
        *todo,
        *rebuild,
    )


def install_step(plan: InstallPlan) -> Step:
    """The command that executes what was planned."""
    asked = plan.request
    words = [*asked.sources, *target_options(asked.targets)]
    words += ["--backend", asked.backend] if asked.backend != "native" else []
    words += ["--jobs", str(asked.jobs)] if asked.jobs else []
    words += ["--cuda-home", asked.cuda_home] if asked.cuda_home else []
    flags = {
        "--in-place": asked.in_place,
        "--provide-toolkit": asked.provide_toolkit,
        "--force-cuda-mismatch": asked.force_cuda_mismatch,
        "--ptx": asked.ptx,
        "--with-dependencies": asked.with_dependencies,
    }
    words += [name for name, wanted in flags.items() if wanted]
    return run("splatfix", "install", *words, "--python", plan.python, text=NO_CHANGE)


def next_step(outcome: InstallOutcome) -> Step | None:
    """Where kernels were verified on the GPU, training; else their verification. None where nothing was changed."""
    if all(item.up_to_date for item in outcome.items):
        return None
    levels = [rung for item in outcome.items for rung in item.proof if rung.name is RungName.COMPUTES]
    if any(rung.reached for rung in levels):
        return run("splatfix", "certify", "--python", outcome.plan.python, text="Next: test training")
    return run("splatfix", "verify", "--python", outcome.plan.python, text="Next: check accuracy")


def plan(request: Request, python: str | None, *, resume: bool = False, fetch: bool = False) -> Result:
    """``--dry-run``: the plan, and no change.

    Args:
        fetch: of the sources as they are once their empty submodules were fetched.

    Raises:
        SplatfixError: as :func:`install` before it changes anything.
    """
    from splatfix.facts import gather
    from splatfix.report import console, installation

    if fetch:
        if _to_fetch(request.sources or (".",)):
            return explain(request, python, (), resume=resume, fetch=True)
        for folder in _checkouts(request.sources or (".",)):
            installation.show_fetched(console.err(), folder, ())
    named = resume or bool(request.sources)
    interpreter, request = prepare(request, python, resume=resume)
    facts = gather(interpreter, system=with_toolkit(request.cuda_home))
    plan = planned(request, facts, named=named)
    if not plan.steps:
        return _nothing_to_do(plan, dry_run=True)
    return Result(
        "install",
        lambda: installation.install_document(plan=plan, dry_run=True),
        lambda console: installation.show_plan(console, plan, install_step(plan)),
    )


def explain(
    request: Request, python: str | None, keep: tuple[str, ...], *, resume: bool = False, fetch: bool = False
) -> Result:
    """``--dry-run --why``: the plan for these sources with its reasons, and every option of this machine.

    The exit code is that of the plan: 1 where named sources cannot be built as they are, although there are options.

    Args:
        fetch: the options begin with fetching the empty submodules of the sources.
    """
    from splatfix.app.options import checkout_of, options_for
    from splatfix.facts import gather, with_checkout
    from splatfix.knowledge.breakages import source_patterns
    from splatfix.plan import NO_SOURCES, plan_install, summarise
    from splatfix.report import installation
    from splatfix.report.options import show_options

    named = bool(request.sources)
    repo = checkout_of(request.sources)
    to_fetch = _to_fetch(request.sources or (".",)) if fetch else ()
    interpreter, request = prepare(request, python, resume=resume)
    facts = gather(interpreter, system=with_toolkit(request.cuda_home))
    if repo is not None:
        facts = with_checkout(facts, repo, source_patterns())
    context = make_context(facts, Goal(request.targets))
    made = plan_install(request, context)
    if isinstance(made, Problem):  # what it would advise is what follows
        made = replace(made, todo=tuple(step for step in made.todo if not _shows_options(step)))
    plan, problem = (None, made.error()) if isinstance(made, Problem) else (made, None)
    sources = summarise(request.sources, facts, named=request.sources, fetch=to_fetch)
    if problem and problem.exit_code is Exit.USAGE and named:
        raise problem
    if plan and not named and not plan.targets:
        plan = None  # the current folder is some project without a CUDA extension
    if not (named or plan or (problem and problem.exit_code is not Exit.USAGE)):
        sources = NO_SOURCES
    options = options_for(context, sources, keep)
    if sources.prepare and isinstance(made, Problem):  # the options begin with what completes the sources
        problem = None if sources.fetch else replace(made, todo=()).error()
    if not named:
        problem = None

    def text(console: Console) -> None:
        if plan:
            installation.show_plan(console, plan, install_step(plan), why=True)
            console.print()
        show_options(console, options)

    exit_code = problem.exit_code if problem else Exit.OK
    if plan is None and not options.available and exit_code is Exit.OK:
        exit_code = Exit.UNDETERMINED
    return Result(
        "install",
        lambda: installation.install_document(plan=plan, options=options, dry_run=True),
        text,
        exit_code,
        problem,
    )


def _shows_options(step: Step) -> bool:
    return step.command is not None and "--why" in step.command.argv


def explain_elsewhere(request: Request, facts_file: Path, keep: tuple[str, ...]) -> Result:
    """``--dry-run --why --facts``: the options of a machine elsewhere; the sources, if any, are here."""
    from splatfix.app.options import options_for
    from splatfix.facts import load
    from splatfix.plan import NO_SOURCES, summarise
    from splatfix.report import installation
    from splatfix.report.options import show_options

    facts = load(facts_file)
    sources = NO_SOURCES
    if request.sources:
        sources = summarise(request.sources, facts, named=request.sources)
    options = options_for(make_context(facts, Goal(request.targets)), sources, keep)
    return Result(
        "install",
        lambda: installation.install_document(options=options, dry_run=True),
        lambda console: show_options(console, options),
        Exit.OK if options.available else Exit.UNDETERMINED,
    )


def with_toolkit(cuda_home: str | None) -> LiveSystem | None:
    """This machine with CUDA_HOME set, so that a toolkit off the usual paths is found."""
    if cuda_home is None:
        return None
    from splatfix.facts import LiveSystem

    return LiveSystem(env={**os.environ, "CUDA_HOME": str(Path(cuda_home).expanduser().absolute())})
