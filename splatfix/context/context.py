"""The one place that says, from facts and goal, which GPUs, driver level, toolkit, compiler and torch are in play.

A context has four layers, each a class in the file of its subject: what is installed, the GPUs, the toolchain, and what is
still to be built. Here is what depends on the goal.
"""

from collections.abc import Iterable
from functools import cached_property

from splatfix.context.architectures import TORCH_VARIABLE
from splatfix.context.commands import python_option, sources_of
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.coverage import Coverage, judge, usual_archs
from splatfix.context.model import Choice, Goal, NotHere, Target
from splatfix.context.pending_builds import PendingBuilds
from splatfix.context.toolkits import BuildToolkit, choose_toolkit
from splatfix.context.torch_wheels import builds_for
from splatfix.core.errors import Rejected
from splatfix.core.step import Step, run, say, target_options
from splatfix.facts import Fatbin
from splatfix.knowledge import AUTO, Arch
from splatfix.knowledge.cpp_extension import (
    ArchList,
    ArchListError,
    ArchListResult,
    UsesVisibleGpus,
    expand_arch_list,
    visible_gpu_arch_list,
)
from splatfix.knowledge.torch_releases import TorchBuild
from splatfix.model import Facts, FatbinGroup


class Context(PendingBuilds, frozen=True, dict=True):
    """Facts and goal, and the one answer to each question that several rooms ask of them. Pure; never raises."""

    goal: Goal

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """What the person asked for, in that order, each architecture once; failing that, :attr:`own_targets`."""
        own = {target.arch: target for target in self.own_targets}
        targets: dict[Arch, Target] = {}
        for item in self.goal.targets or (AUTO,):
            if isinstance(item, Arch):
                targets.setdefault(item, Target(item, f"{item.sm} (--target)", item.plain in own))
                continue
            for arch, target in own.items():
                targets.setdefault(arch, target)
        return tuple(targets.values())

    @cached_property
    def archs(self) -> tuple[Arch, ...]:
        return tuple(target.arch for target in self.targets)

    @cached_property
    def own_targets(self) -> tuple[Target, ...]:
        """This machine's GPUs that are used, whatever was asked for; each architecture once."""
        targets = []
        for arch, names in self.own_archs(self.goal.device).items():
            targets.append(Target(arch, f"{arch.sm} ({'; '.join(names)})", here=True))
        return tuple(targets)

    @cached_property
    def no_target(self) -> NotHere | None:
        """Why there is no target, where the machine's own GPUs are meant and there is none."""
        # --target auto beside a named GPU still promises that this machine has one
        if self.targets and (self.own_targets or AUTO not in self.goal.targets):
            return None
        gpus = self.machine.gpus
        if gpus.value is None and gpus.error:
            return NotHere.of("context.gpus-not-known", error=gpus.error)
        if self.nvidia_gpus:
            return NotHere.of("context.cc-not-known", gpu=self.nvidia_gpus[0].name)
        if self.unused_cards:
            card, todo = self.unused_cards[0], None
            example = Arch.known(card.cc)
            if example:
                todo = (say(f"To build for it all the same, name it: --target {example.sm}"),)
            return NotHere.of("context.card-not-listed", gpu=card.name, todo=todo)
        if gpus.value:
            return NotHere.of("context.gpu-of-another-vendor", gpu=gpus.value[0].name)
        return NotHere.of("context.no-gpu-to-target")

    def judge(self, code: Iterable[Fatbin | FatbinGroup], arch: Arch) -> Coverage:
        """Judge whether code in this environment runs on a GPU, with this machine's driver and torch's CUDA."""
        return judge(code, arch, driver_cuda=self.driver_level(arch), build_cuda=self.torch_cuda)

    def install(self, *sources: str, text: str = "", targets: tuple[Target, ...] = ()) -> Step:
        """Build ``splatfix install SOURCE --python ... --target sm_120`` for the targets, or those given here; a command only
        where nothing of it is left to a person: ``SOURCE`` and ``ARCH`` stand for what is not known."""
        archs = target_options(dict.fromkeys(target.arch for target in targets or self.targets))
        environment = python_option(self.facts)
        # it takes an environment of its own, which only the person can name
        if self.interpreter is not None and self.interpreter.externally_managed:
            environment = ("--python", "FOLDER")
        options = (*environment, *(archs or ("--target", "ARCH")))
        kind = "install-nvrtc" if "nvrtc" in sources else "install"
        return run(
            "splatfix", "install", *(sources or ("SOURCE",)), *options, text=text, kind=kind, sources=sources
        )

    def reinstall(self, *distributions: str | None, text: str = "", targets: tuple[Target, ...] = ()) -> Step:
        """Build ``splatfix install`` of the own sources of what is installed, as far as all of them are known."""
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
    def arch_list(self) -> ArchListResult | None:
        """TORCH_CUDA_ARCH_LIST as torch reads it; None without a CUDA build of a torch whose rules are known."""
        if self.torch is None or self.torch_cuda is None:
            return None
        return expand_arch_list(self.variables.get(TORCH_VARIABLE), self.torch.version)

    @cached_property
    def own_arch_list(self) -> ArchList | ArchListError | None:
        """The architectures that torch works out where no list is set; None: a list is set, or torch has no CUDA code."""
        torch = self.torch
        if torch is None or not torch.code or not isinstance(self.arch_list, UsesVisibleGpus):
            return None
        archs = [target.arch for target in self.own_targets]
        return visible_gpu_arch_list(archs, usual_archs(torch.code), torch.version)

    @cached_property
    def torch_wheels(self) -> tuple[TorchBuild, ...]:
        """Published builds, other than the installed one, that serve every target here; the one advised comes first."""
        return tuple(builds_for(self.facts, self.archs))

    @property
    def torch_wheel(self) -> TorchBuild | None:
        """The published build advised for the targets."""
        return next(iter(self.torch_wheels), None)


def make_context(facts: Facts, goal: Goal | None = None) -> Context:
    """Make the context of these facts for a goal; without one for the machine's own GPUs."""
    return Context(facts, goal or Goal())
