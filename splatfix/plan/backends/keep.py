"""Nothing needs doing: torch and every extension have code for every target, and the driver starts it."""

from splatfix.checks import run_checks, select
from splatfix.core.errors import Rejected
from splatfix.model import Status
from splatfix.model.option import OptionKind, Plan
from splatfix.model.steps import Keep, Reason
from splatfix.plan.case import Case, code_serves, confirm, make_option, not_applicable, torch_obstacles


def keep(case: Case) -> Plan | Rejected:
    """Keep what is installed."""
    against, unsure = torch_obstacles(case)
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
            verdict = code_serves(case, part.code, arch)
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
    return make_option(case, OptionKind.KEEP, (Keep(subjects=case.subjects), confirm(case)), reasons, unsure)
