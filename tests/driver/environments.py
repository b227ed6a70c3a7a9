"""A Python environment for the simulated machines, as facts: what torch's own files would tell of a healthy installation."""

from msgspec.structs import replace

from splatfix import model
from splatfix.facts import EntryKind
from tests.plan.machines import CUDA_13, INTERPRETER, TORCH, compilers

_CODE = (model.FatbinGroup(tuple(model.Code(EntryKind.SASS, f"sm_{cc}") for cc in (75, 80, 86, 90, 120)), 3),)
_SITE = INTERPRETER.site_packages[0]
_NAME = "diff_gaussian_rasterization"
_FILE = f"{_NAME}/_C.cpython-311-x86_64-linux-gnu.so"
_NEEDED = ("libtorch.so", "libcudart.so.13")
_USE = {"links_torch": True, "importable": True, "size": 1000}
_RASTERIZER = model.Extension(_FILE, _SITE, _NAME, code=_CODE, needed=_NEEDED, **_USE)
_PACKAGE = model.SplatPackage(
    _NAME, f"{_SITE}/{_NAME}", (_NAME,), native=(f"{_NAME}._C",), imports_torch=True
)
_INSTALLED = {"pip": "25.0", "setuptools": "80.0", "wheel": "0.45", "ninja": "1.11", "numpy": "2.2.0"}
_INSTALLED[_NAME] = "0.0.0"
_HEALTHY = model.EnvironmentFacts(
    interpreter=model.Fact(INTERPRETER, "probe_env.py"),
    distributions=model.Fact(
        tuple(model.Distribution(n, v, _SITE) for n, v in _INSTALLED.items()), "site-packages"
    ),
    torch_installed=model.Fact(True, "sys.path"),
    torch=model.Fact(replace(TORCH, code=_CODE, cxx11_abi=True), "torch/version.py read as text"),
    toolkit_choice=model.Fact(model.ToolkitChoice(CUDA_13.root, "CUDA_HOME", CUDA_13.nvcc, None, True)),
    extensions=model.Fact((_RASTERIZER,), "site-packages"),
    packages=model.Fact((_PACKAGE,), "site-packages"),
    jit_caches=model.Fact((), "the cache"),
    imports=(),
)


def with_healthy_environment(facts: model.Facts) -> model.Facts:
    """A machine with a healthy torch, a rasterizer for every simulated GPU, and what that was built with."""
    tools = {"ninja": "1.11.1", "git": "2.43.0", **facts.machine.tools}
    resources = model.Resources(8, 64 << 30, 48 << 30, 8 << 30)
    found = {"toolkits": model.Fact((CUDA_13,), "PATH"), "compilers": model.Fact(compilers("13.3.0"), "PATH")}
    machine = replace(facts.machine, resources=resources, tools=tools, **found)
    return replace(facts, machine=machine, environment=_HEALTHY)
