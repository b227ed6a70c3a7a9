"""How a failing diagnosis ends: the first option that cures what failed, and what to do about whatever it does not cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, Finding, Status, check_named, run_checks, select
from splatfix.context import Context, make_context
from splatfix.core.step import Step, commands
from splatfix.facts import Fact, Facts, Torch
from splatfix.knowledge.torch_releases import COMPANIONS, build
from splatfix.plan.assessment import Assessment, most_urgent_first, repair_of, stops_everything
from splatfix.plan.option import Advice, AlsoNeeded, Option, OptionKind, Options
from splatfix.plan.parts import NativePart, files_of, is_about, names_of
from splatfix.plan.rebuild import Tools, tools_here
from splatfix.plan.steps import InstallTorch, Keep, Rebuild, UseDropins
from splatfix.plan.torch import as_torch

# What install sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(findings: Sequence[Finding], options: Options, found: Assessment) -> Advice:
    """The first option among those that cure most, and what to do about each failure that it does not cure.

    What stops everything is the first step of every option, so it speaks for none of them: where nothing else has failed,
    its repair is the fix, and what is installed is kept where it serves.
    """
    failed = most_urgent_first(findings)
    best: Option | None = None
    cured: list[Finding] = []
    most = 0
    for option in options.available:
        here = [item for item in failed if _cures(option, item, options, found)]
        others = sum(not stops_everything(item.code) for item in here)
        if others > most or (here and option.kind is OptionKind.KEEP):
            best, cured, most = option, here, others
    refused = _refusal(found)
    needed: dict[object, AlsoNeeded] = {}
    told: set[Step] = set(refused[0].steps) if refused else set()
    for item in failed:
        if item in cured or (item.remedy and told.issuperset(item.remedy)):
            continue
        # one remedy answers each failure that names it, once
        key = tuple(step.text for step in item.remedy if step.text) or item.summary
        needed.setdefault(key, _also_needed(item, options, found))
        told.update(item.remedy)
    return Advice(best, (*refused, *needed.values()))


def _refusal(found: Assessment) -> tuple[AlsoNeeded, ...]:
    """What ``splatfix install`` says of a checkout that has nothing to build, with what it says to do instead."""
    refused = found.sources.refused
    if refused is None:
        return ()
    steps = []
    for step in refused.todo:
        argv = step.command.argv if step.command else ()
        if argv[:2] == ("splatfix", "install") and step.command and step.command.blanks == ("ARCH",):
            steps.append(found.context.install(argv[2], text=step.text))
        elif argv[:2] != ("splatfix", "diagnose"):
            steps.append(step)
    return (AlsoNeeded(refused.code, f"{refused.what} {refused.meaning}".strip(), tuple(steps)),)


def _cures(option: Option, finding: Finding, options: Options, found: Assessment) -> bool:
    """Once this option is carried out, the failure is gone."""
    if set(repair_of(finding)) <= set(option.steps):
        return True
    if not options.targets or option.kind is OptionKind.CONTAINER:
        return False
    built = next((step.subjects for step in option.steps if isinstance(step, Rebuild)), None)
    family = FAMILIES[finding.family]
    if family.building:  # where nothing needs to be built, it is no failure that a rebuild answers
        return built is not None and not _serves_as_it_is(options)
    install = next((step for step in option.steps if isinstance(step, InstallTorch)), None)
    if family.cured_by_torch:
        if option.kind is OptionKind.DRIVER and finding.family == "driver":
            return True
        families = ("torch", "gpu") if option.kind is OptionKind.DRIVER else ("torch", "driver", "gpu")
        return install is not None and _gone_with(install, finding, found, families)
    about = _parts_of(finding, found)
    if not about or not check_named(finding.code).cured_by_rebuild:
        return False
    if use := next((step for step in option.steps if isinstance(step, UseDropins)), None):
        names = {canonicalize_name(name.partition("@")[0]) for name in use.subjects}
        return not names or all(canonicalize_name(part.name) in names for part in about)
    if option.kind is OptionKind.DRIVER and any(isinstance(step, Keep) for step in option.steps):
        return True
    return built is not None and all(part.name in built for part in about)


def _parts_of(finding: Finding, found: Assessment) -> list[NativePart]:
    """The extensions that are meant and that a failure is about."""
    facts = found.facts
    names: set[str] = {canonicalize_name(finding.subject.partition(" ")[0].partition(".")[0])}
    for package in facts.environment.packages.value or ():
        if is_about(finding, package, files_of(package, facts)):
            names |= names_of(package)
    return [part for part in found.parts if (part.names | {canonicalize_name(part.name)}) & names]


def _serves_as_it_is(options: Options) -> bool:
    return any(option.kind is OptionKind.KEEP for option in options.available)


def _gone_with(step: InstallTorch, finding: Finding, found: Assessment, families: Sequence[str]) -> bool:
    """The check no longer fails once this torch is there, and no other begins to; asked of the checks themselves."""
    then = _failing(make_context(with_torch(found.facts, step), found.context.goal), families)
    return finding.code not in then and then <= _failing(found.context, families)


def _failing(context: Context, families: Sequence[str]) -> set[str]:
    findings = run_checks(context, select(families, ()))
    return {item.code for item in findings if item.status is Status.FAIL}


def with_torch(facts: Facts, step: InstallTorch) -> Facts:
    """The same machine with this build of torch, and with no companion of another one."""
    version = step.version.replace("*", "0")
    known = build(f"{version}+{step.tag}")
    torch = as_torch(known) if known else Torch(f"{version}+{step.tag}", None, None, "")
    environment = facts.environment
    others = environment.distributions.value
    left = None if others is None else tuple(o for o in others if o.name.lower() not in COMPANIONS)
    return replace(
        facts,
        environment=replace(
            environment,
            torch=Fact(torch, "as it would be"),
            torch_installed=Fact(True, "as it would be"),
            distributions=replace(environment.distributions, value=left),
        ),
    )


def _also_needed(finding: Finding, options: Options, found: Assessment) -> AlsoNeeded:
    """What to do about a failure that no option cures."""
    if not FAMILIES[finding.family].building:
        return AlsoNeeded(finding.code, finding.summary, finding.remedy)
    text = "matters only for building CUDA code"
    text += "; what is installed needs no rebuild" if _serves_as_it_is(options) else ""
    if _install_sets_it(finding, found):
        text += "; splatfix install sets this itself; other builds need it set"
    return AlsoNeeded(finding.code, text, finding.remedy)


def _install_sets_it(finding: Finding, found: Assessment) -> bool:
    """An installation here finds a toolkit and a compiler, and gives every build the variable that this is about."""
    torch = found.torch
    if not found.targets or torch is None or torch.cuda is None:
        return False
    tools = tools_here(found.context, torch)
    if not isinstance(tools, Tools) or tools.before:
        return False
    sets = {name for command in commands(finding.remedy) for name, value in command.env if value is not None}
    return bool(sets & _SET_BY_INSTALL) or finding.family != "build"
