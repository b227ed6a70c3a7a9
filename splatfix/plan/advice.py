"""How a failing diagnosis ends: the first way out that cures what failed, and what to do about whatever it does not cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from packaging.utils import canonicalize_name

from splatfix.checks import Finding, Status, run_checks, select
from splatfix.context import Goal, make_context
from splatfix.core.step import commands
from splatfix.facts import Fact, Facts, Torch
from splatfix.knowledge.torch_releases import COMPANIONS, build
from splatfix.plan.condemned import files_of, is_about
from splatfix.plan.native_parts import NativePart
from splatfix.plan.road_tools import steps_here
from splatfix.plan.situation import Situation, repair_of
from splatfix.plan.torch_offers import as_torch
from splatfix.plan.ways import Advice, ByHand, InstallTorch, Keep, Rebuild, Road, SwapIn, WayOut, Ways

# Families whose failures are of no consequence until something is compiled.
_BUILDING = ("toolkit", "compiler", "build")
# What no compiler mends, although it is said of a part that one could build.
_NOT_BY_BUILDING = ("arch-below-minimum",)
# What the plan of an installation sets for every build, whatever it was before.
_SET_BY_INSTALL = {"CUDA_HOME", "CC", "CXX", "MAX_JOBS", "TORCH_CUDA_ARCH_LIST", "CPATH"}


def advise(
    findings: Sequence[Finding],
    ways: Ways,
    found: Situation | None,
    windows: bool,
) -> Advice:
    """The first way out among those that cure most, and a step for each failure that it does not cure.

    Args:
        found: the facts as the ways saw them; None where there is nothing to build for.
        windows: the shell that the commands are for is cmd.exe.
    """
    failed = [item for item in findings if item.status is Status.FAIL]
    best: WayOut | None = None
    cured: list[Finding] = []
    for plan in ways.plans:
        here = [item for item in failed if _cures(plan, item, ways, found, windows)]
        if len(here) > len(cured):
            best, cured = plan, here
    left = [item for item in failed if item not in cured]
    said: dict[object, ByHand] = {}  # one remedy answers each failure that names it, once
    for item in left:
        key = tuple(step.text for step in item.remedy if step.text) or item.summary
        said.setdefault(key, _instead(item, ways, found, windows))
    return Advice(best, tuple(said.values()))


def _cures(plan: WayOut, finding: Finding, ways: Ways, found: Situation | None, windows: bool) -> bool:
    """Once this way is gone, the failure is gone."""
    family = finding.family
    if repair_of(finding, windows) in plan.steps:
        return True
    if found is None or plan.road is Road.CONTAINER:
        return False
    built = next((step.subjects for step in plan.steps if isinstance(step, Rebuild)), None)
    if family in _BUILDING:  # where nothing needs to be built, it is no failure that a rebuild answers
        return built is not None and not _serves_as_it_is(ways)
    install = next((step for step in plan.steps if isinstance(step, InstallTorch)), None)
    if family in ("torch", "driver", "gpu"):
        if plan.road is Road.DRIVER:
            return family == "driver"
        return install is not None and _gone_with(install, finding, found)
    about = _parts_of(finding, found)
    if not about or finding.code in _NOT_BY_BUILDING:
        return False
    if any(isinstance(step, SwapIn) for step in plan.steps):
        return True
    if plan.road is Road.DRIVER and any(isinstance(step, Keep) for step in plan.steps):
        return True
    return built is not None and all(part.name in built for part in about)


def _parts_of(finding: Finding, found: Situation) -> list[NativePart]:
    """The extensions that are meant and that a failure is about."""
    facts = found.facts
    names = {canonicalize_name(finding.subject)} if finding.code == "ext-not-installed" else set()
    for package in facts.environment.packages.value or ():
        if is_about(finding, package, files_of(package, facts)):
            names |= {canonicalize_name(name) for name in (package.module, *package.distributions)}
    return [part for part in found.parts if canonicalize_name(part.name) in names]


def _serves_as_it_is(ways: Ways) -> bool:
    return any(plan.road is Road.KEEP for plan in ways.plans)


def _gone_with(step: InstallTorch, finding: Finding, found: Situation) -> bool:
    """The check no longer fails once this torch is there; asked of the check itself."""
    goal = Goal(tuple(arch.sm for arch in found.archs))
    context = make_context(with_torch(found.facts, step), goal)
    return all(item.status is not Status.FAIL for item in run_checks(context, select((finding.code,), ())))


def with_torch(facts: Facts, step: InstallTorch) -> Facts:
    """The same machine with this build of torch, and with no companion of another one."""
    version = step.version.replace("*", "0")
    known = build(f"{version}+{step.tag}")
    torch = as_torch(known) if known else Torch(f"{version}+{step.tag}", None, None, "")
    environment = facts.environment
    others = environment.distributions.value
    return replace(
        facts,
        environment=replace(
            environment,
            torch=Fact(torch, "as it would be"),
            torch_installed=Fact(True, "as it would be"),
            distributions=replace(
                environment.distributions,
                value=None
                if others is None
                else tuple(o for o in others if o.name.lower() not in COMPANIONS),
            ),
        ),
    )


def _instead(finding: Finding, ways: Ways, found: Situation | None, windows: bool) -> ByHand:
    """What to do about a failure that no way out cures."""
    lines = tuple(item.shell(windows=windows) for item in commands(finding.remedy))
    said = " ".join(step.text for step in finding.remedy if step.text)
    what = finding.summary.rstrip(".")
    if finding.family not in _BUILDING:
        return ByHand(f"{finding.code}: {said or what}", lines)
    text = f"{finding.code} matters only when CUDA code is built"
    text += "; what is installed serves as it is" if _serves_as_it_is(ways) else ""
    if _install_sets_it(finding, found):
        return ByHand(f"{text}. splatfix install sets this itself; any other build needs it", lines)
    return ByHand(f"{text}. Before that: {said}" if said else f"{text}. Before that", lines)


def _install_sets_it(finding: Finding, found: Situation | None) -> bool:
    """An installation here finds a toolkit and a compiler, and gives every build the variable that this is about."""
    torch = found.torch if found else None
    if found is None or torch is None or torch.cuda is None or steps_here(found.facts, torch, found.archs):
        return False
    if steps_here(found.facts, torch, found.archs) is None:
        return False
    named = {name for item in commands(finding.remedy) for name, _ in (*item.env, *item.prepend)}
    return bool(named & _SET_BY_INSTALL) or finding.family != "build"
