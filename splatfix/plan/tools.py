"""What compiles: a toolkit and a host compiler for one torch and its targets, from wherever they come."""

from msgspec import Struct
from msgspec.structs import replace

from splatfix.context import Choice, Context, NoToolkit, UnknownArch
from splatfix.context.commands import conda_toolkit
from splatfix.context.compilers import HostCompilers, choose_compilers
from splatfix.context.toolkits import BuildToolkit, choose_ptx, choose_toolkit
from splatfix.core.errors import Rejected
from splatfix.core.resources import TOOLKIT_MARKER, toolkit_folder, user_cache
from splatfix.core.step import Step, say
from splatfix.core.versions import release
from splatfix.facts.checkout import is_file
from splatfix.knowledge import toolkit_supports
from splatfix.knowledge.cpp_extension import source_of_releases
from splatfix.knowledge.host_compilers import limits
from splatfix.knowledge.toolkits import WheelToolkit, cuda_of_torch, provision, recipe
from splatfix.model import Considered, Toolkit, Torch
from splatfix.model.option import Request
from splatfix.model.steps import ProvideToolkit, Reason
from splatfix.plan.case import names_of_archs, not_applicable
from splatfix.plan.requirements import usable_headers, usable_torch

OWN_TOOLKIT = ("splatfix's own cache",)

# The compiler's own parts are versioned apart from it, and the newest do not fit: nvvm 13.5 writes PTX that ptxas 13.0
# refuses ("Unsupported .version 9.5; current version is '9.0'", seen with cuda-toolkit 13.0.2 on 2026-11-20).
KEPT_IN_STEP = ("nvidia-nvvm", "nvidia-cuda-crt", "nvidia-nvjitlink")


class Tools(Struct, frozen=True):
    """A toolkit and a compiler for one torch, and what must be done first to have them."""

    torch: Torch
    chosen: BuildToolkit
    compilers: HostCompilers | None
    """None where no compiler here fits; ``no_compiler`` says what to install."""
    no_compiler: Rejected | None
    rejected: tuple[Considered, ...]
    """Toolkits and compilers that were considered."""
    toolkit_steps: tuple[Step, ...] = ()
    """What is done first to have the toolkit; () where it is here."""

    @property
    def cuda(self) -> str:
        """Version of the toolkit, as far as it is known."""
        return self.chosen.toolkit.version or ""

    @property
    def root(self) -> str:
        """Of the toolkit; "" where it is not there yet."""
        return "" if self.toolkit_steps else self.chosen.toolkit.root

    @property
    def cxx(self) -> str:
        """Path of the C++ compiler; "" where none here fits."""
        return self.compilers.cxx if self.compilers else ""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        toolkit = f"torch was built with CUDA {self.torch.cuda}"
        if self.chosen.toolkit.found_via:
            toolkit = self.chosen.why
        compiler = ""
        if self.compilers:
            compiler = self.compilers.why
        elif self.no_compiler:
            compiler = self.no_compiler.what
        bounds = limits(self.chosen.version)
        of_bounds = bounds.source if bounds else ""
        return Reason(toolkit, source_of_releases()), Reason(compiler, of_bounds)

    @property
    def before(self) -> tuple[Step, ...]:
        if self.no_compiler is None:
            return self.toolkit_steps
        return (*self.toolkit_steps, *self.no_compiler.todo)

    @property
    def downloaded(self) -> bool:
        """The toolkit comes from PyPI wheels."""
        return any(isinstance(step, ProvideToolkit) for step in self.toolkit_steps)

    @property
    def manual(self) -> int:
        """How many things the user must install: toolkit, compiler."""
        return (bool(self.toolkit_steps) and not self.downloaded) + (self.no_compiler is not None)

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


def tools_with(
    context: Context, torch: Torch, choice: Choice[BuildToolkit], *toolkit_steps: Step
) -> Tools | Rejected:
    """Return a chosen toolkit with the compiler for it; a missing compiler is to be installed first."""
    if no_headers := usable_headers(context.facts):
        return no_headers
    if choice.value is None:
        assert choice.problem is not None, "there is no value"
        return choice.problem
    compilers = choose_compilers(context.facts, torch, choice.value.toolkit)
    rejected = (*choice.rejected, *compilers.rejected)
    return Tools(torch, choice.value, compilers.value, compilers.problem, rejected, toolkit_steps)


def tools_here(context: Context, torch: Torch) -> Tools | Rejected:
    """Return toolkit and compiler of this machine for a torch."""
    if torch == context.torch:
        return tools_with(context, torch, context.toolkit)
    return tools_with(context, torch, choose_toolkit(context.facts, torch, context.archs))


def ptx_tools(context: Context, torch: Torch, cuda_home: str | None = None) -> Tools | Rejected:
    """Return a toolkit here that makes PTX for the targets that it cannot name."""
    return tools_with(context, torch, choose_ptx(context.facts, torch, context.archs, cuda_home))


def tools_from_wheels(context: Context, torch: Torch) -> Tools | Rejected:
    """Return the toolkit that PyPI wheels make for a torch."""
    facts, numbers = context.facts, release(torch.cuda)
    minor = f"{numbers[0]}.{numbers[1]}"
    # the wheels exist for Windows too; what their layout lacks there for nvcc nobody has looked at
    if facts.machine.system != "linux":
        return not_applicable(f"a toolkit from PyPI wheels was never tried on {facts.machine.system}")
    offer = provision(numbers[0])
    if offer is None:
        return not_applicable(f"whether PyPI has a compiler of CUDA {numbers[0]} is not known")
    libc = facts.machine.libc.value or ""
    if libc.startswith("musl"):
        return not_applicable(f"the toolkit's wheels need glibc, this is {libc}")
    wheels = toolkit_recipe(torch)
    if wheels is None:
        return not_applicable(f"PyPI has no compiler of CUDA {numbers[0]} ({offer.wheel}: {offer.holds})")
    toolkit = toolkit_to_be(minor, f"splatfix's own CUDA {minor}", OWN_TOOLKIT)
    choice = choose_toolkit(facts, torch, context.archs, instead=toolkit)
    download: tuple[Step, ...] = ()
    if minor not in (facts.machine.own_toolkits.value or ()):
        download = (ProvideToolkit(cuda=minor, unpacked_gb=wheels.unpacked_gb),)
    return tools_with(context, torch, choice, *download)


def tools_by_hand(context: Context, torch: Torch) -> Tools | Rejected:
    """Return the toolkit to install that fits a torch, the targets and the compilers here, of torch's major of CUDA."""
    major, minor_of_torch = release(torch.cuda)[:2]
    interpreter = context.facts.environment.interpreter.value
    fitting: list[tuple[int, int, Tools]] = []
    obstacle = not_applicable(f"no CUDA {major} toolkit compiles for {names_of_archs(context.archs)}")
    # no major of CUDA has had a minor beyond 9 (10.2, 11.8, 12.9)
    for minor in range(10):
        cuda = (major, minor)
        if limits(cuda) is None or any(toolkit_supports(cuda, arch) is False for arch in context.archs):
            continue
        name = f"{major}.{minor}"
        install = say(
            f"install the CUDA {name} toolkit (not the driver that comes with it) from "
            "https://developer.nvidia.com/cuda-toolkit-archive"
        )
        if interpreter and interpreter.kind == "conda":
            text = f"install the CUDA {name} toolkit into the conda environment, without root"
            install = conda_toolkit(interpreter.prefix, name, text)
        toolkit = toolkit_to_be(name, f"CUDA {name}")
        choice = choose_toolkit(context.facts, torch, context.archs, instead=toolkit)
        tools = tools_with(context, torch, choice, install)
        if isinstance(tools, Rejected):
            obstacle = tools
        else:
            # of those that ask as much the one nearest to torch's: what the two share in one process is then most alike
            fitting.append((tools.manual, abs(minor - minor_of_torch), tools))
    if not fitting:
        return obstacle
    return min(fitting, key=lambda item: item[:2])[2]


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
    targets = context.archs
    choice = context.toolkit
    if request.cuda_home or request.force_cuda_mismatch:
        any_major = request.force_cuda_mismatch
        choice = choose_toolkit(context.facts, torch, targets, request.cuda_home, any_major=any_major)
    if request.ptx and isinstance(choice.problem, (NoToolkit, UnknownArch)):
        tools = ptx_tools(context, torch, request.cuda_home)
    elif isinstance(choice.problem, NoToolkit) and not request.cuda_home:
        tools = _own_toolkit(request, context, torch, choice.problem, choice.rejected)
    else:
        tools = tools_with(context, torch, choice)
    if isinstance(tools, Tools) and tools.no_compiler:
        return tools.no_compiler
    return tools


def _own_toolkit(
    request: Request, context: Context, torch: Torch, none_here: NoToolkit, rejected: tuple[Considered, ...]
) -> Tools | Rejected:
    """Return splatfix's own toolkit where none of the machine's fits: the one in its cache, or one to be downloaded."""
    ours = provided_toolkit(torch, context.machine.system)
    if ours is None:
        if not request.provide_toolkit:
            return none_here
        system, major = context.machine.system, release(torch.cuda)[0]
        why = f"--provide-toolkit has no toolkit of CUDA {torch.cuda} for {system}."
        offer = provision(major)
        if system == "linux" and offer is not None:
            why = f"--provide-toolkit cannot help: PyPI has no compiler of CUDA {major} ({offer.holds})."
        return replace(none_here, todo=(say(why), *none_here.todo))
    toolkit, step, is_there = ours
    if not (is_there or request.provide_toolkit):
        text = f"Or let splatfix download one ({step.unpacked_gb:.1f} GB) into its own cache"
        download = request.command(*request.sources, more=("--provide-toolkit",), text=text)
        return replace(none_here, todo=(*none_here.todo, download))
    chosen = choose_toolkit(context.facts, torch, context.archs, instead=toolkit)
    choice = Choice(chosen.value, rejected, chosen.problem)
    if is_there:
        return tools_with(context, torch, choice)
    return tools_with(context, torch, choice, step)


# The toolkit that splatfix itself can unpack from PyPI wheels


def toolkit_recipe(torch: Torch) -> WheelToolkit | None:
    """Return the toolkit wheels of torch's CUDA, in the very version that this torch depends on where that is known."""
    minor = ".".join((torch.cuda or "").split(".")[:2])
    if not minor:
        return None
    exact = cuda_of_torch(torch.version) or ""
    if exact.startswith(f"{minor}."):
        return recipe(exact)
    return recipe(minor)


def toolkit_to_be(
    cuda: str, root: str, found_via: tuple[str, ...] = (), nvcc: str | None = "nvcc"
) -> Toolkit:
    """Build a toolkit (``13.0``) that is not there yet; which compilers it will accept, the tables say."""
    toolkit = Toolkit(root=root, version=cuda, found_via=found_via, nvcc=nvcc)
    bounds = limits(release(cuda))
    if bounds is None:
        return toolkit
    return replace(toolkit, gcc_max=bounds.gcc_max_major, clang_max=bounds.clang_max_major)


def provided_toolkit(torch: Torch, system: str) -> tuple[Toolkit, ProvideToolkit, bool] | None:
    """Return the toolkit for this torch from PyPI wheels, what unpacks it, and whether it lies in the cache, whole.

    None where there are none (CUDA 12 and older, macOS, Windows).
    """
    wheels = toolkit_recipe(torch)
    if system != "linux" or torch.cuda is None or wheels is None:
        return None
    minor = ".".join(torch.cuda.split(".")[:2])
    folder = toolkit_folder(minor, user_cache())
    root = folder / wheels.cuda_home
    step = ProvideToolkit(
        cuda=minor,
        unpacked_gb=wheels.unpacked_gb,
        folder=str(folder),
        root=str(root),
        requirements=(wheels.requirement, *(f"{name}=={minor}.*" for name in KEPT_IN_STEP)),
        # what the wheels' layout lacks beside an installer's
        links=tuple((fix.path, fix.links_to) for fix in wheels.fixes if fix.path),
        reasons=(Reason("no toolkit of this machine fits, and --provide-toolkit was given"),),
    )
    toolkit = toolkit_to_be(minor, str(root), OWN_TOOLKIT, str(root / "bin" / "nvcc"))
    return toolkit, step, is_file(folder / TOOLKIT_MARKER)
