"""``splatfix install``: plan, explain, and execute an installation that can be undone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from splatfix.app.interrupts import environment_state, on_interrupt
from splatfix.app.options import checkout_of, options_for
from splatfix.app.prebuilt import NO_WHEELS, Prebuilt, find_prebuilt, is_package
from splatfix.app.result import Result, target_python
from splatfix.context import Context, Goal, make_context
from splatfix.context.commands import training_steps
from splatfix.core.errors import Exit, SplatfixError, usage_error
from splatfix.core.proof import RungName
from splatfix.core.step import Step, run, say
from splatfix.core.visible import visible
from splatfix.facts import LiveSystem, checkout_around, gather, load, resolved_folder, with_checkout
from splatfix.install import InstallOutcome, WheelCache, execute, fetch_source, request_to_resume, revert
from splatfix.install.ask import ask_plan
from splatfix.install.repair import plan_repair
from splatfix.install.submodules import fetch_submodules, wanted_submodules
from splatfix.knowledge.breakages import source_patterns
from splatfix.knowledge.dropins import has_reference
from splatfix.model import Facts
from splatfix.model.inquiry import Inquiry
from splatfix.model.option import BUILDING
from splatfix.model.steps import BuildWheel
from splatfix.plan import NO_SOURCES, InstallPlan, Options, has_stack_files, plan_install, summarise
from splatfix.plan import Request as Request  # built by the command line
from splatfix.plan.checkout import absolute
from splatfix.plan.options import NOT_HERE
from splatfix.report import console, installation
from splatfix.report.options import show_options
from splatfix.report.progress import install_progress, one_line
from splatfix.wheels.listing import save_listed
from splatfix.wheels.web import Web, WebError
from splatfix.wheels.web import without_login as without_login  # what the command line keeps of an index

if TYPE_CHECKING:
    from rich.console import Console

NO_CHANGE = "Nothing was changed: this is a dry run. Install with"


class InstallRequest(Struct, frozen=True, kw_only=True):
    """What was asked of ``splatfix install``: what to install, and how to carry it out."""

    install: Request
    python: str | None = None
    resume: bool = False
    """Take the request of the last installation that failed."""
    fetch_submodules: bool = False
    keep: tuple[str, ...] = ()
    """What the options must not touch."""
    use_cache: bool = True
    reinstall: bool = False
    why: bool = False
    ask_setup: bool = False
    """Also ask the setup.py of each build what it would compile."""
    verbose: bool = False
    as_json: bool = False
    indexes: tuple[str, ...] = ()
    """As they were typed, with the logins that no plan and no text holds."""

    @property
    def is_named(self) -> bool:
        """The user named a source. Else it is the current folder, and only a stack or a CUDA extension there is meant."""
        return self.resume or bool(self.install.sources)

    @property
    def sources(self) -> tuple[str, ...]:
        """What was named, else the current folder."""
        return self.install.sources or (".",)


class Planned(Result, frozen=True, kw_only=True):
    """What would be installed, and which options there are; nothing was changed."""

    plan: InstallPlan | None = None
    """The installation of the sources; None where none were named or they cannot be installed as they are."""
    options: Options | None = None
    """All options of the machine, ranked; None where only the plan was asked for."""


def install(request: InstallRequest, confirm: Callable[[str], None]) -> Result:
    """Build, install, verify the kernels on the GPU where there is one, and undo it all if they compute wrongly.

    Args:
        confirm: asks the user, and raises to stop.

    Raises:
        SplatfixError: no plan, or a step that failed; the environment is then as it was before.
    """
    to_install, facts, wheels = _prepare(request, fetch=request.fetch_submodules)
    plan = planned(to_install, facts, named=request.is_named, wheels=wheels)
    if not plan.steps:
        return shown(plan)
    require_downloads(plan)
    return carried_out(plan, facts, request, confirm, wheels)


def require_downloads(plan: InstallPlan) -> None:
    """Ask for what builds fetch by themselves, before anything is built or installed.

    Raises:
        SplatfixError: ``download-unreachable``.
    """
    for step in plan.steps:
        for address, package in step.downloads.items() if isinstance(step, BuildWheel) else ():
            try:
                Web([address]).reach(without_login(address))
            except WebError as error:
                todo = [say("Build where the address can be reached.")]
                if package:
                    spare = "On Debian and Ubuntu this spares the download"
                    todo.insert(0, run("sudo", "apt-get", "install", package, text=spare))
                raise SplatfixError.of(
                    "app.download-unreachable",
                    todo=tuple(todo),
                    subject=step.subject,
                    address=address,
                    reason=error,
                ) from error


def carried_out(
    plan: InstallPlan,
    facts: Facts,
    request: InstallRequest,
    confirm: Callable[[str], None],
    wheels: Prebuilt = NO_WHEELS,
) -> Result:
    """Show a plan, ask, execute it, and verify the kernels on the GPU where there is one.

    Raises:
        SplatfixError: as :func:`install`.
    """
    # slow to import, and needed only where something is really installed
    from splatfix.app.measure import measured

    if not request.as_json:
        installation.show_plan(console.out(), plan, why=request.why, verbose=request.verbose)
        confirm("Go ahead?")
    state = environment_state(Path(plan.prefix), plan.python)
    with (
        on_interrupt(state),
        install_progress(console.err(), verbose=request.verbose) as progress,
    ):
        cache = WheelCache() if request.use_cache else None
        outcome = execute(
            plan,
            facts,
            progress=progress,
            cache=cache,
            reinstall=request.reinstall,
            fetchers=wheels.fetchers,
        )
        outcome = measured(outcome, facts, revert)
    return Result(
        "install",
        lambda: installation.install_document(outcome=outcome),
        lambda console: installation.show_outcome(
            console, outcome, next_steps(outcome, facts), verbose=request.verbose
        ),
    )


def plan(request: InstallRequest) -> Planned:
    """``--dry-run``: the plan, and no change. Submodules to be fetched are named, not fetched.

    Raises:
        SplatfixError: as :func:`install` before it changes anything.
    """
    if request.fetch_submodules:
        if _to_fetch(request.sources):
            return explain(replace(request, keep=()))
        for folder in _checkouts(request.sources):
            installation.show_fetched(console.err(), folder, ())
    to_install, facts, wheels = _prepare(request)
    plan = planned(to_install, facts, named=request.is_named, wheels=wheels)
    return shown(plan, dry_run=True, verbose=request.verbose)


def repair(name: str, request: InstallRequest, confirm: Callable[[str], None], *, dry_run: bool) -> Result:
    """``--repair``: install the same version of one package again, whatever its files are now.

    Raises:
        SplatfixError: as :func:`plan_repair`, or a step that failed; the environment is then as it was before.
    """
    interpreter = target_python(request.python)
    facts = gather(interpreter)
    plan = plan_repair(name, facts)
    if dry_run:
        again = run("splatfix", "install", "--repair", name, "--python", interpreter, text=NO_CHANGE)
        return shown(plan, dry_run=True, execute_it=again)
    return carried_out(plan, facts, request, confirm)


def shown(
    plan: InstallPlan,
    *,
    dry_run: bool = False,
    command: str = "install",
    execute_it: Step | None = None,
    verbose: bool = False,
) -> Planned:
    """A plan that is not executed, with the command that would; without steps what is installed is kept, and why."""
    if plan.steps:
        execute_it = execute_it or install_step(plan)
    return Planned(
        command=command,
        data=lambda: installation.install_document(plan=plan, dry_run=dry_run),
        text=lambda console: installation.show_plan(console, plan, execute_it, verbose=verbose),
        plan=plan,
    )


def explain(request: InstallRequest) -> Planned:
    """``--dry-run --why``: the plan for these sources with its reasons, and every option of this machine.

    The exit code is that of the plan: 1 where named sources cannot be built as they are, although there are options.

    Raises:
        SplatfixError: the sources are wrongly named (exit code 2).
    """
    named = bool(request.install.sources)
    repo = checkout_of(request.install.sources)
    to_fetch: tuple[Step, ...] = ()
    if request.fetch_submodules:
        to_fetch = _to_fetch(request.sources)
    to_install, facts, wheels = _prepare(request)
    if repo is not None:
        facts = with_checkout(facts, repo, source_patterns(), started=True)
    context = make_context(facts, Goal(to_install.targets))
    plan: InstallPlan | None = None
    problem: SplatfixError | None = None
    try:
        plan = with_wheels(to_install, context, wheels)
    except SplatfixError as error:
        # the options that it would advise to look at are what follows
        shows_options = [step for step in error.todo if step.command and "--why" in step.command.argv]
        problem = error.with_todo(*(step for step in error.todo if step not in shows_options))
    folders = tuple(text for text in to_install.sources if text not in wheels.steps)
    summary = summarise(folders, facts, named=to_install.sources, fetch=to_fetch)
    if problem and problem.exit_code is Exit.USAGE and named:
        # the name of a drop-in is no folder to build, and options serve it all the same
        if problem.code != "not-a-folder" or not summary.replacement.dropins:
            raise problem
        problem = None
    if plan and not named and not plan.targets:
        plan = None  # the current folder is some project without a CUDA extension
    sources = NO_SOURCES
    # a current folder that nobody named and that is no source has no say in what the options are about
    if named or plan or (problem and problem.exit_code is not Exit.USAGE):
        sources = summary
        if wheels.searches:
            sources = replace(sources, prebuilt=wheels.steps)
    options = options_for(context, sources, request.keep)
    if problem and sources.prepare:  # the options begin with what completes the sources
        problem = None if sources.fetch else problem.with_todo()
    elif problem and problem.code not in NOT_HERE:  # what refuses the source itself no option cures
        unproven = (replace(item, proves=()) if item.kind in BUILDING else item for item in options.available)
        options = replace(options, available=tuple(unproven))
    if not named:
        problem = None

    inquiries: list[Inquiry] = []
    if plan and request.ask_setup:
        with one_line(console.err(), "Asking setup.py") as tell:
            for inquiry, refusal in ask_plan(plan, facts, tell):
                inquiries.append(inquiry)
                if refusal and problem is None:
                    problem = refusal.error()

    def text(console: Console) -> None:
        if plan:
            installation.show_plan(console, plan, install_step(plan), why=True)
            console.print()
        installation.show_inquiries(console, inquiries)
        show_options(console, options)

    exit_code: int = Exit.OK
    if problem:
        exit_code = problem.exit_code
    elif plan is None and not options.available:
        exit_code = Exit.UNDETERMINED
    return Planned(
        command="install",
        data=lambda: installation.install_document(
            plan=plan, options=options, inquiries=inquiries, dry_run=True
        ),
        text=text,
        exit_code=exit_code,
        error=problem,
        plan=plan,
        options=options,
    )


def explain_elsewhere(request: InstallRequest, facts_file: Path) -> Planned:
    """``--dry-run --why --facts``: the options of a machine elsewhere; the sources, if any, are here."""
    facts = load(facts_file)
    named, sources = request.install.sources, NO_SOURCES
    if named:
        sources = summarise(named, facts, named=named)
    options = options_for(make_context(facts, Goal(request.install.targets)), sources, request.keep)
    return Planned(
        command="install",
        data=lambda: installation.install_document(options=options, dry_run=True),
        text=lambda console: show_options(console, options),
        exit_code=Exit.OK if options.available else Exit.UNDETERMINED,
        options=options,
    )


def _prepare(request: InstallRequest, *, fetch: bool = False) -> tuple[Request, Facts, Prebuilt]:
    """What to install, with its sources at hand, machine and environment, and what wheels there are for it.

    Args:
        fetch: fill the empty submodules of the sources, and say on standard error what came from where.

    Raises:
        SplatfixError: a source that cannot be fetched, an interpreter that is none, nothing to resume; ``no-git``,
            ``submodules-not-fetched``: the checkout is then as it was.
    """
    interpreter = target_python(request.python)
    for folder in _checkouts(request.sources) if fetch and not request.resume else ():
        message = f"Nothing was changed: {visible(str(folder))} is as it was."
        with on_interrupt(message), one_line(console.err(), "Fetching submodules") as progress:
            fetched = fetch_submodules(folder, tell=progress)
        installation.show_fetched(console.err(), folder, fetched)
    if request.resume:
        asked = request_to_resume(interpreter)
    else:
        offline = request.install.offline
        sources = tuple(
            fetch_source(text, interpreter, save_listed, offline=offline) for text in request.sources
        )
        asked = replace(request.install, sources=absolute(sources) if request.is_named else sources)
    system = None
    # the probes look where torch and nvcc would: the variable is how those are told of a toolkit off the usual paths
    if asked.cuda_home is not None:
        cuda_home = str(Path(asked.cuda_home).expanduser().absolute())
        system = LiveSystem(env={**os.environ, "CUDA_HOME": cuda_home})
    facts = gather(interpreter, system=system)
    return asked, facts, find_prebuilt(asked, facts, request.indexes)


def _checkouts(sources: Sequence[str]) -> list[Path]:
    """The checkouts that the sources are, or are of: what an extension's build lacks may be a submodule above it."""
    folders = filter(None, map(resolved_folder, sources))
    return list(dict.fromkeys(map(checkout_around, folders)))


def _to_fetch(sources: Sequence[str]) -> tuple[Step, ...]:
    """What ``--fetch-submodules`` would fetch, one step each; () where nothing that is needed is empty."""
    steps = []
    for folder in _checkouts(sources):
        steps += [say(f"fetch {item.words}") for item in wanted_submodules(folder)]
    return tuple(steps)


def with_wheels(request: Request, context: Context, wheels: Prebuilt) -> InstallPlan:
    """The plan, with prebuilt wheels in the place of builds, and why others were not taken.

    Raises:
        SplatfixError: as :func:`plan_install`; ``no-wheel`` where only prebuilt ones were asked for.
    """
    # a name that only an index can serve
    by_index = request.backend == "native" and request.indexes and any(map(is_package, request.sources))
    if (request.backend == "wheels" or by_index) and (problem := wheels.problem):
        raise problem
    plan = plan_install(request, context, wheels.steps)
    return replace(plan, considered=(*plan.considered, *wheels.rejected))


def planned(request: Request, facts: Facts, *, named: bool, wheels: Prebuilt = NO_WHEELS) -> InstallPlan:
    """The plan for a request.

    Args:
        named: the user named a source. Else it is the current folder, and only a stack or a CUDA extension there is meant.

    Raises:
        SplatfixError: what is in the way of a plan; ``no-source`` (exit code 2) where nothing can be meant.
    """
    context = make_context(facts, Goal(request.targets))
    if named or request.backend in ("pure", "nvrtc") or has_stack_files(Path.cwd()):
        return with_wheels(request, context, wheels)
    try:
        plan = with_wheels(request, context, wheels)
        if plan.targets:
            return plan
        problem = f"{Path.cwd()} has no CUDA extension and is no splatting stack."
        todo: tuple[Step, ...] = (run("splatfix", "install", ".", text="To install it all the same"),)
    except SplatfixError as error:
        if error.code not in ("not-an-extension", "not-a-checkout"):
            raise
        problem, todo = error.what, error.todo
    # what is installed could be meant
    rebuild = [context.reinstall(name, text=f"To rebuild the installed {name}") for name in context.owners]
    raise usage_error("no-source", f"No SOURCE was named. {problem}", *todo, *rebuild)


def install_step(plan: InstallPlan) -> Step:
    """The command that executes what was planned."""
    request = plan.request
    argv = ("splatfix", "install", *request.sources, *request.options, "--python", plan.python)
    return run(*argv, text=NO_CHANGE)


def next_steps(outcome: InstallOutcome, facts: Facts) -> tuple[Step, ...]:
    """Where kernels were verified on the GPU, training; else their verification, where there is a reference for one of them.
    () where nothing was changed."""
    if all(item.up_to_date for item in outcome.items):
        return ()
    python = outcome.plan.python
    if not any(has_reference(item.subject) for item in outcome.items):
        return (run("splatfix", "diagnose", "--python", python, text="Next: look at the whole environment"),)
    for item in outcome.items:
        for rung in item.proof:
            if rung.name is RungName.COMPUTES and rung.reached:
                return training_steps(facts, "--python", python)
    return (run("splatfix", "certify", "--level", "2", "--python", python, text="Next: check accuracy"),)
