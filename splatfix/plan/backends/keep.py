"""Nothing needs doing: torch and every extension have code for every target, and the driver starts it."""

from splatfix.checks import run_checks, select
from splatfix.model import Status
from splatfix.model.option import NotApplicable, Option, OptionKind
from splatfix.model.steps import Keep, Reason
from splatfix.plan.assessment import Assessment, code_serves, torch_obstacles
from splatfix.plan.compose import confirm, make_option


def keep(assessment: Assessment) -> Option:
    """Keep what is installed."""
    against, unsure = torch_obstacles(assessment)
    if not assessment.parts:
        against.append("no splatting extension is installed, so there is nothing to keep")
    for part in assessment.parts:
        if not part.installed:
            against.append(f"{part.name} is not installed")
            continue
        if part.error:
            against.append(f"{part.name}: {part.error}")
            continue
        objections = []
        for arch in () if part.anywhere else assessment.context.archs:
            verdict = code_serves(assessment, part.code, arch)
            if verdict.ok is False:
                objections.append(f"{part.name} cannot run ({verdict.reason})")
            elif verdict.ok is None:
                unsure.append(f"{part.name} on {arch.sm}: {verdict.reason}")
        # what else is wrong with it matters only where its code would run at all
        against += objections or [f"{part.name}: {reason}" for reason in part.unfit]
    if not against:
        # why the installed torch itself cannot be used, beside what GPU code it carries
        findings = run_checks(assessment.context, select(("torch",)))
        against = [item.summary.rstrip(".") for item in findings if item.status is Status.FAIL]
    if against:
        raise NotApplicable("; ".join(dict.fromkeys(against)))
    if any(not part.anywhere and not part.code for part in assessment.parts):
        guess = "what GPU code is installed could not be read, so keeping it would be a guess"
        raise NotApplicable(f"{guess}: {'; '.join(unsure)}")
    steps = (Keep(subjects=assessment.subjects), confirm(assessment))
    parts, reasons = assessment.parts, []
    if native := ", ".join(part.name for part in parts if not part.anywhere):
        text = f"every fatbin of {native} has code for {assessment.names}"
        reasons.append(Reason(text, "their bytes"))
    if without_gpu_code := ", ".join(part.name for part in parts if part.cpu):
        reasons.append(Reason(f"installed, and without GPU code: {without_gpu_code}", "pip's list"))
    if dropins := ", ".join(part.name for part in parts if part.dropin):
        reasons.append(Reason(f"splatfix's drop-ins run wherever torch does: {dropins}", "pip's list"))
    return make_option(assessment, OptionKind.KEEP, steps, reasons, unsure)
