"""Machines as facts, for the checks: the field reports' own configurations, each changed by a test where it wants."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks, select
from splatfix.context import make_context
from splatfix.facts import EntryKind
from splatfix.knowledge import stacks
from splatfix.model import (
    Checkout,
    CheckoutSource,
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
    Linkage,
    MachineFacts,
    RenderCall,
    Source,
    Status,
    Toolkit,
    ToolkitChoice,
    Torch,
)
from tests.archs import goal

# cubins of the cu128 wheels of torch 2.9 on Linux x86_64 (knowledge/data/torch_releases.json)
TORCH_29_CU128 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
KNOWN_TO_29 = ("7.5", "8.0", "8.6", "8.9", "9.0", "9.0a", "10.0", "10.3", "11.0", "12.0", "12.0a", "12.1")

LOUD = {Status.FAIL, Status.WARN, Status.UNKNOWN, Status.CRASH}


def of(facts: Facts, code: str, *targets: str) -> list[Finding]:
    """The findings of one check."""
    return list(run_checks(make_context(facts, goal(*targets)), select([code])))


def installed(**versions: str) -> Fact[tuple[Distribution, ...]]:
    """Distributions by name, beside what builds."""
    have = {"setuptools": "80.9.0", "wheel": "0.45", **versions}
    return Fact(tuple(Distribution(name, version, "/env") for name, version in have.items()), "site-packages")


def with_python(facts: Facts, **values: Any) -> Facts:
    """The facts with another interpreter of the environment."""
    python = facts.environment.interpreter.value
    assert python is not None
    changed = Fact(replace(python, **values), "probe")
    return replace(facts, environment=replace(facts.environment, interpreter=changed))


def with_facts(facts: Facts, **values: Any) -> Facts:
    """The facts with other ones of the machine or the environment, by their names."""
    machine = {k: v for k, v in values.items() if k in MachineFacts.__struct_fields__}
    environment = {k: v for k, v in values.items() if k in EnvironmentFacts.__struct_fields__}
    assert len(machine) + len(environment) == len(values), "an unknown fact"
    return replace(
        facts,
        machine=replace(facts.machine, **machine),
        environment=replace(facts.environment, **environment),
    )


def loud(facts: Facts, *targets: str) -> dict[str, Finding]:
    """The findings that ask for attention, by code; each is whole."""
    findings = run_checks(make_context(facts, goal(*targets)))
    by_code = {item.code: item for item in findings if item.status in LOUD}
    for item in by_code.values():
        assert_whole(item)
    return by_code


def assert_whole(item: Finding) -> None:
    """What asks for attention has evidence, a summary of one line, and what to do where that is known."""
    assert "\n" not in item.summary
    if item.status in LOUD:
        assert item.evidence, item
        assert item.remedy or item.status is Status.UNKNOWN, item


def sass(*archs: str, count: int = 1) -> FatbinGroup:
    return FatbinGroup(tuple(Code(EntryKind.SASS, arch) for arch in archs), count)


def ptx(arch: str, version: tuple[int, int]) -> FatbinGroup:
    return FatbinGroup((Code(EntryKind.PTX, arch, version),), 1)


def extension(
    name: str, *code: FatbinGroup, needed: tuple[str, ...] = ("libtorch.so", "libcudart.so.12")
) -> Extension:
    return Extension(
        path=f"{name}/_C.cpython-311-x86_64-linux-gnu.so",
        folder="/env/lib/python3.11/site-packages",
        distribution=name,
        code=code,
        needed=needed,
        links_torch=True,
        importable=True,
        size=1000,
    )


def cuda(version: str, *archs: str, root: str = "/opt/cuda", **values: Any) -> dict[str, Any]:
    """The only toolkit here, which torch takes for CUDA_HOME."""
    made = Toolkit(root, version, (root,), f"{root}/bin/nvcc", archs or ("sm_90", "sm_120"), 15, 20)
    choice = ToolkitChoice(root, "CUDA_HOME", made.nvcc, None, True)
    return {"toolkits": Fact((replace(made, **values),), "PATH"), "toolkit_choice": Fact(choice)}


def linked(**values: Any) -> Extension:
    """An extension with this linkage."""
    linkage = Linkage(**{"torch_symbols": 40, "cxx11_abi": True, **values})
    return replace(extension("dgr", sass("sm_120")), linkage=linkage)


INRIA = stacks.stack("inria-v1")
assert INRIA is not None


def with_checkout(facts: Facts, **values: Any) -> Facts:
    """The facts with a checkout of Inria's stack, changed so."""
    checkout = Checkout(
        **{"folder": "/home/u/gs", "paths": INRIA.recognise, "commit": "472689c" + "0" * 33, **values}
    )
    return replace(facts, checkout=Fact(checkout, "text"))


def source(name: str = "simple_knn", flags: tuple[str, ...] = (), **values: Any) -> CheckoutSource:
    """An extension of the checkout."""
    own = ("reads", "sets", "imports", "missing_folders", "requires", "error", "submodules")
    inner = {key: values.pop(key) for key in own if key in values}
    folder, modules = f"/home/u/gs/submodules/{name}", (f"{name}._C",)
    made = (folder, ("setup.py",), name, "0.0.0", (name,), modules, True, True)
    return CheckoutSource(f"submodules/{name}", Source(*made, nvcc_flags=flags, **inner), **values)


def call(key: str = "inria-v1", **values: Any) -> RenderCall:
    """A call of the rasterizer, as the renderer of a variant makes it."""
    variant = stacks.variant(key)
    assert variant and variant.settings and variant.forward
    return RenderCall(
        **{
            "file": "gaussian_renderer/__init__.py",
            "line": 42,
            "function": "render",
            "module": variant.module,
            "settings": variant.settings,
            "forward": variant.forward,
            "unpacks": len(variant.returns or ()),
            **values,
        }
    )


@pytest.fixture
def rtx_5080() -> Facts:
    """An RTX 5080 with torch 2.9+cu128, toolkit 12.9 and gcc 13: everything fits."""
    root = "/usr/local/cuda-12.9"
    nvcc = f"{root}/bin/nvcc"
    archs = ("sm_50", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
    site = ("/env/lib/python3.11/site-packages",)
    soabi = "cpython-311-x86_64-linux-gnu"
    python = ("/env/bin/python", "3.11.9", "CPython", soabi, "linux-x86_64", "/env", "/usr", "venv", site)
    code = (sass(*TORCH_29_CU128, count=400),)
    torch = Torch("2.9.1+cu128", "12.8", None, "/env/torch", True, code, "", KNOWN_TO_29)
    return Facts(
        machine=MachineFacts(
            system="linux",
            machine="x86_64",
            gpus=Fact((Gpu(0, "NVIDIA GeForce RTX 5080", cc="12.0", memory_total=17_094_934_528),), "NVML"),
            driver=Fact(Driver("575.57.08", "12.9", True, "575.57.08"), "NVML"),
            toolkits=Fact((Toolkit(root, "12.9.86", (f"PATH ({nvcc})",), nvcc, archs, 14, 19),), "PATH"),
            compilers=Fact((Compiler("g++", "/usr/bin/g++", "13.3.0", ("PATH",)),), "PATH"),
            tools={"ninja": "1.11.1"},
        ),
        environment=EnvironmentFacts(
            interpreter=Fact(Interpreter(*python), "probe_env.py"),
            distributions=installed(),
            torch_installed=Fact(True, "sys.path"),
            torch=Fact(torch, "torch/version.py read as text"),
            toolkit_choice=Fact(ToolkitChoice(root, "the first nvcc on PATH", nvcc, None, True)),
            extensions=Fact(
                (extension("diff_gaussian_rasterization", sass("sm_120", count=3)),), "site-packages"
            ),
        ),
        splatfix="0.1.0",
    )


Changer = Callable[..., Facts]
TorchWith = Callable[..., Fact[Torch]]


@pytest.fixture
def changed(rtx_5080: Facts) -> Changer:
    """The RTX 5080 with some facts changed: ``changed(driver=Fact(...), torch=Fact(...))``."""

    return partial(with_facts, rtx_5080)


@pytest.fixture
def torch_with(rtx_5080: Facts) -> TorchWith:
    """The RTX 5080's torch with some fields changed, as a fact."""

    def change(**values: Any) -> Fact[Torch]:
        torch = rtx_5080.environment.torch.value
        assert torch is not None
        return Fact(replace(torch, **values), "torch/version.py read as text")

    return change
