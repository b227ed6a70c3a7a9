"""Every option for a machine: each kind is tried on the facts; what is available is ranked, the rest keeps its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from packaging.utils import canonicalize_name

from splatfix.checks import Finding, Status, run_checks, select
from splatfix.context import Context, make_context
from splatfix.context.commands import make_environment, python_to_be
from splatfix.core.errors import Problem
from splatfix.core.step import Step, say
from splatfix.facts import Distribution, EnvironmentFacts, Fact, Facts
from splatfix.knowledge import cubin_runs_on
from splatfix.plan.advice import advise
from splatfix.plan.assessment import Assessment, assess, code_serves, torch_obstacles
from splatfix.plan.checkout import expected_extensions, sources_in
from splatfix.plan.compose import confirm, make_option
from splatfix.plan.container import container
from splatfix.plan.driver import driver
from splatfix.plan.dropins import choose_dropins, use_dropins, use_kernels
from splatfix.plan.option import (
    BUILDING,
    NO_SOURCES,
    REPLACING,
    Lane,
    Option,
    OptionKind,
    Options,
    SourceSummary,
    rejected,
)
from splatfix.plan.parts import NativePart, variants_of_source
from splatfix.plan.rebuild import install_toolkit, provide_toolkit, rebuild, rebuild_with_ptx
from splatfix.plan.steps import Keep, Reason
from splatfix.plan.torch import other_torch


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
        fetch: what ``--fetch-submodules`` fetches first, one step each.
    """
    summary = SourceSummary(named=named)
    made = choose_dropins(sources, facts.checkout.value if facts else None)
    if isinstance(made, Problem):
        summary = replace(summary, no_dropins={"": made.what.rstrip(".")})
    else:
        names = tuple(item.name for item in made.dropins)
        summary = replace(summary, dropins=names, no_dropins={item.module: item.why for item in made.native})
    found = sources_in(sources, facts)
    if isinstance(found, Problem) and found.code != "source-incomplete":
        return replace(summary, named=(), refused=found)
    if isinstance(found, Problem):
        extensions = expected_extensions(sources, facts.checkout.value if facts else None)
        summary = replace(summary, prepare=fetch or _to_complete(found), fetch=bool(fetch))
    else:
        extensions = {item.label: variants_of_source(item.folder) for item in found[0]}
        summary = replace(summary, built_from={item.label: item for item in found[0]})
    return replace(summary, variants=extensions)


def _to_complete(gap: Problem) -> tuple[Step, ...]:
    """What completes the sources: the commands of git, the first with what is lacking; else what is lacking alone."""
    first, *others = [step for step in gap.todo if step.command and step.command.argv[0] == "git"] or [
        say("")
    ]
    return (replace(first, text=gap.what), *others)


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
    found = assess(context, sources, keep)
    if isinstance(found, Problem):
        return _without_target(_bare(context, sources, keep), found)
    tried = list(_try_all(found, lanes))
    opened = any(
        not item.rejected_because and item.kind not in (OptionKind.CONTAINER, *REPLACING) for item in tried
    )

    def first_with(other: Facts) -> Option | None:
        again = assess(make_context(other, context.goal), sources, keep)
        made = () if isinstance(again, Problem) else _try_all(again, lanes)
        return next((o for o in made if not o.rejected_because and o.kind not in REPLACING), None)

    tried.append(driver(found, first_with, opened=opened))
    return Options(
        found.archs,
        found.subjects,
        tuple(item for item in tried if not item.rejected_because),
        tuple(item for item in tried if item.rejected_because),
        _notes(found, opened=opened),
    )


def advised_options(
    findings: Sequence[Finding],
    context: Context,
    lanes: Sequence[Lane] = (),
    sources: SourceSummary = NO_SOURCES,
) -> Options:
    """As :func:`find_options`, with the advice that answers the failures among these findings."""
    made = find_options(context, lanes, sources)
    found = assess(context, sources)
    bare = _bare(context, sources, ())
    return replace(made, advice=advise(findings, made, bare if isinstance(found, Problem) else found))


def _bare(context: Context, sources: SourceSummary, keep: tuple[str, ...]) -> Assessment:
    """The assessment where there is no target."""
    return Assessment(make_context(context.facts, replace(context.goal, targets=())), sources, keep)


def _try_all(found: Assessment, lanes: Sequence[Lane]) -> Iterator[Option]:
    """Every kind but the driver, in order."""
    yield keep(found)
    found = _in_environment_to_be(found)
    refused = found.sources.refused
    nothing_to_build = refused and not any(part.installed for part in found.parts)
    for kind, make in _MAKERS.items():
        if refused and nothing_to_build and kind in BUILDING:
            yield rejected(kind, refused.what.rstrip("."))
        else:
            yield make(found)
    yield container(found, lanes)
    yield use_dropins(found)


_MAKERS: Mapping[OptionKind, Callable[[Assessment], Option]] = {
    OptionKind.REBUILD: rebuild,
    OptionKind.REBUILD_PTX: rebuild_with_ptx,
    OptionKind.NVRTC: partial(use_kernels, kind=OptionKind.NVRTC),
    OptionKind.WARP: partial(use_kernels, kind=OptionKind.WARP),
    OptionKind.PROVIDE_TOOLKIT: provide_toolkit,
    OptionKind.INSTALL_TOOLKIT: install_toolkit,
    OptionKind.OTHER_TORCH: other_torch,
}


def _in_environment_to_be(found: Assessment) -> Assessment:
    """Where the Python refuses installations (PEP 668): an environment that is made first, with nothing in it but pip."""
    facts = found.facts
    python = facts.environment.interpreter.value
    if python is None or not python.externally_managed:
        return found
    made = replace(python, executable=python_to_be(facts), kind="venv", externally_managed=False)
    why = "as it would be"
    environment = EnvironmentFacts(
        interpreter=Fact(made, why),
        distributions=Fact((Distribution("pip", "", ""),), why),
        torch_installed=Fact(False, why),
        extensions=Fact((), why),
        packages=Fact((), why),
    )
    return replace(
        found,
        context=make_context(replace(facts, environment=environment), found.context.goal),
        parts=tuple(NativePart(part.name, part.variant) for part in found.parts),
        repairs=(make_environment(python), *found.repairs),
    )


def _without_target(found: Assessment, problem: Problem) -> Options:
    """No NVIDIA GPU and none named: native code has nothing to be built for, drop-ins need none."""
    dropins = use_dropins(_in_environment_to_be(found))
    why = " ".join([problem.what, *(step.text for step in problem.todo)])
    others = tuple(rejected(kind, why) for kind in OptionKind if kind is not OptionKind.DROPIN)
    if dropins.rejected_because:
        return Options((), (), (), (*others, dropins))
    return Options((), (), (dropins,), others)


def keep(found: Assessment) -> Option:
    """Nothing needs doing: torch and every extension carry code for every target, and the driver starts it."""
    kind = OptionKind.KEEP
    against, unsure = torch_obstacles(found)
    if not found.parts:
        against.append("no splatting extension is installed, so there is nothing to keep")
    for part in found.parts:
        if not part.installed or part.error:
            against.append(
                f"{part.name}: {part.error}" if part.installed else f"{part.name} is not installed"
            )
            continue
        cuda = found.torch.cuda if found.torch else None
        before = len(against)
        for arch in () if part.anywhere else found.archs:
            verdict = code_serves(part.code, arch, level=found.context.driver_level(arch), cuda=cuda)
            if verdict.ok is False:
                against.append(f"{part.name} cannot run ({verdict.why})")
            elif verdict.ok is None:
                unsure.append(f"{part.name} on {arch.sm}: {verdict.why}")
        if len(against) == before:
            against += [f"{part.name}: {why}" for why in part.unfit]
    against = against or _torch_failures(found)
    if against:
        return rejected(kind, "; ".join(dict.fromkeys(against)))
    if any(not part.anywhere and not part.code for part in found.parts):
        why = "what GPU code is installed could not be read, so keeping it would be a guess: "
        return rejected(kind, why + "; ".join(unsure))
    native = ", ".join(part.name for part in found.parts if not part.anywhere)
    others = ", ".join(part.name for part in found.parts if part.cpu)
    dropins = ", ".join(part.name for part in found.parts if part.dropin)
    reasons = (
        [Reason(f"every fatbin of {native} has code for {found.words}", "their bytes")] if native else []
    )
    if others:
        reasons.append(Reason(f"installed, and without GPU code: {others}", "pip's list"))
    if dropins:
        reasons.append(Reason(f"splatfix's drop-ins run wherever torch does: {dropins}", "pip's list"))
    return make_option(found, kind, (Keep(subjects=found.subjects), confirm(found)), reasons, unsure)


def _torch_failures(found: Assessment) -> list[str]:
    """What checks found of the installed torch itself that keeps it from being used, beside what it carries."""
    checks = select(("torch",), ())
    failed = [item for item in run_checks(found.context, checks) if item.status is Status.FAIL]
    return [item.summary.rstrip(".") for item in failed]


def _notes(found: Assessment, *, opened: bool) -> tuple[str, ...]:
    notes = []
    if not opened and len(found.targets) > 1:
        notes.append(f"no native option covers {found.words} together: name one at a time with --target")
    if found.away:
        words, one = ", ".join(arch.sm for arch in found.away), len(found.away) == 1
        is_it = f"{words} is not in this machine: it" if one else f"{words} are not in this machine: they"
        notes.append(f"{is_it} can be built for here but must be verified elsewhere")
    lost = [own for own in found.not_asked_for if not any(cubin_runs_on(arch, own) for arch in found.archs)]
    if lost and any(part.code for part in found.parts):
        words = ", ".join(arch.sm for arch in lost)
        notes.append(
            f"a rebuild has code for the named targets only: to keep this machine's own {words}, add --target auto"
        )
    if found.kept and found.sources.named and len(found.kept) < len(found.parts):
        source, kept = " ".join(found.sources.named), ", ".join(found.kept)
        notes.append(f"{source} may hold {kept} too: name the folders of the others in its place")
    known = {"torch", *(canonicalize_name(name) for name in found.subjects)}
    notes += [
        f"--keep {name} does not match anything here"
        for name in found.keep
        if canonicalize_name(name) not in known
    ]
    return tuple(notes)
