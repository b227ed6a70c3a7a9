"""How a failing diagnosis ends: the first option that cures what failed, and what to do about whatever it does not cure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, check_named, run_checks, select
from splatfix.context import Context
from splatfix.context.architectures import own_variables
from splatfix.core.step import Command, PlainStep, Step, commands
from splatfix.knowledge.torch_releases import build
from splatfix.model import Finding, Status, Torch
from splatfix.model.option import Advice, AlsoNeeded, OptionKind, Options, Plan
from splatfix.model.steps import BuildWheel, InstallTorch, Keep, MakeDropin
from splatfix.plan.case import Case, most_urgent_first, repair_of
from splatfix.plan.parts import NativePart, imported_names, is_about, names_of
from splatfix.plan.to_be import as_torch, context_to_be

# What install sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(findings: Sequence[Finding], options: Options, case: Case) -> Advice:
    """Advise the first option among those that cure most, and what to do about each failure that it does not cure.

    What stops everything is the first step of every option, so it speaks for none of them: where nothing else has failed,
    its repair is the fix, and what is installed is kept where it serves.
    """
    meant = imported_names(case.context)
    # what the checkout does not import comes last
    failed = sorted(most_urgent_first(findings), key=lambda item: bool(meant) and not _is_meant(item, meant))
    best, cured = _best_cure(failed, options, case)
    refused = _refusal(case)
    mended = _mended(best, cured, findings, options, case)
    needed: dict[object, AlsoNeeded] = {}
    advised: set[Step] = {step for item in refused for step in item.steps}
    # what the option itself begins with needs not be said again
    done: set[Command] = set()
    if best:
        done.update(commands(best.steps))
    for finding in failed:
        if finding in cured or finding.code in mended:
            continue
        if finding.remedy and (advised.issuperset(finding.remedy) or finding.remedy[0].command in done):
            continue
        text = finding.summary
        if FAMILIES[finding.family].building:
            text = "matters only for building CUDA code"
        # one remedy answers each failure that names it, once
        key = tuple(step.text for step in finding.remedy if step.text) or finding.summary
        needed.setdefault(key, AlsoNeeded(finding.code, text, finding.remedy))
        advised.update(finding.remedy)
    return Advice(best, (*refused, *needed.values()), mended)


def _is_meant(finding: Finding, names: Collection[str]) -> bool:
    """Tell whether it is about no extension, or about one of these normalised names."""
    return finding.family != "extension" or _name_in(finding.subject) in names


def _name_in(subject: str) -> str:
    """Take the normalised name of the package from ``simple_knn on sm_120 (--target)``, ``simple_knn._C``."""
    return canonicalize_name(subject.partition(" ")[0].partition(".")[0])


def _best_cure(failed: Sequence[Finding], options: Options, case: Case) -> tuple[Plan | None, list[Finding]]:
    """Return the first option among those that cure most, and the failures that it cures."""
    best: Plan | None = None
    best_cured: list[Finding] = []
    most = 0
    for plan in options.available:
        cured = [finding for finding in failed if _cures(plan, finding, options, case)]
        counting = sum(check_named(finding.code).blocks is None for finding in cured)
        if counting > most or (cured and plan.kind is OptionKind.KEEP):
            best, best_cured, most = plan, cured, counting
    return best, best_cured


def _mended(
    best: Plan | None, cured: Sequence[Finding], findings: Sequence[Finding], options: Options, case: Case
) -> tuple[str, ...]:
    """List codes of what is no problem, all of a code: what install mends in its copy, advice that it follows by itself, and
    where nothing needs to be built, what only builds meet."""
    serves = _serves_as_it_is(options)
    builds = best and options.subjects and _step_of(best, BuildWheel)
    if not (builds or case.sources.named or case.sources.refused or serves):
        return ()
    # of sources that install refuses, or has built, too: what it gives every build is not for the user to set
    not_passed = [item for item in findings if item.status in (Status.FAIL, Status.WARN, Status.SKIP)]
    mended = [item for item in not_passed if _followed_by_install(item, case)]
    if builds or serves:
        mended += filter(_cured_by_edit, findings)
    if serves:
        failed = (item for item in findings if item.status is Status.FAIL)
        mended += (item for item in failed if FAMILIES[item.family].building)
    left = {item.code for item in not_passed if item not in mended and item not in cured}
    codes = dict.fromkeys(item.code for item in mended if item.code not in left)
    return tuple(code for code in codes if not check_named(code).of_environment)


def _cured_by_edit(finding: Finding) -> bool:
    """Tell whether a source is wrong, and the build that edits a copy of it is advised; what is yet to be cloned is no source."""
    if finding.status not in (Status.FAIL, Status.WARN) or finding.family != "checkout":
        return False
    runnable = [step for step in finding.remedy if step.command and not step.command.blanks]
    kinds = {step.kind for step in runnable}
    return "install" in kinds and "clone" not in kinds


def _followed_by_install(finding: Finding, case: Case) -> bool:
    """Tell whether its advice is to set what install sets, or to build where torch is, as install does."""
    asked = commands(finding.remedy)
    # what begins with something for the user to do is no doing of install's
    if not asked or not finding.remedy[0].command:
        return False
    variables = set(_SET_BY_INSTALL)
    for source in case.sources.built_from.values():
        variables.update(source.switches.on, source.switches.off)
        variables.update(variable.name for variable in own_variables(source))
    sets_no_other = all(
        not command.argv and variables.issuperset(name for name, _ in command.env) for command in asked
    )
    return sets_no_other or check_named(finding.code).done_by_install


def _refusal(case: Case) -> tuple[AlsoNeeded, ...]:
    """Say what ``splatfix install`` says of a checkout that has nothing to build, with what to do instead."""
    refused = case.sources.refused
    if refused is None:
        return ()
    steps: list[Step] = []
    for step in refused.todo:
        if isinstance(step, PlainStep) and step.sources and step.command and step.command.blanks:
            steps.append(case.context.install(*step.sources, text=step.text))
        elif step.kind != "diagnose":  # which is what the user is reading
            steps.append(step)
    return (AlsoNeeded(refused.code, f"{refused.what} {refused.meaning}".strip(), tuple(steps)),)


_StepKind = TypeVar("_StepKind", bound=Step)


def _step_of(plan: Plan, kind: type[_StepKind]) -> _StepKind | None:
    return next((step for step in plan.steps if isinstance(step, kind)), None)


def _cures(plan: Plan, finding: Finding, options: Options, case: Case) -> bool:
    """Tell whether the failure is gone once this plan is carried out."""
    if all(step in plan.steps for step in repair_of(finding)):
        return True
    if not options.targets or plan.kind is OptionKind.CONTAINER:
        return False
    family, rebuild = FAMILIES[finding.family], _step_of(plan, BuildWheel)
    # where nothing needs to be built, it is no failure that a rebuild answers
    if family.building or _cured_by_edit(finding):
        return rebuild is not None and not _serves_as_it_is(options)
    is_driver = plan.kind is OptionKind.DRIVER
    if family.cured_by_torch:
        if is_driver and finding.family == "driver":
            return True
        install = _step_of(plan, InstallTorch)
        if install is None:
            return False
        # a newer driver is judged by its own version, not by the checks of the one that it replaces
        families = ["torch", "gpu"]
        if not is_driver:
            families.append("driver")
        # gone once this torch is there, and no other failure begins; asked of the checks themselves
        version = f"{install.version.replace('*', '0')}+{install.tag}"
        published = build(version)
        torch = Torch(version, None, None, "")
        if published:
            torch = as_torch(published)
        failing = _failing(context_to_be(case.context, torch=torch), families)
        return finding.code not in failing and failing <= _failing(case.context, families)
    parts = _parts_of(finding, case)
    if not parts or not check_named(finding.code).cured_by_rebuild:
        return False
    if use := _step_of(plan, MakeDropin):
        names = {canonicalize_name(name.partition("@")[0]) for name in use.subjects}
        return not names or all(canonicalize_name(part.name) in names for part in parts)
    if is_driver and _step_of(plan, Keep):
        return True
    return rebuild is not None and all(part.name in rebuild.subjects for part in parts)


def _parts_of(finding: Finding, case: Case) -> list[NativePart]:
    """List the extensions that are meant and that a failure is about."""
    facts = case.context.facts
    names = {_name_in(finding.subject)}
    for package in facts.environment.packages.value or ():
        if is_about(finding, package, facts):
            names |= names_of(package)
    return [part for part in case.parts if names & {*part.names, canonicalize_name(part.name)}]


def _serves_as_it_is(options: Options) -> bool:
    return any(plan.kind is OptionKind.KEEP for plan in options.available)


def _failing(context: Context, families: Sequence[str]) -> set[str]:
    findings = run_checks(context, select(families))
    return {finding.code for finding in findings if finding.status is Status.FAIL}
