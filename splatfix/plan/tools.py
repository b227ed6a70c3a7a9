"""What an installation needs: a Python and a torch that are usable, and for these a toolkit and a host compiler."""

import sys

from msgspec import Struct
from msgspec.structs import replace

from splatfix.checks.torch import torch_for
from splatfix.context import Choice, Context, NotHere, NoToolkit, UnknownArch
from splatfix.context.commands import conda_toolkit, installer_of, make_environment, pip, python_to_be
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.toolkits import BuildToolkit, choose_ptx, choose_toolkit
from splatfix.core.errors import Rejected
from splatfix.core.resources import toolkit_folder, user_cache
from splatfix.core.step import Step, say
from splatfix.core.versions import dotted, release
from splatfix.knowledge import toolkit_supports
from splatfix.knowledge.cpp_extension import source_of_releases
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import cuda_of_torch, provision, recipe
from splatfix.model import Considered, Facts, Interpreter, Toolkit, Torch
from splatfix.model.option import Request
from splatfix.model.steps import ProvideToolkit, Reason
from splatfix.plan.case import names_of_archs, not_applicable

OWN_TOOLKIT = ("splatfix's own cache",)

# The compiler's own parts are versioned apart from it, and the newest do not fit: nvvm 13.5 writes PTX that ptxas 13.0
# refuses ("Unsupported .version 9.5; current version is '9.0'", seen with cuda-toolkit 13.0.2 on 2026-11-20).
KEPT_IN_STEP = ("nvidia-nvvm", "nvidia-cuda-crt", "nvidia-nvjitlink")


class NoCuda(NotHere, frozen=True, kw_only=True):
    """The installed torch is no build for CUDA; the first step puts one in its place."""


def usable_python(facts: Facts) -> Interpreter | Rejected:
    """Return the target interpreter, where it can be installed into."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None:
        return Rejected.of("plan.interpreter-unusable", error=facts.environment.interpreter.error)
    if interpreter.externally_managed:
        again = say(f"Then run this again; elsewhere with --python {python_to_be(facts)}.")
        todo = (make_environment(interpreter), again)
        return Rejected.of("plan.externally-managed", todo=todo, executable=interpreter.executable)
    if installer_of(facts) is None:
        return Rejected.of("plan.no-pip", executable=interpreter.executable, own=sys.executable)
    return interpreter


def usable_headers(facts: Facts) -> NotHere | None:
    """Reject a Python that is known to lack the headers against which extensions are compiled."""
    interpreter = facts.environment.interpreter.value
    if interpreter is None or interpreter.headers is not False:
        return None
    version = dotted(release(interpreter.version)[:2])
    return NotHere.of("plan.no-python-headers", executable=interpreter.executable, version=version)


def usable_torch(context: Context, *, cuda: bool) -> Torch | Rejected:
    """Return the target environment's torch; where CUDA is needed, another build is rejected as :class:`NoCuda`."""
    facts, torch, python = context.facts, context.torch, context.interpreter
    where = "the target Python"
    if python:
        where = python.executable
    if facts.environment.torch_installed.value is False:
        install = pip(facts, "install", "torch")  # the drop-ins run with any
        if cuda:
            install = torch_for(context, context.targets)[0]
        return Rejected.of("plan.no-torch", todo=(install, say("Then run this again.")), where=where)
    if torch is None:
        reinstall = pip(facts, "install", "--force-reinstall", "--no-deps", "torch", text="Reinstall it")
        error = facts.environment.torch.error
        return Rejected.of("plan.torch-unreadable", todo=(reinstall,), where=where, error=error)
    if torch.cuda or not cuda:
        return torch
    todo, build = torch_for(context, context.targets)[:1], "CPU-only"
    if torch.hip:
        build = "ROCm"
    return NoCuda.of("plan.cpu-only-torch", todo=todo, version=torch.version, where=where, build=build)


class Tools(Struct, frozen=True):
    """A toolkit and a compiler for one torch, and what must be done first to have them."""

    torch: Torch
    chosen: BuildToolkit
    compilers: HostCompilers | Rejected
    """Where none here fits, what to install."""
    rejected: tuple[Considered, ...]
    """Toolkits and compilers that were considered."""
    toolkit_steps: tuple[Step, ...] = ()
    """What is done first to have the toolkit; () where it is here."""

    @property
    def cuda(self) -> str:
        """Version of the toolkit, as far as it is known."""
        return self.chosen.toolkit.version or ""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        toolkit = f"torch was built with CUDA {self.torch.cuda}"
        if self.chosen.toolkit.found_via:
            toolkit = self.chosen.why
        compiler, bounds = self.compilers, limits(self.chosen.version)
        why_compiler = compiler.what if isinstance(compiler, Rejected) else compiler.why
        of_compiler = Reason(why_compiler, bounds.source if bounds else "")
        return Reason(toolkit, source_of_releases()), of_compiler

    @property
    def before(self) -> tuple[Step, ...]:
        if isinstance(self.compilers, Rejected):
            return (*self.toolkit_steps, *self.compilers.todo)
        return self.toolkit_steps

    @property
    def downloaded(self) -> bool:
        """The toolkit comes from PyPI wheels."""
        return any(isinstance(step, ProvideToolkit) for step in self.toolkit_steps)

    @property
    def manual(self) -> int:
        """How many things the user must install: toolkit, compiler."""
        by_hand = bool(self.toolkit_steps) and not self.downloaded
        return by_hand + isinstance(self.compilers, Rejected)

    @property
    def cost(self) -> int:
        """What having them asks: two for each thing to install by hand, one for a download."""
        return 2 * self.manual + self.downloaded

    @property
    def mismatch(self) -> str:
        """What is silenced when the toolkit is of another major than torch's; "" when it is not."""
        if self.chosen.version[0] == release(self.torch.cuda)[0]:
            return ""
        return f"compiled with CUDA {self.cuda}, torch is built with CUDA {self.torch.cuda}"


def _with_compiler(
    context: Context, torch: Torch, choice: Choice[BuildToolkit], *toolkit_steps: Step
) -> Tools | Rejected:
    """Return a chosen toolkit with the compiler for it; a missing compiler is to be installed first."""
    if no_headers := usable_headers(context.facts):
        return no_headers
    if choice.value is None:
        assert choice.problem is not None, "there is no value"
        return choice.problem
    compilers = choose_compilers(context.facts, torch, choice.value.toolkit)
    usable = compilers.value or compilers.problem
    assert usable is not None, "one of the two is there"
    return Tools(torch, choice.value, usable, (*choice.rejected, *compilers.rejected), toolkit_steps)


def tools_here(context: Context, torch: Torch, *, ptx: bool = False) -> Tools | Rejected:
    """Return toolkit and compiler of this machine for a torch; with ``ptx`` for PTX, where the toolkit cannot name a target."""
    choice = context.toolkit
    if ptx:
        choice = choose_ptx(context.facts, torch, context.archs)
    elif torch != context.torch:
        choice = choose_toolkit(context.facts, torch, context.archs)
    return _with_compiler(context, torch, choice)


def tools_from_wheels(context: Context, torch: Torch) -> Tools | Rejected:
    """Return the toolkit that PyPI wheels make for a torch."""
    machine = context.machine
    step = own_toolkit(torch, machine.system, machine.libc.value or "")
    if isinstance(step, Rejected):
        return step
    toolkit = _toolkit_to_be(step.cuda, f"splatfix's own CUDA {step.cuda}", OWN_TOOLKIT)
    choice = choose_toolkit(context.facts, torch, context.archs, instead=toolkit)
    if step.cuda in (machine.own_toolkits.value or ()):
        return _with_compiler(context, torch, choice)
    download = ProvideToolkit(cuda=step.cuda, unpacked_gb=step.unpacked_gb)
    return _with_compiler(context, torch, choice, download)


def tools_by_hand(context: Context, torch: Torch) -> Tools | Rejected:
    """Return the toolkit to install that fits a torch, the targets and the compilers here, of torch's major of CUDA."""
    major, minor_of_torch = release(torch.cuda)[:2]
    interpreter = context.interpreter
    fitting: list[Tools] = []
    obstacle = not_applicable(f"no CUDA {major} toolkit compiles for {names_of_archs(context.archs)}")
    # no major of CUDA has had a minor beyond 9 (10.2, 11.8, 12.9)
    for cuda in ((major, minor) for minor in range(10)):
        if limits(cuda) is None or any(toolkit_supports(cuda, arch) is False for arch in context.archs):
            continue
        name = f"{major}.{cuda[1]}"
        archive = "https://developer.nvidia.com/cuda-toolkit-archive"
        install = say(f"install the CUDA {name} toolkit (not the driver that comes with it) from {archive}")
        if interpreter and interpreter.kind == "conda":
            text = f"install the CUDA {name} toolkit into the conda environment, without root"
            install = conda_toolkit(interpreter.prefix, name, text)
        toolkit = _toolkit_to_be(name, f"CUDA {name}")
        choice = choose_toolkit(context.facts, torch, context.archs, instead=toolkit)
        tools = _with_compiler(context, torch, choice, install)
        if isinstance(tools, Rejected):
            obstacle = tools
        else:
            fitting.append(tools)
    # of those that ask as much the one nearest to torch's: what the two share in one process is then most alike
    return min(
        fitting,
        key=lambda tools: (tools.manual, abs(tools.chosen.version[1] - minor_of_torch)),
        default=obstacle,
    )


def tools_for(context: Context, torch: Torch) -> Tools | None:
    """Return toolkit and compiler for a torch from wherever they come, the least trouble first; None: nowhere."""
    for make in (tools_here, tools_from_wheels, tools_by_hand):
        tools = make(context, torch)
        if isinstance(tools, Tools):
            return tools
    return None


def tools_for_request(request: Request, context: Context) -> Tools | Rejected:
    """Return toolkit and compilers for what was asked: those here, PTX where it was allowed, else splatfix's own toolkit."""
    torch = usable_torch(context, cuda=True)
    if isinstance(torch, Rejected):
        return torch
    if context.no_target:
        return context.no_target
    facts, machine = context.facts, context.machine
    choice = context.toolkit
    download: tuple[Step, ...] = ()
    if request.cuda_home or request.force_cuda_mismatch:
        any_major = request.force_cuda_mismatch
        choice = choose_toolkit(facts, torch, context.archs, request.cuda_home, any_major=any_major)
    problem = choice.problem
    if request.ptx and isinstance(problem, (NoToolkit, UnknownArch)):
        choice = choose_ptx(facts, torch, context.archs, request.cuda_home)
    elif isinstance(problem, NoToolkit) and not request.cuda_home:
        step = own_toolkit(torch, machine.system, machine.libc.value or "")
        if isinstance(step, Rejected):
            if not request.provide_toolkit:
                return problem
            why = say(f"--provide-toolkit cannot help: {step.what}.")
            return replace(problem, todo=(why, *problem.todo))
        if step.cuda not in (machine.own_toolkits.value or ()):
            if not request.provide_toolkit:
                text = f"Or let splatfix download one ({step.unpacked_gb:.1f} GB) into its own cache"
                again = request.command(*request.sources, more=("--provide-toolkit",), text=text)
                return replace(problem, todo=(*problem.todo, again))
            download = (step,)
        toolkit = _toolkit_to_be(step.cuda, step.root, OWN_TOOLKIT, f"{step.root}/bin/nvcc")
        own = choose_toolkit(facts, torch, context.archs, instead=toolkit)
        choice = Choice(own.value, choice.rejected, own.problem)
    tools = _with_compiler(context, torch, choice, *download)
    if isinstance(tools, Tools) and isinstance(tools.compilers, Rejected):
        return tools.compilers
    return tools


def own_toolkit(torch: Torch, system: str, libc: str = "") -> ProvideToolkit | Rejected:
    """Return what unpacks the toolkit for this torch from PyPI wheels into splatfix's own cache."""
    numbers = release(torch.cuda)
    # the wheels exist for Windows too; what their layout lacks there for nvcc nobody has looked at
    if system != "linux":
        return not_applicable(f"a toolkit from PyPI wheels was never tried on {system}")
    offer = provision(numbers[0])
    if offer is None:
        return not_applicable(f"whether PyPI has a compiler of CUDA {numbers[0]} is not known")
    if libc.startswith("musl"):
        return not_applicable(f"the toolkit's wheels need glibc, this is {libc}")
    # in the very version that this torch depends on where that is known
    cuda, exact = f"{numbers[0]}.{numbers[1]}", cuda_of_torch(torch.version) or ""
    wheels = recipe(cuda)
    if exact.startswith(f"{cuda}."):
        wheels = recipe(exact)
    if wheels is None:
        return not_applicable(f"PyPI has no compiler of CUDA {numbers[0]} ({offer.wheel}: {offer.holds})")
    folder = toolkit_folder(cuda, user_cache())
    return ProvideToolkit(
        cuda=cuda,
        unpacked_gb=wheels.unpacked_gb,
        folder=str(folder),
        root=str(folder / wheels.cuda_home),
        requirements=(wheels.requirement, *(f"{name}=={cuda}.*" for name in KEPT_IN_STEP)),
        # what the wheels' layout lacks beside an installer's
        links=tuple((fix.path, fix.links_to) for fix in wheels.fixes if fix.path),
        reasons=(Reason("no toolkit of this machine fits, and --provide-toolkit was given"),),
    )


def _toolkit_to_be(
    cuda: str, root: str, found_via: tuple[str, ...] = (), nvcc: str | None = "nvcc"
) -> Toolkit:
    """Build a toolkit (``13.0``) that is not there yet; which compilers it will accept, the tables say."""
    toolkit = Toolkit(root=root, version=cuda, found_via=found_via, nvcc=nvcc)
    bounds = limits(release(cuda))
    if bounds is None:
        return toolkit
    return replace(toolkit, gcc_max=bounds.gcc_max_major, clang_max=bounds.clang_max_major)
