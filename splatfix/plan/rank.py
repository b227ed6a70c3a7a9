"""The ranking: every option of a machine, the least invasive first, and the best plan for a request, which ``install`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.context import NotHere, OtherOption
from splatfix.context.commands import make_environment, python_option, python_to_be, removed_by
from splatfix.core.errors import Exit, Rejected
from splatfix.core.words import verb
from splatfix.knowledge import cubin_runs_on
from splatfix.model import Considered, Distribution, EnvironmentFacts, Finding
from splatfix.model.option import (
    BUILDING,
    NO_SOURCES,
    REPLACING,
    OptionKind,
    Options,
    Plan,
    RejectedOption,
    Replacement,
    SourceSummary,
)
from splatfix.model.steps import WITHOUT_COMPILER
from splatfix.plan.advice import advise
from splatfix.plan.backends.driver import driver
from splatfix.plan.backends.dropins import make_dropins, nvrtc, pure
from splatfix.plan.backends.native import build_sources, native
from splatfix.plan.backends.ready import container, keep, mend_plan, mended_by_name, wheels
from splatfix.plan.backends.torch import other_torch
from splatfix.plan.case import Case, context_to_be, for_targets, names_of_archs, not_applicable
from splatfix.plan.checkout import NoFolder, read_sources
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.parts import NativePart
from splatfix.plan.tools import NoCuda, usable_python

# The backends, the least invasive first; what is kept comes before them, a driver after them.
_BACKENDS: Mapping[OptionKind, Callable[[Case], Plan | Rejected]] = {
    OptionKind.WHEEL: wheels,
    OptionKind.REBUILD: partial(native, kind=OptionKind.REBUILD),
    OptionKind.REBUILD_PTX: partial(native, kind=OptionKind.REBUILD_PTX),
    OptionKind.NVRTC: nvrtc,
    OptionKind.PROVIDE_TOOLKIT: partial(native, kind=OptionKind.PROVIDE_TOOLKIT),
    OptionKind.INSTALL_TOOLKIT: partial(native, kind=OptionKind.INSTALL_TOOLKIT),
    OptionKind.OTHER_TORCH: other_torch,
    OptionKind.CONTAINER: container,
    OptionKind.DROPIN: pure,
}


def rank(case: Case) -> Options:
    """Rank every option of a case, the least invasive first, and say why the others are rejected; the case is all it looks at."""
    notes: tuple[str, ...] = ()
    problem = case.context.no_target
    if problem:
        # no NVIDIA GPU and none named: native code has nothing to be built for, drop-ins need none
        reason = " ".join([problem.what, *(step.text for step in problem.todo)])
        kinds = [kind for kind in OptionKind if kind not in (OptionKind.DROPIN, OptionKind.WHEEL)]
        answers: dict[OptionKind, Plan | Rejected] = dict.fromkeys(kinds, not_applicable(reason))
        # --target auto beside a named GPU, on a machine without one, promises something that is not there
        case = replace(case, context=for_targets(case.context))
        answers[OptionKind.DROPIN] = pure(_in_environment_to_be(case))
    else:
        answers = dict(_answers(case))
        available = {kind for kind, answer in answers.items() if isinstance(answer, Plan)}
        opened = bool(available - {OptionKind.CONTAINER, *REPLACING})
        answers[OptionKind.DRIVER] = driver(case, _first_native, opened=opened)
        notes = tuple(_notes(case, opened=opened))
    plans, rejected = [], []
    for kind, answer in answers.items():
        if isinstance(answer, Plan):
            plans.append(answer)
        else:
            rejected.append(RejectedOption(kind, kind.title(), answer.what))
    return Options(case.context.archs, case.subjects, tuple(plans), tuple(rejected), notes)


def advised_options(findings: Sequence[Finding], case: Case) -> Options:
    """Rank the options, the one first that answers the failures among these findings; what came before it is rejected."""
    options = rank(case)
    advice = advise(findings, options, case)
    available, rejected = list(options.available), list(options.rejected)
    while advice.option and available[0] != advice.option:
        kind = available.pop(0).kind
        rejected.append(RejectedOption(kind, kind.title(), "it leaves what failed as it is"))
    return replace(options, available=tuple(available), rejected=tuple(rejected), advice=advice)


def _answers(case: Case) -> Iterator[tuple[OptionKind, Plan | Rejected]]:
    yield OptionKind.KEEP, keep(case)
    case = _in_environment_to_be(case)
    # what is there can be built again from where it came
    refused = not any(part.installed for part in case.parts) and case.sources.refused
    for kind, backend in _BACKENDS.items():
        # nobody has looked for wheels: only a build or an install that was asked for asks the network
        if kind is OptionKind.WHEEL and case.prebuilt is None:
            continue
        if refused and kind in BUILDING:
            yield kind, not_applicable(refused.what.rstrip("."))
        else:
            yield kind, backend(case)


def _first_native(case: Case) -> Plan | None:
    """Return the first plan that does without drop-ins."""
    plans = (answer for kind, answer in _answers(case) if kind not in REPLACING)
    return next((plan for plan in plans if isinstance(plan, Plan)), None)


def _in_environment_to_be(case: Case) -> Case:
    """Return the case where the Python refuses installations (PEP 668): an environment with nothing in it is made first."""
    facts, python = case.context.facts, case.context.interpreter
    if python is None or not python.externally_managed:
        return case
    venv = replace(python, executable=python_to_be(facts), kind="venv", externally_managed=False)
    context = context_to_be(
        case.context,
        environment=EnvironmentFacts(),
        interpreter=venv,
        distributions=(Distribution("pip", "", ""),),
        torch_installed=False,
        extensions=(),
        packages=(),
    )
    return replace(
        case,
        context=context,
        parts_to_be=tuple(NativePart(part.name, part.variant) for part in case.parts),
        first=(make_environment(python), *case.repairs),
    )


def _notes(case: Case, *, opened: bool) -> Iterator[str]:
    if not opened and len(case.context.targets) > 1:
        yield f"no native option covers {case.names} together: name one at a time with --target"
    if count := len(case.away):
        gpus, they = f"{names_of_archs(case.away)} {verb(count, 'is', 'are')}", verb(count, "it", "they")
        yield f"{gpus} not in this machine: {they} can be built for here but must be verified elsewhere"
    # GPUs of this machine that run none of the code for the targets
    archs = case.context.archs
    lost = [own for own in case.not_asked_for if not any(cubin_runs_on(arch, own) for arch in archs)]
    if lost and any(part.code for part in case.parts):
        own_gpus = names_of_archs(lost)
        yield f"a rebuild has code for the named targets only: to keep this machine's own {own_gpus}, add --target auto"
    kept, named = case.kept, case.sources.named
    if kept and named and len(kept) < len(case.parts):
        sources, names = " ".join(named), ", ".join(kept)
        yield f"{sources} may hold {names} too: name the folders of the others in its place"
    known = {"torch", *(canonicalize_name(name) for name in case.subjects)}
    for name in case.keep:
        if canonicalize_name(name) not in known:
            yield f"--keep {name} does not match anything here"


# For a request


class Ranking(Struct, frozen=True):
    """Every option of a machine, and what ``install`` would execute for a request."""

    options: Options
    best: Plan | Rejected | None = None
    """The plan for the sources, or what stands against it; None where no source is meant, or the options say it all."""


def rank_request(case: Case, *, named: bool) -> Ranking | Rejected:
    """Rank every option for the sources of a request; none ``named``: a CUDA extension in the current folder is meant."""
    answer = best(case, shows_options=True)
    if isinstance(answer, Plan):
        if named or answer.targets:
            return Ranking(rank(case), answer)
        # a current folder that nobody named and that is no source has no say in what the options are about
        return Ranking(rank(replace(case, sources=NO_SOURCES)))
    if answer.exit_code is Exit.USAGE and not named:
        case = replace(case, sources=NO_SOURCES)
    elif answer.exit_code is Exit.USAGE:
        # the name of a drop-in is no folder to build, and options serve it all the same
        if isinstance(answer, NoFolder) and case.sources.replacement.dropins:
            return Ranking(rank(case))
        return answer
    options = rank(case)
    if case.sources.fetch:  # the options begin with what completes the sources
        return Ranking(options)
    if case.sources.prepare:
        answer = replace(answer, todo=())
    elif not isinstance(answer, NotHere):  # what refuses the source itself no option cures
        available = []
        for plan in options.available:
            if plan.kind in BUILDING:
                plan = replace(plan, proves=())
            available.append(plan)
        options = replace(options, available=tuple(available))
    if not named:
        return Ranking(options)
    return Ranking(options, answer)


def best(case: Case, *, shows_options: bool = False) -> Plan | Rejected:
    """Return the plan that ``install`` executes: the best among those that the request's backend and options allow. Where all
    options are shown beside it, no rejection names the command that shows them."""
    request, facts = case.request, case.context.facts
    if case.no_wheel:
        plan: Plan | Rejected = case.no_wheel
    elif mended_by_name(request):
        plan = mend_plan(request, case.context)
    elif request.backend in ("native", "wheels", "auto"):
        plan = _native(case)
    elif request.backend in WITHOUT_COMPILER:
        replacement = choose_dropins(request.sources, case.context.checkout, request)
        if isinstance(replacement, Rejected):
            return replacement
        plan = make_dropins(case, replacement, request.backend)
        if isinstance(plan, Rejected) and request.backend != "pure":
            plan = _with_next_best(plan, case, replacement)
    else:
        choices = ("native", "wheels", *WITHOUT_COMPILER, "auto")
        plan = Rejected.of("plan.unknown-backend", backend=request.backend, choices=choices)
    if isinstance(plan, OtherOption) and not shows_options:
        argv = ("--dry-run", "--why", *python_option(facts))
        return replace(plan, todo=(*plan.todo, request.install(*argv, text="See all options")))
    if isinstance(plan, Rejected):
        return plan
    notes = list(plan.notes)
    if command := removed_by(facts):
        note = (
            f"`{command}` removes again what is not in the project's lock file: install it again after that"
        )
        if command == "uv sync":  # Poetry builds in isolation whatever it is told
            note += ", or name it in pyproject.toml's `no-build-isolation-package`, beside torch's index"
        notes.append(f"{note} (docs/commands/install.md has the lines)")
    python = case.context.interpreter
    assert python is not None, "it is usable"
    return replace(
        plan,
        considered=(*plan.considered, *case.not_prebuilt),
        notes=tuple(notes),
        python=python.executable,
        prefix=python.prefix,
        request=request,
    )


def _native(case: Case) -> Plan | Rejected:
    """Return the plan by the compiler, or wheels. Where this machine rules that out, ``auto`` goes on: what serves is there
    already, else the drop-ins by NVRTC, else pure; and where torch is none for CUDA, a rejection names these."""
    request, auto = case.request, case.request.backend == "auto"
    # whoever shows the options has read the sources; what was rejected is asked again, for this request's commands
    read: SourceSummary | Rejected = case.sources
    if not case.sources.built_from:
        # a name that has a wheel is no folder to read
        folders = tuple(text for text in request.sources if text not in (case.prebuilt or {}))
        read = read_sources(folders, case.context.facts, request=replace(request, sources=folders))
    if isinstance(read, SourceSummary):
        case = replace(case, sources=read)
        answer = build_sources(case)
        goes_on = isinstance(answer, NoCuda) or (auto and isinstance(answer, NotHere))
    else:
        answer, goes_on = read, auto and isinstance(read, NoFolder)
    if isinstance(answer, Plan) or not goes_on:
        return answer
    considered = Considered("native build", answer.what)
    if auto and not isinstance(answer, NoFolder) and (kept := _kept(case)):
        return replace(kept, considered=(considered,))
    replacement = choose_dropins(request.sources, case.context.checkout)
    # where a part must be built natively, nothing else serves
    if isinstance(replacement, Rejected) or replacement.native:
        return answer
    if not auto:
        return _with_next_best(answer, case, replacement)
    plan, passed_over = _best_dropins(case, replacement)
    if plan is None and isinstance(answer, NoFolder):
        return make_dropins(case, replacement, "pure")  # which says what its host or Python lacks
    if plan is None:
        return answer
    note = f"{WITHOUT_COMPILER[plan.backend]}, because a native build is not possible here: {answer.what}"
    return replace(plan, considered=(considered, *passed_over), notes=(note, *plan.notes))


def _best_dropins(case: Case, replacement: Replacement) -> tuple[Plan | None, tuple[Considered, ...]]:
    """Return the first possible plan by another backend without a compiler than was asked for, and what was passed over."""
    passed_over: list[Considered] = []
    for backend, title in WITHOUT_COMPILER.items():
        if backend == case.request.backend:
            continue
        plan = make_dropins(case, replacement, backend)
        if isinstance(plan, Plan):
            return plan, tuple(passed_over)
        passed_over.append(Considered(title, plan.what))
    return None, tuple(passed_over)


def _with_next_best(rejected: Rejected, case: Case, replacement: Replacement) -> Rejected:
    """Add the command for the first backend without a compiler that is possible here."""
    plan, _ = _best_dropins(case, replacement)
    if plan is None:
        return rejected
    request, python = replace(case.request, backend=plan.backend), python_option(case.context.facts)
    again = request.command(*request.sources, more=python, text="Next best here")
    return replace(rejected, todo=(*rejected.todo, again))


def _kept(case: Case) -> Plan | None:
    """Return the plan to do nothing, where what is installed of the sources is known to have native code for every target."""
    if case.context.no_target or not any(part.code for part in case.parts):
        return None
    plan = keep(case)
    if isinstance(usable_python(case.context.facts), Rejected) or isinstance(plan, Rejected) or plan.unsure:
        return None
    # nothing is executed, so nothing is proven by it
    return replace(plan, steps=(), proves=(), cannot_prove=())
