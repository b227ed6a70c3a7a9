"""Checks of the checkout's Python code: what it imports that is not here, and names that newer versions no longer have."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks.evidence import file_of
from splatfix.checks.registry import Check, Wording, Words, checks_of
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


@check("imports-missing")
def imports_missing(context: Context, this: Check) -> Iterator[Finding]:
    checkout = context.checkout
    if checkout is None:
        return
    packages = _packages(checkout)
    of_packages = [need for source in packages for need in source.needs]
    at_start = [need for need in checkout.needs if not need.beside]
    yield from _lacking(context, this, checkout, packages, [*at_start, *of_packages])
    named = {need.name for need in of_packages}
    # of scripts that one can do without
    optional = [need for need in checkout.needs if need.beside and need.name not in named]
    yield from _lacking(context, this, checkout, [], optional)


def _lacking(
    context: Context,
    this: Check,
    checkout: Checkout,
    packages: Sequence[Source],
    needs: Sequence[ImportedModule],
) -> Iterator[Finding]:
    """Report what these imports and these packages lack."""
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
        unknown=[name for name in missing.unknown if canonicalize_name(name) not in declared],
        addresses={**missing.addresses, **from_address},
    )
    imported = {name_of(text): text for text in missing.requirements}
    only_declared = [text for name, (text, _) in declared.items() if name not in imported]
    # what the packages declare names versions, a table of imports does not
    requirements = {**imported, **{name: text for name, (text, _) in declared.items()}}
    requirements = {name: text for name, text in requirements.items() if name not in from_address}
    evidence = []
    for need in missing.places[:_SHOWN]:
        evidence.append(Evidence(f"{need.file}:{need.line}", f"import {need.name}", "its syntax tree"))
    for text, source in list(declared.values())[:_SHOWN]:
        evidence.append(Evidence(source.label, text, "install_requires or pyproject.toml"))
    evidence.append(Evidence("installed", "none of them", context.environment.modules.found_via))
    beside = any(need.beside for need in missing.places)
    report, case, subject = this.warn, "imported", ""
    if beside:
        case = subject = "beside"
    elif not missing.places:
        case = "declared"
    elif only_declared:
        case = "imported-and-declared"
    # what is in no list may be a module of the stack's own, which nothing here can install
    if not beside and (requirements or missing.repositories or missing.addresses):
        report = this.fail
    yield report(
        case,
        subject=subject,
        evidence=evidence,
        remedy=_install_missing(context, list(requirements.values()), missing),
        modules=", ".join(need.name for need in missing.places),
        declared=", ".join(only_declared),
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
            report = this.fail if first.at_import else this.warn
            evidence = []
            for match in own[:_SHOWN]:
                evidence.append(Evidence(f"{match.file}:{match.line}", match.text, "its syntax tree"))
            if cause:
                evidence.append(Evidence("here", cause, distributions.found_via))
            remedy: list[Step] = []
            if text.install:
                remedy = [pip(context.facts, "install", text.install)]
            elif item is not None and record.edits:
                in_code = say(f"In the code: {record.cure}. Or let splatfix do it on a copy:")
                remedy = [in_code, context.install(item.source.folder)]
            yield report(
                subject=first.file if item is None else item.path,
                evidence=evidence,
                remedy=remedy or None,
                cause=cause,
                file=first.file,
                line=first.line,
                text=first.text or record.title,
                cure=record.cure,
            )

    words = Words(text.summary, ("In the code: {cure}.",))
    check(text.code, Wording(text.title, text.page, {"warn": words, "fail": words}))(look)


for _record in breakages():
    if _record.check and _record.uses:
        _register(_record, _record.check)
