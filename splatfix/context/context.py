"""The one place that says, from facts and goal, which GPUs, driver level, toolkit, compiler and torch are in play.

A context has four layers, each a class in the file of its subject: what is installed, the GPUs, the toolchain, and what is
still to be built. Here is what depends on the goal.
"""

from collections.abc import Iterable
from functools import cached_property

from splatfix.context.commands import install_sources, sources_of
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.coverage import Coverage, judge
from splatfix.context.model import Choice, Goal, NotHere, Target
from splatfix.context.pending_builds import PendingBuilds
from splatfix.context.toolkits import BuildToolkit, choose_toolkit
from splatfix.context.torch_wheels import builds_for
from splatfix.core.errors import Rejected
from splatfix.core.step import Step
from splatfix.facts import Fatbin
from splatfix.knowledge import AUTO, Arch
from splatfix.knowledge.torch_releases import TorchBuild
from splatfix.model import Facts, FatbinGroup


class Context(PendingBuilds, frozen=True, dict=True):
    """Facts and goal, and the one answer to each question that several rooms ask of them. Pure; never raises."""

    goal: Goal

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """What the person asked for; failing that, this machine's GPUs that are used, each architecture once."""
        return self.find_targets(self.goal.targets, self.goal.device)

    @cached_property
    def archs(self) -> tuple[Arch, ...]:
        return tuple(target.arch for target in self.targets)

    @cached_property
    def own_targets(self) -> tuple[Target, ...]:
        """This machine's GPUs that are used, whatever was asked for."""
        return self.find_targets((), self.goal.device)

    @cached_property
    def no_target(self) -> NotHere | None:
        """Why there is no target, where the machine's own GPUs are meant and there is none."""
        # --target auto beside a named GPU still promises that this machine has one
        if self.targets and (self.own_targets or AUTO not in self.goal.targets):
            return None
        return self.no_gpu_problem()

    def judge(self, code: Iterable[Fatbin | FatbinGroup], arch: Arch) -> Coverage:
        """Whether code in this environment runs on a GPU, with this machine's driver and torch's CUDA."""
        return judge(code, arch, driver_cuda=self.driver_level(arch), build_cuda=self.torch_cuda)

    def install(self, *sources: str, text: str = "", targets: tuple[Target, ...] = ()) -> Step:
        """``splatfix install SOURCE`` for the target environment and the targets, or only those given here."""
        archs = [target.arch for target in targets or self.targets]
        return install_sources(self.facts, archs, *sources, text=text)

    def reinstall(self, *distributions: str | None, text: str = "", targets: tuple[Target, ...] = ()) -> Step:
        """``splatfix install`` of the own sources of what is installed, as far as all of them are known."""
        return self.install(*sources_of(self.facts, distributions), text=text, targets=targets)

    @cached_property
    def toolkit(self) -> Choice[BuildToolkit]:
        """What a build by splatfix takes for the installed torch and the targets."""
        torch = self.torch
        if torch is None or torch.cuda is None:
            problem = Rejected.of("context.no-cuda-torch")
            return Choice(None, problem=problem)
        if not self.targets:
            return Choice(None, problem=self.no_target)
        return choose_toolkit(self.facts, torch, self.archs)

    @cached_property
    def compilers(self) -> Choice[HostCompilers]:
        """The host compilers for :attr:`toolkit`."""
        torch, chosen = self.torch, self.toolkit.value
        if torch is None or chosen is None:
            return Choice(None, problem=self.toolkit.problem)
        return choose_compilers(self.facts, torch, chosen.toolkit)

    @cached_property
    def torch_wheels(self) -> tuple[TorchBuild, ...]:
        """Published builds, other than the installed one, that serve every target here; the one advised comes first."""
        return tuple(builds_for(self.facts, self.archs))

    @property
    def torch_wheel(self) -> TorchBuild | None:
        """The published build advised for the targets."""
        return next(iter(self.torch_wheels), None)


def make_context(facts: Facts, goal: Goal | None = None) -> Context:
    """The context of these facts for a goal; without one for the machine's own GPUs."""
    return Context(facts, goal or Goal())
