"""How a failing diagnosis ends: the first option that cures what failed, and what to do about whatever it does not cure."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, Finding, Status, check_named, run_checks, select
from splatfix.context import Context, make_context
from splatfix.context.architectures import own_variables
from splatfix.context.submodules import FETCH
from splatfix.core.errors import SplatfixError
from splatfix.core.step import Command, Step, commands
from splatfix.facts import Fact, Facts, Torch
from splatfix.knowledge.torch_releases import COMPANIONS, build
from splatfix.plan.assessment import Assessment, most_urgent_first, repair_of, stops_everything
from splatfix.plan.backends.torch import as_torch
from splatfix.plan.option import Advice, AlsoNeeded, Option, OptionKind, Options
from splatfix.plan.parts import files_of, is_about, names_of
from splatfix.plan.steps import InstallTorch, Keep, Rebuild, UseDropins
from splatfix.plan.tools import tools_here

# What install sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(findings: Sequence[Finding], options: Options, assessment: Assessment) -> Advice:
    """The first option among those that cure most, and what to do about each failure that it does not cure.

    What stops everything is the first step of every option, so it speaks for none of them: where nothing else has failed,
    its repair is the fix, and what is installed is kept where it serves.
    """
    failed = most_urgent_first(findings)
    best: Option | None = None
    cured: list[Finding] = []
    most = 0
    for option in options.available:
        by_this = [finding for finding in failed if _cures(option, finding, options, assessment)]
        counting = sum(not stops_everything(finding.code) for finding in by_this)
        if counting > most or (by_this and option.kind is OptionKind.KEEP):
            best, cured, most = option, by_this, counting
    refused = _refusal(assessment)
    mended = _mended(best, cured, findings, options, assessment)
    needed: dict[object, AlsoNeeded] = {}
    advised: set[Step] = set()
    for item in refused:
        advised.update(item.steps)
    # what the option itself begins with needs not be said again
    done: set[Command] = set()
    if best is not None:
        done.update(commands(best.steps))
    for finding in failed:
        if finding in cured or finding.code in mended:
            continue
        if finding.remedy and advised.issuperset(finding.remedy):
            continue
        if finding.remedy and finding.remedy[0].command in done:
            continue
        # one remedy answers each failure that names it, once
        key = tuple(step.text for step in finding.remedy if step.text) or finding.summary
        needed.setdefault(key, _also_needed(finding, options, assessment))
        advised.update(finding.remedy)
    return Advice(best, (*refused, *needed.values()), mended)


def _mended(
    best: Option | None,
    cured: Sequence[Finding],
    findings: Sequence[Finding],
    options: Options,
    assessment: Assessment,
) -> tuple[str, ...]:
    """Codes of what install's build mends, all of a code: failures, and advice that it follows by itself."""
    mended: list[Finding] = []
    builds = best and _step_of(best, Rebuild)
    if best and builds:
        for finding in cured:
            by_install = FAMILIES[finding.family].building
            if finding.family == "checkout":
                # what the option tells the user to do first is no doing of install's
                by_install = not set(repair_of(finding)) <= set(best.steps)
            if by_install and not stops_everything(finding.code):
                mended.append(finding)
    elif not assessment.sources.named and not assessment.sources.refused:
        return ()
    # of sources that install refuses, or has built, too: what it gives every build is not for the user to set
    variables = set(_SET_BY_INSTALL)
    for source in assessment.sources.built_from.values():
        variables.update(source.switches.on, source.switches.off)
        variables.update(variable.name for variable in own_variables(source))
    not_passed = [item for item in findings if item.status in (Status.FAIL, Status.WARN, Status.SKIP)]
    for item in not_passed:
        asked = commands(item.remedy)
        # its advice is to set what install sets, or to build where torch is, as install does
        if asked and all(
            "--no-build-isolation" in command.argv
            or (not command.argv and variables.issuperset(name for name, _ in command.env))
            for command in asked
        ):
            mended.append(item)
    if builds or _serves_as_it_is(options):
        mended += filter(_cured_by_edit, findings)
    left = {item.code for item in not_passed if item not in mended and item not in cured}
    return tuple(dict.fromkeys(item.code for item in mended if item.code not in left))


def _cured_by_edit(finding: Finding) -> bool:
    """What is wrong with a source, and its advice ends with the build that edits a copy; of what has yet to be cloned is none."""
    asked = commands(finding.remedy)
    builds = [command for command in asked if command.argv[:2] == ("splatfix", "install")]
    if any(command.argv[:2] == ("git", "clone") for command in asked):
        return False
    return (
        finding.status in (Status.FAIL, Status.WARN)
        and (finding.family == "checkout" or FAMILIES[finding.family].building)
        and any(FETCH not in command.argv for command in builds)
    )


def _refusal(assessment: Assessment) -> tuple[AlsoNeeded, ...]:
    """What ``splatfix install`` says of a checkout that has nothing to build, with what it says to do instead."""
    refused = assessment.sources.refused
    if refused is None:
        return ()
    steps = []
    for step in refused.todo:
        if step.command is None:
            steps.append(step)
            continue
        argv = step.command.argv
        if argv[:2] == ("splatfix", "install") and step.command.blanks == ("ARCH",):
            steps.append(assessment.context.install(argv[2], text=step.text))
        # a diagnosis is what the user is reading
        elif argv[:2] != ("splatfix", "diagnose"):
            steps.append(step)
    return (AlsoNeeded(refused.code, f"{refused.what} {refused.meaning}".strip(), tuple(steps)),)


_StepKind = TypeVar("_StepKind", bound=Step)


def _step_of(option: Option, kind: type[_StepKind]) -> _StepKind | None:
    return next((step for step in option.steps if isinstance(step, kind)), None)


def _cures(option: Option, finding: Finding, options: Options, assessment: Assessment) -> bool:
    """Once this option is carried out, the failure is gone."""
    if set(repair_of(finding)) <= set(option.steps):
        return True
    if not options.targets or option.kind is OptionKind.CONTAINER:
        return False
    rebuild = _step_of(option, Rebuild)
    family = FAMILIES[finding.family]
    # where nothing needs to be built, it is no failure that a rebuild answers
    if family.building or _cured_by_edit(finding):
        return rebuild is not None and not _serves_as_it_is(options)
    is_driver = option.kind is OptionKind.DRIVER
    if family.cured_by_torch:
        if is_driver and finding.family == "driver":
            return True
        families = ["torch", "gpu"]
        # a newer driver is judged by its own version, not by the checks of the one that it replaces
        if not is_driver:
            families.append("driver")
        install = _step_of(option, InstallTorch)
        if install is None:
            return False
        # gone once this torch is there, and no other failure begins; asked of the checks themselves
        context = make_context(with_torch(assessment.context.facts, install), assessment.context.goal)
        failing = _failing(context, families)
        return finding.code not in failing and failing <= _failing(assessment.context, families)
    # the extensions that are meant and that the failure is about
    facts = assessment.context.facts
    about: set[str] = {canonicalize_name(finding.subject.partition(" ")[0].partition(".")[0])}
    for package in facts.environment.packages.value or ():
        if is_about(finding, package, files_of(package, facts)):
            about |= names_of(package)
    parts = [part for part in assessment.parts if about & {*part.names, canonicalize_name(part.name)}]
    if not parts or not check_named(finding.code).cured_by_rebuild:
        return False
    if use := _step_of(option, UseDropins):
        names = {canonicalize_name(name.partition("@")[0]) for name in use.subjects}
        return not names or all(canonicalize_name(part.name) in names for part in parts)
    if is_driver and _step_of(option, Keep):
        return True
    return rebuild is not None and all(part.name in rebuild.subjects for part in parts)


def _serves_as_it_is(options: Options) -> bool:
    return any(option.kind is OptionKind.KEEP for option in options.available)


def _failing(context: Context, families: Sequence[str]) -> set[str]:
    findings = run_checks(context, select(families))
    return {finding.code for finding in findings if finding.status is Status.FAIL}


def with_torch(facts: Facts, step: InstallTorch) -> Facts:
    """The same machine with this build of torch, and with no companion of another one."""
    version = step.version.replace("*", "0")
    published = build(f"{version}+{step.tag}")
    torch = Torch(f"{version}+{step.tag}", None, None, "")
    if published:
        torch = as_torch(published)
    environment = facts.environment
    installed = environment.distributions.value
    if installed is not None:
        installed = tuple(item for item in installed if item.name.lower() not in COMPANIONS)
    return replace(
        facts,
        environment=replace(
            environment,
            torch=Fact(torch, "as it would be"),
            torch_installed=Fact(True, "as it would be"),
            distributions=replace(environment.distributions, value=installed),
        ),
    )


def _also_needed(finding: Finding, options: Options, assessment: Assessment) -> AlsoNeeded:
    """What to do about a failure that no option cures."""
    if not FAMILIES[finding.family].building:
        return AlsoNeeded(finding.code, finding.summary, finding.remedy)
    text = "matters only for building CUDA code"
    if _serves_as_it_is(options):
        text += "; what is installed needs no rebuild"
    if _install_sets_it(finding, assessment):
        text += "; splatfix install sets this itself; other builds need it set"
    return AlsoNeeded(finding.code, text, finding.remedy)


def _install_sets_it(finding: Finding, assessment: Assessment) -> bool:
    """An installation here finds a toolkit and a compiler, and gives every build the variable that this is about."""
    torch = assessment.context.torch
    if not assessment.context.targets or torch is None or torch.cuda is None:
        return False
    try:
        tools = tools_here(assessment.context, torch)
    except SplatfixError:
        return False
    if tools.before:
        return False
    variables: set[str] = set()
    for command in commands(finding.remedy):
        variables.update(name for name, value in command.env if value is not None)
    return bool(variables & _SET_BY_INSTALL) or finding.family != "build"
