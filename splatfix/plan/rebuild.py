"""The options that compile: with an installed toolkit, with PTX, with a toolkit from PyPI wheels or one to be installed."""

from __future__ import annotations

from dataclasses import dataclass

from splatfix.context import Choice, Context
from splatfix.context.commands import conda_toolkit, sources_of, target_options
from splatfix.context.compilers import choose_compilers
from splatfix.context.submodules import FETCH
from splatfix.context.toolkits import BuildToolkit, choose_ptx, choose_toolkit
from splatfix.core.step import Step, say
from splatfix.core.versions import release
from splatfix.facts import Facts, Torch
from splatfix.knowledge import Arch, cubin_runs_on, toolkit_supports
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import provision
from splatfix.plan.assessment import Assessment, lacks_code, torch_obstacles
from splatfix.plan.compose import confirm, make_option, splatfix
from splatfix.plan.option import Option, OptionKind, rejected
from splatfix.plan.provided import OWN_TOOLKIT, toolkit_recipe, toolkit_to_be
from splatfix.plan.steps import ProvideToolkit, Reason, Rebuild


@dataclass(frozen=True)
class Tools:
    """A toolkit and a compiler for one torch, and what must be done first to have them."""

    cuda: str
    root: str
    """"" where the toolkit is not there yet."""
    build_archs: tuple[Arch, ...]
    compiler: str
    """Path of the C++ compiler; "" where it must be installed first."""
    reasons: tuple[Reason, ...]
    toolkit_steps: tuple[Step, ...] = ()
    compiler_steps: tuple[Step, ...] = ()
    ptx: Arch | None = None
    """Compiled as PTX too, for the targets that this toolkit cannot name."""

    @property
    def before(self) -> tuple[Step, ...]:
        """What is done before anything can be compiled."""
        return (*self.toolkit_steps, *self.compiler_steps)

    @property
    def downloaded(self) -> bool:
        """The toolkit comes from PyPI wheels."""
        return any(isinstance(step, ProvideToolkit) for step in self.toolkit_steps)

    @property
    def manual(self) -> int:
        """How many things the user must install: toolkit, compiler."""
        return (bool(self.toolkit_steps) and not self.downloaded) + bool(self.compiler_steps)

    @property
    def cost(self) -> int:
        """What having them asks: two for each thing to install by hand, one for a download."""
        return 2 * self.manual + self.downloaded


def tools_here(context: Context, torch: Torch) -> Tools | str:
    """Toolkit and compiler of this machine for a torch; else why none fits. A missing compiler is to be installed first."""
    own = torch == context.torch
    return _tools(
        context, torch, context.toolkit if own else choose_toolkit(context.facts, torch, context.archs)
    )


def tools_from_wheels(context: Context, torch: Torch) -> Tools | str:
    """The toolkit that PyPI wheels make for a torch; else why there is none for this CUDA, system or target."""
    facts, numbers = context.facts, release(torch.cuda)
    minor = f"{numbers[0]}.{numbers[1]}"
    if facts.machine.system != "linux":
        return f"a toolkit from PyPI wheels was never tried on {facts.machine.system}"
    offer = provision(numbers[0])
    if offer is None:
        return f"whether PyPI has a compiler of CUDA {numbers[0]} is not known"
    if (facts.machine.libc.value or "").startswith("musl"):
        return f"the toolkit's wheels need glibc, this is {facts.machine.libc.value}"
    recipe = toolkit_recipe(torch)
    if recipe is None:
        return f"PyPI has no compiler of CUDA {numbers[0]} ({offer.wheel}: {offer.holds})"
    toolkit = toolkit_to_be(minor, f"splatfix's own CUDA {minor}", OWN_TOOLKIT)
    found = choose_toolkit(facts, torch, context.archs, instead=toolkit)
    return _tools(context, torch, found, ProvideToolkit(cuda=minor, unpacked_gb=recipe.unpacked_gb))


def tools_by_hand(context: Context, torch: Torch) -> Tools | str:
    """The toolkit to install that fits a torch, the targets and the compilers here; else why no CUDA of torch's major does."""
    numbers, archs = release(torch.cuda), context.archs
    fitting: list[tuple[int, int, Tools]] = []
    why = f"no CUDA {numbers[0]} toolkit compiles for {', '.join(arch.sm for arch in archs)}"
    for minor in range(10):
        cuda = (numbers[0], minor)
        if limits(cuda) is None or any(toolkit_supports(cuda, arch) is False for arch in archs):
            continue
        name = f"{cuda[0]}.{cuda[1]}"
        found = choose_toolkit(context.facts, torch, archs, instead=toolkit_to_be(name, f"CUDA {name}"))
        tools = _tools(context, torch, found, _install_by_hand(context.facts, name))
        if isinstance(tools, str):
            why = tools
        else:
            fitting.append((tools.manual, abs(minor - numbers[1]), tools))
    return min(fitting, key=lambda item: item[:2])[2] if fitting else why


def tools_for(context: Context, torch: Torch) -> Tools | None:
    """Toolkit and compiler for a torch from wherever they come, the least trouble first; None: nowhere."""
    made = (make(context, torch) for make in (tools_here, tools_from_wheels, tools_by_hand))
    return next((tools for tools in made if isinstance(tools, Tools)), None)


def _install_by_hand(facts: Facts, cuda: str) -> Step:
    interpreter = facts.environment.interpreter.value
    if interpreter and interpreter.kind == "conda":
        return conda_toolkit(
            interpreter.prefix,
            cuda,
            f"install the CUDA {cuda} toolkit into the conda environment, without root",
        )
    return say(
        f"install the CUDA {cuda} toolkit (not the driver that comes with it) from "
        "https://developer.nvidia.com/cuda-toolkit-archive"
    )


def _tools(context: Context, torch: Torch, choice: Choice[BuildToolkit], *toolkit_steps: Step) -> Tools | str:
    """A toolkit with the compiler for it; else why there is no such toolkit."""
    found = choice.value
    if found is None:
        return choice.problem.what if choice.problem else ""
    why = found.why if found.toolkit.found_via else f"torch was built with CUDA {torch.cuda}"
    compilers = choose_compilers(context.facts, torch, found.toolkit, found.version)
    chosen, problem = compilers.value, compilers.problem
    return Tools(
        found.toolkit.version or "",
        "" if toolkit_steps else found.toolkit.root,
        found.build_archs,
        chosen.cxx if chosen else "",
        (Reason(why), Reason(chosen.why if chosen else problem.what if problem else "")),
        toolkit_steps,
        problem.todo if problem else (),
        found.ptx,
    )


def rebuild_steps(
    found: Assessment, tools: Tools, *options: str, everything: bool = False
) -> tuple[Step, ...]:
    """Get the tools, compile, and confirm the result.

    Args:
        options: of ``splatfix install``.
        everything: also what serves the targets already, because the torch below it changes.
    """
    ours = [part for part in found.parts if (not part.dropin or part.unfit) and part.name not in found.kept]
    lacking = [] if everything else [part for part in ours if lacks_code(found, part)]
    archs = [arch.cc for arch in dict.fromkeys(tools.build_archs)]
    sources = found.sources.named or sources_of(found.facts, [part.name for part in lacking or ours])
    options = (*options, FETCH) if found.sources.fetch else options
    command = splatfix(found, "install", *(sources or ("SOURCE",)), *target_options(found.archs), *options)
    rebuild = Rebuild(
        command=command,
        subjects=tuple(part.name for part in lacking or ours),
        targets=found.archs,
        arch_list=";".join([*archs, f"{tools.ptx.cc}+PTX"] if tools.ptx else archs),
        cuda=tools.cuda,
        toolkit=tools.root,
        compiler=tools.compiler,
        first=found.nothing_installed,
    )
    return (*found.sources.prepare, *tools.before, rebuild, confirm(found))


def _torch_to_build_for(found: Assessment) -> tuple[Torch, list[str]] | str:
    """The torch that is here and what is not known about it; else what rules out compiling anything beside it."""
    against, unsure = torch_obstacles(found)
    if found.kept and len(found.kept) == len(found.parts):
        against.append(f"{', '.join(found.kept)} must not change (--keep)")
    if against or found.torch is None:
        return "; ".join(against)
    return found.torch, unsure


def rebuild(found: Assessment) -> Option:
    """Compile with an installed toolkit; a missing host compiler is the user's to install first."""
    kind = OptionKind.REBUILD
    base = _torch_to_build_for(found)
    if isinstance(base, str):
        return rejected(kind, base)
    torch, unsure = base
    tools = tools_here(found.context, torch)
    if isinstance(tools, str):
        return rejected(kind, tools)
    return make_option(found, kind, rebuild_steps(found, tools), tools.reasons, unsure)


def rebuild_with_ptx(found: Assessment) -> Option:
    """For a GPU newer than the toolkit: machine code of an older major does not load there, PTX does."""
    kind = OptionKind.REBUILD_PTX
    base = _torch_to_build_for(found)
    if isinstance(base, str):
        return rejected(kind, base)
    torch, unsure = base
    choice = choose_ptx(found.facts, torch, found.archs)
    decision, tools = choice.value, _tools(found.context, torch, choice)
    if decision is None or isinstance(tools, str):
        return rejected(kind, str(tools))
    if decision.ptx is None:
        cuda = decision.toolkit.version or ""
        return rejected(kind, f"not needed: CUDA {cuda} here makes machine code for {found.words}")
    reasons = (Reason(_why_ptx(found, decision, decision.ptx)), *tools.reasons)
    unsure += [decision.unsure] if decision.unsure else []
    return make_option(found, kind, rebuild_steps(found, tools, "--ptx"), reasons, unsure)


def _why_ptx(found: Assessment, decision: BuildToolkit, ptx: Arch) -> str:
    """Why machine code alone would not do."""
    served = decision.build_archs
    newer = ", ".join(arch.sm for arch in found.archs if not any(cubin_runs_on(own, arch) for own in served))
    return (
        f"CUDA {decision.toolkit.version} does not support {newer}, and {ptx.sm} machine code does not load there "
        f"(it runs within one major only), so {ptx.compute} PTX is embedded"
    )


def _torch_without_toolkit(found: Assessment) -> tuple[Torch, list[str], Tools | None] | str:
    """As ``_torch_to_build_for``, where no toolkit here compiles as it is; with the tools of this machine that lack
    only a compiler (None: no toolkit here fits)."""
    base = _torch_to_build_for(found)
    if isinstance(base, str):
        return base
    torch, unsure = base
    here = tools_here(found.context, torch)
    if isinstance(here, Tools) and not here.before:
        return "not needed: a toolkit that fits is here"
    toolkits = found.facts.machine.toolkits
    if toolkits.value is None:
        unsure.append(
            f"which toolkits are here ({toolkits.error}); one that fits would make this unnecessary"
        )
    return torch, unsure, here if isinstance(here, Tools) else None


def provide_toolkit(found: Assessment) -> Option:
    """CUDA 13 has a whole compiler on PyPI; 11 and 12 have none."""
    kind = OptionKind.PROVIDE_TOOLKIT
    base = _torch_without_toolkit(found)
    if isinstance(base, str):
        return rejected(kind, base)
    torch, unsure, _ = base
    tools = tools_from_wheels(found.context, torch)
    if isinstance(tools, str):
        return rejected(kind, tools)
    steps = rebuild_steps(found, tools, "--provide-toolkit")
    return make_option(found, kind, steps, tools.reasons, unsure)


def install_toolkit(found: Assessment) -> Option:
    """A toolkit of torch's major that the user installs."""
    kind = OptionKind.INSTALL_TOOLKIT
    base = _torch_without_toolkit(found)
    if isinstance(base, str):
        return rejected(kind, base)
    torch, unsure, here = base
    tools = tools_by_hand(found.context, torch)
    if isinstance(tools, str):
        return rejected(kind, tools)
    if here is not None and tools.manual > here.manual:
        why = "the installed toolkit fits; only a host compiler is missing, which another toolkit would need too"
        return rejected(kind, why)
    return make_option(found, kind, rebuild_steps(found, tools), tools.reasons, unsure)
