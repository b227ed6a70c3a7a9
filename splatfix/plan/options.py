"""Every option for a machine, ranked, and the one that ``install`` executes: each backend is tried on the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context import Context, make_context
from splatfix.context.commands import make_environment, python_option, python_to_be, removed_by
from splatfix.core.errors import Rejected, SplatfixError, require, usage_error
from splatfix.core.step import PlainStep, Step, run, say, target_options
from splatfix.knowledge import cubin_runs_on
from splatfix.model import Considered, Distribution, EnvironmentFacts, Fact, Facts, Finding, Source
from splatfix.model.option import (
    BUILDING,
    NO_SOURCES,
    REPLACING,
    InstallPlan,
    LaneSummary,
    Native,
    NotApplicable,
    Option,
    OptionKind,
    Options,
    Replacement,
    Request,
    SourceSummary,
    rejected,
)
from splatfix.model.steps import WITHOUT_COMPILER, FetchWheel
from splatfix.plan.advice import advise
from splatfix.plan.assessment import Assessment, assess, names_of_archs
from splatfix.plan.backends.container import container
from splatfix.plan.backends.driver import driver
from splatfix.plan.backends.keep import keep
from splatfix.plan.backends.native import native, native_plan
from splatfix.plan.backends.pure import dropin_plan, dropins, dropins_on_gpu
from splatfix.plan.backends.torch import other_torch
from splatfix.plan.backends.wheels import wheels
from splatfix.plan.checkout import (
    Incomplete,
    expected_extensions,
    read_sources,
    variants_of_source,
)
from splatfix.plan.dependencies import missing_submodules
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.installed import mend_plan, mended_by_name
from splatfix.plan.parts import NativePart
from splatfix.plan.requirements import usable_python
from splatfix.plan.wheel_build import require_gpu

_AS_IT_WOULD_BE = "as it would be"

# The maker of each option of a machine, the least invasive first; what is kept comes before them, a driver after them.
_OPTIONS: Mapping[OptionKind, Callable[[Assessment], Option]] = {
    OptionKind.WHEEL: wheels,
    OptionKind.REBUILD: partial(native, kind=OptionKind.REBUILD),
    OptionKind.REBUILD_PTX: partial(native, kind=OptionKind.REBUILD_PTX),
    OptionKind.NVRTC: dropins_on_gpu,
    OptionKind.PROVIDE_TOOLKIT: partial(native, kind=OptionKind.PROVIDE_TOOLKIT),
    OptionKind.INSTALL_TOOLKIT: partial(native, kind=OptionKind.INSTALL_TOOLKIT),
    OptionKind.OTHER_TORCH: other_torch,
}
# What rules out a native build on this machine, whatever was asked for.
NOT_HERE = frozenset(
    {
        "cpu-only-torch",
        "no-gpu-to-target",
        "no-matching-toolkit",
        "no-host-compiler",
        "arch-unknown-to-torch",
        "no-python-headers",
    }
)


def summarise(
    sources: Sequence[str],
    facts: Facts | None = None,
    *,
    named: tuple[str, ...] = (),
    fetch: tuple[Step, ...] = (),
) -> SourceSummary:
    """What sources tell of themselves: their extensions by name, and what stands in for them.

    Args:
        facts: of the machine, with the checkout as it was read already, if one of the sources is one.
        named: what commands name as SOURCE.
        fetch: what ``--fetch-submodules`` fetches first, one step each.
    """
    checkout = None
    if facts:
        checkout = facts.checkout.value
    replacement = choose_dropins(sources, checkout)
    if isinstance(replacement, Rejected):
        replacement = Replacement(native=(Native("", replacement.error().what.rstrip(".")),))
    summary = SourceSummary(named=named, replacement=replacement)
    read = read_sources(sources, facts)
    obstacle: Rejected | None = None
    if isinstance(read, Rejected):
        obstacle = read
    elif facts:
        obstacle = missing_submodules(facts, read.sources)
    if isinstance(obstacle, Incomplete):
        # what completes the sources: the commands of git, the first with what is lacking; else what is lacking alone
        by_git = obstacle.fetch
        to_complete = [say(obstacle.what)]
        if by_git:
            to_complete = [PlainStep(obstacle.what, by_git[0].command), *by_git[1:]]
        variants = expected_extensions(sources, checkout)
        return replace(summary, variants=variants, prepare=fetch or tuple(to_complete), fetch=bool(fetch))
    if isinstance(read, Rejected):
        return replace(summary, named=(), refused=read.error())
    try:
        if facts:
            for source in read.sources:
                require_gpu(source, facts)
    except SplatfixError as error:
        return replace(summary, named=(), refused=error)
    return _with_sources(summary, read.sources)


def _with_sources(summary: SourceSummary, sources: Sequence[Source]) -> SourceSummary:
    variants = {source.label: variants_of_source(source.folder) for source in sources}
    return replace(summary, variants=variants, built_from={source.label: source for source in sources})


# The options of a machine


def find_options(
    context: Context,
    lanes: Sequence[LaneSummary] = (),
    sources: SourceSummary = NO_SOURCES,
    keep: tuple[str, ...] = (),
) -> Options:
    """Every option of a context, the least invasive first, and the rejected ones with the reason.

    Changes nothing and looks at nothing but the context: recorded facts give the same answer anywhere.

    Args:
        keep: what must not be touched: ``torch``, or extensions by name.
    """
    assessment = assess(context, sources, keep)
    if context.no_target:
        problem = context.no_target
        # no NVIDIA GPU and none named: native code has nothing to be built for, drop-ins need none
        reason = " ".join([problem.what, *(step.text for step in problem.todo)])
        pure = _tried(OptionKind.DROPIN, dropins, _in_environment_to_be(assessment))
        kinds = [kind for kind in OptionKind if kind not in (OptionKind.DROPIN, OptionKind.WHEEL)]
        others = [rejected(kind, reason) for kind in kinds]
        if pure.rejected_because:
            return Options((), (), (), (*others, pure))
        return Options((), (), (pure,), tuple(others))
    options = list(_every_option(assessment, lanes))
    without_native_code = (OptionKind.CONTAINER, *REPLACING)
    opened = any(not option.rejected_because and option.kind not in without_native_code for option in options)

    def first_with(facts: Facts) -> Option | None:
        other = make_context(facts, context.goal)
        if other.no_target:
            return None
        for option in _every_option(assess(other, sources, keep), lanes):
            if not option.rejected_because and option.kind not in REPLACING:
                return option
        return None

    upgrade = partial(driver, first_with=first_with, opened=opened)
    options.append(_tried(OptionKind.DRIVER, upgrade, assessment))
    return Options(
        assessment.context.archs,
        assessment.subjects,
        tuple(option for option in options if not option.rejected_because),
        tuple(option for option in options if option.rejected_because),
        _notes(assessment, opened=opened),
    )


def advised_options(
    findings: Sequence[Finding],
    context: Context,
    lanes: Sequence[LaneSummary] = (),
    sources: SourceSummary = NO_SOURCES,
) -> Options:
    """As :func:`find_options`, with the advice that answers the failures among these findings.

    The advised option is the first: what would come before it is rejected, as it leaves the failures as they are.
    """
    options = find_options(context, lanes, sources)
    advice = advise(findings, options, assess(context, sources))
    first = 0
    if advice.option:
        first = options.available.index(advice.option)
    less = [rejected(item.kind, "it leaves what failed as it is") for item in options.available[:first]]
    return replace(
        options,
        available=options.available[first:],
        rejected=(*options.rejected, *less),
        advice=advice,
    )


def _tried(kind: OptionKind, make: Callable[[Assessment], Option], assessment: Assessment) -> Option:
    """The option of a backend, or its rejection."""
    try:
        return make(assessment)
    except NotApplicable as rejection:
        return rejected(kind, str(rejection))


def _every_option(assessment: Assessment, lanes: Sequence[LaneSummary]) -> Iterator[Option]:
    yield _tried(OptionKind.KEEP, keep, assessment)
    assessment = _in_environment_to_be(assessment)
    refused = assessment.sources.refused
    nothing_to_build = refused and not any(part.installed for part in assessment.parts)
    for kind, make in _OPTIONS.items():
        # nobody has looked for wheels: only a build or an install that was asked for asks the network
        if kind is OptionKind.WHEEL and assessment.sources.prebuilt is None:
            continue
        if refused and nothing_to_build and kind in BUILDING:
            yield rejected(kind, refused.what.rstrip("."))
        else:
            yield _tried(kind, make, assessment)
    yield _tried(OptionKind.CONTAINER, partial(container, lanes=lanes), assessment)
    yield _tried(OptionKind.DROPIN, dropins, assessment)


def _in_environment_to_be(assessment: Assessment) -> Assessment:
    """Where the Python refuses installations (PEP 668): an environment that is made first, with nothing in it but pip."""
    facts = assessment.context.facts
    python = facts.environment.interpreter.value
    if python is None or not python.externally_managed:
        return assessment
    venv = replace(python, executable=python_to_be(facts), kind="venv", externally_managed=False)
    environment = EnvironmentFacts(
        interpreter=Fact(venv, _AS_IT_WOULD_BE),
        distributions=Fact((Distribution("pip", "", ""),), _AS_IT_WOULD_BE),
        torch_installed=Fact(False, _AS_IT_WOULD_BE),
        extensions=Fact((), _AS_IT_WOULD_BE),
        packages=Fact((), _AS_IT_WOULD_BE),
    )
    return replace(
        assessment,
        context=make_context(replace(facts, environment=environment), assessment.context.goal),
        parts=tuple(NativePart(part.name, part.variant) for part in assessment.parts),
        repairs=(make_environment(python), *assessment.repairs),
    )


def _notes(assessment: Assessment, *, opened: bool) -> tuple[str, ...]:
    notes = []
    if not opened and len(assessment.context.targets) > 1:
        notes.append(f"no native option covers {assessment.names} together: name one at a time with --target")
    if assessment.away:
        names = names_of_archs(assessment.away)
        they = "are not in this machine: they"
        if len(assessment.away) == 1:
            they = "is not in this machine: it"
        notes.append(f"{names} {they} can be built for here but must be verified elsewhere")
    # GPUs of this machine that run none of the code for the targets
    lost = []
    for own in assessment.not_asked_for:
        if not any(cubin_runs_on(arch, own) for arch in assessment.context.archs):
            lost.append(own)
    if lost and any(part.code for part in assessment.parts):
        own_gpus = names_of_archs(lost)
        notes.append(
            f"a rebuild has code for the named targets only: to keep this machine's own {own_gpus}, add --target auto"
        )
    kept, named = assessment.kept, assessment.sources.named
    if kept and named and len(kept) < len(assessment.parts):
        sources, names = " ".join(named), ", ".join(kept)
        notes.append(f"{sources} may hold {names} too: name the folders of the others in its place")
    known = {"torch", *(canonicalize_name(name) for name in assessment.subjects)}
    for name in assessment.keep:
        if canonicalize_name(name) not in known:
            notes.append(f"--keep {name} does not match anything here")
    return tuple(notes)


# The option that install executes


def plan_install(
    request: Request, context: Context, prebuilt: Mapping[str, FetchWheel] | None = None
) -> InstallPlan:
    """What to do to the environment of a context to get what ``request`` asks for. Changes nothing.

    Args:
        context: its goal has the targets of the request.
        prebuilt: by the label of a source, the wheel that was found for it.

    Raises:
        SplatfixError: what is wrong with the request, the sources, the environment or the machine.
    """
    try:
        if mended_by_name(request):
            plan = require(mend_plan(request, context))
        elif request.backend == "auto":
            plan = _first_possible(request, context, prebuilt)
        elif request.backend in ("native", "wheels"):
            plan = _native(request, context, prebuilt)
        elif request.backend in WITHOUT_COMPILER:
            plan = _with_dropins(request, context)
        else:
            choices = ", ".join(["native", "wheels", *WITHOUT_COMPILER, "auto"])
            problem = f"{request.backend!r} is not a backend."
            raise usage_error("unknown-backend", problem, say(f"Choose {choices}."))
    except SplatfixError as error:
        raise error.with_todo(*(_for_targets(step, request) for step in error.todo)) from error
    notes = plan.notes
    if command := removed_by(context.facts):
        note = (
            f"`{command}` removes again what is not in the project's lock file: install it again after that"
        )
        if command == "uv sync":  # Poetry builds in isolation whatever it is told
            note += ", or name it in pyproject.toml's `no-build-isolation-package`, beside torch's index"
        notes += (f"{note} (docs/commands/install.md has the lines)",)
    return replace(plan, request=request, notes=notes)


def _first_possible(
    request: Request, context: Context, prebuilt: Mapping[str, FetchWheel] | None
) -> InstallPlan:
    """Native where this machine can build it; what serves is there already; else the drop-ins: by NVRTC, pure."""
    try:
        return native_plan(request, context, prebuilt)
    except SplatfixError as error:
        by_name = error.code == "not-a-folder"
        if error.code not in NOT_HERE and not by_name:
            raise
        obstacle = error
    considered = Considered("native build", obstacle.what)
    kept = None
    if not by_name:
        kept = _kept(request, context)
    if kept:
        return replace(kept, considered=(considered,))
    replacement = choose_dropins(request.sources, context.checkout)
    if isinstance(replacement, Rejected):
        raise obstacle
    # where a part must be built natively, nothing else serves
    if replacement.native:
        raise obstacle
    plan, passed_over = _best_dropins(request, context, replacement)
    if plan is None and by_name:
        return dropin_plan(
            request, context, replacement, on_gpu=False
        )  # which says what its host or Python lacks
    if plan is None:
        raise obstacle
    note = f"{WITHOUT_COMPILER[plan.backend]}, because a native build is not possible here: {obstacle.what}"
    return replace(plan, considered=(considered, *passed_over), notes=(note, *plan.notes))


def _best_dropins(
    request: Request, context: Context, replacement: Replacement, *, besides: str = ""
) -> tuple[InstallPlan | None, tuple[Considered, ...]]:
    """The first plan without a compiler that is possible here, and what was passed over.

    Args:
        besides: a backend that is not tried.
    """
    passed_over: list[Considered] = []
    for backend, text in WITHOUT_COMPILER.items():
        if backend == besides:
            continue
        try:
            return dropin_plan(request, context, replacement, on_gpu=backend == "nvrtc"), tuple(passed_over)
        except SplatfixError as error:
            passed_over.append(Considered(text, error.what))
    return None, tuple(passed_over)


def _native(request: Request, context: Context, prebuilt: Mapping[str, FetchWheel] | None) -> InstallPlan:
    """By the compiler, or wheels; where torch is none for CUDA, the refusal names the drop-ins."""
    try:
        return native_plan(request, context, prebuilt)
    except SplatfixError as error:
        if error.code != "cpu-only-torch":
            raise
        replacement = choose_dropins(request.sources, context.checkout)
        if isinstance(replacement, Rejected) or replacement.native:
            raise
        raise _with_next_best(error, request, context, replacement) from None


def _with_next_best(
    error: SplatfixError, request: Request, context: Context, replacement: Replacement
) -> SplatfixError:
    """The error with the command for the first backend without a compiler that is possible here."""
    plan, _ = _best_dropins(request, context, replacement, besides=request.backend)
    if plan is None:
        return error
    options = (*replace(request, backend=plan.backend).options, *python_option(context.facts))
    again = run("splatfix", "install", *request.sources, *options, text="Next best here")
    return error.with_todo(*error.todo, again)


def _with_dropins(request: Request, context: Context) -> InstallPlan:
    """By the backend that was named; its refusal names the best of the others."""
    replacement = require(choose_dropins(request.sources, context.checkout, request.backend))
    on_gpu = request.backend == "nvrtc"
    try:
        return dropin_plan(request, context, replacement, on_gpu=on_gpu)
    except SplatfixError as error:
        names_backend = any(step.command and "--backend" in step.command.argv for step in error.todo)
        if not on_gpu or names_backend:
            raise
        raise _with_next_best(error, request, context, replacement) from error


def _for_targets(step: Step, request: Request) -> Step:
    """A command of ``splatfix install`` that names no target, or leaves it to the reader, is for those that were asked for."""
    command = step.command
    if command is None or command.argv[:2] != ("splatfix", "install") or not request.targets:
        return step
    argv = command.argv
    if command.blanks == ("ARCH",):
        argv = tuple(word for word in argv if word not in ("--target", "ARCH"))
    elif "--target" in argv:
        return step
    argv += target_options(request.targets)
    return PlainStep(step.text, replace(command, argv=argv, blanks=()))


def _kept(request: Request, context: Context) -> InstallPlan | None:
    """Nothing to do, where what is installed of the sources is known to have native code for every target."""
    if context.no_target:
        return None
    read = require(read_sources(request.sources, context.facts))
    assessment = assess(context, _with_sources(NO_SOURCES, read.sources))
    if not any(part.code for part in assessment.parts):
        return None
    try:
        python = require(usable_python(context.facts))
        option = keep(assessment)
    except (NotApplicable, SplatfixError):
        return None
    if option.unsure:
        return None
    return InstallPlan(
        option.kind,
        option.title,
        steps=(),
        reasons=option.reasons,
        targets=option.targets,
        python=python.executable,
        prefix=python.prefix,
    )
