"""Toolkit and host compiler for a road: those of this machine, from PyPI wheels, or for the person to install."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from splatfix.context.commands import conda_toolkit
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.readings import is_windows
from splatfix.context.toolkits import BuildToolkit, choose_toolkit
from splatfix.core.errors import Problem, SplatfixError
from splatfix.core.versions import release
from splatfix.facts import Facts, Toolkit, Torch
from splatfix.knowledge import Arch, toolkit_supports
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import provision
from splatfix.plan.build_environment import OWN_TOOLKIT
from splatfix.plan.plan import Reason
from splatfix.plan.provided import toolkit_recipe, toolkit_to_be
from splatfix.plan.ways import ByHand, GetToolkit, WayStep, by_hand


@dataclass(frozen=True)
class Tools:
    """A toolkit and a compiler for one torch, and what the person must do first to have them."""

    cuda: str
    root: str
    build_archs: tuple[Arch, ...]
    compiler: HostCompilers | None
    before: tuple[WayStep, ...]
    reasons: tuple[Reason, ...]
    ptx: Arch | None = None
    """Compiled as PTX too, for the targets that this toolkit cannot name."""

    @property
    def by_hand(self) -> bool:
        """The person must do something before they are there."""
        return any(isinstance(step, ByHand) for step in self.before)

    @property
    def downloaded(self) -> bool:
        """The toolkit comes from PyPI wheels."""
        return any(isinstance(step, GetToolkit) for step in self.before)

    @property
    def cost(self) -> int:
        """What having them asks: two for each step by hand, one for a download."""
        return 2 * sum(isinstance(step, ByHand) for step in self.before) + self.downloaded


def steps_here(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> int | None:
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
    return _tools(facts, torch, choose_toolkit(facts, torch, archs).required(), ())


def tools_from_wheels(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools:
    """The toolkit that PyPI wheels make for a torch.

    Raises:
        SplatfixError: there is none for this CUDA, system or target.
    """
    numbers = release(torch.cuda)
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
    if (facts.machine.libc.value or "").startswith("musl"):
        raise SplatfixError(
            "no-toolkit-wheels", f"the toolkit's wheels need glibc, this is {facts.machine.libc.value}"
        )
    found = toolkit_recipe(torch)
    if found is None:
        raise SplatfixError(
            "no-toolkit-wheels", f"PyPI has no compiler of CUDA {numbers[0]} ({offer.wheel}: {offer.holds})"
        )
    toolkit = toolkit_to_be(minor, f"splatfix's own CUDA {minor}", OWN_TOOLKIT)
    decision = choose_toolkit(facts, torch, archs, instead=toolkit).required()
    return _tools(facts, torch, decision, (GetToolkit(minor, found.unpacked_gb),))


def tools_by_hand(facts: Facts, torch: Torch, archs: Sequence[Arch]) -> Tools:
    """The toolkit that would fit a torch, the targets and the compilers here, for a person to install.

    Raises:
        SplatfixError: no CUDA of torch's major compiles for the targets.
    """
    numbers = release(torch.cuda)
    fitting: list[tuple[int, int, Tools]] = []
    refused: Problem | None = None
    for minor in range(10):
        cuda = (numbers[0], minor)
        if limits(cuda) is None or any(toolkit_supports(cuda, arch) is False for arch in archs):
            continue
        name = f"{cuda[0]}.{cuda[1]}"
        found = choose_toolkit(facts, torch, archs, instead=toolkit_to_be(name, f"CUDA {name}"))
        if found.value is None:
            refused = found.problem
            continue
        tools = _tools(facts, torch, found.value, (_install_by_hand(facts, name),))
        fitting.append((len(tools.before), abs(minor - numbers[1]), tools))
    if fitting:
        return min(fitting, key=lambda item: item[:2])[2]
    words = ", ".join(arch.sm for arch in archs)
    nothing = Problem("no-such-toolkit", f"no CUDA {numbers[0]} toolkit compiles for {words}")
    raise (refused or nothing).error()


def _install_by_hand(facts: Facts, cuda: str) -> ByHand:
    interpreter = facts.environment.interpreter.value
    if interpreter and interpreter.kind == "conda":
        return ByHand(
            f"install the CUDA {cuda} toolkit into the conda environment, which needs no root",
            (conda_toolkit(interpreter.prefix, cuda).line(windows=is_windows(facts)),),
        )
    return ByHand(
        f"install the CUDA {cuda} toolkit (not the driver that comes with it) from "
        "https://developer.nvidia.com/cuda-toolkit-archive"
    )


def _tools(facts: Facts, torch: Torch, decision: BuildToolkit, before: tuple[WayStep, ...]) -> Tools:
    compiler, needed, why = compiler_here(facts, torch, decision.toolkit, decision.version)
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


def compiler_here(
    facts: Facts, torch: Torch, toolkit: Toolkit, version: tuple[int, ...]
) -> tuple[HostCompilers | None, tuple[WayStep, ...], tuple[Reason, ...]]:
    """The host compiler here, or the step that gets one; and why."""
    found = choose_compilers(facts, torch, toolkit, version)
    if found.value is None:
        problem = found.problem
        assert problem is not None
        return None, (by_hand(problem.todo, is_windows(facts)),), (Reason(problem.what),)
    return found.value, (), (Reason(found.value.why),)
