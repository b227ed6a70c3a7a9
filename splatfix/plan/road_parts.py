"""What several roads share: their titles, the steps of a rebuild, and what this machine can show of a way out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from splatfix.context import Rejected
from splatfix.core.proof import RungName
from splatfix.plan.plan import Reason
from splatfix.plan.road_tools import Tools
from splatfix.plan.situation import Situation, lacks_code
from splatfix.plan.ways import ByHand, Limit, Rebuild, Road, ShowIt, SwapIn, WayOut, WayStep

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


UPPER_RUNGS = (RungName.COMPUTES, RungName.TRAINS, RungName.REPRODUCES)
"""What only a run shows, and for native code only a run on the GPU."""


def shut(road: Road, why: str) -> Rejected:
    """A road that cannot be taken."""
    return Rejected(TITLES[road], why)


def way(
    found: Situation,
    road: Road,
    steps: tuple[WayStep, ...],
    reasons: Sequence[Reason],
    unsure: Sequence[str] = (),
    *,
    native: bool = True,
) -> WayOut:
    """A way out, with what this machine can and cannot show about it."""
    can, cannot = [RungName.RESOLVED], []
    if native:
        can.append(RungName.BUILT)
    else:
        cannot.append(Limit(RungName.BUILT, "nothing native is built"))
    can.append(RungName.LOADS)
    away = ", ".join(arch.sm for arch in found.away)
    if not found.wanted:
        can += UPPER_RUNGS
    elif not found.here:
        why = f"no {away} GPU is in this machine" + ("" if native else "; on the CPU it can be shown")
        cannot += [Limit(rung, why) for rung in UPPER_RUNGS]
    else:
        can += UPPER_RUNGS
        if away:
            cannot += [Limit(rung, f"for {away}: no such GPU is in this machine") for rung in UPPER_RUNGS]
    first = "do the first step by hand, then " if road is Road.KEEP and found.repairs else ""
    return WayOut(
        road,
        f"{first}{TITLES[road]}",
        (*found.repairs, *steps),
        tuple(can),
        tuple(cannot),
        (*reasons, *(Reason(text) for text in _replaced(found, steps))),
        tuple(dict.fromkeys(unsure)),
    )


def _replaced(found: Situation, steps: Sequence[WayStep]) -> list[str]:
    """Whose rasterizer these steps put another one in the place of."""
    built = {name for step in steps if isinstance(step, Rebuild) for name in step.subjects}
    swapped = any(isinstance(step, SwapIn) for step in steps)
    return [part.replaces for part in found.parts if part.replaces and (swapped or part.name in built)]


def rebuild_steps(
    found: Situation, tools: Tools, *options: str, everything: bool = False
) -> tuple[WayStep, ...]:
    """Get the tools, compile, and show it.

    Args:
        everything: also what serves the targets already, because the torch below it changes.
    """
    ours = [part for part in found.parts if (not part.swap or part.unfit) and part.name not in found.kept]
    lacking = [] if everything else [part for part in ours if lacks_code(found, part)]
    subjects = tuple(part.name for part in lacking or ours)
    archs = [arch.cc for arch in dict.fromkeys(tools.build_archs)]
    arch_list = ";".join([*archs, f"{tools.ptx.cc}+PTX"] if tools.ptx else archs)
    targets = [f"--target {arch.sm}" for arch in found.archs]
    command = " ".join(
        ["splatfix install", found.aim.source or "SOURCE", *targets, *options, *_python(found)]
    )
    compiler = tools.compiler.cxx if tools.compiler else ""
    step = Rebuild(subjects, tuple(a.sm for a in found.archs), arch_list, _called(tools), compiler, command)
    first = (ByHand(found.aim.lacking, found.aim.fetch),) if found.aim.lacking else ()
    return (*first, *tools.before, step, show_step(found))


def _called(tools: Tools) -> str:
    return f"CUDA {tools.cuda} in {tools.root}" if "/" in tools.root or "\\" in tools.root else tools.root


def show_step(found: Situation) -> ShowIt:
    """The last step: train where the GPU is, with what was built, else at least see that its code is there."""
    if found.wanted and not found.here:
        targets = " ".join(f"--target {arch.sm}" for arch in found.archs)
        return ShowIt(f"splatfix diagnose {targets}{python_option(found)}", "see the code for it")
    names = {canonicalize_name(name) for name in found.subjects}
    renderer = "gsplat" if "gsplat" in names else "inria" if "diff-gaussian-rasterization" in names else ""
    options = " --device cuda" + (f" --renderer {renderer}" if renderer else "")
    return ShowIt(f"splatfix certify{options}{python_option(found)}", "see it train")


def python_option(found: Situation) -> str:
    """``--python PATH`` of the target interpreter, with a leading blank; "" when it is not known."""
    return "".join(f" {word}" for word in _python(found))


def _python(found: Situation) -> list[str]:
    interpreter = found.facts.environment.interpreter.value
    if interpreter is None:
        return []
    quoted = (
        f'"{interpreter.executable}"' if found.platform == "windows" else shlex.quote(interpreter.executable)
    )
    return ["--python", quoted]
