"""How a failing diagnosis ends: the first option that cures what failed, and what to do about whatever it does not cure."""

from collections.abc import Collection, Sequence
from typing import TypeVar

from msgspec.structs import replace
from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, check_named, run_checks, select
from splatfix.context import Context, make_context
from splatfix.context.architectures import own_variables
from splatfix.context.submodules import FETCH
from splatfix.core.step import Command, Step, commands
from splatfix.knowledge.torch_releases import COMPANIONS, build
from splatfix.model import Fact, Facts, Finding, Status, Torch
from splatfix.model.option import Advice, AlsoNeeded, Option, OptionKind, Options
from splatfix.model.steps import InstallTorch, Keep, Rebuild, UseDropins
from splatfix.plan.assessment import Assessment, most_urgent_first, repair_of, stops_everything
from splatfix.plan.backends.torch import as_torch
from splatfix.plan.parts import NativePart, files_of, imported_names, is_about, names_of

# What install sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(findings: Sequence[Finding], options: Options, assessment: Assessment) -> Advice:
    """The first option among those that cure most, and what to do about each failure that it does not cure.

    What stops everything is the first step of every option, so it speaks for none of them: where nothing else has failed,
    its repair is the fix, and what is installed is kept where it serves.
    """
    meant = imported_names(assessment.context)
    # what the checkout does not import comes last
    failed = sorted(most_urgent_first(findings), key=lambda item: bool(meant) and not _is_meant(item, meant))
    best, cured = _best_cure(failed, options, assessment)
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
        needed.setdefault(key, _also_needed(finding))
        advised.update(finding.remedy)
    return Advice(best, (*refused, *needed.values()), mended)


def _is_meant(finding: Finding, names: Collection[str]) -> bool:
    """Tell whether it is about no extension, or about one of these normalised names."""
    return finding.family != "extension" or _name_in(finding.subject) in names


def _name_in(subject: str) -> str:
    """Take the normalised name of the package from ``simple_knn on sm_120 (--target)``, ``simple_knn._C``."""
    return canonicalize_name(subject.partition(" ")[0].partition(".")[0])


def _mended(
    best: Option | None,
    cured: Sequence[Finding],
    findings: Sequence[Finding],
    options: Options,
    assessment: Assessment,
) -> tuple[str, ...]:
    """Codes of what is no problem, all of a code: what install mends in its copy, advice that it follows by itself, and where
    nothing needs to be built, what only builds meet."""
    serves = _serves_as_it_is(options)
    builds = best and options.subjects and _step_of(best, Rebuild)
    if not (builds or assessment.sources.named or assessment.sources.refused or serves):
        return ()
    # of sources that install refuses, or has built, too: what it gives every build is not for the user to set
    not_passed = [item for item in findings if item.status in (Status.FAIL, Status.WARN, Status.SKIP)]
    mended = [item for item in not_passed if _followed_by_install(item, assessment)]
    if builds or serves:
        mended += filter(_cured_by_edit, findings)
    if serves:
        failed = (item for item in findings if item.status is Status.FAIL)
        mended += (item for item in failed if FAMILIES[item.family].building)
    left = {item.code for item in not_passed if item not in mended and item not in cured}
    codes = dict.fromkeys(item.code for item in mended if item.code not in left)
    return tuple(code for code in codes if not check_named(code).of_environment)


def _cured_by_edit(finding: Finding) -> bool:
    """What is wrong with a source, and its advice ends with the build that edits a copy; of what has yet to be cloned is none."""
    asked = commands(finding.remedy)
    builds = [command for command in asked if command.argv[:2] == ("splatfix", "install")]
    if any(command.argv[:2] == ("git", "clone") for command in asked):
        return False
    return (
        finding.status in (Status.FAIL, Status.WARN)
        and finding.family == "checkout"
        and any(FETCH not in command.argv for command in builds)
    )


def _followed_by_install(finding: Finding, assessment: Assessment) -> bool:
    """Its advice is to set what install sets, or to build where torch is, as install does."""
    variables = set(_SET_BY_INSTALL)
    for source in assessment.sources.built_from.values():
        variables.update(source.switches.on, source.switches.off)
        variables.update(variable.name for variable in own_variables(source))
    asked = commands(finding.remedy)
    # what begins with something for the user to do is no doing of install's
    return bool(asked and finding.remedy[0].command) and all(
        "--no-build-isolation" in command.argv
        or (not command.argv and variables.issuperset(name for name, _ in command.env))
        for command in asked
    )


def _best_cure(
    failed: Sequence[Finding], options: Options, assessment: Assessment
) -> tuple[Option | None, list[Finding]]:
    """The first option among those that cure most, and the failures that it cures."""
    best: Option | None = None
    best_cured: list[Finding] = []
    most = 0
    for option in options.available:
        cured = [finding for finding in failed if _cures(option, finding, options, assessment)]
        counting = sum(not stops_everything(finding.code) for finding in cured)
        if counting > most or (cured and option.kind is OptionKind.KEEP):
            best, best_cured, most = option, cured, counting
    return best, best_cured


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
    for step in option.steps:
        if isinstance(step, kind):
            return step
    return None


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
    parts = _parts_of(finding, assessment)
    if not parts or not check_named(finding.code).cured_by_rebuild:
        return False
    if use := _step_of(option, UseDropins):
        names = {canonicalize_name(name.partition("@")[0]) for name in use.subjects}
        return not names or all(canonicalize_name(part.name) in names for part in parts)
    if is_driver and _step_of(option, Keep):
        return True
    return rebuild is not None and all(part.name in rebuild.subjects for part in parts)


def _parts_of(finding: Finding, assessment: Assessment) -> list[NativePart]:
    """The extensions that are meant and that a failure is about."""
    facts = assessment.context.facts
    names = {_name_in(finding.subject)}
    for package in facts.environment.packages.value or ():
        if is_about(finding, package, files_of(package, facts)):
            names |= names_of(package)
    return [part for part in assessment.parts if names & {*part.names, canonicalize_name(part.name)}]


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


def _also_needed(finding: Finding) -> AlsoNeeded:
    """What to do about a failure that no option cures."""
    text = finding.summary
    if FAMILIES[finding.family].building:
        text = "matters only for building CUDA code"
    return AlsoNeeded(finding.code, text, finding.remedy)
