"""The roads that compile or keep what is there: keep, rebuild, rebuild with PTX, provide a toolkit, install one by hand."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from splatfix.core.errors import SplatfixError
from splatfix.core.proof import RungName
from splatfix.facts import Fact, Facts, Toolkit, Torch
from splatfix.knowledge import Arch, toolkit_supports
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import cuda_of_torch, provision, recipe
from splatfix.resolve.build_environment import OWN_TOOLKIT
from splatfix.resolve.plan import Reason, RoadNotTaken
from splatfix.resolve.situation import Situation, code_serves, torch_obstacles
from splatfix.resolve.toolchain import (
    CompilerDecision,
    ToolkitDecision,
    choose_compilers,
    choose_ptx,
    choose_toolkit,
    release_numbers,
)
from splatfix.resolve.ways import ByHand, GetToolkit, Keep, Limit, Rebuild, Road, ShowIt, Step, WayOut

TITLES = {
    Road.KEEP: "keep what is installed",
    Road.REBUILD: "rebuild the extensions with a toolkit that is here",
    Road.REBUILD_PTX: "rebuild with PTX that the driver translates for the newer GPU",
    Road.PROVIDE_TOOLKIT: "rebuild with a CUDA toolkit from PyPI wheels, without root",
    Road.INSTALL_TOOLKIT: "install a CUDA toolkit, then rebuild",
    Road.OTHER_TORCH: "another build of torch, then rebuild",
    Road.CONTAINER: "a container lane",
    Road.SWAP: "pure-PyTorch drop-ins",
    Road.DRIVER: "another NVIDIA driver",
}


@dataclass(frozen=True)
class Tools:
    """A toolkit and a compiler for one torch, and what the person must do first to have them."""

    cuda: str
    root: str
    build_archs: tuple[Arch, ...]
    compiler: CompilerDecision | None
    before: tuple[Step, ...]
    reasons: tuple[Reason, ...]
    ptx: Arch | None = None
    """Compiled as PTX too, for the targets that this toolkit cannot name."""


def shut(road: Road, why: str) -> RoadNotTaken:
    """A road that cannot be taken."""
    return RoadNotTaken(TITLES[road], why)


def keep(found: Situation) -> WayOut | RoadNotTaken:
    """Nothing needs doing: torch and every extension carry code for every target, and the driver starts it."""
    against, unsure = torch_obstacles(found, found.torch)
    if not found.parts:
        against.append("no splatting extension is installed, so there is nothing to keep")
    for part in found.parts:
        if part.swap:
            continue
        if not part.installed or part.error:
            against.append(
                f"{part.name} is not installed" if not part.installed else f"{part.name}: {part.error}"
            )
            continue
        cuda = found.torch.cuda if found.torch else None
        for arch in found.archs:
            verdict = code_serves(part.code, arch, level=found.driver_level, cuda=cuda)
            if verdict.ok is False:
                against.append(f"{part.name} {_cannot(verdict.why)} on {arch.sm}")
            elif verdict.ok is None:
                unsure.append(f"{part.name} on {arch.sm}: {verdict.why}")
    if against:
        return shut(Road.KEEP, "; ".join(against))
    if any(not part.swap and not part.code for part in found.parts):
        return shut(
            Road.KEEP,
            "what GPU code is installed could not be read, so keeping it would be a guess: "
            + "; ".join(unsure),
        )
    reasons = (
        Reason(f"every container of {', '.join(found.subjects)} has code for {found.words}", "their bytes"),
    )
    return way(found, Road.KEEP, (Keep(found.subjects), _show(found)), reasons, unsure)


def _obstacles(found: Situation) -> tuple[list[str], list[str]]:
    """What speaks against compiling anything for the targets: torch, or that all of it is to be left alone."""
    against, unsure = torch_obstacles(found, found.torch)
    kept = [part.name for part in found.parts if part.name in found.aim.keep]
    if kept and len(kept) == len(found.parts):
        against.append(f"{', '.join(kept)} is to be left as it is (--keep)")
    return against, unsure


def rebuild(found: Situation) -> WayOut | RoadNotTaken:
    """Compile with a toolkit of this machine; a missing host compiler is the person's to install first."""
    against, unsure = _obstacles(found)
    if against:
        return shut(Road.REBUILD, "; ".join(against))
    assert found.torch is not None
    try:
        tools = tools_here(found.facts, found.torch, found.archs)
    except SplatfixError as error:
        return shut(Road.REBUILD, error.what)
    return way(found, Road.REBUILD, rebuild_steps(found, tools), tools.reasons, unsure)


def rebuild_with_ptx(found: Situation) -> WayOut | RoadNotTaken:
    """For a GPU newer than the toolkit: machine code of an older major does not load there, PTX does."""
    against, unsure = _obstacles(found)
    if against:
        return shut(Road.REBUILD_PTX, "; ".join(against))
    assert found.torch is not None
    try:
        decision = choose_ptx(found.facts, found.torch, found.archs, found.driver_level)
        compiler, before, why = _compiler(found.facts, found.torch, decision.toolkit, decision.version)
    except SplatfixError as error:
        return shut(Road.REBUILD_PTX, error.what)
    if decision.ptx is None:
        return shut(
            Road.REBUILD_PTX,
            f"not needed: CUDA {decision.toolkit.version} here makes machine code for {found.words}",
        )
    newer = ", ".join(arch.sm for arch in found.archs if arch not in decision.build_archs)
    reasons = (
        Reason(
            f"CUDA {decision.toolkit.version} cannot name {newer}; {decision.ptx.sm} machine code alone would not load there, "
            f"because machine code runs within one major only; so {decision.ptx.compute} PTX goes along"
        ),
        Reason(decision.why),
        *why,
    )
    if decision.unsure:
        unsure.append(decision.unsure)
    tools = Tools(
        decision.toolkit.version or "",
        decision.toolkit.root,
        decision.build_archs,
        compiler,
        before,
        reasons,
        decision.ptx,
    )
    return way(found, Road.REBUILD_PTX, rebuild_steps(found, tools, "--ptx"), reasons, unsure)


def provide_toolkit(found: Situation) -> WayOut | RoadNotTaken:
    """CUDA 13 has a whole compiler on PyPI; 11 and 12 have none."""
    road = Road.PROVIDE_TOOLKIT
    against, unsure = _obstacles(found)
    if against:
        return shut(road, "; ".join(against))
    assert found.torch is not None
    here = _steps_here(found.facts, found.torch, found.archs)
    if here == 0:
        return shut(road, "not needed: a toolkit that fits is here")
    try:
        tools = tools_from_wheels(found.facts, found.torch, found.archs)
    except SplatfixError as error:
        return shut(road, error.what)
    return way(found, road, rebuild_steps(found, tools, "--provide-toolkit"), tools.reasons, unsure)


def install_toolkit(found: Situation) -> WayOut | RoadNotTaken:
    """A toolkit of torch's major that the person installs: told, never done."""
    road = Road.INSTALL_TOOLKIT
    against, unsure = _obstacles(found)
    if against:
        return shut(road, "; ".join(against))
    assert found.torch is not None
    here = _steps_here(found.facts, found.torch, found.archs)
    if here == 0:
        return shut(road, "not needed: a toolkit that fits is here")
    try:
        tools = tools_by_hand(found.facts, found.torch, found.archs)
    except SplatfixError as error:
        return shut(road, error.what)
    if here is not None and len(tools.before) > here:
        return shut(
            road,
            "the toolkit that is here fits; only a host compiler is missing, which another toolkit would need too",
        )
    return way(found, road, rebuild_steps(found, tools), tools.reasons, unsure)


def _steps_here(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> int | None:
    """How many things must be done by hand before a toolkit of this machine compiles; None: no toolkit here fits."""
    try:
        return len(tools_here(facts, torch, archs).before)
    except SplatfixError:
        return None


def tools_here(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools:
    """The toolkit of this machine for a torch.

    Raises:
        SplatfixError: none fits.
    """
    toolkit = choose_toolkit(facts, torch, archs, None)
    return _tools(facts, torch, toolkit, ())


def tools_from_wheels(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools:
    """The toolkit that PyPI wheels make for a torch.

    Raises:
        SplatfixError: there is none for this CUDA, system or target.
    """
    numbers = release_numbers(torch.cuda or "")
    minor = f"{numbers[0]}.{numbers[1]}"
    if facts.machine.system != "linux":
        raise SplatfixError(
            "no-toolkit-wheels", f"a toolkit from PyPI wheels was never tried on {facts.machine.system}"
        )
    offer = provision(numbers[0])
    if offer is None:
        raise SplatfixError(
            "no-toolkit-wheels", f"whether PyPI has a compiler of CUDA {numbers[0]} is not known"
        )
    exact = cuda_of_torch(torch.version) or ""
    found = recipe(exact if exact.startswith(f"{minor}.") else minor)
    if found is None:
        raise SplatfixError(
            "no-toolkit-wheels", f"PyPI has no compiler of CUDA {numbers[0]} ({offer.wheel}: {offer.holds})"
        )
    bounds = limits(numbers[:2])
    toolkit = Toolkit(
        root=f"splatfix's own CUDA {minor}", version=minor, found_via=OWN_TOOLKIT, nvcc="nvcc",
        gcc_max=bounds.gcc_max_major if bounds else None, clang_max=bounds.clang_max_major if bounds else None,
    )  # fmt: skip
    alone = replace(facts, machine=replace(facts.machine, toolkits=Fact((toolkit,), "its own cache")))
    decision = choose_toolkit(alone, torch, archs, None)
    return _tools(facts, torch, decision, (GetToolkit(minor, found.unpacked_gb),))


def tools_by_hand(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools:
    """The toolkit that would fit a torch, the targets and the compilers here, for a person to install.

    Raises:
        SplatfixError: no CUDA of torch's major compiles for the targets.
    """
    numbers = release_numbers(torch.cuda or "")
    fitting: list[tuple[int, int, Tools]] = []
    refused: SplatfixError | None = None
    for minor in range(10):
        cuda = (numbers[0], minor)
        bounds = limits(cuda)
        if bounds is None or any(toolkit_supports(cuda, arch) is False for arch in archs):
            continue
        name = f"{cuda[0]}.{cuda[1]}"
        stub = Toolkit(
            f"CUDA {name}", name, (), "nvcc", gcc_max=bounds.gcc_max_major, clang_max=bounds.clang_max_major
        )
        alone = replace(facts, machine=replace(facts.machine, toolkits=Fact((stub,), "to be installed")))
        try:
            decision = choose_toolkit(alone, torch, archs, None)
        except SplatfixError as error:
            refused = error
            continue
        tools = _tools(facts, torch, decision, (_install_by_hand(facts, name),))
        fitting.append((len(tools.before), abs(minor - numbers[1]), tools))
    if fitting:
        return min(fitting, key=lambda item: item[:2])[2]
    words = ", ".join(arch.sm for arch in archs)
    raise refused or SplatfixError("no-such-toolkit", f"no CUDA {numbers[0]} toolkit compiles for {words}")


def _install_by_hand(facts: Facts, cuda: str) -> ByHand:
    interpreter = facts.environment.interpreter.value
    if interpreter and interpreter.kind == "conda":
        return ByHand(
            f"install the CUDA {cuda} toolkit into the conda environment, which needs no root",
            (f"conda install -p {shlex.quote(interpreter.prefix)} -c nvidia cuda-toolkit={cuda}",),
        )
    return ByHand(
        f"install the CUDA {cuda} toolkit (not the driver that comes with it) from "
        "https://developer.nvidia.com/cuda-toolkit-archive"
    )


def _tools(facts: Facts, torch: Torch, decision: ToolkitDecision, before: tuple[Step, ...]) -> Tools:
    compiler, needed, why = _compiler(facts, torch, decision.toolkit, decision.version)
    reasons = (
        [Reason(decision.why)]
        if decision.toolkit.found_via
        else [Reason(f"torch was built with CUDA {torch.cuda}")]
    )
    reasons += why
    return Tools(
        decision.toolkit.version or "",
        decision.toolkit.root,
        decision.build_archs,
        compiler,
        (*before, *needed),
        tuple(reasons),
    )


def _compiler(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> tuple[CompilerDecision | None, tuple[Step, ...], tuple[Reason, ...]]:
    """The host compiler here, or the step that gets one; and why."""
    try:
        chosen = choose_compilers(facts, torch, toolkit, version)
    except SplatfixError as error:
        return None, (ByHand(" ".join(error.todo)),), (Reason(error.what),)
    return chosen, (), (Reason(chosen.why),)


def rebuild_steps(found: Situation, tools: Tools, *options: str) -> tuple[Step, ...]:
    """Get the tools, compile, and show it."""
    subjects = tuple(part.name for part in found.parts if not part.swap and part.name not in found.aim.keep)
    archs = [arch.cc for arch in dict.fromkeys(tools.build_archs)]
    arch_list = ";".join([*archs, f"{tools.ptx.cc}+PTX"] if tools.ptx else archs)
    targets = [f"--target {arch.sm}" for arch in found.archs]
    command = " ".join(
        ["splatfix install", found.aim.source or "SOURCE", *targets, *options, *_python(found)]
    )
    compiler = tools.compiler.cxx if tools.compiler else ""
    step = Rebuild(subjects, tuple(a.sm for a in found.archs), arch_list, _called(tools), compiler, command)
    return (*tools.before, step, _show(found))


def _called(tools: Tools) -> str:
    return f"CUDA {tools.cuda} in {tools.root}" if "/" in tools.root or "\\" in tools.root else tools.root


def _python(found: Situation) -> list[str]:
    interpreter = found.facts.environment.interpreter.value
    if interpreter is None:
        return []
    quoted = (
        f'"{interpreter.executable}"' if found.platform == "windows" else shlex.quote(interpreter.executable)
    )
    return ["--python", quoted]


def python_option(found: Situation) -> str:
    """``--python PATH`` of the target interpreter, with a leading blank; "" when it is not known."""
    return "".join(f" {word}" for word in _python(found))


def _show(found: Situation) -> ShowIt:
    if found.wanted and not found.here:
        targets = " ".join(f"--target {arch.sm}" for arch in found.archs)
        return ShowIt(f"splatfix diagnose {targets}{python_option(found)}", "see the code for it")
    return ShowIt(f"splatfix certify{python_option(found)}", "see it train")


def _cannot(reason: str) -> str:
    return f"cannot run ({reason})"


def way(
    found: Situation, road: Road, steps: tuple[Step, ...], reasons: Sequence[Reason], unsure: Sequence[str] = (),
    *, native: bool = True,
) -> WayOut:  # fmt: skip
    """A way out, with what this machine can and cannot show about it."""
    can, cannot = [RungName.RESOLVED], []
    if native:
        can.append(RungName.BUILT)
    else:
        cannot.append(Limit(RungName.BUILT, "nothing native is built"))
    can.append(RungName.LOADS)
    away = [item.arch.sm for item in found.wanted if not item.here]
    upper = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
    if not found.wanted:
        can += upper
    elif not found.here:
        why = f"no {', '.join(away)} GPU is in this machine"
        cannot += [Limit(rung, why if native else f"{why}; on the CPU it can be shown") for rung in upper]
    else:
        can += upper
        if away:
            cannot += [
                Limit(rung, f"for {', '.join(away)}: no such GPU is in this machine") for rung in upper
            ]
    return WayOut(
        road,
        TITLES[road],
        (*found.repairs, *steps),
        tuple(can),
        tuple(cannot),
        tuple(reasons),
        tuple(dict.fromkeys(unsure)),
    )
