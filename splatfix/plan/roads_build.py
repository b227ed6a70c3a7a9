"""The roads that compile or keep what is there: keep, rebuild, rebuild with PTX, provide a toolkit, install one by hand."""

from __future__ import annotations

from splatfix.checks import Status, run_checks, select
from splatfix.context import Goal, Rejected, make_context
from splatfix.context.targets import driver_level
from splatfix.context.toolkits import BuildToolkit, choose_ptx
from splatfix.core.errors import SplatfixError
from splatfix.facts import Torch
from splatfix.knowledge import cubin_runs_on
from splatfix.plan.plan import Reason
from splatfix.plan.road_parts import rebuild_steps, show_step, shut, way
from splatfix.plan.road_tools import (
    Tools,
    compiler_here,
    steps_here,
    tools_by_hand,
    tools_from_wheels,
    tools_here,
)
from splatfix.plan.situation import Situation, code_serves, torch_obstacles
from splatfix.plan.ways import Keep, Road, WayOut


def keep(found: Situation) -> WayOut | Rejected:
    """Nothing needs doing: torch and every extension carry code for every target, and the driver starts it."""
    against, unsure = torch_obstacles(found)
    if not found.parts:
        against.append("no splatting extension is installed, so there is nothing to keep")
    for part in found.parts:
        if not part.installed or part.error:
            against.append(
                f"{part.name} is not installed" if not part.installed else f"{part.name}: {part.error}"
            )
            continue
        cuda = found.torch.cuda if found.torch else None
        before = len(against)
        for arch in () if part.swap else found.archs:
            verdict = code_serves(part.code, arch, level=driver_level(found.facts, arch), cuda=cuda)
            if verdict.ok is False:
                against.append(f"{part.name} {_cannot(verdict.why)} on {arch.sm}")
            elif verdict.ok is None:
                unsure.append(f"{part.name} on {arch.sm}: {verdict.why}")
        if len(against) == before:
            against += [f"{part.name}: {why}" for why in part.unfit]
    against = against or _torch_failures(found)
    if against:
        return shut(Road.KEEP, "; ".join(dict.fromkeys(against)))
    if any(not part.swap and not part.code for part in found.parts):
        return shut(
            Road.KEEP,
            "what GPU code is installed could not be read, so keeping it would be a guess: "
            + "; ".join(unsure),
        )
    native = ", ".join(part.name for part in found.parts if not part.swap)
    drop_ins = ", ".join(part.name for part in found.parts if part.swap)
    reasons = (
        [Reason(f"every fatbin of {native} has code for {found.words}", "their bytes")] if native else []
    )
    if drop_ins:
        reasons.append(Reason(f"splatfix's drop-ins run wherever torch does: {drop_ins}", "pip's list"))
    return way(found, Road.KEEP, (Keep(found.subjects), show_step(found)), reasons, unsure)


def _torch_failures(found: Situation) -> list[str]:
    """What checks found of the installed torch itself that keeps it from being used, beside what it carries."""
    context = make_context(found.facts, Goal(tuple(arch.sm for arch in found.archs)))
    failed = [item for item in run_checks(context, select(("torch",), ())) if item.status is Status.FAIL]
    return [item.summary.rstrip(".") for item in failed]


def _cannot(reason: str) -> str:
    return f"cannot run ({reason})"


def _torch_to_build_for(found: Situation) -> tuple[Torch, list[str]]:
    """The torch that is here, where compiling beside it serves the targets, and what is not known about that.

    Raises:
        SplatfixError: what speaks against compiling anything: torch, or that all of it is to be left alone.
    """
    against, unsure = torch_obstacles(found)
    if found.kept and len(found.kept) == len(found.parts):
        against.append(f"{', '.join(found.kept)} is to be left as it is (--keep)")
    if against or found.torch is None:
        raise SplatfixError("nothing-to-build-for", "; ".join(against))
    return found.torch, unsure


def rebuild(found: Situation) -> WayOut | Rejected:
    """Compile with a toolkit of this machine; a missing host compiler is the person's to install first."""
    try:
        torch, unsure = _torch_to_build_for(found)
        tools = tools_here(found.facts, torch, found.archs)
    except SplatfixError as error:
        return shut(Road.REBUILD, error.what)
    return way(found, Road.REBUILD, rebuild_steps(found, tools), tools.reasons, unsure)


def rebuild_with_ptx(found: Situation) -> WayOut | Rejected:
    """For a GPU newer than the toolkit: machine code of an older major does not load there, PTX does."""
    road = Road.REBUILD_PTX
    try:
        torch, unsure = _torch_to_build_for(found)
        decision = choose_ptx(found.facts, torch, found.archs).required()
        compiler, before, why = compiler_here(found.facts, torch, decision.toolkit, decision.version)
    except SplatfixError as error:
        return shut(road, error.what)
    cuda = decision.toolkit.version or ""
    if decision.ptx is None:
        return shut(road, f"not needed: CUDA {cuda} here makes machine code for {found.words}")
    reasons = (Reason(_why_ptx(found, decision)), Reason(decision.why), *why)
    tools = Tools(cuda, decision.toolkit.root, decision.build_archs, compiler, before, reasons, decision.ptx)
    unsure += [decision.unsure] if decision.unsure else []
    return way(found, road, rebuild_steps(found, tools, "--ptx"), reasons, unsure)


def _why_ptx(found: Situation, decision: BuildToolkit) -> str:
    """Why machine code alone would not do."""
    assert decision.ptx is not None
    served = decision.build_archs
    newer = ", ".join(arch.sm for arch in found.archs if not any(cubin_runs_on(own, arch) for own in served))
    return (
        f"CUDA {decision.toolkit.version} cannot name {newer}; {decision.ptx.sm} machine code alone would not load there, "
        f"because machine code runs within one major only; so {decision.ptx.compute} PTX goes along"
    )


def _torch_without_toolkit(found: Situation) -> tuple[Torch, list[str], int | None]:
    """As ``_torch_to_build_for``, where no toolkit here compiles as it is; and what has to be done by hand until one does
    (None: no toolkit here fits).

    Raises:
        SplatfixError: what speaks against compiling, or that no other toolkit is needed.
    """
    torch, unsure = _torch_to_build_for(found)
    steps = steps_here(found.facts, torch, found.archs)
    if steps == 0:
        raise SplatfixError("toolkit-is-here", "not needed: a toolkit that fits is here")
    toolkits = found.facts.machine.toolkits
    if toolkits.value is None:
        unsure.append(f"which toolkits are here ({toolkits.error}); one that fits would spare this")
    return torch, unsure, steps


def provide_toolkit(found: Situation) -> WayOut | Rejected:
    """CUDA 13 has a whole compiler on PyPI; 11 and 12 have none."""
    road = Road.PROVIDE_TOOLKIT
    try:
        torch, unsure, _ = _torch_without_toolkit(found)
        tools = tools_from_wheels(found.facts, torch, found.archs)
    except SplatfixError as error:
        return shut(road, error.what)
    return way(found, road, rebuild_steps(found, tools, "--provide-toolkit"), tools.reasons, unsure)


def install_toolkit(found: Situation) -> WayOut | Rejected:
    """A toolkit of torch's major that the person installs: told, never done."""
    road = Road.INSTALL_TOOLKIT
    try:
        torch, unsure, here = _torch_without_toolkit(found)
        tools = tools_by_hand(found.facts, torch, found.archs)
    except SplatfixError as error:
        return shut(road, error.what)
    if here is not None and len(tools.before) > here:
        return shut(
            road,
            "the toolkit that is here fits; only a host compiler is missing, which another toolkit would need too",
        )
    return way(found, road, rebuild_steps(found, tools), tools.reasons, unsure)
