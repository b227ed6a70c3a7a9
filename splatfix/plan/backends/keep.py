"""What is installed stays: as it is, where it serves every target; or mended where it lies (``install NAME --in-place``)."""

from splatfix.checks import run_checks, select
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import Rejected
from splatfix.knowledge.breakages import breakages
from splatfix.model import Status
from splatfix.model.option import OptionKind, Plan, Request
from splatfix.model.steps import EditSource, Keep, PlannedEdit, Reason
from splatfix.plan.case import Case, not_applicable
from splatfix.plan.tools import usable_python


def keep(case: Case) -> Plan | Rejected:
    """Keep what is installed."""
    against, unsure = case.torch_obstacles()
    if not case.parts:
        against.append("no splatting extension is installed, so there is nothing to keep")
    for part in case.parts:
        if not part.installed:
            against.append(f"{part.name} is not installed")
            continue
        if part.error:
            against.append(f"{part.name}: {part.error}")
            continue
        objections = []
        for arch in () if part.anywhere else case.context.archs:
            verdict = case.code_serves(part.code, arch)
            if verdict.ok is False:
                objections.append(f"{part.name} cannot run ({verdict.reason})")
            elif verdict.ok is None:
                unsure.append(f"{part.name} on {arch.sm}: {verdict.reason}")
        # what else is wrong with it matters only where its code would run at all
        against += objections or [f"{part.name}: {reason}" for reason in part.unfit]
    if not against:
        # why the installed torch itself cannot be used, beside what GPU code it carries
        findings = run_checks(case.context, select(("torch",)))
        against = [item.summary.rstrip(".") for item in findings if item.status is Status.FAIL]
    if against:
        return not_applicable(*against)
    if any(not part.anywhere and not part.code for part in case.parts):
        guess = "what GPU code is installed could not be read, so keeping it would be a guess"
        return not_applicable(f"{guess}: {'; '.join(unsure)}")
    reasons = []
    if native := ", ".join(part.name for part in case.parts if not part.anywhere):
        text = f"every fatbin of {native} has code for {case.names}"
        reasons.append(Reason(text, "their bytes"))
    if without_gpu_code := ", ".join(part.name for part in case.parts if part.cpu):
        reasons.append(Reason(f"installed, and without GPU code: {without_gpu_code}", "pip's list"))
    if dropins := ", ".join(part.name for part in case.parts if part.dropin):
        reasons.append(Reason(f"splatfix's drop-ins run wherever torch does: {dropins}", "pip's list"))
    return case.make_option(OptionKind.KEEP, (Keep(subjects=case.subjects), case.confirm()), reasons, unsure)


def mended_by_name(request: Request) -> bool:
    """Tell whether it is ``--in-place``, and every source is the name of a package that there are edits for."""
    names = {record.installed.distribution for record in breakages() if record.installed}
    return request.in_place and bool(request.sources) and names.issuperset(request.sources)


def mend_plan(request: Request, context: Context) -> Plan | Rejected:
    """Plan the edits of installed packages, each with its files backed up first."""
    python, versions = usable_python(context.facts), python_versions(context.facts)
    if isinstance(python, Rejected):
        return python
    steps = []
    for name in request.sources:
        distribution = context.distribution(name)
        if distribution is None or distribution.editable:
            return Rejected.of("plan.not-installed", todo=(pip(context.facts, "install", name),), name=name)
        edits, reasons = [], []
        for record in breakages():
            breaks = record.breaks_installed(name, distribution.version) and record.when.holds(versions)
            if breaks and record.edits and record.installed:
                sources = "; ".join(record.sources)
                edits.append(PlannedEdit(record.key, record.installed.files, record.symptom, sources))
                reasons.append(Reason(f"{record.title}: {record.cure}"))
        if not edits:
            return Rejected.of("plan.nothing-to-mend", name=name, version=distribution.version)
        where = distribution.location
        steps.append(EditSource(subject=name, source=where, edits=tuple(edits), reasons=tuple(reasons)))
    return Plan(OptionKind.KEEP, f"edit the installed {', '.join(request.sources)}", tuple(steps))
