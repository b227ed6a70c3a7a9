"""``splatfix install``: plan, explain, and execute an installation that can be undone."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from splatfix.app.interrupts import environment_state, on_interrupt
from splatfix.app.measure import measured
from splatfix.app.prebuilt import NO_WHEELS, Prebuilt, find_prebuilt, is_package
from splatfix.app.result import Result, target_python
from splatfix.app.revert import revert_step
from splatfix.checks.checkout.code_shapes import source_patterns
from splatfix.context import Goal, make_context
from splatfix.context.commands import training_steps
from splatfix.core.errors import Exit, Rejected, SplatfixError, require
from splatfix.core.proof import RungName
from splatfix.core.reading import resolved_folder
from splatfix.core.step import Step, run, say
from splatfix.core.visible import visible
from splatfix.facts import System, gather, load
from splatfix.facts.checkout import checkout_around, with_checkout
from splatfix.install import InstallOutcome, WheelCache, execute, fetch_source, request_to_resume, revert
from splatfix.install.ask import ask_plan
from splatfix.install.repair import plan_repair
from splatfix.install.submodules import fetch_submodules, wanted_submodules
from splatfix.knowledge.dropins import has_reference
from splatfix.model import Facts
from splatfix.model.inquiry import Inquiry
from splatfix.model.steps import WITHOUT_COMPILER, BuildWheel
from splatfix.plan import NO_SOURCES, Case, Plan, Ranking, has_stack_files, summarise
from splatfix.plan import Request as Request  # built by the command line
from splatfix.plan.checkout import NoExtension, absolute, many_things
from splatfix.plan.rank import best, rank, rank_request
from splatfix.report import console, installation
from splatfix.report.installation import InstallDocument
from splatfix.report.progress import install_progress, one_line
from splatfix.wheels.web import Web, WebError, without_login

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
    """Those of ``install`` as they were typed, with the logins that no plan and no text holds."""

    @property
    def is_named(self) -> bool:
        """The user named a source. Else it is the current folder, and only a stack or a CUDA extension there is meant."""
        return self.resume or bool(self.install.sources)

    @property
    def sources(self) -> tuple[str, ...]:
        """What was named, else the current folder."""
        return self.install.sources or (".",)


def install(request: InstallRequest, confirm: Callable[[str], None]) -> Result[InstallDocument]:
    """Build, install, verify the kernels on the GPU where there is one, and undo it all if they compute wrongly.

    Args:
        confirm: asks the user, and raises to stop.

    Raises:
        SplatfixError: no plan, or a step that failed; the environment is then as it was before.
    """
    case, wheels = _prepare(request, fetch=request.fetch_submodules)
    plan = require(planned(case, named=request.is_named))
    if not plan.steps:  # what is installed serves already, and says why
        return Result("install", InstallDocument(plan=plan))
    require_downloads(plan)
    return carried_out(plan, case.context.facts, request, confirm, wheels)


def require_downloads(plan: Plan) -> None:
    """Ask for what builds fetch by themselves, before anything is built or installed.

    Raises:
        SplatfixError: ``download-unreachable``.
    """
    for step in plan.executed:
        if not isinstance(step, BuildWheel):
            continue
        for address, package in step.downloads.items():
            try:
                Web([address]).reach(without_login(address))
            except WebError as error:
                todo = [say("Build where the address can be reached.")]
                if package:
                    spare = "On Debian and Ubuntu this spares the download"
                    todo.insert(0, run("sudo", "apt-get", "install", package, text=spare))
                raise SplatfixError.of(
                    "app.download-unreachable",
                    subject=step.subject,
                    address=address,
                    reason=error,
                    todo=tuple(todo),
                ) from error


def carried_out(
    plan: Plan,
    facts: Facts,
    request: InstallRequest,
    confirm: Callable[[str], None],
    wheels: Prebuilt = NO_WHEELS,
) -> Result[InstallDocument]:
    """Show a plan, ask, execute it, and verify the kernels on the GPU where there is one."""
    if not request.as_json:
        installation.show_plan(console.out(), plan, why=request.why, verbose=request.verbose)
        confirm("Go ahead?")
    with (
        on_interrupt(environment_state(Path(plan.prefix), plan.python)),
        install_progress(console.err(), verbose=request.verbose) as progress,
    ):
        done = execute(
            plan,
            facts,
            progress=progress,
            cache=WheelCache() if request.use_cache else None,
            reinstall=request.reinstall,
            fetchers=wheels.fetchers,
        )
        outcome = measured(done, facts, revert)
    document = InstallDocument(outcome=outcome, next_steps=next_steps(outcome, facts))
    return Result("install", document)


def plan(request: InstallRequest) -> Result[InstallDocument]:
    """Plan and change nothing (``--dry-run``). Submodules to be fetched are named, not fetched, beside every option."""
    if request.why or _to_fetch(request):
        return explain(request)
    plan = require(planned(_prepare(request)[0], named=request.is_named))
    steps = (install_step(plan),) if plan.steps else ()
    return Result("install", InstallDocument(plan=plan, dry_run=True, next_steps=steps))


def repair(
    name: str, request: InstallRequest, confirm: Callable[[str], None], *, dry_run: bool
) -> Result[InstallDocument]:
    """Install the same version of one package again, whatever its files are now (``--repair``).

    Raises:
        SplatfixError: as :func:`plan_repair`, or a step that failed; the environment is then as it was before.
    """
    interpreter = target_python(request.python)
    facts = gather(interpreter)
    plan = plan_repair(name, facts)
    if dry_run:
        again = run("splatfix", "install", "--repair", name, "--python", interpreter, text=NO_CHANGE)
        return Result("install", InstallDocument(plan=plan, dry_run=True, next_steps=(again,)))
    return carried_out(plan, facts, request, confirm)


def explain(request: InstallRequest) -> Result[InstallDocument]:
    """Explain the plan for these sources, and every option of this machine (``--dry-run --why``).

    The exit code is that of the plan: 1 where named sources cannot be built as they are, although there are options.

    Raises:
        SplatfixError: the sources are wrongly named (exit code 2).
    """
    named = request.install.sources
    # one folder is read as ``diagnose --repo`` reads it, so that both judge it alike
    checkout = resolved_folder(named[0]) if len(named) == 1 else None
    if checkout is not None and many_things(checkout):
        checkout = None
    case, wheels = _prepare(request, checkout=checkout)
    sources = case.request.sources
    folders = tuple(text for text in sources if text not in wheels.steps)
    summary = summarise(folders, case.context, named=sources, fetch=_to_fetch(request))
    case = replace(case, sources=summary, keep=request.keep)
    ranking = require(rank_request(case, named=bool(named)))
    return _ranked(ranking, case.context.facts if request.ask_setup else None)


def explain_elsewhere(request: InstallRequest, facts_file: Path) -> Result[InstallDocument]:
    """Explain the options of a machine elsewhere (``--facts``); the sources, if any, are here."""
    context = make_context(load(facts_file), Goal(request.install.targets))
    named, sources = request.install.sources, NO_SOURCES
    if named:
        sources = summarise(named, context, named=named)
    return _ranked(Ranking(rank(Case(context=context, sources=sources, keep=request.keep))))


def _ranked(ranking: Ranking, facts: Facts | None = None) -> Result[InstallDocument]:
    """Show a ranking.

    Args:
        facts: with them the setup.py of each build of its best plan is asked.
    """
    options, best = ranking.options, ranking.best
    plan, problem, exit_code = None, None, Exit.OK
    steps: tuple[Step, ...] = ()
    if isinstance(best, Plan):
        plan, steps = best, (install_step(best),)
    elif best:
        problem, exit_code = best.error(), best.exit_code
    elif not options.available:
        exit_code = Exit.UNDETERMINED

    inquiries: list[Inquiry] = []
    if plan and facts:
        with one_line(console.err(), "Asking setup.py") as tell:
            for inquiry, refusal in ask_plan(plan, facts, tell):
                inquiries.append(inquiry)
                if refusal and problem is None:
                    problem, exit_code = refusal.error(), refusal.exit_code

    document = InstallDocument(
        dry_run=True, plan=plan, options=options, inquiries=tuple(inquiries), next_steps=steps
    )
    return Result("install", document, exit_code, problem)


def _prepare(
    request: InstallRequest, *, fetch: bool = False, checkout: Path | None = None
) -> tuple[Case, Prebuilt]:
    """Find out what to install where, with its sources at hand, and what wheels there are for it.

    Args:
        fetch: fill the empty submodules of the sources, and say on standard error what came from where.
        checkout: what is also read as ``diagnose --repo`` reads it.

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
        to_install = request_to_resume(interpreter)
    else:
        offline = request.install.offline
        sources = tuple(fetch_source(text, interpreter, offline=offline) for text in request.sources)
        to_install = replace(
            request.install,
            sources=absolute(sources) if request.is_named else sources,
            indexes=tuple(map(without_login, request.indexes)),
        )
    system = None
    # the probes look where torch and nvcc would: the variable is how those are told of a toolkit off the usual paths
    if to_install.cuda_home is not None:
        cuda_home = str(Path(to_install.cuda_home).expanduser().absolute())
        system = System(env={**os.environ, "CUDA_HOME": cuda_home})
    facts = gather(interpreter, system=system)
    if checkout is not None:
        facts = with_checkout(facts, checkout, source_patterns(), started=True)
    context = make_context(facts, Goal(to_install.targets))
    wheels = find_prebuilt(to_install, context, request.indexes)
    # a name that only an index can serve
    by_index = (
        to_install.backend == "native" and to_install.indexes and any(map(is_package, to_install.sources))
    )
    case = Case(
        context=context,
        request=to_install,
        prebuilt=wheels.steps if wheels.looked_for else None,
        not_prebuilt=wheels.rejected,
        no_wheel=wheels.problem if to_install.backend == "wheels" or by_index else None,
    )
    return case, wheels


def _checkouts(sources: Sequence[str]) -> list[Path]:
    """List the checkouts that the sources are, or are of: what an extension's build lacks may be a submodule above it."""
    folders = filter(None, map(resolved_folder, sources))
    return list(dict.fromkeys(map(checkout_around, folders)))


def _to_fetch(request: InstallRequest) -> tuple[Step, ...]:
    """List what ``--fetch-submodules`` would fetch, one step each; () where nothing that is needed is empty."""
    steps = []
    for folder in _checkouts(request.sources) if request.fetch_submodules else ():
        steps += [say(f"fetch {item.words}") for item in wanted_submodules(folder)]
    return tuple(steps)


def planned(case: Case, *, named: bool) -> Plan | Rejected:
    """Return the plan for the request of a case.

    Args:
        named: the user named a source. Else it is the current folder, and only a stack or a CUDA extension there is meant.
    """
    plan = best(case)
    here = Path.cwd()
    if named or case.request.backend in WITHOUT_COMPILER or has_stack_files(here):
        return plan
    if isinstance(plan, Plan) and plan.targets:
        return plan
    problem = f"{here} has no CUDA extension and is no splatting stack."
    todo: tuple[Step, ...] = (run("splatfix", "install", ".", text="To install it all the same"),)
    if isinstance(plan, Rejected):
        if not isinstance(plan, NoExtension):
            return plan
        problem, todo = plan.what, plan.todo
    # what is installed could be meant
    context = case.context
    rebuild = [context.reinstall(name, text=f"To rebuild the installed {name}") for name in context.owners]
    return Rejected.of("app.no-source", problem=problem, todo=(*todo, *rebuild))


def install_step(plan: Plan) -> Step:
    """Return the command that executes what was planned."""
    assert plan.request is not None, "it is executed"
    return plan.request.command(*plan.request.sources, more=("--python", plan.python), text=NO_CHANGE)


def next_steps(outcome: InstallOutcome, facts: Facts) -> tuple[Step, ...]:
    """Return what to run next, and what undoes it: training where kernels were verified on the GPU, else their verification,
    where there is a reference for one of them; () where nothing was changed."""
    named = ("--python", outcome.plan.python)
    undo = revert_step(outcome.entry, outcome.plan.python, "Undo with")
    if not outcome.items:  # what is installed was edited
        return (undo,)
    if all(item.up_to_date for item in outcome.items):
        return ()
    if not any(has_reference(item.subject) for item in outcome.items):
        return run("splatfix", "diagnose", *named, text="Next: look at the whole environment"), undo
    rungs = [rung for item in outcome.items for rung in item.proof]
    if any(rung.name is RungName.COMPUTES and rung.reached for rung in rungs):
        return *training_steps(facts, *named), undo
    return run("splatfix", "certify", "--level", "2", *named, text="Next: check accuracy"), undo
