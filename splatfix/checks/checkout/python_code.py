"""Checks of the checkout's Python code: what it imports that is not here, and names that newer versions no longer have."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks.evidence import file_of
from splatfix.checks.registry import Check, checks_of
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.imports import MissingModules, brought_by, from_git, missing_modules, pip_arguments
from splatfix.context.installed import python_versions
from splatfix.context.requirements import name_of, unmet
from splatfix.context.submodules import module_of
from splatfix.core.step import Step, run, say
from splatfix.core.versions import dotted
from splatfix.knowledge.breakages import Breakage, CheckText, breakage, breakages
from splatfix.knowledge.torch_releases import COMPANIONS
from splatfix.model import (
    Checkout,
    CheckoutSource,
    CodeMatch,
    Evidence,
    Facts,
    Finding,
    ImportedModule,
    Source,
)

check = checks_of("checkout")

# A finding stays readable; the rest comes up again once these are mended.
_SHOWN = 8


@check("imports-missing", "What the Python code imports is installed")
def imports_missing(context: Context, this: Check) -> Iterator[Finding]:
    """What the scripts and the packages of a checkout import when they start is read from their own text, through all their
    own modules, and compared with the environment's; so is what the packages declare that they need. Scripts are those that
    train, render or measure by their names; where there are none, those that the README starts in the top folder, or that
    can be started at all. What only other scripts of the README need is a warning. Else each comes up by itself, "No module named
    'plyfile'", after a build of many minutes. Left out is what may fail without harm: an import in a `try`, one for type
    checkers, one behind a condition or inside a function. A module that has to be compiled against torch is named with
    its repository; of one that is in no list, only that it is missing."""
    checkout = context.checkout
    if checkout is None:
        return
    packages = _packages(checkout)
    of_packages: list[ImportedModule] = []
    for source in packages:
        of_packages += source.needs
    at_start = [need for need in checkout.needs if not need.beside]
    yield from _lacking(context, this, checkout, packages, [*at_start, *of_packages])
    named = {need.name for need in of_packages}
    optional = [need for need in checkout.needs if need.beside and need.name not in named]
    yield from _lacking(context, this, checkout, [], optional)


def _lacking(
    context: Context,
    this: Check,
    checkout: Checkout,
    packages: Sequence[Source],
    needs: Sequence[ImportedModule],
) -> Iterator[Finding]:
    """What these imports and these packages lack; of scripts that one can do without only a warning."""
    facts = context.facts
    brought = brought_by(_packages(checkout))
    # of an empty submodule submodules-missing tells
    brought |= {module_of(item, checkout) for item in checkout.submodules if item.empty}
    missing = missing_modules(facts, needs, declared=checkout.pins, brought=brought)
    declared = _declared_and_missing(facts, packages)
    if not missing.places and not declared:
        return
    # what a package takes from an address may need torch for its build, as what a list takes from there
    from_address = {name: text for name, (text, _) in declared.items() if "@" in text}
    missing = replace(
        missing,
        unknown=tuple(name for name in missing.unknown if canonicalize_name(name) not in declared),
        addresses={**missing.addresses, **from_address},
    )
    beside = any(need.beside for need in missing.places)
    requirements = {name_of(text): text for text in missing.requirements}
    only_declared = []
    for name, (text, _) in declared.items():
        if name not in requirements:
            only_declared.append(text)
        # what the packages declare names versions, a table of imports does not
        requirements[name] = text
    requirements = {name: text for name, text in requirements.items() if name not in from_address}
    sentences = []
    if missing.places:
        importer = "the code"
        if beside:
            importer = "scripts that its README starts"
        modules = ", ".join(need.name for need in missing.places)
        sentences.append(f"Imported by {importer}, and not installed: {modules}.")
    if only_declared:
        sentences.append(f"Declared by its packages, and not installed: {', '.join(only_declared)}.")
    installable = requirements or missing.repositories or missing.addresses
    evidence = []
    for need in missing.places[:_SHOWN]:
        location = f"{need.file}:{need.line}"
        evidence.append(Evidence(location, f"import {need.name}", "its syntax tree"))
    for text, source in list(declared.values())[:_SHOWN]:
        evidence.append(Evidence(source.label, text, "install_requires or pyproject.toml"))
    evidence.append(Evidence("installed", "none of them", context.environment.modules.found_via))
    report, subject = this.warn, ""
    # what is in no list may be a module of the stack's own, which nothing here can install
    if installable and not beside:
        report = this.fail
    if beside:
        subject = "beside"
    yield report(
        " ".join(sentences),
        subject=subject,
        evidence=evidence,
        remedy=_install_missing(context, list(requirements.values()), missing),
    )


def _packages(checkout: Checkout) -> list[Source]:
    return [*(item.source for item in checkout.sources), *filter(None, [checkout.package])]


def _declared_and_missing(facts: Facts, packages: Sequence[Source]) -> dict[str, tuple[str, Source]]:
    """What packages declare that they need and the environment lacks, by name; torch has checks of its own."""
    missing: dict[str, tuple[str, Source]] = {}
    if facts.environment.distributions.value is None:
        return missing
    for source in packages:
        for text in unmet(facts, source):
            if name_of(text) != "torch":
                missing[name_of(text)] = (text, source)
    return missing


def _install_missing(context: Context, requirements: list[str], missing: MissingModules) -> list[Step]:
    steps: list[Step] = []
    if context.torch is None and (beside := [name for name in requirements if name in COMPANIONS]):
        # alone it would bring a torch that nobody chose
        requirements = [name for name in requirements if name not in beside]
        steps.append(say(f"Install {' and '.join(beside)} with torch, in one pip command, from one index."))
    if requirements:
        torch_to_be = None
        # the build that the option of another torch installs first, where the installed one serves no GPU at all
        if context.torch is not None and context.torch.cuda is None and context.targets:
            torch_to_be = context.torch_wheel
        arguments = pip_arguments(context.facts, requirements, torch_to_be)
        steps.append(pip(context.facts, "install", *arguments))
    for item in missing.repositories:
        text = f"{item.module} is compiled against torch"
        steps.append(run("git", "clone", "--recursive", item.address, text=text, kind="clone"))
        steps.append(context.install(item.clone))
    steps += from_git(context.facts, missing)
    if missing.unknown:
        steps.append(
            say(f"Which package brings {', '.join(missing.unknown)} is not known here: see the README.")
        )
    return steps


def _register(record: Breakage, text: CheckText) -> None:
    """The check of one known breakage of Python code; their records (``patches/``) say what differs."""

    def look(context: Context, this: Check) -> Iterator[Finding]:
        when = breakage(record.key).when  # a user's --knowledge may have changed its versions
        checkout, versions = context.checkout, python_versions(context.facts)
        if checkout is None or not when.holds(versions):
            return
        distributions = context.environment.distributions
        if when.lacks and (distributions.value is None or context.distribution(when.lacks)):
            return
        names = []
        for name in when.versions:
            if name in versions:
                names.append(f"{name.replace('python', 'Python')} {dotted(versions[name])}")
        # Python 3.12.1; numpy 2.4.6; Python 3.12.1 without setuptools
        cause = " and ".join(names)
        if when.lacks:
            cause += f" without {when.lacks}"
        groups: list[tuple[CheckoutSource | None, tuple[CodeMatch, ...]]] = [(None, checkout.python_matches)]
        groups += [(item, item.matches) for item in checkout.sources]
        for item, matches in groups:
            own = [match for match in matches if match.breakage == record.key]
            if not own:
                continue
            if item is not None:
                own = [replace(match, file=file_of(item, match.file)) for match in own]
            # what is reached at import stops the program; what a function does may never be called
            first = next((match for match in own if match.at_import), own[0])
            report, subject = this.warn, first.file
            if first.at_import:
                report = this.fail
            if item is not None:
                subject = item.path
            evidence = []
            for match in own[:_SHOWN]:
                evidence.append(Evidence(f"{match.file}:{match.line}", match.text, "its syntax tree"))
            if cause:
                evidence.append(Evidence("here", cause, distributions.found_via))
            remedy: tuple[str | Step, ...] = (f"In the code: {record.cure}.",)
            if text.install:
                remedy = (pip(context.facts, "install", text.install),)
            elif item is not None and record.edits:
                copy = context.install(item.source.folder)
                remedy = (f"In the code: {record.cure}. Or let splatfix do it on a copy:", copy)
            shown = first.text or record.title
            summary = text.summary.format(cause=cause, file=first.file, line=first.line, text=shown)
            yield report(summary, subject=subject, evidence=evidence, remedy=remedy)

    look.__doc__ = text.page
    check(text.code, text.title)(look)


for _record in breakages():
    if _record.check and _record.uses:
        _register(_record, _record.check)
