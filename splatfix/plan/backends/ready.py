"""What needs no build here: what is installed is kept, or mended where it lies; proven wheels are installed; a lane is run."""

from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import Context
from splatfix.context.commands import pip
from splatfix.context.installed import python_versions
from splatfix.core.errors import Rejected
from splatfix.core.proof import RungName
from splatfix.core.step import Command, target_options
from splatfix.core.versions import dotted
from splatfix.knowledge.breakages import breakages
from splatfix.knowledge.lanes import GpuNeed, Lane, load_lanes
from splatfix.knowledge.torch_releases import build, how_build_runs
from splatfix.model import Status
from splatfix.model.option import OptionKind, Plan, Request
from splatfix.model.steps import EditSource, FetchWheel, Keep, PlannedEdit, Reason, RunLane
from splatfix.plan.case import Case, not_applicable, without_rungs
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


def wheels(case: Case) -> Plan | Rejected:
    """Install the wheels that were found for the sources; they were looked for before, here nothing is."""
    against, unsure = case.torch_obstacles()
    prebuilt = case.prebuilt or {}
    lacking = [name for name in case.sources.variants if name not in prebuilt]
    if lacking or not prebuilt:
        against.append(f"no wheel is proven for {', '.join(lacking) or 'anything here'}")
    if against:
        return not_applicable(*against)
    options = ["--backend", "wheels", *target_options(case.context.archs)]
    for index in dict.fromkeys(step.origin for step in prebuilt.values()):
        options += ["--index", index]
    first, *others = prebuilt.values()
    first = replace(first, command=case.splatfix("install", *case.sources.named, *options))
    reasons = [Reason(why_prebuilt(step)) for step in prebuilt.values()]
    return case.make_option(OptionKind.WHEEL, (first, *others, case.confirm()), reasons, unsure)


def why_prebuilt(step: FetchWheel) -> str:
    """Say what is known of a prebuilt wheel, and what is not."""
    return (
        f"{step.subject} {step.version} of {step.origin} is prebuilt: its GPU code, torch's symbols and how it is called fit; "
        "whether its CUDA code is that of the source cannot be read (--no-find compiles it)"
    )


def container(case: Case) -> Plan | Rejected:
    """Run the first lane with a GPU that serves the targets."""
    machine = case.context.machine
    if machine.container and "docker" not in machine.tools:
        return not_applicable(f"this is a {machine.container} container already; call splatfix on its host")
    if machine.system != "linux" or machine.machine not in ("x86_64", "AMD64"):
        platform = f"{machine.system} {machine.machine}"
        return not_applicable(f"the lanes are made for Linux x86_64, this is {platform}")
    if "docker" not in machine.tools:
        return not_applicable("docker was not found on this machine")
    against: list[str] = []
    for lane in load_lanes().values():
        if lane.gpu is not GpuNeed.REQUIRED:
            continue
        objection, unsure = _objection_to_lane(case, lane)
        if not objection:
            command = Command(("splatfix", "certify", "--container", lane.name))
            reason = "torch and everything else come from the image; only the driver is this machine's"
            step = RunLane(command=command, lane=lane.name, torch=lane.torch)
            option = case.make_option(OptionKind.CONTAINER, (step,), (Reason(reason),), unsure)
            return without_rungs(option, [RungName.REPRODUCES], "the environment itself is not changed")
        against.append(f"lane {lane.name}: {objection}")
    return not_applicable("; ".join(against))


def _objection_to_lane(case: Case, lane: Lane) -> tuple[str, list[str]]:
    """Say why a lane does not serve the targets, or "" and what is not known about it."""
    release = build(lane.torch.rpartition("==")[2])
    if not case.here:
        return f"this machine has no {case.names} GPU to pass in", []
    if release is None:
        return "", [f"what GPU code {lane.torch} carries"]
    unsure = []
    for arch in case.context.archs:
        runs = how_build_runs(release, arch)
        if runs == "no":
            return f"{lane.torch} has no code for {arch.sm}", []
        if runs == "unknown":
            unsure.append(f"whether {lane.torch} runs on {arch.sm}")
    driver = case.driver_objection(dotted(release.cuda))
    if driver.ok is False:
        return driver.reason, unsure
    if driver.ok is None:
        unsure.append(driver.reason)
    return "", unsure
