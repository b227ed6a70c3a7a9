"""Checks of the checkout's Python code: what it imports that is not here, and names that newer versions no longer have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from splatfix.checks.model import Evidence, Finding, Status
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.context.imports import brought_by, missing_modules, pip_arguments
from splatfix.context.readings import python_versions
from splatfix.context.requirements import name_of, unmet
from splatfix.core.step import Step, run, say
from splatfix.facts import Checkout, CheckoutSource, CodeMatch, ImportedModule, Source
from splatfix.knowledge.breakages import Breakage, CheckText, When, breakage, breakages
from splatfix.knowledge.torch_releases import TorchBuild

_SHOWN = 8


@check("imports-missing", family="checkout", title="What the Python code imports is installed")
def imports_missing(context: Context, this: Check) -> Iterator[Finding]:
    """What the scripts and the packages of a checkout import when they start is read from their own text, through all their
    own modules, and compared with the environment's; so is what the packages declare that they need. Scripts are those that
    train, render or measure by their names; where there are none, those that the README starts in the top folder, or that
    can be started at all. What only other scripts of the README need is a warning. Else each comes up by itself, "No module named
    'plyfile'", after a build of many minutes. Left out is what may fail without harm: an import in a `try`, one for type
    checkers, one behind a condition or inside a function. A module that has to be compiled against torch is named with
    its repository; of one that is in no list, only that it is missing."""
    found = context.checkout
    if found is None:
        return
    sources = [item.source for item in found.sources] + ([found.package] if found.package else [])
    inside = tuple(need for source in sources for need in source.needs)
    yield from _lacking(
        context, this, found, sources, (*(item for item in found.needs if not item.beside), *inside)
    )
    told = {item.name for item in inside}
    others = (item for item in found.needs if item.beside and item.name not in told)
    yield from _lacking(context, this, found, [], tuple(others))


def _lacking(
    context: Context, this: Check, found: Checkout, sources: Sequence[Source], needs: Sequence[ImportedModule]
) -> Iterator[Finding]:
    """What these imports and these packages lack; of scripts that one can do without only a warning."""
    facts = context.facts
    lost = missing_modules(
        facts,
        needs,
        declared=(pin.name for pin in found.pins),
        brought=brought_by(
            [*(item.source for item in found.sources), *([found.package] if found.package else [])]
        ),
    )
    declared = {
        name_of(text): (text, source)
        for source in (sources if facts.environment.distributions.value is not None else ())
        for text in unmet(facts, source)
        if name_of(text) != "torch"
    }
    wanted = {name_of(text): text for text in lost.requirements}
    wanted |= {name: text for name, (text, _) in declared.items()}
    beside = any(item.beside for item in lost.places)
    if not lost.places and not declared:
        return
    modules = ", ".join(item.name for item in lost.places)
    others = ", ".join(
        text for name, (text, _) in declared.items() if name not in map(name_of, lost.requirements)
    )
    words = [
        f"Imported by {'scripts that its README starts' if beside else 'the code'}, and not installed: {modules}."
        if modules
        else "",
        f"Declared by its packages, and not installed: {others}." if others else "",
    ]
    yield this.finding(
        Status.FAIL if (wanted or lost.repositories) and not beside else Status.WARN,
        " ".join(filter(None, words)),
        subject="beside" if beside else "",
        evidence=(
            *(
                Evidence(f"{item.file}:{item.line}", f"import {item.name}", "its syntax tree")
                for item in lost.places[:_SHOWN]
            ),
            *(
                Evidence(source.label, text, "install_requires or pyproject.toml")
                for text, source in list(declared.values())[:_SHOWN]
            ),
            Evidence("installed", "none of them", context.environment.modules.found_via),
        ),
        remedy=(
            *(
                [context.pip("install", *pip_arguments(facts, wanted.values(), _torch_to_be(context)))]
                if wanted
                else []
            ),
            *(
                step
                for item in lost.repositories
                for step in (
                    run(
                        "git",
                        "clone",
                        "--recursive",
                        item.address,
                        text=f"{item.module} is compiled against torch",
                    ),
                    context.install(item.clone),
                )
            ),
            *(
                [say(f"What brings {', '.join(lost.unknown)} is for the README to say.")]
                if lost.unknown
                else []
            ),
        ),
    )


def _register(record: Breakage, text: CheckText) -> None:
    """The check of one known breakage of Python code; their records (``patches/``) say what differs."""

    def look(context: Context, this: Check) -> Iterator[Finding]:
        known, found = breakage(record.key).when, context.checkout
        if found is None or not _holds(known, context):
            return
        cause = _cause(known, context)
        groups: list[tuple[CheckoutSource | None, tuple[CodeMatch, ...]]] = [(None, found.python_matches)]
        groups += [(item, item.matches) for item in found.sources]
        for item, matches in groups:
            places = [match for match in matches if match.breakage == record.key]
            if not places:
                continue
            first = next((place for place in places if place.at_import), places[0])
            yield this.finding(
                Status.FAIL if first.at_import else Status.WARN,
                text.summary.format(
                    cause=cause,
                    file=_file(item, first.file),
                    line=first.line,
                    text=first.text or record.title,
                ),
                subject=item.path if item else first.file,
                evidence=(
                    *(
                        Evidence(f"{_file(item, place.file)}:{place.line}", place.text, "its syntax tree")
                        for place in places[:_SHOWN]
                    ),
                    Evidence("here", cause, context.environment.distributions.found_via),
                ),
                remedy=_remedy(record, text, item, context),
            )

    look.__doc__ = text.page
    check(text.code, family="checkout", title=text.title)(look)


def _holds(known: When, context: Context) -> bool:
    if known.lacks and (context.environment.distributions.value is None or context.distribution(known.lacks)):
        return False
    return known.holds(python_versions(context.facts))


def _cause(known: When, context: Context) -> str:
    """``Python 3.12.1``, ``numpy 2.4.6``, ``Python 3.12.1 without setuptools``."""
    versions = python_versions(context.facts)
    words = [
        f"{'Python' if name == 'python' else name} {'.'.join(map(str, versions[name]))}"
        for name in known.versions
        if name in versions
    ]
    return " and ".join(words) + (f" without {known.lacks}" if known.lacks else "")


def _file(item: CheckoutSource | None, name: str) -> str:
    return name if item is None or item.path == "." else f"{item.path}/{name}"


def _remedy(
    record: Breakage, text: CheckText, item: CheckoutSource | None, context: Context
) -> tuple[Step, ...]:
    if text.install:
        return (context.pip("install", text.install),)
    if item is None or not record.edits:
        return (say(f"In the code: {record.cure}."),)
    return (
        say(f"In the code: {record.cure}. Or let splatfix do it on a copy:"),
        context.install(item.source.folder),
    )


for _record in breakages():
    if _record.check and _record.uses:
        _register(_record, _record.check)


def _torch_to_be(context: Context) -> TorchBuild | None:
    """The build that the option of another torch installs first, where the installed one serves no GPU at all."""
    serves_none = context.torch is not None and context.torch.cuda is None
    return context.torch_wheel if serves_none and context.targets else None
