"""What every CUDA source of one plan shares: torch, targets, toolkit and host compilers, and a toolkit to be downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from splatfix.core.errors import SplatfixError
from splatfix.core.step import say
from splatfix.facts import Facts, Torch
from splatfix.knowledge import Arch
from splatfix.plan.compilers import CompilerDecision, choose_compilers
from splatfix.plan.plan import ProvideToolkit, Reason, Request, RoadNotTaken
from splatfix.plan.provided import provided_toolkit, why_none_provided
from splatfix.plan.ptx import choose_ptx
from splatfix.plan.requirements import torch_of
from splatfix.plan.targets import resolve_targets
from splatfix.plan.toolchain import ToolkitDecision, choose_toolkit
from splatfix.plan.versions import release_numbers


@dataclass(frozen=True)
class CudaTools:
    """What every CUDA source of one plan shares."""

    torch: Torch
    targets: tuple[str, ...]
    toolkit: ToolkitDecision
    compilers: CompilerDecision
    provide: ProvideToolkit | None = None
    """To be done first: the toolkit is not there yet."""

    @property
    def mismatch(self) -> str:
        """What is silenced when the toolkit is of another major than torch's; "" when it is not."""
        theirs = self.torch.cuda or ""
        if self.toolkit.version[0] == release_numbers(theirs)[0]:
            return ""
        return f"compiled with CUDA {self.toolkit.toolkit.version}, torch is built with CUDA {theirs}"


def cuda_tools(request: Request, facts: Facts) -> CudaTools:
    """Torch, targets, toolkit and compilers for what was asked.

    Raises:
        SplatfixError: one of many, each naming what does not fit on this machine.
    """
    torch = torch_of(facts, cuda=True, targets=request.targets)
    targets = resolve_targets(request.targets, facts)
    provide = None
    try:
        toolkit = choose_toolkit(
            facts, torch, targets, request.cuda_home, any_major=request.force_cuda_mismatch
        )
    except SplatfixError as error:
        if request.ptx and error.code in ("no-matching-toolkit", "arch-unknown-to-torch"):
            toolkit = choose_ptx(facts, torch, targets, request.cuda_home)
        elif error.code == "no-matching-toolkit" and not request.cuda_home:
            toolkit, provide = _own_toolkit(request, facts, torch, targets, error)
        else:
            raise
    compilers = choose_compilers(facts, torch, toolkit.toolkit, toolkit.version)
    return CudaTools(torch, tuple(target.sm for target in targets), toolkit, compilers, provide)


def _own_toolkit(
    request: Request, facts: Facts, torch: Torch, targets: Sequence[Arch], error: SplatfixError
) -> tuple[ToolkitDecision, ProvideToolkit | None]:
    """splatfix's own toolkit where none of the machine's fits: the one in its cache, or one to be downloaded.

    Raises:
        SplatfixError: ``error``, with what could be done, where there is none or nobody asked for one.
    """
    ours = provided_toolkit(torch, facts.machine.system)
    if ours is None:
        if request.provide_toolkit:
            error.todo = (say(why_none_provided(torch, facts.machine.system)), *error.todo)
        raise error
    if not (ours.there or request.provide_toolkit):
        way = (
            f"Or let splatfix download one ({ours.unpacked_gb:.1f} GB) into its own cache: --provide-toolkit"
        )
        error.todo = (*error.todo, say(way))
        raise error
    roads = tuple(RoadNotTaken(road["what"], road["why"]) for road in error.details.get("rejected", ()))
    toolkit = replace(choose_toolkit(facts, torch, targets, instead=ours.toolkit), rejected=roads)
    if ours.there:
        return toolkit, None
    provide = ProvideToolkit(
        f"CUDA toolkit {ours.toolkit.version}",
        ours.folder,
        ours.toolkit.root,
        ours.requirements,
        ours.links,
        ours.unpacked_gb,
        (Reason("no toolkit of this machine fits, and --provide-toolkit was given"),),
    )
    return toolkit, provide
