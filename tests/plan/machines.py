"""Machines made up of facts, to make plans for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

import splatfix.plan as plan_room
from splatfix.context import Choice, Context, Goal, make_context
from splatfix.core.errors import Rejected, SplatfixError, require
from splatfix.core.step import Step
from splatfix.facts import EntryKind
from splatfix.knowledge.stacks import variant
from splatfix.model import (
    Code,
    Compiler,
    Distribution,
    Driver,
    EnvironmentFacts,
    Extension,
    Fact,
    Facts,
    FatbinGroup,
    Finding,
    Gpu,
    Interpreter,
    MachineFacts,
    Resources,
    Source,
    SplatPackage,
    Toolkit,
    ToolkitChoice,
    Torch,
)
from splatfix.plan import NO_SOURCES, Case, OptionKind, Options, Plan, Request, SourceSummary, best, rank
from splatfix.plan.checkout import read_sources
from tests.checks.conftest import with_facts as changed
from tests.files import put

INTERPRETER = Interpreter(
    executable="/env/bin/python",
    version="3.11.7",
    implementation="CPython",
    abi_tag="cpython-311-x86_64-linux-gnu",
    platform_tag="linux-x86_64",
    prefix="/env",
    base_prefix="/usr",
    kind="venv",
    site_packages=("/env/lib/python3.11/site-packages",),
)
TORCH = Torch(
    version="2.11.0+cu130",
    cuda="13.0",
    hip=None,
    folder="/env/lib/python3.11/site-packages/torch",
    knows_archs=("7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0", "12.0", "12.0a"),
)
CUDA_13 = Toolkit(
    root="/usr/local/cuda-13.0",
    version="13.0.88",
    found_via=("/usr/local/cuda-13.0",),
    nvcc="/usr/local/cuda-13.0/bin/nvcc",
    archs=("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "sm_121"),
    gcc_max=15,
    clang_max=20,
)
SITE = INTERPRETER.site_packages[0]
RTX_5080 = Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0")
RTX_4090 = Gpu(0, "NVIDIA GeForce RTX 4090", cc="8.9")
NEW_DRIVER = ("580.95.05", "13.0")
OLD_DRIVER = ("570.86.15", "12.8")
CUDA_12 = replace(
    CUDA_13,
    root="/usr/local/cuda-12.8",
    version="12.8.93",
    nvcc="/usr/local/cuda-12.8/bin/nvcc",
    gcc_max=14,
    archs=("sm_50", "sm_90", "sm_120"),
)


def compilers(*majors: str, folder: str = "/usr/bin", via: str = "PATH") -> tuple[Compiler, ...]:
    """gcc and g++ of these versions; the first also under the plain names."""
    found = []
    for number, version in enumerate(majors):
        suffix = f"-{version.partition('.')[0]}" if number else ""
        found += [Compiler(kind, f"{folder}/{kind}{suffix}", version, (via,)) for kind in ("gcc", "g++")]
    return tuple(found)


def machine(
    *,
    torch: Torch | None = TORCH,
    toolkits: tuple[Toolkit, ...] = (CUDA_13,),
    host: tuple[Compiler, ...] = compilers("12.2.0"),
    gpus: tuple[Gpu, ...] = (),
    packages: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    choice: ToolkitChoice | None = None,
    cores: int = 8,
    memory: int | None = 64 * 2**30,
    interpreter: Interpreter = INTERPRETER,
    driver: tuple[str, str] | None = None,
) -> Facts:
    """A Linux machine; what is not said is in order."""
    installed = {"pip": "25.0", "setuptools": "80.0", "ninja": "1.11"} if packages is None else packages
    site = interpreter.site_packages[0]
    return Facts(
        machine=MachineFacts(
            system="linux",
            machine="x86_64",
            gpus=Fact(gpus, "test"),
            driver=Fact(Driver(*driver), "test") if driver else Fact(),
            toolkits=Fact(toolkits, "test"),
            compilers=Fact(host, "test"),
            resources=Resources(cores=cores, memory_available=memory),
            variables=variables or {},
        ),
        environment=EnvironmentFacts(
            interpreter=Fact(interpreter, "test"),
            torch=Fact(torch, "test", "" if torch else "torch is not installed"),
            torch_installed=Fact(torch is not None, "test"),
            distributions=Fact(tuple(Distribution(n, v, site) for n, v in installed.items()), "test"),
            toolkit_choice=Fact(choice, "test"),
        ),
        splatfix="0",
    )


def code(*archs: str, ptx: tuple[str, tuple[int, int]] | None = None) -> tuple[FatbinGroup, ...]:
    """Three fatbins with machine code for each of these."""
    entries = [Code(EntryKind.SASS, arch) for arch in archs]
    entries += [Code(EntryKind.PTX, ptx[0], ptx[1])] if ptx else []
    return (FatbinGroup(tuple(entries), 3),)


BLACKWELL_TORCH = replace(TORCH, code=code("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"))
TORCH_128 = replace(BLACKWELL_TORCH, version="2.8.0+cu128", cuda="12.8")
TORCH_118 = replace(
    TORCH,
    version="2.1.2+cu118",
    cuda="11.8",
    code=code("sm_50", "sm_70", "sm_80", "sm_86", "sm_90"),
    knows_archs=("7.5", "8.0", "8.6", "8.9", "9.0"),
)


def healthy() -> Facts:
    """An RTX 5080 with a driver, torch, toolkit and compiler that fit."""
    return machine(torch=BLACKWELL_TORCH, gpus=(RTX_5080,), driver=NEW_DRIVER)


def debian_13(**values: Any) -> Facts:
    """A machine on which no CUDA 12 toolkit compiles: its headers clash with those of glibc 2.41."""
    return changed(machine(**{"torch": TORCH_128, "toolkits": (CUDA_12,), **values}), glibc="2.41")


def with_extension(facts: Facts, name: str, groups: tuple[FatbinGroup, ...]) -> Facts:
    """An installed splatting extension with this GPU code."""
    package = SplatPackage(name, f"{SITE}/{name}", (name,), (f"{name}._C",))
    file = Extension(f"{name}/_C.so", SITE, name, groups, (), True, True, 1)
    return installing(facts, Distribution(name, "0.0.0", SITE), package=package, file=file)


def installing(
    facts: Facts,
    distribution: Distribution,
    *,
    package: SplatPackage | None = None,
    file: Extension | None = None,
) -> Facts:
    """One distribution more, and what it holds."""
    more = {"packages": package, "extensions": file, "distributions": distribution}
    for name, item in more.items():
        there = getattr(facts.environment, name).value or ()
        facts = changed(facts, **{name: Fact((*there, *([item] if item else [])), "test")})
    return facts


def make_plan(request: Request, facts: Facts) -> Plan:
    """The plan of an installation; a problem is raised."""
    return require(best(Case(context=make_context(facts, Goal(request.targets)), request=request)))


def find_options(
    goal: Goal, facts: Facts, sources: SourceSummary = NO_SOURCES, keep: tuple[str, ...] = ()
) -> Options:
    """The options of these facts for a goal."""
    return rank(Case(context=make_context(facts, goal), sources=sources, keep=keep))


def advised_options(
    findings: Sequence[Finding], context: Context, sources: SourceSummary = NO_SOURCES
) -> Options:
    """The options with the advice that answers these findings."""
    return plan_room.advised_options(findings, Case(context=context, sources=sources))


def extensions(**variants: Sequence[str]) -> SourceSummary:
    """Sources that are these extensions, each with the variants that it can be."""
    return SourceSummary(variants={name: tuple(keys) for name, keys in variants.items()})


def rasterizer(key: str) -> SourceSummary:
    """The rasterizer of a stack, by the key of its variant."""
    row = variant(key)
    assert row is not None
    return extensions(**{row.module: (key,)})


def plan(options: Options, kind: OptionKind) -> Plan:
    """The available option of a kind."""
    return next(item for item in options.available if item.kind is kind)


def why_not(options: Options, kind: OptionKind) -> str:
    """Why the option of a kind is not available."""
    return next(item.rejected_because for item in options.rejected if item.kind is kind)


def kinds(options: Options) -> list[OptionKind]:
    """Of the available options, in order."""
    return [item.kind for item in options.available]


def refused(made: object, *args: Any, **options: Any) -> SplatfixError:
    """The problem that a choice came to, or that a call of this function gives back or ends with."""
    if callable(made):
        try:
            made = made(*args, **options)
        except SplatfixError as error:
            return error
    problem = made.problem if isinstance(made, Choice) else made
    assert isinstance(problem, Rejected), made
    return problem.error()


def sources_in(
    named: Sequence[str], facts: Facts | None = None
) -> tuple[tuple[Source, ...], tuple[str, ...]]:
    """The sources that these folders stand for, and the notes; a problem is raised."""
    read = require(read_sources(named, facts))
    return tuple(read.built_from.values()), read.notes


StepKind = TypeVar("StepKind", bound=Step)


def step_of(option: Plan, kind: type[StepKind]) -> StepKind:
    """The first step of this class."""
    return next(step for step in option.steps if isinstance(step, kind))


def argv(step: Step) -> tuple[str, ...]:
    """The words of a step's command."""
    assert step.command is not None
    return step.command.argv


CUDA_SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
setup(name="{name}", ext_modules=[CUDAExtension("{name}._C", ["x.cu"], extra_compile_args={{"nvcc": [{flags}]}})])
"""


def cuda_source(folder: Path, name: str = "dgr", flags: str = "", before: str = "") -> Path:
    """A CUDA extension's source folder; ``before`` is Python code ahead of its setup call."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "setup.py").write_text("import os\n" + before + CUDA_SETUP.format(name=name, flags=flags))
    (folder / "x.cu").write_text("")
    return folder


def with_submodules(folder: Path, *paths: str) -> Path:
    """A checkout whose submodules are empty, as a clone without ``--recursive`` leaves them."""
    listed = ""
    for path in paths:
        (folder / path).mkdir(parents=True, exist_ok=True)
        listed += f'[submodule "{path}"]\n\tpath = {path}\n\turl = https://x.org/{Path(path).name}\n'
    return put(folder, {".gitmodules": listed})


def rasterizer_module(
    folder: Path,
    module: str,
    settings: Sequence[str],
    forward: Sequence[str],
    results: Sequence[str],
    backward: str = "",
    more: Sequence[str] = (),
) -> Path:
    """An extension's source folder with this interface; ``more`` are further lines of its module."""
    lines = ["from typing import NamedTuple", "from . import _C"]
    lines += ["class GaussianRasterizationSettings(NamedTuple):", *(f"    {name}: int" for name in settings)]
    lines += ["class _RasterizeGaussians:", "    def forward(ctx):", f"        return {', '.join(results)}"]
    lines += [backward, "class GaussianRasterizer:", f"    def forward(self, {', '.join(forward)}):"]
    lines += ["        ...", *more, ""]
    return put(cuda_source(folder, module), {f"{module}/__init__.py": "\n".join(lines)})


def rasterizer_source(folder: Path, key: str) -> Path:
    """An extension's source folder with the interface of a variant."""
    row = variant(key)
    assert row and row.settings and row.forward and row.returns
    more = [f"class {name}: ..." for name in row.extra_classes]
    more += [f"_C.{name}()" for name in sorted(row.exports)]
    return rasterizer_module(folder, row.module, row.settings, row.forward, row.returns, more=more)
