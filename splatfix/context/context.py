"""The one place that says, from facts and goal, which GPUs, driver level, toolkit, compiler and torch are in play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from packaging.utils import canonicalize_name

from splatfix.context import commands, compilers, readings, targets, toolkits, torch_wheels
from splatfix.context.compilers import HostCompilers
from splatfix.context.coverage import Coverage, judge
from splatfix.context.model import Choice, Goal, Target
from splatfix.context.toolkits import BuildToolkit
from splatfix.context.visible import Reading
from splatfix.core.errors import Problem
from splatfix.core.step import Step
from splatfix.facts import (
    Checkout,
    CheckoutSource,
    Compiler,
    Distribution,
    EnvironmentFacts,
    Extension,
    Facts,
    FatbinGroup,
    Gpu,
    Interpreter,
    MachineFacts,
    SplatPackage,
    Toolkit,
    ToolkitChoice,
    Torch,
)
from splatfix.knowledge import AUTO, Arch
from splatfix.knowledge.drivers import Platform
from splatfix.knowledge.torch_releases import TorchBuild


@dataclass(frozen=True)
class Context:
    """Facts and goal, and the one answer to each question that several rooms ask of them. Pure; never raises."""

    facts: Facts
    goal: Goal

    @property
    def machine(self) -> MachineFacts:
        """The machine's facts."""
        return self.facts.machine

    @property
    def environment(self) -> EnvironmentFacts:
        """The target environment's facts."""
        return self.facts.environment

    @property
    def interpreter(self) -> Interpreter | None:
        """The target environment's Python, where it answered."""
        return self.environment.interpreter.value

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Installed distributions, as far as they are known."""
        return self.environment.distributions.value or ()

    @cached_property
    def _by_name(self) -> Mapping[str, Distribution]:
        return {canonicalize_name(item.name): item for item in reversed(self.distributions)}

    def distribution(self, name: str) -> Distribution | None:
        """The installed distribution of that name, in any of its spellings."""
        return self._by_name.get(canonicalize_name(name))

    @property
    def packages(self) -> tuple[SplatPackage, ...]:
        """Installed splatting packages, as far as they are known."""
        return self.environment.packages.value or ()

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Native modules of installed packages that this torch would load, as far as they are known."""
        return readings.loaded_extensions(self.facts)

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables where splatfix was started."""
        return self.machine.variables

    @property
    def nvidia_gpus(self) -> tuple[Gpu, ...]:
        """NVIDIA GPUs that the driver lists here, visible or hidden; see :func:`splatfix.context.targets.listed_gpus`."""
        return targets.listed_gpus(self.facts)

    @property
    def all_lost(self) -> bool:
        """The driver counts GPUs and cannot reach any of them."""
        return bool(self.nvidia_gpus) and all(gpu.nvml_error is not None for gpu in self.nvidia_gpus)

    @property
    def unused_cards(self) -> tuple[Gpu, ...]:
        """NVIDIA cards in sight that no program here can use: without NVIDIA's driver, or the host's."""
        listed = self.nvidia_gpus
        return tuple(
            gpu for gpu in self.machine.gpus.value or () if gpu.vendor == "nvidia" and gpu not in listed
        )

    @property
    def checkout(self) -> Checkout | None:
        """The checkout, where one was read."""
        return self.facts.checkout.value

    @property
    def windows(self) -> bool:
        """The machine's shell is cmd.exe."""
        return readings.is_windows(self.facts)

    @property
    def platform(self) -> Platform | None:
        """``linux`` or ``windows``; None where there is no CUDA (macOS)."""
        return readings.platform_of(self.facts)

    @property
    def python(self) -> tuple[int, int] | None:
        """(major, minor) of the target interpreter."""
        return readings.python_version(self.facts)

    @property
    def glibc(self) -> tuple[int, int] | None:
        """(major, minor) of the C library."""
        return readings.glibc_of(self.facts)

    def pip(self, verb: str, *what: str, text: str = "") -> Step:
        """``pip VERB WHAT`` for the target environment; see :func:`splatfix.context.commands.pip`."""
        return commands.pip(self.facts, verb, *what, text=text)

    def install(self, *sources: str, text: str = "", wanted: tuple[Target, ...] = ()) -> Step:
        """``splatfix install SOURCE`` for the target environment and the targets, or only those ``wanted``."""
        archs = (item.arch for item in wanted or self.targets)
        return commands.install_sources(self.facts, archs, *sources, text=text)

    def reinstall(self, *distributions: str | None, text: str = "", wanted: tuple[Target, ...] = ()) -> Step:
        """``splatfix install`` of the own sources of what is installed, as far as all of them are known."""
        sources = commands.sources_of(self.facts, distributions)
        return self.install(*sources, text=text, wanted=wanted)

    @cached_property
    def owners(self) -> tuple[str, ...]:
        """Distributions that bring an extension which links torch, without torch's own family."""
        names = (
            item.distribution
            for item in self.extensions
            if item.links_torch and item.importable and not item.optional
        )
        return tuple(dict.fromkeys(name for name in names if name and not name.lower().startswith("torch")))

    def remove(self, path: str, text: str = "", *, folder: bool = False) -> Step:
        """The command that removes a file, or a folder with what is in it, in this machine's shell."""
        return commands.remove_command(self.facts, path, text, folder=folder)

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """What the person asked for; failing that, this machine's GPUs that are used, each architecture once."""
        return targets.find_targets(self.goal.targets, self.facts, self.goal.device)

    @cached_property
    def archs(self) -> tuple[Arch, ...]:
        """The architectures of the targets."""
        return tuple(item.arch for item in self.targets)

    @cached_property
    def own_targets(self) -> tuple[Target, ...]:
        """This machine's GPUs that are used, whatever was asked for."""
        return targets.find_targets((), self.facts, self.goal.device)

    @property
    def hidden_gpus(self) -> frozenset[int]:
        """Index of each NVIDIA GPU that no program started here would see; empty where that is not certain."""
        return targets.hidden_gpus(self.facts)

    @property
    def left_aside(self) -> dict[int, str]:
        """Why no program here gets a card, by the index of each NVIDIA card for which that is so."""
        return targets.left_aside(self.facts)

    @property
    def visible_gpus(self) -> tuple[Gpu, ...]:
        """The NVIDIA GPUs that a program started here would see; none where CUDA_VISIBLE_DEVICES leaves none."""
        return targets.visible_gpus(self.facts)

    @property
    def visible_value(self) -> Reading | None:
        """What CUDA_VISIBLE_DEVICES leaves; None where it is not set."""
        return targets.visible_value(self.facts)

    @property
    def hides_all(self) -> bool:
        """CUDA_VISIBLE_DEVICES alone leaves programs without a GPU."""
        return targets.hides_all(self.facts)

    @cached_property
    def no_target(self) -> Problem | None:
        """Why there is no target, where the machine's own GPUs are meant and there is none."""
        # --target auto beside a named GPU still promises that this machine has one
        if self.targets and (self.own_targets or AUTO not in self.goal.targets):
            return None
        return targets.no_gpu_problem(self.facts)

    @property
    def has_nvidia_gpu(self) -> bool:
        """At least one NVIDIA GPU is known to be here, and the driver lists it."""
        return bool(self.nvidia_gpus)

    @property
    def has_working_gpu(self) -> bool | None:
        """An NVIDIA GPU that torch would see; None when that is not known."""
        return readings.has_working_gpu(self.facts)

    def driver_level(self, arch: Arch) -> str | None:
        """The CUDA level whose PTX this machine's driver compiles for a GPU; None: not known, as for a GPU elsewhere."""
        return targets.driver_level(self.facts, arch)

    def judge(self, code: Iterable[FatbinGroup], arch: Arch) -> Coverage:
        """Whether code in this environment runs on a GPU, with this machine's driver and torch's CUDA."""
        return judge(code, arch, driver_cuda=self.driver_level(arch), build_cuda=self.torch_cuda)

    @property
    def torch(self) -> Torch | None:
        """The target environment's torch, when it could be read."""
        return readings.torch_of(self.facts)

    @property
    def torch_cuda(self) -> tuple[int, int] | None:
        """(major, minor) of ``torch.version.cuda``; None for no torch or a build without CUDA."""
        return readings.torch_cuda(self.facts)

    @property
    def toolkits(self) -> tuple[Toolkit, ...]:
        """The toolkits that have an nvcc which answers."""
        return readings.compiling_toolkits(self.facts)

    @property
    def cuda_home(self) -> Toolkit | None:
        """The toolkit behind what torch itself takes as CUDA_HOME, when it is one of those found."""
        return readings.chosen_toolkit(self.facts)

    @property
    def build_toolkit(self) -> Toolkit | None:
        """The toolkit a build by torch alone would use: :attr:`cuda_home`, else the one that fits torch best."""
        return readings.build_toolkit(self.facts)

    @property
    def wrapper_choice(self) -> ToolkitChoice | None:
        """What torch itself takes as CUDA_HOME, where that is a folder that is not the toolkit's own root."""
        return readings.wrapper_choice(self.facts)

    @cached_property
    def sources_to_build(self) -> tuple[CheckoutSource, ...]:
        """Sources of the checkout that are still to be built."""
        return tuple(readings.sources_to_build(self.facts))

    @cached_property
    def compiles_at_first_use(self) -> tuple[str, ...]:
        """Installed packages that will compile CUDA code at their first import."""
        return readings.compiles_at_first_use(self.facts)

    @property
    def builds_ahead(self) -> tuple[str, ...]:
        """What is going to be compiled in this environment, as far as the facts tell; () for nothing known."""
        return (*(item.source.label for item in self.sources_to_build), *self.compiles_at_first_use)

    @property
    def made_to_run(self) -> bool:
        """Splatting extensions are here, compiled, and nothing else is to be built, as in a finished image."""
        return readings.nothing_waits(self.facts)

    @cached_property
    def toolkit(self) -> Choice[BuildToolkit]:
        """What a build by splatfix takes for the installed torch and the targets."""
        torch = self.torch
        if torch is None or torch.cuda is None:
            return Choice(
                None, problem=Problem("no-cuda-torch", "There is no CUDA build of torch to build for.")
            )
        if not self.targets:
            return Choice(None, problem=self.no_target)
        return toolkits.choose_toolkit(self.facts, torch, self.archs)

    @cached_property
    def compilers(self) -> Choice[HostCompilers]:
        """The host compilers for :attr:`toolkit`."""
        torch, chosen = self.torch, self.toolkit.value
        if torch is None or chosen is None:
            return Choice(None, problem=self.toolkit.problem)
        return compilers.choose_compilers(self.facts, torch, chosen.toolkit, chosen.version)

    @property
    def host_compiler(self) -> Compiler | None:
        """The C++ compiler a build by torch alone would use."""
        return compilers.host_compiler(self.facts)

    @property
    def nvcc_host_compiler(self) -> Compiler | None:
        """The host compiler that nvcc calls in a build by torch, which is another one where only CXX is set."""
        return compilers.nvcc_host_compiler(self.facts)

    @cached_property
    def torch_wheels(self) -> tuple[TorchBuild, ...]:
        """Published builds, other than the installed one, that serve every target here; the one advised comes first."""
        return tuple(torch_wheels.builds_for(self.facts, self.archs))

    @property
    def torch_wheel(self) -> TorchBuild | None:
        """The published build advised for the targets."""
        return next(iter(self.torch_wheels), None)


def make_context(facts: Facts, goal: Goal | None = None) -> Context:
    """The context of these facts for a goal; without one for the machine's own GPUs."""
    return Context(facts, goal or Goal())
