"""What every CUDA source of one plan shares: torch, targets, toolkit and host compilers, and a toolkit to be downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from splatfix.context import Choice, Goal, Rejected, make_context
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.toolkits import BuildToolkit, choose_ptx, choose_toolkit
from splatfix.core.step import say
from splatfix.core.versions import release
from splatfix.facts import Facts, Torch
from splatfix.knowledge import Arch
from splatfix.plan.plan import ProvideToolkit, Reason, Request
from splatfix.plan.provided import provided_toolkit, why_none_provided
from splatfix.plan.requirements import torch_of


@dataclass(frozen=True)
class CudaTools:
    """What every CUDA source of one plan shares."""

    torch: Torch
    targets: tuple[str, ...]
    toolkit: BuildToolkit
    compilers: HostCompilers
    rejected: tuple[Rejected, ...]
    """Toolkits and compilers that were looked at and not taken."""
    provide: ProvideToolkit | None = None
    """To be done first: the toolkit is not there yet."""

    @property
    def mismatch(self) -> str:
        """What is silenced when the toolkit is of another major than torch's; "" when it is not."""
        theirs = self.torch.cuda or ""
        if self.toolkit.version[0] == release(theirs)[0]:
            return ""
        return f"compiled with CUDA {self.toolkit.toolkit.version}, torch is built with CUDA {theirs}"


def cuda_tools(request: Request, facts: Facts) -> CudaTools:
    """Torch, targets, toolkit and compilers for what was asked.

    Raises:
        SplatfixError: one of many, each naming what does not fit on this machine.
    """
    torch = torch_of(facts, cuda=True, targets=request.targets)
    targets = [item.arch for item in make_context(facts, Goal(request.targets)).required_targets()]
    provide = None
    found = choose_toolkit(facts, torch, targets, request.cuda_home, any_major=request.force_cuda_mismatch)
    code = found.problem.code if found.problem else ""
    if request.ptx and code in ("no-matching-toolkit", "arch-unknown-to-torch"):
        found = choose_ptx(facts, torch, targets, request.cuda_home)
    elif code == "no-matching-toolkit" and not request.cuda_home:
        found, provide = _own_toolkit(request, facts, torch, targets, found)
    toolkit = found.required()
    compilers = choose_compilers(facts, torch, toolkit.toolkit, toolkit.version)
    names = tuple(target.sm for target in targets)
    rejected = (*found.rejected, *compilers.rejected)
    return CudaTools(torch, names, toolkit, compilers.required(), rejected, provide)


def _own_toolkit(
    request: Request, facts: Facts, torch: Torch, targets: Sequence[Arch], none: Choice[BuildToolkit]
) -> tuple[Choice[BuildToolkit], ProvideToolkit | None]:
    """splatfix's own toolkit where none of the machine's fits: the one in its cache, or one to be downloaded.

    Where there is none or nobody asked for one, ``none`` comes back, with what could be done.
    """
    ours, problem = provided_toolkit(torch, facts.machine.system), none.problem
    assert problem is not None
    if ours is None:
        if request.provide_toolkit:
            why = say(why_none_provided(torch, facts.machine.system))
            problem = replace(problem, todo=(why, *problem.todo))
        return replace(none, problem=problem), None
    if not (ours.there or request.provide_toolkit):
        way = say(
            f"Or let splatfix download one ({ours.unpacked_gb:.1f} GB) into its own cache: --provide-toolkit"
        )
        return replace(none, problem=replace(problem, todo=(*problem.todo, way))), None
    toolkit = replace(choose_toolkit(facts, torch, targets, instead=ours.toolkit), rejected=none.rejected)
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
