"""``splatfix find``: prebuilt wheels for an environment and its GPUs, and the same search for ``splatfix install``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.app.result import Result, target_python
from splatfix.context import Context, Goal, Rejected, make_context
from splatfix.context.commands import python_option
from splatfix.core.data import dataclass, field
from splatfix.core.errors import Exit, SplatfixError
from splatfix.core.step import Step, run, say, target_options
from splatfix.facts import Facts, gather, resolved_folder
from splatfix.knowledge import Arch, Auto
from splatfix.knowledge.dropins import DROPINS
from splatfix.plan import Request, summarise
from splatfix.plan.requirements import usable_targets, usable_torch
from splatfix.plan.steps import FetchWheel
from splatfix.report import finding_wheels as report
from splatfix.wheels import (
    Candidate,
    Search,
    Verdict,
    Wanted,
    chosen_indexes,
    find_wheels,
    is_name,
    wanted_by_name,
    wanted_by_source,
)


@dataclass(frozen=True, kw_only=True)
class FindRequest:
    """What was asked of ``splatfix find``."""

    subjects: tuple[str, ...]
    """Folders, names of packages, ``gsplat==1.5.3``, keys of variants."""
    targets: tuple[Arch | Auto, ...] = ()
    python: str | None = None
    indexes: tuple[str, ...] = ()
    offline: bool = False


def find(request: FindRequest, *, verbose: bool = False) -> Result:
    """Look for the wheel of each package that would do here. Changes nothing.

    Raises:
        SplatfixError: wrong names (exit code 2), no GPU that is meant, no CUDA build of torch.
    """
    indexes = chosen_indexes(request.indexes, offline=request.offline)
    if not indexes:
        raise SplatfixError.of("app.no-index")
    facts = gather(target_python(request.python))
    context = make_context(facts, Goal(request.targets))
    torch, interpreter = usable_torch(context, cuda=True), context.interpreter
    usable_targets(context)
    assert interpreter is not None
    wanted = [item for text in request.subjects for item in _wanted(text, facts)]
    searches = tuple(find_wheels(item, indexes, context, interpreter, torch) for item in wanted)
    steps = [step for search in searches for step in _next(search, context)]
    targets = [arch.sm for arch in context.archs]
    return Result(
        "find",
        lambda: report.document(searches, targets, torch.version, interpreter.version),
        lambda console: report.show(console, searches, targets, steps, verbose=verbose),
        exit_code_of(searches),
    )


def exit_code_of(searches: Iterable[Search]) -> Exit:
    """0 where each has a proven wheel, 1 where one has none, 3 where that could not be determined."""
    verdicts = {search.verdict for search in searches}
    if Verdict.UNSUITED in verdicts:
        return Exit.FAILURE
    if Verdict.UNKNOWN in verdicts:
        return Exit.UNDETERMINED
    return Exit.OK


def _wanted(text: str, facts: Facts) -> list[Wanted]:
    if resolved_folder(text) is None:
        return [wanted_by_name(text)]
    summary = summarise((text,), facts, named=(text,))
    if summary.refused:
        raise summary.refused
    wanted = []
    for name, keys in summary.variants.items():
        source = summary.built_from.get(name)
        if source is None:  # its submodule is empty: what is known of it must do
            wanted.append(wanted_by_name(name, keys))
        elif source.needs_cuda:
            wanted.append(wanted_by_source(source))
    if not wanted:
        raise SplatfixError.of("app.no-cuda-code", source=text)
    return wanted


def _next(search: Search, context: Context) -> list[Step]:
    options = (*target_options(context.archs), *python_option(context.facts))
    if search.best is None:
        return [_otherwise(search, options)]
    argv = ("splatfix", "install", search.source, "--backend", "wheels", "--index", search.best.index)
    return [run(*argv, *options, text="Install it with")]


def _otherwise(search: Search, options: Sequence[str]) -> Step:
    """What to do where no wheel is proven: build the source, take the drop-in, or get a source first."""
    if Path(search.source).is_absolute():
        return run("splatfix", "install", search.source, "--no-find", *options, text="Or build it")
    name = canonicalize_name(search.name)
    dropins = [
        item.name for item in DROPINS if name in map(canonicalize_name, (item.name, item.distribution))
    ]
    if len(dropins) == 1:
        argv = ("splatfix", "install", *dropins, "--backend", "pure", *options)
        return run(*argv, text="Or take the drop-in")
    # of several the one that its callers need is chosen by the checkout
    return say(f"Or get the source or the checkout that calls {search.name}: splatfix install FOLDER.")


# For install


@dataclass(frozen=True)
class Prebuilt:
    """What was looked for in the place of builds."""

    steps: Mapping[str, FetchWheel] = field(default_factory=dict)
    """By the label of a source, or a name as it was typed, the proven wheel."""
    searches: tuple[Search, ...] = ()

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        lost = [search for search in self.searches if search.best is None]
        return tuple(Rejected(f"a prebuilt wheel of {search.name}", _why_none(search)) for search in lost)

    @property
    def problem(self) -> SplatfixError | None:
        """``no-wheel``, where one of them has none; None where all have one."""
        if self.searches and not self.rejected:
            return None
        reasons = "; ".join(item.why for item in self.rejected) or "nothing was looked for"
        exit_code = exit_code_of(self.searches) or Exit.UNDETERMINED
        return SplatfixError.of("app.no-wheel", exit_code=exit_code, reasons=reasons)


NO_WHEELS = Prebuilt()
"""None were looked for."""


def find_prebuilt(request: Request, facts: Facts) -> Prebuilt:
    """The prebuilt wheels for the folders and names of a request; none where torch or target are lacking, which a build tells.

    Those of strangers are looked at only where only prebuilt ones were asked for, or their index is named.

    Raises:
        SplatfixError: ``unknown-index``, ``not-a-package`` (exit code 2).
    """
    maintained = request.backend != "wheels"
    if not maintained:
        for text in request.sources:
            if resolved_folder(text) is None:
                wanted_by_name(text)  # raises where it is no name either
    chosen = chosen_indexes(request.indexes, maintained=maintained, offline=request.offline)
    context = make_context(facts, Goal(request.targets))
    torch, interpreter = context.torch, context.interpreter
    if not chosen or torch is None or torch.cuda is None or interpreter is None or context.no_target:
        return NO_WHEELS
    names = tuple(filter(is_package, request.sources))
    wanted = {name: wanted_by_name(name) for name in names}
    summary = summarise(tuple(text for text in request.sources if text not in names), facts)
    for label, source in summary.built_from.items():
        if source.needs_cuda:
            wanted[label] = wanted_by_source(source)
    searches = {
        label: find_wheels(item, chosen, context, interpreter, torch) for label, item in wanted.items()
    }
    steps = {}
    for label, search in searches.items():
        if search.best:
            steps[label] = _step(search.name, search.best, context)
    return Prebuilt(steps, tuple(searches.values()))


def is_package(source: str) -> bool:
    """A source is no folder but the name of a package."""
    return resolved_folder(source) is None and is_name(source)


def _why_none(search: Search) -> str:
    reasons = [f"{item.index}: {item.reason}" for item in search.unanswered]
    reasons += [f"{item.wheel}: {item.reason}" for item in search.candidates[:2]]
    if len(search.candidates) > 2:
        reasons.append(f"{len(search.candidates) - 2} more do not suit either")
    return "; ".join(reasons) or f"{', '.join(search.asked) or 'no index'} has none"


def _step(subject: str, wheel: Candidate, context: Context) -> FetchWheel:
    version = wheel.wheel.split("-")[1]
    requirement = wheel.requirement
    return FetchWheel(
        subject=subject, version=version, requirement=requirement, targets=context.archs, origin=wheel.index
    )
