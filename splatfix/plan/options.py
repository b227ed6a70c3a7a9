"""Every option for a machine: each backend is tried on the facts; what is available is ranked, the rest keeps its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from packaging.utils import canonicalize_name

from splatfix.checks import Finding
from splatfix.context import Context, make_context
from splatfix.context.commands import make_environment, python_to_be
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, say
from splatfix.facts import Distribution, EnvironmentFacts, Fact, Facts
from splatfix.knowledge import cubin_runs_on
from splatfix.plan.advice import advise
from splatfix.plan.assessment import Assessment, assess, names_of_archs
from splatfix.plan.backends.container import container
from splatfix.plan.backends.driver import driver
from splatfix.plan.backends.keep import keep
from splatfix.plan.backends.native import install_toolkit, rebuild, rebuild_with_ptx
from splatfix.plan.backends.nvrtc import use_nvrtc
from splatfix.plan.backends.pure import use_dropins
from splatfix.plan.backends.torch import other_torch
from splatfix.plan.backends.warp import use_warp
from splatfix.plan.backends.wheels import provide_toolkit
from splatfix.plan.checkout import expected_extensions, sources_in
from splatfix.plan.dropins import choose_dropins
from splatfix.plan.option import (
    BUILDING,
    NO_SOURCES,
    REPLACING,
    Lane,
    NotApplicable,
    Option,
    OptionKind,
    Options,
    SourceSummary,
    rejected,
)
from splatfix.plan.parts import NativePart, variants_of_source

_AS_IT_WOULD_BE = "as it would be"


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
    checkout = facts.checkout.value if facts else None
    summary = SourceSummary(named=named)
    try:
        replacement = choose_dropins(sources, checkout)
    except SplatfixError as error:
        summary = replace(summary, no_dropins={"": error.what.rstrip(".")})
    else:
        summary = replace(
            summary,
            dropins=tuple(dropin.name for dropin in replacement.dropins),
            no_dropins={item.module: item.reason for item in replacement.native},
        )
    try:
        read, _ = sources_in(sources, facts)
    except SplatfixError as error:
        if error.code != "source-incomplete":
            return replace(summary, named=(), refused=error)
        variants = expected_extensions(sources, checkout)
        return replace(summary, variants=variants, prepare=fetch or _to_complete(error), fetch=bool(fetch))
    variants = {source.label: variants_of_source(source.folder) for source in read}
    return replace(summary, variants=variants, built_from={source.label: source for source in read})


def _to_complete(gap: SplatfixError) -> tuple[Step, ...]:
    """What completes the sources: the commands of git, the first with what is lacking; else what is lacking alone."""
    by_git = [step for step in gap.todo if step.command and step.command.argv[0] == "git"]
    if not by_git:
        return (say(gap.what),)
    return (replace(by_git[0], text=gap.what), *by_git[1:])


def find_options(
    context: Context,
    lanes: Sequence[Lane] = (),
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
        return _without_target(assessment, " ".join([problem.what, *(step.text for step in problem.todo)]))
    options = list(_every_option(assessment, lanes))
    opened = any(_gives_native_code(option) for option in options)

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
        assessment.archs,
        assessment.subjects,
        tuple(option for option in options if not option.rejected_because),
        tuple(option for option in options if option.rejected_because),
        _notes(assessment, opened=opened),
    )


def _gives_native_code(option: Option) -> bool:
    return not option.rejected_because and option.kind not in (OptionKind.CONTAINER, *REPLACING)


def advised_options(
    findings: Sequence[Finding],
    context: Context,
    lanes: Sequence[Lane] = (),
    sources: SourceSummary = NO_SOURCES,
) -> Options:
    """As :func:`find_options`, with the advice that answers the failures among these findings."""
    options = find_options(context, lanes, sources)
    return replace(options, advice=advise(findings, options, assess(context, sources)))


def _tried(kind: OptionKind, make: Callable[[Assessment], Option], assessment: Assessment) -> Option:
    """The option of a backend, or its rejection."""
    try:
        return make(assessment)
    except NotApplicable as rejection:
        return rejected(kind, str(rejection))


def _every_option(assessment: Assessment, lanes: Sequence[Lane]) -> Iterator[Option]:
    """Every kind but the driver, in order."""
    yield _tried(OptionKind.KEEP, keep, assessment)
    assessment = _in_environment_to_be(assessment)
    refused = assessment.sources.refused
    nothing_to_build = refused and not any(part.installed for part in assessment.parts)
    for kind, make in _MAKERS.items():
        if refused and nothing_to_build and kind in BUILDING:
            yield rejected(kind, refused.what.rstrip("."))
        else:
            yield _tried(kind, make, assessment)
    yield _tried(OptionKind.CONTAINER, partial(container, lanes=lanes), assessment)
    yield _tried(OptionKind.DROPIN, use_dropins, assessment)


_MAKERS: Mapping[OptionKind, Callable[[Assessment], Option]] = {
    OptionKind.REBUILD: rebuild,
    OptionKind.REBUILD_PTX: rebuild_with_ptx,
    OptionKind.NVRTC: use_nvrtc,
    OptionKind.WARP: use_warp,
    OptionKind.PROVIDE_TOOLKIT: provide_toolkit,
    OptionKind.INSTALL_TOOLKIT: install_toolkit,
    OptionKind.OTHER_TORCH: other_torch,
}


def _in_environment_to_be(assessment: Assessment) -> Assessment:
    """Where the Python refuses installations (PEP 668): an environment that is made first, with nothing in it but pip."""
    facts = assessment.facts
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


def _without_target(assessment: Assessment, reason: str) -> Options:
    """No NVIDIA GPU and none named: native code has nothing to be built for, drop-ins need none."""
    dropins = _tried(OptionKind.DROPIN, use_dropins, _in_environment_to_be(assessment))
    others = [rejected(kind, reason) for kind in OptionKind if kind is not OptionKind.DROPIN]
    if dropins.rejected_because:
        return Options((), (), (), (*others, dropins))
    return Options((), (), (dropins,), tuple(others))


def _notes(assessment: Assessment, *, opened: bool) -> tuple[str, ...]:
    notes = []
    if not opened and len(assessment.targets) > 1:
        notes.append(f"no native option covers {assessment.names} together: name one at a time with --target")
    if assessment.away:
        names = names_of_archs(assessment.away)
        verb = "is not in this machine: it" if len(assessment.away) == 1 else "are not in this machine: they"
        notes.append(f"{names} {verb} can be built for here but must be verified elsewhere")
    lost = _own_gpus_lost(assessment)
    if lost and any(part.code for part in assessment.parts):
        notes.append(
            f"a rebuild has code for the named targets only: to keep this machine's own {lost}, add --target auto"
        )
    return (*notes, *_notes_on_keep(assessment))


def _own_gpus_lost(assessment: Assessment) -> str:
    """GPUs of this machine that run none of the code for the targets."""
    lost = []
    for own in assessment.not_asked_for:
        if not any(cubin_runs_on(arch, own) for arch in assessment.archs):
            lost.append(own)
    return names_of_archs(lost)


def _notes_on_keep(assessment: Assessment) -> list[str]:
    notes = []
    kept, named = assessment.kept, assessment.sources.named
    if kept and named and len(kept) < len(assessment.parts):
        sources, names = " ".join(named), ", ".join(kept)
        notes.append(f"{sources} may hold {names} too: name the folders of the others in its place")
    known = {"torch", *(canonicalize_name(name) for name in assessment.subjects)}
    for name in assessment.keep:
        if canonicalize_name(name) not in known:
            notes.append(f"--keep {name} does not match anything here")
    return notes
