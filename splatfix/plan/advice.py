"""How a failing diagnosis ends: the first option that cures what failed, and what to do about whatever it does not cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from packaging.utils import canonicalize_name

from splatfix.checks import FAMILIES, check_named, run_checks, select
from splatfix.context import Context
from splatfix.context.architectures import own_variables
from splatfix.core.step import PlainStep, Step, commands
from splatfix.knowledge.torch_releases import COMPANIONS, build
from splatfix.model import Finding, Status, Torch
from splatfix.model.option import Advice, AlsoNeeded, OptionKind, Options, Plan
from splatfix.model.steps import BuildWheel, InstallTorch, Keep, MakeDropin
from splatfix.plan.backends.torch import as_torch
from splatfix.plan.case import Case, context_to_be, most_urgent_first, repair_of
from splatfix.plan.parts import imported_names, is_about, names_of

# What install sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(findings: Sequence[Finding], options: Options, case: Case) -> Advice:
    """Advise the first option among those that cure most, and what to do about each failure that it does not cure."""
    imported = imported_names(case.context)

    # an extension that the checkout does not import comes last
    def is_apart(finding: Finding) -> bool:
        return bool(imported) and finding.family == "extension" and _name_in(finding.subject) not in imported

    failed = sorted(most_urgent_first(findings), key=is_apart)
    best: Plan | None = None
    cured: list[Finding] = []
    most = 0
    # what stops everything is the first step of every option, so it speaks for none of them: where nothing else has failed,
    # its repair is the fix, and what is installed is kept where it serves
    for plan in options.available:
        of_plan = [finding for finding in failed if _cures(plan, finding, options, case)]
        counting = sum(check_named(finding.code).blocks is None for finding in of_plan)
        if counting > most or (of_plan and plan.kind is OptionKind.KEEP):
            best, cured, most = plan, of_plan, counting
    mended = _mended(best, cured, findings, options, case)
    needed: dict[object, AlsoNeeded] = {}
    advised: dict[Step, None] = {}
    # what install says of a checkout that has nothing to build, with what to do instead
    refused = case.sources.refused
    if refused:
        for step in refused.todo:
            if isinstance(step, PlainStep) and step.sources and step.command and step.command.blanks:
                advised[case.context.install(*step.sources, text=step.text)] = None
            elif step.kind != "diagnose":  # which is what the user is reading
                advised[step] = None
        text = f"{refused.what} {refused.meaning}".strip()
        needed[""] = AlsoNeeded(refused.code, text, tuple(advised))
    # what the option itself begins with needs not be said again
    done = commands(best.steps) if best else ()
    for finding in failed:
        remedy = finding.remedy
        said = remedy and (advised.keys() >= {*remedy} or remedy[0].command in done)
        if finding in cured or finding.code in mended or said:
            continue
        text = finding.summary
        if FAMILIES[finding.family].building:
            text = "matters only for building CUDA code"
        # one remedy answers each failure that names it, once
        key = tuple(step.text for step in remedy if step.text) or finding.summary
        needed.setdefault(key, AlsoNeeded(finding.code, text, remedy))
        advised.update(dict.fromkeys(remedy))
    return Advice(best, tuple(needed.values()), mended)


def _name_in(subject: str) -> str:
    """Take the normalised name of the package from ``simple_knn on sm_120 (--target)``, ``simple_knn._C``."""
    return canonicalize_name(subject.partition(" ")[0].partition(".")[0])


def _mended(
    best: Plan | None, cured: Sequence[Finding], findings: Sequence[Finding], options: Options, case: Case
) -> tuple[str, ...]:
    """List codes of what is no problem: what install mends in its copy or sets, and where nothing is built, what builds meet."""
    serves = _serves_as_it_is(options)
    builds = best and options.subjects and _step_of(best, BuildWheel)
    # of sources that install refuses, or has built, too: what it gives every build is not for the user to set
    if not (builds or case.sources.named or case.sources.refused or serves):
        return ()
    mended: dict[str, None] = {}
    left: set[str] = set()
    for finding in findings:
        building = finding.status is Status.FAIL and FAMILIES[finding.family].building
        by_edit = _cured_by_edit(finding) and (builds or serves)
        if finding.status not in (Status.FAIL, Status.WARN, Status.SKIP):
            continue
        if by_edit or (serves and building) or _followed_by_install(finding, case):
            mended[finding.code] = None
        elif finding not in cured:
            left.add(finding.code)
    return tuple(code for code in mended if code not in left and not check_named(code).of_environment)


def _cured_by_edit(finding: Finding) -> bool:
    """Tell whether a source is wrong, and the build that edits a copy of it is advised; what is yet to be cloned is no source."""
    if finding.status not in (Status.FAIL, Status.WARN) or finding.family != "checkout":
        return False
    kinds = {step.kind for step in finding.remedy if step.command and not step.command.blanks}
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
    runs_nothing = not any(command.argv for command in asked)
    sets_no_other = variables.issuperset(name for command in asked for name, _ in command.env)
    return (runs_nothing and sets_no_other) or check_named(finding.code).done_by_install


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
        install, families = _step_of(plan, InstallTorch), ["torch", "gpu"]
        if install is None:
            return False
        # a newer driver is judged by its own version, not by the checks of the one that it replaces
        if not is_driver:
            families.append("driver")
        # gone once this torch is there, with no companion (torchvision) of another build, and no other failure begins
        version, context = f"{install.version.replace('*', '0')}+{install.tag}", case.context
        published, torch = build(version), Torch(version, None, None, "")
        if published:
            torch = as_torch(published)
        others = tuple(item for item in context.distributions if item.name.lower() not in COMPANIONS)
        mended = context_to_be(context, torch=torch, torch_installed=True, distributions=others)
        failing = _failing(mended, families)
        return finding.code not in failing and failing <= _failing(case.context, families)
    # the extensions that are meant and that the failure is about
    facts, about = case.context.facts, {_name_in(finding.subject)}
    for package in case.context.packages:
        if is_about(finding, package, facts):
            about |= names_of(package)
    parts = [part for part in case.parts if about & {*part.names, canonicalize_name(part.name)}]
    if not parts or not check_named(finding.code).cured_by_rebuild:
        return False
    if use := _step_of(plan, MakeDropin):
        names = {canonicalize_name(name.partition("@")[0]) for name in use.subjects}
        return not names or all(canonicalize_name(part.name) in names for part in parts)
    if is_driver and _step_of(plan, Keep):
        return True
    return rebuild is not None and all(part.name in rebuild.subjects for part in parts)


def _serves_as_it_is(options: Options) -> bool:
    return any(plan.kind is OptionKind.KEEP for plan in options.available)


def _failing(context: Context, families: Sequence[str]) -> set[str]:
    findings = run_checks(context, select(families))
    return {finding.code for finding in findings if finding.status is Status.FAIL}
