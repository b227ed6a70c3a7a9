"""What each check says of a machine that differs from a healthy one in a fact or two: a row for each decision."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from splatfix.facts import (
    AlteredFile,
    BuildRecord,
    CheckoutSource,
    CodeMatch,
    Colmap,
    Compiler,
    Confinement,
    Disk,
    Distribution,
    Driver,
    EnvironmentFacts,
    Fact,
    Facts,
    FatbinGroup,
    Gpu,
    HeaderCopy,
    ImportedModule,
    Installer,
    JitCache,
    Linkage,
    MachineFacts,
    MissingHeader,
    NativeModule,
    Pin,
    Resources,
    RuntimeCopy,
    RuntimeLibrary,
    Shadow,
    Source,
    SplatPackage,
    Toolkit,
    ToolkitChoice,
    Xid,
)
from splatfix.knowledge import stacks

from .conftest import (
    Changer,
    TorchWith,
    assert_whole,
    cuda,
    extension,
    installed,
    linked,
    of,
    ptx,
    sass,
    with_python,
)
from .test_checkout import ADAM, BASE, GUARD, INRIA, RASTERIZER, F, call, dropin, source, ssim, with_checkout
from .test_packages import package

GIB = 2**30
NO_DRIVER: Fact[Driver] = Fact(None, "PCI", "no NVIDIA driver", absent=True)
NO_TORCH = {"torch_installed": False, "torch": Fact(None, "", "not installed"), "toolkit_choice": Fact(None)}
FACTS = {item.name for kind in (MachineFacts, EnvironmentFacts) for item in dataclasses.fields(kind)}
PLAIN = {"system", "machine", "glibc", "wsl", "container", "tools", "variables", "resources", "imports"}
"""Fields that are no :class:`Fact`."""


def row(
    code: str, expected: str, *targets: str, says: str = "", remedy: str | tuple[str, ...] = (), **given: Any
) -> Any:
    """One decision.

    Args:
        expected: the statuses of the check's findings, in order.
        says: what the summary of the first finding holds.
        remedy: what the first step of the first finding holds, or its first steps each.
        given: facts; ``torch``, ``python`` and ``dist`` by what differs of them; other names are of the checkout.
    """
    words = (remedy,) if isinstance(remedy, str) else remedy
    return pytest.param(code, expected, targets, says, words, given, id=f"{code}-{expected or 'quiet'}")


def facts_of(given: dict[str, Any], changed: Changer, torch_with: TorchWith) -> Facts:
    values = {name: value for name, value in given.items() if name in FACTS}
    if isinstance(values.get("torch"), dict):
        values["torch"] = torch_with(**values["torch"])
    if "dist" in given:
        values["distributions"] = installed(**given["dist"])
    for name, value in values.items():
        if name not in PLAIN and not isinstance(value, Fact):
            values[name] = Fact(value, "test")
    facts = with_python(changed(**values), **given.get("python", {}))
    if "gathered" in given:
        facts = dataclasses.replace(facts, gathered=given["gathered"])
    if "checkout" in given:
        return dataclasses.replace(facts, checkout=given["checkout"])
    rest = FACTS | {"dist", "python", "gathered"}
    checkout = {name: value for name, value in given.items() if name not in rest}
    return with_checkout(facts, **checkout) if checkout else facts


def linkage(**values: Any) -> dict[str, Any]:
    """An extension with this linkage, on Debian 12's libraries."""
    libraries = (
        RuntimeLibrary("libc.so.6", "/lib/libc.so.6", ("GLIBC_2.36",)),
        RuntimeLibrary("libstdc++.so.6", "/lib/libstdc++.so.6", ("CXXABI_1.3.13", "GLIBCXX_3.4.30")),
    )
    return {"extensions": (linked(**values),), "runtime_libraries": libraries}


def jit(gathered: str = "2026-01-02T00:00:00+00:00", **values: Any) -> dict[str, Any]:
    """What torch's cache holds of gsplat."""
    state = {"current": True, "built": "2025-06-01T00:00:00+00:00", "locked": None, **values}
    folder = "/cache/py311_cu128/gsplat_cuda"
    item = JitCache(name="gsplat_cuda", folder=folder, tag="py311_cu128", library="/cache/g.so", **state)
    return {"jit_caches": (item,), "gathered": gathered}


def confined(**values: Any) -> dict[str, Any]:
    """A container that was started with enough, but for these."""
    enough = {"shm": 8 * GIB, "processes": 4096, "memory": 64 * GIB, "read_only": False, "user": 0}
    confinement = Confinement(**(enough | values))
    return {"container": "docker", "confinement": confinement, "resources": Resources(cores=8)}


def matched(kind: str) -> Any:
    return (source("dgr", matches=(CodeMatch(kind, "dgr.cu", 90, "the line"),)),)


def listed(text: str) -> dict[str, Any]:
    return {"variables": {"TORCH_CUDA_ARCH_LIST": text}}


def allocating(text: str) -> dict[str, Any]:
    return {"variables": {"PYTORCH_CUDA_ALLOC_CONF": text}}


def gcc(version: str) -> tuple[Compiler, ...]:
    return (Compiler("g++", "/usr/bin/g++", version, ("PATH",)),)


def cl(path: str = "C:\\VS\\Hostx64\\x64\\cl.exe", version: str | None = "19.39", via: str = "PATH") -> Any:
    return (Compiler("cl", path, version, (via,)),)


def cards(*names: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(place, name, cc="12.0") for place, name in enumerate(names))


def mig(*instances: str) -> tuple[Gpu, ...]:
    names = tuple(f"NVIDIA A100-SXM4-80GB MIG {instance}" for instance in instances)
    return (Gpu(0, "NVIDIA A100-SXM4-80GB", cc="12.0", memory_total=80 << 30, mig=True, mig_devices=names),)


def driver(
    version: str | None, level: str | None = None, library: str | None = None, **errors: int
) -> Driver:
    return Driver(version, level, True, library, **errors)


def flags(*texts: str, **values: Any) -> Any:
    return (source("dgr", texts, **values),)


def pinned(requirement: str) -> tuple[Pin, ...]:
    name, _, version = requirement.partition("==")
    return (Pin("environment.yml", name, f"=={version}"),)


def having(name: str, version: str, **values: Any) -> tuple[Distribution, ...]:
    return (Distribution(name, version, "/env", **values), *(installed().value or ()))


def without(name: str, **versions: str) -> tuple[Distribution, ...]:
    return tuple(item for item in installed(**versions).value or () if item.name != name)


def isolated(*requires: str) -> Any:
    """A source with a pyproject.toml."""
    item = source("dgr")
    files = {"build_files": ("setup.py", "pyproject.toml"), "build_requires": requires}
    return (dataclasses.replace(item, source=dataclasses.replace(item.source, **files)),)


def used(key: str, at_import: bool = True) -> Any:
    return (CodeMatch(key, "utils/io.py", 7, "x = np.int(3)", at_import),)


def gencode(*numbers: int) -> tuple[str, ...]:
    return tuple(f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers)


def needing(*names: str) -> tuple[ImportedModule, ...]:
    return tuple(ImportedModule(name, "train.py", line) for line, name in enumerate(names, 1))


def missing(expected: str, *names: str, **given: Any) -> Any:
    return row("imports-missing", expected, modules=HERE, needs=needing(*names), **given)


def room(free: int, **values: int) -> dict[str, Any]:
    """So many GiB of free memory, beside 16 cores."""
    return {"resources": Resources(cores=16, memory_total=64 * GIB, memory_available=free * GIB, **values)}


def ext(*code: Any) -> Any:
    return (extension("r", *code),)


def in_folder(folder: str, **values: Any) -> Any:
    item = source("dgr", **values)
    return (dataclasses.replace(item, source=dataclasses.replace(item.source, folder=folder)),)


def hurt(**values: Any) -> tuple[Gpu, ...]:
    return (Gpu(0, "NVIDIA A100-SXM4-80GB", cc="8.0", **values),)


def files(count: int, **values: Any) -> CheckoutSource:
    """A source that compiles so many files."""
    modules = (NativeModule("other._C", tuple(f"k{number}.cu" for number in range(count))),)
    made = ("/home/u/gs/sub/other", ("setup.py",), "other", "0", ("other",), modules, True, True)
    return CheckoutSource("sub/other", Source(*made, **values))


def unbuilt(*missing: str) -> CheckoutSource:
    module = NativeModule("a._C", missing, missing)
    return CheckoutSource(
        "submodules/a", Source("/s/a", ("setup.py",), "a", modules=(module,), needs_cuda=True)
    )


def lacking(header: str, *more: Any) -> tuple[CheckoutSource, ...]:
    return (source("other", headers_missing=(MissingHeader(header, "main.h", 8, *more),)),)


def chosen(root: str, **values: Any) -> Fact[ToolkitChoice]:
    """What torch would take for CUDA_HOME."""
    return Fact(ToolkitChoice(root, "CUDA_HOME", f"{root}/bin/nvcc", **{"has_headers": False, **values}))


def at(path: str, **values: Any) -> Any:
    """A module for sm_90a and sm_120 in this file: an RTX 5080 has no use for the first."""
    code = (sass("sm_90a"),) if "torchao" in path or "open3d" in path else (sass("sm_120"),)
    return (dataclasses.replace(extension(path.partition("/")[0], *code), path=path, **values),)


def of_torchvision() -> Any:
    return dataclasses.replace(linked(torch_missing=(GONE,)), distribution="torchvision")


def built(*needed: str, **record: Any) -> dict[str, Any]:
    """An extension as splatfix built it."""
    item = dataclasses.replace(linked(), needed=needed) if needed else linked()
    distribution = Distribution("dgr", "1.0", "/site", built=BuildRecord(**record))
    return {"extensions": (item,), "distributions": (distribution,)}


def dropin_with(*code: Any, **values: Any) -> dict[str, Any]:
    item = Distribution("fused_ssim", "0+s", "/env", dropin="fused_ssim", code=code, **values)
    return {"distributions": (item,), "extensions": ()}


def importing(name: str) -> tuple[CheckoutSource, ...]:
    item = source("dgr")
    needs = (ImportedModule(name, "dgr/__init__.py", 3),)
    return (dataclasses.replace(item, source=dataclasses.replace(item.source, needs=needs)),)


def calling(key: str, **values: Any) -> dict[str, Any]:
    """A checkout with this call, beside an installed rasterizer."""
    return {"packages": (package(key),), "calls": (call(**values),)}


TORCH_AND_TRITON = having("torch", "2.9.1+cu128", pins=("triton==3.5.1",))
TRITON_34 = (Distribution("triton", "3.4.0", "/env"),)
CUDA_130 = cuda("13.0.88", "sm_75", "sm_90", "sm_120")
BIG_AND_SMALL = tuple(Gpu(n, "card", cc="12.0", memory_total=size << 30) for n, size in enumerate((32, 4)))
HERE = ("numpy", "torch", "splatfix")
HOPPER = (Gpu(0, "NVIDIA H200", cc="9.0"),)
SINGLE_90A = (sass("sm_80", "sm_90", count=400), sass("sm_80", "sm_90", "sm_90a", count=4))
EVERY_90A = (sass("sm_80", "sm_90", "sm_90a", count=400),)
UNUSED_CUB = MissingHeader("cub/cub.cuh", "a.cu", 1, ("/opt/cuda-10",))
NO_SETUPTOOLS = without("setuptools")
B300 = (Gpu(0, "NVIDIA B300", cc="10.3"),)
TORCH_27 = {"version": "2.7.1+cu128", "knows_archs": ("8.0", "9.0", "10.0", "12.0")}
GONE = "_ZN3c1010TensorImpl4goneEv"
LINUX, WSL = "/usr/lib/x86_64-linux-gnu/libcuda.so.575.57.08", "/usr/lib/wsl/lib/libcuda.so.1"
STUB = "/usr/local/cuda-12.9/lib64/stubs/libcuda.so"
WINDOWS = {"system": "windows"}
BY_BUS = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
CUB = cuda("12.9", cub="2.8.2")
GSPLAT = (SplatPackage("gsplat", "/g"),)
NERFSTUDIO = Distribution("nerfstudio", "1.1.5", "/e", pins=("gsplat==1.4.0",))
NERFSTUDIO_EDITED = tuple(
    AlteredFile("nerfstudio", "1.1.5", f"nerfstudio/{name}.py", "another content")
    for name in ("engine/trainer", "utils/eval_utils")
)
CSRC = Distribution("splatfix-gsplat-csrc", "0+splatfix.1", "/e", made_by_splatfix="drop-in", dropin="gsplat")
GSPLAT_BY_US = (SplatPackage("gsplat", "/g", ("gsplat", CSRC.name), dropin="gsplat"),)
COMPILED_GSPLAT = (dataclasses.replace(extension("gsplat.csrc"), path="gsplat/csrc.so"),)
PASCAL = (Gpu(0, "x", cc="6.1"),)
COMPAT = {"libcuda": ("/usr/local/cuda-13.0/compat/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")}
NO_GPU = {"gpus": (), "driver": NO_DRIVER}
OLD = ("SiftExtraction.use_gpu", "SiftMatching.use_gpu")
NEW = ("FeatureExtraction.use_gpu", "FeatureMatching.use_gpu")
FUSED = (
    "-gencode=arch=compute_75,code=sm_75",
    "-gencode=arch=compute_89,code=sm_89",
    "-arch=",
    "-gencode=arch=compute_",
)
assert INRIA is not None
CONVERT = (*INRIA.recognise, "convert.py")
TIGHT = {"memory_total": 16 * GIB}
VS = {"VSCMD_ARG_TGT_ARCH": "x64"}
X86 = "C:\\VS\\Hostx64\\x86\\cl.exe"
PKG = ("pkg_resources", "pkg_resources.packaging")

CONFINED = ("container-shm-small", "container-memory-limit", "container-root-read-only")
ADA = (Gpu(0, "NVIDIA GeForce RTX 4090", cc="8.9"),)
AMPERE = (Gpu(0, "NVIDIA GeForce RTX 3090", cc="8.6"),)
AMD = {"gpus": (Gpu(0, "Radeon", "amd"),), "driver": NO_DRIVER}
ROCM = {"version": "2.9.1+rocm6.4", "cuda": None, "hip": "6.4", "code": ()}
TORCH_113 = {
    "version": "1.13.1+cu117",
    "cuda": "11.7",
    "code": (sass("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"),),
    "knows_archs": ("5.0", "6.0", "6.1", "7.0", "7.5", "8.0", "8.6"),
}
TORCH_20 = {"version": "2.0.1+cu118", "cuda": "11.8", "code": (sass("sm_80", "sm_86", "sm_90"),)}
CUDA_117 = cuda("11.7.99", "sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "sm_80", "sm_86", "sm_87")
CUDA_129 = "/usr/local/cuda-12.9"
TWO_TOOLKITS = tuple(
    Toolkit(root, version, (root,), f"{root}/bin/nvcc", ("sm_90", "sm_120"), 14, 19)
    for root, version in (("/opt/cuda", "13.0.88"), ("/opt/cuda-12.6", "12.6.85"))
)
CLAMPED = (FatbinGroup((*sass("sm_80", "sm_90").entries, *ptx("sm_90", (8, 0)).entries), 400),)
SASS_86_PTX_87 = ext(FatbinGroup((*sass("sm_86").entries, *ptx("sm_90", (8, 7)).entries), 1))
SSIM_2 = (source("fused_ssim2", flags=("-arch=sm_75",), reads=("CUDA_ARCHITECTURES",)),)
ASKING = (files(2, libraries=("cuda",)),)
TORCHCODEC = dataclasses.replace(
    linked(unresolved=("libavutil.so.56",), own_missing=("av_log",)), path="torchcodec/libtorchcodec_core4.so"
)
FORCED = "toolkit 13.0, torch was built with CUDA 12.8"
OWN_COPIES = (
    *(RuntimeCopy(name, f"torch/lib/{name}.so", "", False) for name in ("libc10", "libtorch")),
    RuntimeCopy("libcudart", "torch/lib/libcudart-d0da41ae.so.11.0", "11.0", True),
)
OTHER_PYTHON = "pkg/_C.cpython-310-x86_64-linux-gnu.so"
OWN_PYTHON = "pkg/_C.cpython-311-x86_64-linux-gnu.so"
MUTABLE = (
    source(
        "dgr", matches=(CodeMatch("mutable-dataclass-default", "dgr/__init__.py", 9, "sort: Sort = Sort()"),)
    ),
)
BESIDE = ImportedModule("gradio", "app.py", 1, beside=True)
OWN_SPLATS = (Pin("requirements.txt", "own-splats", "", "git+https://h.org/a/own-splats"),)
FASTGS = next(item.recognise for item in stacks.stacks() if item.key == "fastgs")
TWO_CALLS = (
    call(settings=(*BASE, "antialiasing"), forward=(*F, "dc"), unpacks=3),
    call(settings=(*BASE, "antialiasing"), unpacks=3, line=60),
)
HIDDEN: list[dict[str, Any]] = [
    {},
    {"settings": (), "settings_positional": 12},
    {"settings": (), "settings_positional": -1},
    {"unpacks": None},
    {"forward": ()},
    {"forward": (), "forward_positional": -1},
    {"forward": F[2:], "forward_positional": 2},
    {"unpacks": None, "at_least": 2},
]

ROWS = [
    # --- driver and GPUs
    row("driver-too-old", "pass", driver=driver("525.60.13")),
    row("driver-too-old", "fail", driver=driver("525.60.12")),
    row("driver-too-old", "fail", driver=driver("579.99"), torch={"cuda": "13.0"}),
    row("driver-too-old", "pass", driver=driver("580.65.06"), torch={"cuda": "13.0"}),
    row("driver-too-old", "pass", driver=driver("470.256.02"), torch={"cuda": "11.8"}),
    # driver 550 serves CUDA 12.4; with the libcuda of cuda-compat-13-0 it serves torch's 13.0
    row("driver-too-old", "pass", driver=driver("550.144.03", "13.0", "550.144.03"), torch={"cuda": "13.0"}, **COMPAT),
    row("driver-too-old", "fail", driver=driver("550.144.03", "12.4", "550.144.03"), torch={"cuda": "13.0"}, **COMPAT),
    # a GeForce refuses such a libcuda: 804, forward compatibility was attempted on non supported HW
    row("driver-too-old", "fail", driver=driver("550.1", "13.0", cuda_error=804), torch={"cuda": "13.0"}, **COMPAT),
    # JetPack 5 numbers its kernel module by L4T's release
    row("driver-too-old", "pass", driver=driver("35.4.1", "11.4"), torch={"cuda": "11.4"}),
    row("driver-too-old", "fail", driver=driver("35.4.1", "11.4"), torch={"cuda": "12.6"}),
    row("driver-library-mismatch", "fail", driver=driver("570.195.03", nvml_error=18)),
    row("driver-library-mismatch", "fail", driver=driver("570.195.03", cuda_error=803)),
    row("driver-library-missing", "", driver=driver("575.57.08", "12.9", "575.57.08")),
    # a Jetson: libcuda answers, there is no NVML
    row("driver-library-missing", "", driver=driver("540.4.0", "12.6", nvml_error=12)),
    row("driver-library-missing", "", driver=driver(None, "12.6", "560.94")),
    row("no-gpu-visible", "fail", variables={"CUDA_VISIBLE_DEVICES": ""}),
    row("no-gpu-visible", "fail", variables={"CUDA_VISIBLE_DEVICES": "-1"}),
    row("no-gpu-visible", "fail", variables={"CUDA_VISIBLE_DEVICES": "1"}),
    row("no-gpu-visible", "pass", variables={"CUDA_VISIBLE_DEVICES": "0"}),
    row("no-gpu-visible", "warn", variables={"CUDA_VISIBLE_DEVICES": "0,7"}),
    row("no-gpu-visible", "", variables={"CUDA_VISIBLE_DEVICES": "MIG-x"}),
    row("wrong-cuda-device", "warn", gpus=cards("RTX 5090", "RTX 3090"), variables={"CUDA_VISIBLE_DEVICES": "1"}),
    row("wrong-cuda-device", "", gpus=cards("a", "b"), variables=BY_BUS),
    row("wrong-cuda-device", "", gpus=cards("RTX 5090", "RTX 3090"), variables={"CUDA_VISIBLE_DEVICES": "GPU-1"}),
    row("wrong-cuda-device", "skip", gpus=cards("RTX 5090", "RTX 3090")),
    row("wrong-cuda-device", "", gpus=cards("H200", "H200"), variables={"CUDA_VISIBLE_DEVICES": "1"}),
    row("wrong-cuda-device", "skip", gpus=cards("H200", "H200"), variables={"CUDA_VISIBLE_DEVICES": "0,1"}),
    row("wrong-cuda-device", "", gpus=(*cards("RTX 5080"), Gpu(1, "Arc", "intel"))),
    row("no-gpu-visible", "fail", gpus=(*cards("RTX 5080"), Gpu(1, "UHD", "intel")), variables={"CUDA_VISIBLE_DEVICES": "1"}),
    row("gpu-not-passed-to-container", "warn", container="docker", variables={"NVIDIA_VISIBLE_DEVICES": "all"}, **NO_GPU),
    row("gpu-not-passed-to-container", "warn", container="podman", variables={"NVIDIA_VISIBLE_DEVICES": "0"}, **NO_GPU,
        remedy="nvidia.com/gpu=all"),
    row("gpu-not-passed-to-container", "skip", container="docker", variables={"NVIDIA_VISIBLE_DEVICES": "void"}, **NO_GPU),
    row("gpu-not-passed-to-container", "skip", container="docker", **NO_GPU),  # not an image for GPUs: a note
    row("gpu-not-passed-to-container", "", variables={"NVIDIA_VISIBLE_DEVICES": "all"}, **NO_GPU),
    row("gpu-not-passed-to-container", "", container="docker", variables={"NVIDIA_VISIBLE_DEVICES": "all"}),
    row("docker-gpu-runtime-missing", "skip", container_toolkit=()),
    row("docker-gpu-runtime-missing", "pass", container_toolkit=("/usr/bin/nvidia-ctk",)),
    row("docker-gpu-runtime-missing", ""),  # no docker, or facts of an older splatfix
    row("docker-gpu-runtime-missing", "", container_toolkit=(), **NO_GPU),
    row("wsl-wrong-libcuda", "fail", wsl=True, libcuda=(LINUX, WSL), remedy="Remove the Linux driver"),
    row("wsl-wrong-libcuda", "pass", wsl=True, libcuda=(WSL, LINUX)),
    row("wsl-wrong-libcuda", "pass", wsl=True, libcuda=("/usr/lib/wsl/drivers/nvlt.inf_amd64_1/libcuda.so.1.1",)),
    row("wsl-wrong-libcuda", "", libcuda=(LINUX,)),
    row("wsl-wrong-libcuda", "", wsl=True, libcuda=()),
    row("stub-libcuda-loaded", "fail", libcuda=(STUB, LINUX)),
    row("stub-libcuda-loaded", "", libcuda=(LINUX, STUB)),
    row("stub-libcuda-loaded", "", libcuda=(STUB,)),  # a build machine without a driver
    row("forward-compat-on-geforce", "fail", **COMPAT),
    row("forward-compat-on-geforce", "", gpus=cards("NVIDIA H200"), **COMPAT),
    row("forward-compat-on-geforce", "", libcuda=(LINUX,)),
    row("forward-compat-on-geforce", "fail", driver=driver("535.183.01", "13.0", cuda_error=804)),
    row("torch-arch-unsupported", "pass", gpus=(Gpu(0, "x", cc="8.9"),)),  # an RTX 4090 runs the 8.6 code
    row("torch-arch-unsupported", "pass", gpus=(Gpu(0, "x", cc="12.1"),)),
    row("torch-arch-unsupported", "pass", gpus=(Gpu(0, "x", cc="10.3"),)),
    row("torch-arch-unsupported", "unknown", torch={"code": (ptx("sm_90", (8, 4)),)}, driver=driver("999.10")),
    row("torch-arch-unsupported", "pass", "sm_120", torch={"code": (ptx("sm_90", (8, 4)),)}, driver=driver("999.10")),
    row("torch-arch-unsupported", "fail", torch={"code": (ptx("sm_90", (9, 0)),)}),
    row("arch-unknown-to-torch", "fail", torch={"knows_archs": ("8.0", "9.0")}),
    # torch 2.7 of CUDA 12.8 has sm_120, so that a B300 (10.3) is not clamped; a list that is set decides
    row("arch-unknown-to-torch", "warn", torch=TORCH_27, gpus=B300, remedy="=10.0"),
    row("arch-unknown-to-torch", "skip", torch=TORCH_27, gpus=B300, **listed("10.0")),
    row("driver-library-mismatch", "fail", driver=driver("570.1", "12.8", "575.5")),
    # PTX of CUDA 13.0, a driver of 12.9; one fatbin of PTX alone is enough
    row("ptx-newer-than-driver", "fail", extensions=ext(ptx("sm_90", (9, 0))), says="CUDA 13.0"),
    row("ptx-newer-than-driver", "fail", extensions=ext(sass("sm_120"), ptx("sm_120", (9, 0))), says="up to CUDA 12.9"),
    row("ptx-newer-than-driver", "", extensions=ext(ptx("sm_90", (9, 0))), driver=driver("580.95.05", "13.0", "580.95.05")),
    row("ptx-newer-than-driver", "", extensions=ext(ptx("sm_90", (9, 0))), driver=driver(None)),
    row("ptx-newer-than-driver", "", extensions=ext(sass("sm_80"), ptx("sm_90", (9, 0)))),  # no-kernel-image tells that
    row("no-kernel-image", "fail", extensions=ext(sass("sm_80"), ptx("sm_90", (9, 0)))),
    # a GPU that is not in this machine has a driver of its own, which knows it
    row("ptx-newer-than-driver", "", "sm_120", gpus=AMPERE, driver=driver("535.183.01", "12.2"), extensions=SASS_86_PTX_87),
    row("ptx-newer-than-driver", "fail", "sm_120", driver=driver("570.1", "12.2"), extensions=SASS_86_PTX_87),
    row("no-kernel-image", "fail", "sm_120", extensions=ext(sass("sm_86"), ptx("sm_90", (8, 7)))),
    row("gpu-memory-errors", "", gpus=(Gpu(0, "A100", cc="8.0"),)),
    row("gpu-memory-errors", "pass", gpus=hurt(uncorrected_errors=0, remap_pending=False, remap_failed=False)),
    row("gpu-memory-errors", "warn", gpus=hurt(uncorrected_errors=3)),
    row("gpu-memory-errors", "warn", gpus=hurt(uncorrected_errors=0, remap_pending=True)),
    row("gpu-memory-errors", "fail", gpus=hurt(remap_pending=True, remap_failed=True)),
    row("gpu-xid", "warn", xids=(Xid("0000:01:00", 31, 9), Xid("0000:10:1c", 79, 2)), says="0000:10:1c"),
    row("gpu-xid", ""),  # where the log cannot be read nothing is said
    row("disk-full", "pass warn fail", disks=tuple(Disk(f"/{free}", 10 << 30, 1 << free) for free in (32, 29, 20))),
    row("disk-full", ""),
    # --- containers
    *(row(code, "", container="docker", **more) for code in CONFINED for more in ({}, {"confinement": Confinement()})),
    row("container-shm-small", "skip", **confined(shm=64 * 2**20), remedy="docker run --shm-size 8g IMAGE"),
    row("container-shm-small", "warn", **confined(shm=8 * 2**20), remedy="docker run --shm-size 8g IMAGE"),
    row("container-shm-small", "pass", **confined()),
    row("container-memory-limit", "warn", **confined(memory=GIB), remedy="docker run --memory 16g IMAGE"),
    row("container-memory-limit", "pass", **confined()),
    row("container-process-limit", "warn", **confined(processes=40), remedy="docker run --pids-limit 2048 IMAGE"),
    row("container-process-limit", "pass", **confined()),
    row("container-root-read-only", "warn", **confined(read_only=True), remedy="docker run --read-only --tmpfs /tmp:exec IMAGE"),
    row("container-root-read-only", "skip", **confined(read_only=True, writable=("/tmp",))),
    row("container-device-closed", "fail", **confined(user=10001, closed_devices=("/dev/nvidia0",)), remedy="stat -c %g"),
    # --- torch and its Python
    row("checkout-stack-unknown", "unknown", checkout=Fact(None, "", "it is not a folder")),
    row("arch-unknown-to-torch", "skip", gpus=ADA, torch=TORCH_113, says="8.6 is what to build, and runs on sm", remedy="=8.6"),
    row("torch-arch-unsupported", "pass", gpus=ADA, torch=TORCH_113),
    # CUDA 11.7 and an RTX 4090; torch 2.0 of CUDA 11.8 has sm_90 itself, so that it does not clamp 8.9, which nvcc 11.7 lacks
    row("toolkit-arch-unsupported", "skip", gpus=ADA, **CUDA_117, torch=TORCH_113, says="8.6 is what to build", remedy="=8.6"),
    row("toolkit-arch-unsupported", "warn", gpus=ADA, **CUDA_117, torch=TORCH_20),
    row("toolkit-arch-unsupported", "skip", "sm_89", gpus=ADA, **CUDA_117, torch=TORCH_20),  # splatfix chooses the number itself
    row("cuda-home-wrong", "fail", toolkit_choice=chosen("/usr/local", real_root=CUDA_129), remedy=f"CUDA_HOME={CUDA_129}"),
    row("cuda-home-wrong", "fail", toolkit_choice=chosen("/opt/nothing"), remedy=f"CUDA_HOME={CUDA_129}"),
    row("cuda-torch-mismatch", "fail", toolkits=TWO_TOOLKITS, toolkit_choice=chosen("/opt/cuda", has_headers=True),
        remedy="CUDA_HOME=/opt/cuda-12.6"),
    row("cpu-only-torch", "fail", torch=ROCM, says="ROCm build"),
    row("cpu-only-torch", "", torch=ROCM, **AMD),
    row("cpu-only-torch", "fail", "sm_120", torch=ROCM, **AMD),
    row("no-installer", "pass", installer=Installer(), says="own pip"),
    row("no-installer", "pass", python={"kind": "uv"}, installer=Installer("uv", "uv", "0.13.9"), says="uv 0.13.9"),
    row("no-installer", "pass", installer=Installer("pip", "/own/bin/python", "26.3"), says="pip 26.3"),
    row("no-installer", "pass", python={"lock_file": "/project/uv.lock"}, installer=Installer(), says="`uv sync`"),
    row("no-installer", "pass", python={"lock_file": "C:\\project\\poetry.lock"}, installer=Installer(), says="`poetry sync`"),
    row("no-installer", "warn", python={"externally_managed": True}, installer=Installer(), says="PEP 668"),
    row("no-installer", "warn", installer=Fact(None, "test", "nothing found"), says="no pip"),
    row("alloc-conf-crash", "fail", torch={"version": "1.13.1"}, **allocating("expandable_segments:True"), remedy="unset"),
    row("alloc-conf-crash", "fail", torch={"version": "2.0.1"}, remedy="max_split_size_mb:9",
        **allocating("max_split_size_mb:9,expandable_segments:True")),
    row("alloc-conf-crash", "warn", torch={"version": "2.5.1"}, remedy="max_split_size_mb:9",
        **allocating("expandable_segments:True,max_split_size_mb:9")),
    row("alloc-conf-crash", "warn", torch={"version": "2.4.1"}, remedy="garbage",
        **allocating("garbage_collection_threshold:1,expandable_segments:True")),
    row("alloc-conf-crash", "skip", **allocating("expandable_segments:True,max_split_size_mb:9")),
    row("alloc-conf-crash", "skip", variables={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, remedy="unset PYTORCH_ALLOC"),
    row("alloc-conf-crash", "", torch={"version": "2.4.1"}, **allocating("expandable_segments:False,max_split_size_mb:9")),
    row("alloc-conf-crash", "", torch={"version": "2.4.1"}, **allocating("max_split_size_mb:9")),
    row("arch-list-misses-gpu", "warn", **listed("8.6"), remedy="TORCH_CUDA_ARCH_LIST=12.0"),
    row("arch-list-misses-gpu", "", **listed("8.6+PTX")),
    row("arch-list-misses-gpu", "", **listed("12.0")),
    row("arch-list-misses-gpu", "warn", **listed("9.0;8.0")),
    # PTX 8.8 of CUDA 12.9, a driver of 12.8
    row("arch-list-misses-gpu", "warn", **listed("8.6+PTX"), driver=driver("570.124.06", "12.8", "570.124.06")),
    row("arch-list-misses-gpu", "", **listed("12.0"), driver=driver("570.124.06", "12.8", "570.124.06")),
    row("arch-list-below-minimum", "fail", **listed("6.1;7.5;12.0+PTX"), dist={"gsplat": "1.5.3"}, remedy="7.5;12.0+PTX"),
    row("arch-list-below-minimum", "", **listed("7.5;12.0"), dist={"gsplat": "1.5.3"}),
    row("arch-list-below-minimum", "", **listed("6.1;12.0"), dist={"gsplat": "0.1.11"}),
    row("arch-list-below-minimum", "", **listed("6.1;12.0")),
    row("arch-list-unbuildable", "fail", **listed("6.1;12.0"), **cuda("12.9.1", "sm_75", "sm_120"), remedy="LIST=12.0"),
    row("arch-list-unbuildable", "fail", **listed("8.6;12.0"), **cuda("12.9.1", "sm_75", "sm_86"), remedy="LIST=8.6"),
    row("arch-list-unbuildable", "", **listed("12.0"), **cuda("12.9.1", "sm_75", "sm_120")),
    # letters: torch takes them, nvcc 12.9 compiles them; nvcc 11.8 came before 9.0a
    row("arch-list-unbuildable", "", **listed("9.0a")),
    row("arch-list-unbuildable", "", **listed("9.0;12.0a")),
    row("arch-list-unbuildable", "fail", **listed("9.0a;8.6"), **cuda("11.8.89", "sm_86", "sm_90"), remedy="LIST=8.6"),
    row("arch-list-unbuildable", "", **listed("9.0;8.6"), **cuda("11.8.89", "sm_86", "sm_90")),
    row("arch-list-malformed", "pass", **listed("10.0a")),
    row("arch-list-malformed", "fail", **listed("12.0f")),
    row("no-gpu-at-build", "skip", **NO_GPU),
    row("no-gpu-at-build", "warn", "sm_120", sources=flags(), **NO_GPU, remedy="TORCH_CUDA_ARCH_LIST=12.0"),
    row("no-gpu-at-build", "warn", sources=flags(), **NO_GPU, remedy="Set TORCH_CUDA_ARCH_LIST to"),
    row("no-gpu-at-build", "", sources=flags()),
    row("no-gpu-at-build", "", sources=flags(), gpus=(), **listed("12.0")),
    row("no-gpu-at-build", "", sources=flags(), gpus=Fact(None, "", "NVML: not answered")),
    row("no-gpu-at-build", "", sources=flags(), driver=Fact(None, "", "NVML: it did not answer in time")),
    row("no-gpu-at-build", "", sources=flags(), gpus=(), toolkits=(), toolkit_choice=Fact(None)),
    row("no-gpu-at-build", "", sources=flags(), driver=driver("540.4.0", "12.6", nvml_error=12)),
    row("numpy2-abi-mismatch", "fail", torch={"version": "2.2.2+cu121"}, dist={"numpy": "2.0.1"}),
    row("numpy2-abi-mismatch", "pass", torch={"version": "2.2.2+cu121"}, dist={"numpy": "1.26.4"}),
    row("numpy2-abi-mismatch", "pass", torch={"version": "2.3.0+cu121"}, dist={"numpy": "2.0.1"}),
    row("numpy2-abi-mismatch", "fail", torch={"version": "2.4.0+cu121"}, dist={"numpy": "2.0.1"}, **WINDOWS),
    row("numpy2-abi-mismatch", "pass", torch={"version": "2.4.1+cu121"}, dist={"numpy": "2.0.1"}, **WINDOWS),
    row("build-tools-missing", "warn", distributions=NO_SETUPTOOLS, remedy="install setuptools"),
    row("build-tools-missing", "warn", distributions=NO_SETUPTOOLS, torch={"builder_imports": PKG[:1]}, remedy="setuptools<82"),
    row("build-tools-missing", "warn", distributions=NO_SETUPTOOLS, torch={"builder_imports": PKG}, remedy="setuptools<70"),
    row("setuptools-incompatible", "fail", torch={"builder_imports": PKG[:1]}, dist={"setuptools": "82.0.0"},
        remedy="setuptools<82"),
    row("setuptools-incompatible", "", torch={"builder_imports": PKG[:1]}, dist={"setuptools": "81.0.0"}),
    row("setuptools-incompatible", "fail", torch={"builder_imports": PKG}, dist={"setuptools": "75.1"}, remedy="setuptools<70"),
    row("setuptools-incompatible", "", torch={"builder_imports": PKG}, dist={"setuptools": "69.5"}),
    row("setuptools-incompatible", "", torch={"builder_imports": ("setuptools",)}, dist={"setuptools": "90.0"}),
    # the setup.py of tiny-cuda-nn imports it, though torch's own builder no longer does
    row("setuptools-incompatible", "fail", sources=flags(imports=PKG[:1]), dist={"setuptools": "82.0"}, remedy="setuptools<82"),
    row("setuptools-incompatible", "", sources=flags(imports=PKG[:1]), dist={"setuptools": "81.0"}),
    row("python-version-unsupported", "pass", **NO_TORCH),
    row("python-version-unsupported", "fail", python={"version": "3.6.9"}, **NO_TORCH),
    row("python-version-unsupported", "unknown", python={"version": "3.19.0"}, **NO_TORCH),  # newer than the tables
    row("python-version-unsupported", "fail", python={"platform_tag": "win32"}, **NO_TORCH),
    row("python-version-unsupported", "fail", python={"implementation": "PyPy"}, **NO_TORCH),
    row("python-version-unsupported", ""),
    row("no-matching-wheel", "warn", pins=pinned("pytorch==1.12.1"), glibc="2.35", **NO_TORCH),
    row("no-matching-wheel", "", pins=pinned("pytorch==1.12.1"), python={"version": "3.9.2"}, glibc="2.35", **NO_TORCH),
    row("no-matching-wheel", "warn", pins=pinned("pytorch==2.7.1"), glibc="2.27", **NO_TORCH),
    row("no-matching-wheel", "", pins=pinned("pytorch==2.7.1"), glibc="2.28", **NO_TORCH),
    row("no-matching-wheel", "", pins=pinned("pytorch==99.0"), glibc="2.28", **NO_TORCH),
    row("no-matching-wheel", "fail", libc="musl 1.2.5", **NO_TORCH),
    # --- compilers and toolkits
    row("host-gcc-too-old", "warn", torch={"version": "2.5.1+cu121"}, compilers=gcc("8.5.0")),
    row("host-gcc-too-old", "", torch={"version": "2.5.1+cu121"}, compilers=gcc("9.4.0")),
    row("host-gcc-too-old", "warn", torch={"version": "2.12.0+cu130"}, compilers=gcc("9.4.0")),
    row("host-gcc-too-old", "", torch={"version": "2.12.0+cu130"}, compilers=gcc("10.2.1")),
    row("host-gcc-too-old", "", torch={"version": "2.1.2+cu118"}, compilers=gcc("8.5.0")),
    # Ubuntu 22.04's own nvcc takes its own gcc by its header, and cannot read its library
    row("host-gcc-too-new", "fail", compilers=gcc("11.4.0"), **cuda("11.5.119", gcc_max=11)),
    row("host-gcc-too-new", "pass", compilers=gcc("10.5.0"), **cuda("11.5.119", gcc_max=11)),
    row("host-gcc-too-new", "pass", compilers=gcc("11.4.0"), **cuda("11.8.89", gcc_max=11)),
    row("host-gcc-too-new", "skip", compilers=gcc("16.1.0"), variables={"NVCC_APPEND_FLAGS": "-allow-unsupported-compiler"}),
    row("host-gcc-too-new", "skip", compilers=gcc("16.1.0"), variables={"NVCC_APPEND_FLAGS": "-O3 --allow-unsupported-compiler"}),
    row("host-gcc-too-new", "fail", compilers=gcc("16.1.0"), variables={"NVCC_APPEND_FLAGS": "-O3"}),
    # torch 2.11 refuses gcc 14 with CUDA 12.8, which nvcc accepts; unless told not to look, or built from source
    row("host-compiler-refused-by-torch", "fail", torch={"version": "2.11.0+cu128"}, compilers=gcc("14.2.0"), **cuda("12.8.93")),
    row("host-compiler-refused-by-torch", "skip", torch={"version": "2.11.0+cu128"}, compilers=gcc("14.2.0"), **cuda("12.8.93"),
        variables={"TORCH_DONT_CHECK_COMPILER_ABI": "1"}),
    row("host-compiler-refused-by-torch", "fail", torch={"version": "2.11.0+cu128"}, compilers=gcc("14.2.0"), **cuda("12.8.93"),
        variables={"TORCH_DONT_CHECK_COMPILER_ABI": "0"}),
    row("host-compiler-refused-by-torch", "skip", torch={"version": "2.11.0a0+50eac811a6.nv25.09"}, compilers=gcc("14.2.0"),
        **cuda("12.8.93")),
    row("host-msvc-too-new", "pass", compilers=cl(version="19.39"), **cuda("12.1.105", msvc_max=1939), **WINDOWS),
    row("host-msvc-too-new", "fail", compilers=cl(version="19.40"), **cuda("12.1.105", msvc_max=1939), **WINDOWS, remedy="14.39"),
    row("host-msvc-too-new", "unknown", compilers=cl(version=None), **cuda("12.1.105", msvc_max=1939), **WINDOWS),
    row("msvc-x86-host", "", compilers=cl(), variables=VS, **WINDOWS),
    row("msvc-x86-host", "fail", compilers=cl(), variables={"VSCMD_ARG_TGT_ARCH": "x86"}, **WINDOWS),
    row("msvc-x86-host", "fail", compilers=cl(X86), **WINDOWS),
    row("msvc-x86-host", "fail", compilers=cl("C:/VS/bin/Hostx86/x86/cl.exe"), **WINDOWS),
    row("msvc-x86-host", "", compilers=cl(X86, via="vswhere: Visual Studio"), **WINDOWS),
    row("msvc-not-on-path", "warn", compilers=cl(via="vswhere"), dist={"gsplat": "1.5.3"}, **WINDOWS),
    row("msvc-not-on-path", "", compilers=cl(via="vswhere"), **WINDOWS),  # setup.py finds it by itself
    row("msvc-not-on-path", "", compilers=cl(), dist={"gsplat": "1.5.3"}, **WINDOWS),
    row("msvc-runtime-missing", "warn", missing_msvc_runtime=("vcruntime140_1.dll",), **WINDOWS),
    row("msvc-runtime-missing", "", missing_msvc_runtime=("vcruntime140_1.dll",), python={"kind": "conda"}, **WINDOWS),
    row("msvc-runtime-missing", "", missing_msvc_runtime=()),
    row("distutils-use-sdk-unset", "warn", variables=VS, compilers=cl(), sources=flags(), **WINDOWS, remedy="DISTUTILS_USE_SDK"),
    row("distutils-use-sdk-unset", "skip", variables=VS, compilers=cl(), **WINDOWS),
    row("distutils-use-sdk-unset", "", variables={**VS, "DISTUTILS_USE_SDK": "1"}, sources=flags(), **WINDOWS),
    row("distutils-use-sdk-unset", "", sources=flags(), **WINDOWS),
    row("distutils-use-sdk-unset", "", variables=VS, sources=flags()),
    row("glibc-cuda-math-conflict", "warn", glibc="2.41"),
    row("glibc-cuda-math-conflict", "warn", glibc="2.42", torch={"cuda": "12.4"}, **cuda("12.4.131")),
    row("glibc-cuda-math-conflict", "", glibc="2.39"),
    row("glibc-cuda-math-conflict", "", glibc="2.41", torch={"cuda": "13.0"}, **cuda("13.0.88")),
    row("glibc-cuda-math-conflict", "", glibc="2.41", **cuda("12.9.86", root="/usr")),
    row("glibc-cuda-math-conflict", "", glibc="2.41",
        compilers=(Compiler("g++", "/env/bin/x86_64-conda-linux-gnu-g++", "13.3.0", ("CXX",)),)),
    row("linker-cudart-missing", "warn", torch={"version": "2.0.1"}, **cuda("12.9.86", cudart_in=("lib",), has_lib64=False),
        remedy="LIBRARY_PATH"),
    row("linker-cudart-missing", "", torch={"version": "2.4.1"}, **cuda("12.9.86", cudart_in=("lib",), has_lib64=False)),
    # a lib64 that holds something else stands in front
    row("linker-cudart-missing", "warn", torch={"version": "2.4.1"}, **cuda("12.9.86", cudart_in=("lib",), has_lib64=True)),
    row("linker-cudart-missing", "", **cuda("12.9.86", cudart_in=("lib64", "lib"), has_lib64=True)),
    row("linker-cudart-missing", "warn", **cuda("12.9.86", cudart_in=("targets/x86_64-linux/lib",), has_lib64=False)),
    row("linker-cudart-missing", "", **cuda("12.9.86", cudart_in=(), has_lib64=False)),  # cuda-headers-missing tells
    row("linker-cudart-missing", "", torch={"version": "2.0.1"}, **cuda("12.9.86", cudart_in=("lib",))),  # old facts
    row("linker-cudart-missing", "", **cuda("12.9.86", root="/usr", cudart_in=("lib/x86_64-linux-gnu",), has_lib64=True)),
    row("cub-thrust-mismatch", "warn", header_copies=(HeaderCopy("/cub", "CUB_HOME", "1.10.0", ""),), **CUB),
    row("cub-thrust-mismatch", "skip", header_copies=(HeaderCopy("/usr/include", "its own", "", "1.15.0"),),
        **CUB),
    row("cub-thrust-mismatch", "", header_copies=(HeaderCopy("/cub", "CUB_HOME", "2.8.2", ""),), **CUB),
    row("cub-thrust-mismatch", "", header_copies=(HeaderCopy("/opt/cuda/include", "CPATH", "2.9.0", ""),),
        **CUB),
    row("cub-thrust-mismatch", "", header_copies=(HeaderCopy("/cub", "CUB_HOME", "1.10.0", ""),)),
    row("wsl-without-swap", "warn", wsl=True, resources=Resources(swap_total=0, **TIGHT), remedy="memory="),
    row("wsl-without-swap", "pass", wsl=True, resources=Resources(swap_total=4 * GIB, **TIGHT)),
    row("wsl-without-swap", "pass", wsl=True, resources=Resources(swap_total=0, memory_total=64 * GIB)),
    row("wsl-without-swap", "", resources=Resources(swap_total=0, **TIGHT)),
    row("wsl-without-swap", "", wsl=True, resources=Resources(**TIGHT)),
    # a torch of sm_90 with PTX runs on an RTX 5080; what it builds there would be for 9.0+PTX
    row("arch-clamped", "warn", torch={"code": CLAMPED}, says="9.0+PTX", remedy="TORCH_CUDA_ARCH_LIST=12.0"),
    row("arch-clamped", "", torch={"code": CLAMPED}, **listed("12.0")),
    row("arch-list-malformed", "fail", variables={"CUDA_ARCHITECTURES": "8.6;12.0+PTX"}, sources=SSIM_2, remedy="86;120"),
    row("arch-list-malformed", "", variables={"CUDA_ARCHITECTURES": "86;120"}, sources=SSIM_2),
    row("arch-list-malformed", "", variables={"CUDA_ARCHITECTURES": "native"}),  # CMake's own, for others
    row("ninja-not-on-path", "warn", tools={}, dist={"ninja": "1", "gsplat": "1.4.0"}, remedy='PATH="/env/bin'),
    row("ninja-not-on-path", "", tools={}, dist={"ninja": "1"}),
    row("ninja-not-on-path", "", dist={"ninja": "1", "gsplat": "1.4.0"}),
    row("ninja-not-on-path", "skip", tools={}, dist={"ninja": "1"}, sources=(files(3),)),  # setup.py goes on without it, slower
    # whether that toolkit has stubs is not known
    row("linker-libcuda-missing", "warn", linkable_libcuda=(), sources=ASKING, remedy=("splatfix install", "lib64/stubs")),
    row("linker-libcuda-missing", "warn", linkable_libcuda=(), sources=ASKING, wsl=True, remedy="/usr/lib/wsl/lib"),
    row("linker-libcuda-missing", "", linkable_libcuda=(), sources=(files(2),)),
    row("linker-libcuda-missing", "", linkable_libcuda=("/usr/lib/libcuda.so",), sources=ASKING),
    row("linker-libcuda-missing", "", sources=ASKING),
    row("headers-missing", "fail", sources=lacking("curand_kernel.h", ("/usr/local/cuda-12.9",)), remedy="curand_kernel.h"),
    row("headers-missing", "fail", sources=lacking("Eigen/Dense", (), "libeigen3-dev"), says="which this system does not have",
        remedy="sudo apt-get install libeigen3-dev"),
    # install takes both includes out of its copy
    row("headers-missing", "warn", sources=lacking("cuda_texture_types.h", ("/usr/local/cuda-12.9",)), says="which CUDA 12.9",
        remedy=("", "splatfix install /home/u/gs/submodules/other")),
    row("headers-missing", "warn", sources=lacking("THC/THC.h"), says="torch 2.9.1",
        remedy=("", "splatfix install /home/u/gs/submodules/other")),
    # --- extensions and packages
    row("torch-abi-mismatch", "fail", extensions=(of_torchvision(),), remedy="Install the torchvision"),
    # torchcodec ships one library for each FFmpeg; all but one of them lack theirs
    row("shared-lib-not-found", "", extensions=(TORCHCODEC,)),
    row("ext-link-incomplete", "", extensions=(TORCHCODEC,)),
    # built against another torch, with all symbols there: a patch keeps the classes
    row("torch-abi-mismatch", "pass", **built(built_with=(("torch", "2.9.0+cu128 12.8"),))),
    row("torch-abi-mismatch", "warn", **built(built_with=(("torch", "2.8.0+cu128 12.8"),)), remedy="splatfix install"),
    row("torch-abi-mismatch", "warn", **built(built_with=(("torch", "2.9.1+cu130 13.0"),)), remedy="splatfix install"),
    row("torch-abi-mismatch", "pass", **built(built_with=(("torch", ""),))),
    row("cuda-runtime-mismatch", "warn", **built(cuda_mismatch=FORCED), says=FORCED),
    row("cuda-runtime-mismatch", "", **built()),
    row("cuda-runtime-mismatch", "fail", **built("libcudart.so.13", cuda_mismatch=FORCED)),  # told once
    row("duplicate-runtimes", "", runtime_copies=OWN_COPIES),
    row("duplicate-runtimes", "warn", runtime_copies=(*OWN_COPIES, RuntimeCopy("libc10", "dgr.libs/libc10-1a2b.so", "", True))),
    # torchao brings a module for sm_90a beside those for every GPU; one without a number, or for this very GPU, has no excuse
    row("no-kernel-image", "skip", extensions=at("torchao/_C_cutlass_90a.abi3.so")),
    row("no-kernel-image", "fail", extensions=at("torchao/_C.abi3.so")),
    row("no-kernel-image", "fail", extensions=at("torchao/_C_120.abi3.so")),
    # torchao's _C_mxfp8.cpython-310 has no PyInit function: torch.ops loads it by its path, from any Python
    row("extension-python-mismatch", "warn", extensions=at(OTHER_PYTHON)),
    row("extension-python-mismatch", "warn", extensions=at(OTHER_PYTHON, python_module=True)),
    row("extension-python-mismatch", "", extensions=at(OTHER_PYTHON, python_module=False)),
    row("extension-python-mismatch", "", extensions=(*at(OTHER_PYTHON, python_module=True), *at(OWN_PYTHON))),
    # open3d's own module: its CUDA functions are its own matter; the same file, linking torch, refuses
    row("no-kernel-image", "skip", extensions=at("open3d/o.so", links_torch=False, needed=("libc.so.6",)), says="own GPU"),
    # what a drop-in does not bring is compiled at the first call
    row("no-kernel-image", "pass", "sm_120", **dropin_with(sass("sm_90", "sm_120")), says="fused_ssim has native sm_120 code."),
    row("no-kernel-image", "warn", "sm_75", **dropin_with(sass("sm_90", "sm_120")), says="NVRTC compiles it at the first call",
        remedy="splatfix install fused_ssim --backend nvrtc"),
    row("no-kernel-image", "fail", "sm_120", **dropin_with(code_error="ssim-sm_120-1.cubin holds code for sm_75")),
    row("torch-abi-mismatch", "pass", **linkage()),
    row("torch-abi-mismatch", "fail", **linkage(torch_missing=(GONE,)), remedy="splatfix install"),
    row("torch-abi-mismatch", "unknown", **linkage(error="libtorch_cpu.so: truncated")),
    # one finding, not two: the missing symbols follow from the ABI
    row("torch-abi-mismatch", "", **linkage(cxx11_abi=False, torch_missing=(GONE,))),
    row("cxx11-abi-mismatch", "fail", **linkage(cxx11_abi=False, torch_missing=(GONE,))),
    row("cxx11-abi-mismatch", "", **linkage(cxx11_abi=False), torch={"cxx11_abi": None}),
    row("cxx11-abi-mismatch", "", **linkage(cxx11_abi=None)),
    row("ext-link-incomplete", "fail", **linkage(own_missing=("_Z7forwardv", "_Z8backwardv")), remedy="Remove its build folder"),
    row("ext-link-incomplete", "", **linkage(own_missing=("_Z7forwardv",), torch_missing=(GONE,))),
    row("stale-jit-cache", "pass", **jit(code=(sass("sm_120"),), linkage=Linkage(torch_symbols=3, cxx11_abi=True))),
    row("stale-jit-cache", "fail", **jit(linkage=Linkage(torch_missing=(GONE,)))),
    row("stale-jit-cache", "fail", **jit(linkage=Linkage(cxx11_abi=False))),
    row("stale-jit-cache", "fail", **jit(error="truncated")),
    row("stale-jit-cache", "unknown", **jit(linkage=Linkage(error="x"))),
    row("stale-jit-cache", "", **jit(current=False, linkage=Linkage(torch_missing=(GONE,)))),
    row("jit-cache-arch", "fail", **jit(code=(sass("sm_86"),)), remedy="Remove it"),
    row("jit-cache-arch", "", **jit(current=False, code=(sass("sm_75"),))),
    row("jit-cache-locked", "fail", **jit(locked="2026-01-01T00:00:00+00:00")),
    row("jit-cache-locked", "skip", **jit(locked="2026-01-01T23:30:00+00:00")),
    row("jit-cache-locked", "skip", **jit("", locked="2020-01-01T00:00:00+00:00")),  # its age is not known
    row("jit-cache-locked", "", **jit(current=False, locked="2020-01-01T00:00:00+00:00")),
    row("no-kernel-image", "pass", extensions=ext(sass("sm_120"))),
    row("no-kernel-image", "fail", extensions=ext(sass("sm_90"))),
    row("no-kernel-image", "fail", extensions=ext(sass("sm_120"), sass("sm_80"))),
    row("no-kernel-image", "pass", extensions=ext(ptx("sm_90", (8, 8)))),
    row("no-kernel-image", "", extensions=ext(ptx("sm_90", (9, 0)))),  # ptx-newer-than-driver tells that
    row("no-kernel-image", "pass", extensions=ext(sass("sm_120a"))),
    row("no-kernel-image", "fail", extensions=ext(sass("sm_100f"))),
    row("no-kernel-image", "fail", extensions=ext(ptx("sm_90a", (8, 0)))),
    row("no-kernel-image", "unknown", extensions=ext(ptx("sm_90", (8, 8))), driver=driver("999.10")),
    row("no-kernel-image", "skip", **NO_GPU),
    row("torch-companions-mismatch", "fail", distributions=(*TORCH_AND_TRITON, *TRITON_34),
        remedy="/env/bin/python -m pip install triton==3.5.1"),
    row("torch-companions-mismatch", "", distributions=TORCH_AND_TRITON),
    row("torch-companions-mismatch", "warn", distributions=having("torchvision", "0.24.0", pins=("torch==2.9.0",))),
    row("torch-companions-mismatch", "fail", distributions=having("torchvision", "0.24.0", pins=("torch==2.8.0",))),
    row("torch-companions-mismatch", "pass", distributions=having("torchvision", "0.24.0", pins=("torch==2.9.1",))),
    row("torch-companions-mismatch", "fail", distributions=having("torchvision", "0.24.0+cu126", pins=("torch==2.9.1+cu126",))),
    row("lookalike-package", "fail", distributions=having("simple_knn", "2.0.1"), remedy="The stack needs"),
    row("lookalike-package", "warn", distributions=having("pixi", "1.0.1"), remedy="If that was meant, take prefix.dev's"),
    row("lookalike-package", "warn", distributions=having("rattler", "1.0.2"), remedy="take py-rattler"),
    row("lookalike-package", "warn", distributions=having("gcm", "0.3"), remedy="GPU cluster monitoring"),
    row("lookalike-package", "", distributions=having("py-rattler", "0.28.0")),
    row("lookalike-package", "", distributions=having("simple_knn", "0.0.0")),
    row("lookalike-package", "", distributions=having("simple_knn", "1.0", origin="file:///src/simple-knn")),
    row("lookalike-package", "", distributions=having("simple_knn", "2.0.1", made_by_splatfix="drop-in")),
    row("lookalike-package", "", distributions=having("simple-knn", "1.2", editable=True)),
    row("lookalike-package", "", distributions=having("simple_knn", "1.1"), extensions=(extension("simple_knn"),)),
    row("lookalike-package", "warn", distributions=having("gaussian_splatting", "2.11.0"),
        extensions=(extension("gaussian_splatting"),)),
    row("editable-source-gone", "fail", distributions=having("dgr", "0", editable=True, origin="file:///gone", source_gone=True)),
    row("import-shadowing", "warn", packages=(package("inria-v1"),), shadows=(Shadow(RASTERIZER, "/home/u/dgr", False),)),
    row("import-shadowing", "", packages=(package("inria-v1"),), shadows=(Shadow(RASTERIZER, "/home/u/dgr", True),)),
    row("import-shadowing", "", shadows=(Shadow(RASTERIZER, "/home/u/dgr", False),)),  # nothing that it could hide
    row("shared-lib-not-found", "fail", **linkage(unresolved=("libopencv_core.so.4",))),
    row("shared-lib-not-found", "fail", **linkage(unresolved=("libcudart.so.12",))),
    row("shared-lib-not-found", "", **linkage(unresolved=("libcuda.so.1", "libnvidia-ml.so.1"))),
    row("shared-lib-not-found", "", **linkage(unresolved=("libc10.so",)), **NO_TORCH),  # torch-missing tells
    row("glibcxx-missing", "fail", **linkage(versions=(("libstdc++.so.6", "GLIBCXX_3.4.32"),)), remedy="Upgrade"),
    row("glibcxx-missing", "fail", **linkage(versions=(("libstdc++.so.6", "GLIBCXX_3.4.32"),)),
        python={"kind": "conda", "prefix": "/opt/my env"}, remedy="conda install -p '/opt/my env'"),
    row("glibcxx-missing", "fail", **linkage(versions=(("libstdc++.so.6", "CXXABI_1.3.15"),))),
    row("glibcxx-missing", "", **linkage(versions=(("libstdc++.so.6", "GLIBCXX_3.4.30"),))),
    row("glibcxx-missing", "", **linkage(versions=(("libstdc++.so.6", "GLIBCXX_3.4.9"),))),
    row("glibc-too-old", "fail", **linkage(versions=(("libc.so.6", "GLIBC_2.38"),))),
    row("glibc-too-old", "", **linkage(versions=(("libm.so.6", "GLIBC_2.4"),))),
    row("glibc-too-old", "unknown", **(linkage(versions=(("libc.so.6", "GLIBC_2.38"),)) | {"runtime_libraries": ()})),
    row("cuda-runtime-mismatch", "fail", extensions=(extension("r", needed=("c10.dll", "cudart64_110.dll")),)),
    row("cuda-runtime-mismatch", "", extensions=(extension("r", needed=("c10.dll", "cudart64_12.dll")),)),
    row("cuda-runtime-mismatch", "fail", extensions=(extension("r", needed=("c10.dll", "cudart64_13.dll")),)),
    row("torch-not-imported-first", "skip", extensions=(extension("simple_knn"),),
        packages=(SplatPackage("simple_knn", "/env/simple_knn", native=("simple_knn._C",), imports_torch=False),)),
    row("torch-not-imported-first", "", extensions=(extension("simple_knn"),),
        packages=(SplatPackage("simple_knn", "/env/simple_knn", native=("simple_knn._C",), imports_torch=True),)),
    row("egl-missing", "warn", missing_graphics=("EGL/egl.h",), dist={"nvdiffrast": "0.2.8"}),
    row("egl-missing", "skip", missing_graphics=("EGL/egl.h",), dist={"nvdiffrast": "0.3.3"}),
    row("egl-missing", "", missing_graphics=(), dist={"nvdiffrast": "0.2.8"}),
    row("egl-missing", "", missing_graphics=("EGL/egl.h",)),
    row("arch-below-minimum", "fail", packages=GSPLAT, dist={"gsplat": "1.5.3"}, gpus=PASCAL),
    row("arch-below-minimum", "", packages=GSPLAT, dist={"gsplat": "0.1.11"}, gpus=PASCAL),
    row("arch-below-minimum", "", packages=GSPLAT, dist={"gsplat": "1.5.3"}, gpus=(Gpu(0, "x", cc="7.0"),)),
    row("arch-below-minimum", "", sources=(source("simple_knn"),), gpus=PASCAL, extensions=()),
    row("arch-below-minimum", "fail", sources=(source("diff_gaussian_rasterization_fastgs"),), gpus=PASCAL, extensions=()),
    row("gsplat-without-kernels", "fail", "sm_90", packages=GSPLAT, toolkits=(), remedy="gsplat --backend nvrtc"),
    row("gsplat-without-kernels", "", packages=GSPLAT_BY_US, toolkits=()),
    row("gsplat-without-kernels", "skip", packages=GSPLAT, torch={"cuda": None}, remedy="gsplat --backend pure"),
    row("gsplat-import-missing", "fail", dist={"gsplat": "1.5.3"}, remedy="install packaging"),
    row("gsplat-import-missing", "pass", dist={"gsplat": "1.5.3", "packaging": "26.4"}),
    row("gsplat-import-missing", "", dist={"gsplat": "1.4.0"}),
    row("ninja-not-on-path", "", tools={}, distributions=(CSRC, Distribution("gsplat", "1.5.3", "/e"))),
    row("module-name-clash", "", packages=GSPLAT_BY_US, distributions=(CSRC,)),
    row("installed-package-breaks", "warn", distributions=(NERFSTUDIO,), remedy="install nerfstudio --in-place"),
    row("installed-package-breaks", "", distributions=(NERFSTUDIO,), torch={"version": "2.5.1+cu124"}),
    row("installed-package-breaks", "", distributions=(dataclasses.replace(NERFSTUDIO, version="1.2"),)),
    row("installed-package-breaks", "pass", distributions=(NERFSTUDIO,), altered=NERFSTUDIO_EDITED),
    row("package-altered", "skip", altered=NERFSTUDIO_EDITED, remedy="revert takes it back"),
    row("package-altered", "warn", remedy="splatfix repair",
        altered=(*NERFSTUDIO_EDITED, AlteredFile("nerfstudio", "1.1.5", "nerfstudio/models/splatfacto.py", "not there"))),
    row("installed-package-breaks", "warn fail", remedy="install nerfstudio --in-place",
        distributions=(NERFSTUDIO, Distribution("gsplat", "1.5.3", "/e"))),
    row("installed-package-breaks", "warn", distributions=(NERFSTUDIO, Distribution("gsplat", "1.4.0+pt24", "/e"))),
    row("drop-in-without-host", "", dist={"gsplat": "1.5.3"}),
    row("drop-in-without-host", "fail", distributions=(CSRC,), remedy="gsplat==1.5.3"),
    row("drop-in-without-host", "pass", distributions=(CSRC, Distribution("gsplat", "1.4.0", "/e"))),
    row("drop-in-without-host", "fail", distributions=(CSRC, Distribution("gsplat", "1.6.0", "/e"))),
    row("drop-in-without-host", "warn", distributions=(CSRC, Distribution("gsplat", "1.5.3", "/e")),
        extensions=COMPILED_GSPLAT, remedy="uninstall splatfix-gsplat-csrc"),
    row("gsplat-without-kernels", "skip", packages=GSPLAT),
    row("gsplat-without-kernels", "unknown", packages=GSPLAT, toolkits=Fact(None, "", "unreadable")),
    row("gsplat-without-kernels", "pass", packages=GSPLAT, toolkits=(),
        extensions=(dataclasses.replace(extension("gsplat"), path="gsplat/csrc.so"),)),
    row("splat-variant-unknown", "skip", packages=(package("inria-v1", settings=("image_height", "something_new")),)),
    row("splat-variant-unknown", "unknown", packages=(package("inria-v1", error="not Python", settings=None),)),
    row("compiled-part-mismatch", "fail", packages=(package("taming", exports_missing=("adamUpdate",)),)),
    # --- checkouts
    row("missing-cstdint", "", compilers=gcc("12.4.0"), sources=matched("cstdint")),
    row("missing-cstdint", "fail", compilers=gcc("13.1.0"), sources=matched("cstdint"), remedy="#include <cstdint>"),
    row("missing-cfloat", "", torch={"cuda": "12.4"}, **cuda("12.4.131"), sources=matched("cfloat")),
    row("missing-cfloat", "fail", torch={"cuda": "12.5"}, **cuda("12.5.82"), sources=matched("cfloat")),
    row("missing-cfloat", "", torch={"cuda": "13.0"}, **cuda("13.0.88"), sources=matched("cfloat")),
    row("cub-max-removed", "", **cuda("12.9.86"), sources=matched("cub-functors")),
    row("cub-max-removed", "fail", torch={"cuda": "13.0"}, **cuda("13.0.88"), sources=matched("cub-functors")),
    row("missing-thrust-include", "warn", sources=matched("thrust-sequence")),
    row("missing-thrust-include", "", sources=matched("cstdint")),
    row("arch-in-path", "fail", sources=in_folder("/home/u/research/gs/dgr", own_path_in_flags=True)),
    row("arch-in-path", "", sources=in_folder("/home/u/gs/dgr", own_path_in_flags=True)),
    row("arch-in-path", "", sources=in_folder("/home/u/research/gs/dgr", own_path_in_flags=False)),
    row("vram-too-small", "warn", gpus=mig("1g.5gb"), commit=None),
    row("vram-too-small", "", gpus=mig(), commit=None),
    row("vram-too-small", "pass", gpus=mig("1g.5gb", "3g.40gb"), commit=None),
    row("vram-too-small", "warn", gpus=(Gpu(0, "RTX 3050", cc="12.0", memory_total=6 << 30),), commit=None,
        remedy="--data_device cpu"),
    row("vram-too-small", "warn", gpus=(Gpu(0, "RTX 3080", cc="8.6", memory_total=10 << 30),), commit=None),
    row("vram-too-small", "pass", gpus=(Gpu(0, "RTX 3060", cc="8.6", memory_total=12 << 30),), commit=None),
    row("vram-too-small", "", gpus=(Gpu(0, "some", cc="12.0"),), commit=None),
    row("setup-unreadable", "fail", sources=flags(error="setup.py is not Python")),
    row("cxx-standard-forced", "", torch={"version": "2.0.1+cu118"}, sources=flags(cxx_flags=("-std=c++14",))),
    row("cxx-standard-forced", "fail", torch={"version": "2.1.0+cu118"}, sources=flags(cxx_flags=("-std=c++14",))),
    row("cxx-standard-forced", "", sources=flags(cxx_flags=("-std=c++17",))),
    row("cxx-standard-forced", "warn", torch={"version": "2.13.0+cu130"}, sources=flags(cxx_flags=("-std=c++17",))),
    row("cxx-standard-forced", "fail", torch={"version": "2.14.0+cu130"}, sources=flags(cxx_flags=("/std:c++17",))),
    row("cxx-standard-forced", "", torch={"version": "2.14.0+cu130"}, sources=flags(cxx_flags=("-std=c++20",))),
    row("cxx-standard-forced", "", sources=flags(cxx_flags=("-std=gnu++98",))),
    row("cxx-standard-forced", "fail", torch={"version": "2.0.1+cu118", "cuda": "11.8"}, sources=flags(cxx_flags=("-std=c++20",)),
        **cuda("11.8.89"), remedy="CUDA 12"),
    row("arch-list-ignored", "", sources=flags("-O3")),
    row("arch-list-ignored", "fail", sources=flags("-gencode=arch=compute_90,code=sm_90")),
    row("arch-list-ignored", "pass", sources=flags("-gencode=arch=compute_120,code=sm_120")),
    row("arch-list-ignored", "pass", sources=flags("-gencode=arch=compute_90,code=compute_90")),
    row("arch-list-ignored", "fail", "sm_90", sources=flags("-gencode=arch=compute_120,code=sm_120")),
    row("arch-list-ignored", "fail", sources=flags("-march=native")),
    row("arch-list-ignored", "fail", sources=flags("-O3", sets={"TORCH_CUDA_ARCH_LIST": "7.5;8.6"})),
    row("arch-list-ignored", "pass", sources=flags("-O3", sets={"TORCH_CUDA_ARCH_LIST": "8.6+PTX"})),
    row("arch-list-ignored", "pass", sources=flags(*FUSED, reads=("CUDA_ARCHITECTURES",))),
    row("arch-list-ignored", "warn", "sm_120", sources=flags(*FUSED, reads=("CUDA_ARCHITECTURES",)), remedy="=120"),
    row("arch-list-ignored", "pass", "sm_89", sources=flags(*FUSED, reads=("CUDA_ARCHITECTURES",))),
    row("arch-list-ignored", "skip", sources=flags("-gencode=arch=compute_90,code=sm_90"), **NO_GPU),
    row("msvc-std-ambiguous", "warn", torch={"version": "2.9.1"}, sources=flags(), **WINDOWS),
    row("msvc-std-ambiguous", "warn", torch={"version": "2.11.0"}, sources=flags("-O3"), **WINDOWS),
    row("msvc-std-ambiguous", "", torch={"version": "2.11.0"}, sources=flags("-DUSE_CUDA"), **WINDOWS),
    row("msvc-std-ambiguous", "", torch={"version": "2.4.1"}, sources=flags(), **WINDOWS),
    row("msvc-std-ambiguous", "", torch={"version": "2.11.0"}, sources=flags()),
    row("build-isolation-enabled", "warn", dist={"pip": "25.3"}, sources=flags(), remedy="--no-build-isolation"),
    row("build-isolation-enabled", "pass", dist={"pip": "25.2"}, sources=flags()),
    row("build-isolation-enabled", "pass", dist={"pip": "23.0.1"}, sources=flags()),
    row("build-isolation-enabled", "", sources=flags()),  # who builds is not known
    row("build-isolation-enabled", "warn", dist={"pip": "23.0.1"}, sources=isolated("setuptools", "wheel")),
    row("build-isolation-enabled", "warn", dist={"pip": "25.2"}, sources=isolated("setuptools", "torch")),  # another torch
    row("build-isolation-enabled", "pass", dist={"pip": "25.2"}, sources=isolated("setuptools", "torch==2.9.1")),
    row("build-isolation-enabled", "warn", distributions=without("setuptools", pip="24.0"), sources=flags()),
    # load_pyproject_toml of pip 23.0.1, 23.1 and 25.2, read
    row("build-isolation-enabled", "pass", distributions=without("wheel", pip="23.0.1"), sources=flags()),
    row("build-isolation-enabled", "warn", distributions=without("wheel", pip="23.1"), sources=flags()),
    row("build-isolation-enabled", "warn", distributions=without("wheel", pip="25.2"), sources=flags()),
    row("numpy-alias-removed", "", python_matches=used("numpy-aliases"), dist={"numpy": "1.23.5"}),
    row("numpy-alias-removed", "fail", python_matches=used("numpy-aliases"), dist={"numpy": "1.24.0"}, remedy="In the code"),
    row("numpy-alias-removed", "warn", python_matches=used("numpy-aliases", at_import=False), dist={"numpy": "2.0"}),
    row("torch-load-pickles", "", python_matches=used("torch-load-pickles", at_import=False), torch={"version": "2.5.1"}),
    row("torch-load-pickles", "warn", python_matches=used("torch-load-pickles", at_import=False), torch={"version": "2.6.0"}),
    row("distutils-removed", "", python_matches=used("distutils"), python={"version": "3.12.1"}),  # setuptools brings it
    row("distutils-removed", "fail", python_matches=used("distutils"), python={"version": "3.12.1"}, remedy="install setuptools",
        distributions=without("setuptools")),
    row("distutils-removed", "", python_matches=used("distutils"), distributions=without("setuptools")),
    row("build-isolation-enabled", "warn", python={"kind": "uv"}, sources=flags(), remedy="uv pip install --python"),
    row("gsplat-version-mismatch", "pass", dist={"gsplat": "1.4.0+pt24cu124"}, pins=pinned("gsplat==1.4.0")),
    row("gsplat-version-mismatch", "warn", dist={"gsplat": "1.5.3"}, pins=pinned("gsplat==1.4.0")),
    row("gsplat-version-mismatch", "", dist={"gsplat": "1.5.3"}, pins=(Pin("requirements.txt", "gsplat", ">=1.4"),)),
    row("pinned-torch-too-old", "warn", pins=pinned("pytorch==1.12.1"), **NO_TORCH, remedy="Leave that file aside"),
    row("pinned-torch-too-old", "", pins=pinned("pytorch==1.12.1")),
    row("pinned-torch-too-old", "", pins=pinned("torch==2.9.1"), **NO_TORCH),
    row("colmap-missing", "skip", colmap=Fact(None, "PATH", "none", absent=True), paths=CONVERT, colmap_options=OLD),
    row("colmap-missing", "pass", colmap=Colmap("3.9", True), paths=CONVERT, colmap_options=OLD),
    row("colmap-missing", "", paths=CONVERT, colmap_options=OLD),  # facts of an older splatfix
    row("colmap-missing", "", colmap=Fact(None, "PATH", "none", absent=True)),
    row("colmap-no-gpu", "skip", colmap=Colmap("3.8", False), paths=CONVERT),
    row("colmap-no-gpu", "", colmap=Colmap("3.8", True), paths=CONVERT),
    row("colmap-no-gpu", "", colmap=Colmap("3.8", None), paths=CONVERT),
    row("colmap-option-mismatch", "", colmap=Colmap("3.12.6", True), colmap_options=OLD),
    row("colmap-option-mismatch", "warn", colmap=Colmap("3.13.0", True), colmap_options=OLD),
    row("colmap-option-mismatch", "warn", colmap=Colmap("3.7", True), colmap_options=NEW),
    row("colmap-option-mismatch", "", colmap=Colmap("3.13.0", True), colmap_options=NEW),
    row("colmap-option-mismatch", "", colmap=Colmap("3.13.0", True), colmap_options=(*OLD, *NEW)),
    row("colmap-option-mismatch", "", colmap=Colmap("3.13.0", True), colmap_options=()),
    row("checkout-stack-unknown", "skip", paths=("mine.py",), commit=None),
    row("rasterizer-api-mismatch", "unknown", packages=Fact(None, "", "no answer"), calls=(call(),)),
    row("ext-not-installed", "", packages=(), imports=("fused_ssim", "fused_ssim_cuda"),
        sources=(dataclasses.replace(source("fused_ssim"), path="."),)),
    row("silent-fallback", "pass", packages=(ssim(),), guarded=(GUARD,)),
    # FastGS tries SparseGaussianAdam of a rasterizer that is not its own and that it does not bring
    row("silent-fallback", "skip", packages=(), extensions=(), paths=FASTGS, guarded=(ADAM,), says="FastGS does not bring it"),
    row("silent-fallback", "warn", packages=(), extensions=(), paths=FASTGS, guarded=(GUARD,)),
    row("silent-fallback", "warn", packages=(), extensions=(), paths=FASTGS, guarded=(ADAM,), sources=(source(RASTERIZER),)),
    row("silent-fallback", "warn", packages=(), extensions=(), paths=("mine.py",), guarded=(ADAM,)),
    # a drop-in whose variant never had it: a native build was advised
    row("silent-fallback", "skip", packages=(dropin("inria-2024-dr_aa", "dr_aa"),), guarded=(ADAM,)),
    row("silent-fallback", "pass", packages=(dropin("3dgs-accel", "3dgs_accel"),), guarded=(ADAM,)),
    # a call of another variant than the installed one
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", settings=(*BASE, "antialiasing"), unpacks=3), says="antialias"),
    row("rasterizer-api-mismatch", "fail", **calling("mip"), says="leaves out kernel_size, subpixel_offset"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-2024-dr_aa"), says="2 results, 3 come back"),
    row("rasterizer-api-mismatch", "fail", **calling("mcmc"), says="2 results, 3 come back"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", forward=(*F, "dc")), says="dc"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", forward=F[2:]), says="leaves out means3D, means2D"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", settings=(), settings_positional=11), says="leaves out debug"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", forward=(), forward_positional=2), says="leaves out opacities"),
    row("rasterizer-api-mismatch", "fail", **calling("inria-v1", unpacks=None, at_least=3), says="result 3, 2 come back"),
    # what a call hides is not held against it
    *(row("rasterizer-api-mismatch", "pass", **calling("inria-v1", **hidden)) for hidden in HIDDEN),
    # Inria's 2024 renderer passes dc only where the accelerated rasterizer is installed: one of several calls is enough
    row("rasterizer-api-mismatch", "fail", packages=(package("inria-2024-dr_aa"),), calls=TWO_CALLS[:1]),
    row("rasterizer-api-mismatch", "pass", packages=(package("inria-2024-dr_aa"),), calls=TWO_CALLS),
    row("source-incomplete", "fail", sources=(unbuilt("x.cu", "y.cu"), source("b")), says="x.cu, y.cu"),
    row("silent-fallback", "warn", packages=(), guarded=(GUARD,)),
    row("silent-fallback", "skip", packages=(package("inria-2024-dr_aa"),), guarded=(ADAM,)),
    row("silent-fallback", "pass", packages=(package("3dgs-accel"),), guarded=(ADAM,)),
    row("toolkit-dropped-arch", "fail", **CUDA_130, sources=flags(*gencode(60, 70, 90, 120)),
        remedy="Remove sm_60, sm_70 from"),
    row("toolkit-dropped-arch", "", **CUDA_130, sources=flags(*gencode(90, 120))),
    row("vram-too-small", "warn", gpus=BIG_AND_SMALL, variables=BY_BUS, commit=None),
    row("vram-too-small", "pass", gpus=BIG_AND_SMALL, variables={**BY_BUS, "CUDA_VISIBLE_DEVICES": "0"}, commit=None),
    missing("", "numpy", "torch", "os"),
    row("imports-missing", "", modules=(*HERE, "tensorboard"), needs=needing("torch.utils.tensorboard")),
    row("imports-missing", "", modules=Fact(), needs=needing("plyfile")),
    row("imports-missing", "", modules=HERE),
    missing("fail", "numpy", "plyfile", "cv2", "PIL", "sklearn", "torch.utils.tensorboard",
        remedy="/env/bin/python -m pip install plyfile opencv-python pillow scikit-learn tensorboard"),
    missing("fail", "torchvision",
        remedy="/env/bin/python -m pip install torchvision torch==2.9.1+cu128 --extra-index-url "),
    missing("fail", "own_splats", pins=OWN_SPLATS,
        remedy="/env/bin/python -m pip install --no-build-isolation git+https://h.org/a/own-splats"),
    row("imports-missing", "fail warn", modules=HERE, needs=(*needing("plyfile"), BESIDE)),
    # who took that name on PyPI is not known: pip install simple-knn brings something else
    missing("warn", "sweet_module", remedy="sweet_module"),
    missing("fail", "sweet_module", pins=(Pin("r.txt", "Sweet-Module", "==1"),),
        remedy="/env/bin/python -m pip install Sweet-Module"),
    row("imports-missing", "fail", modules=HERE, sources=importing("dacite"), says="not installed: dacite."),
    missing("", "pkg_resources", dist={"setuptools": "84.2"}),  # the breakage tells it
    missing("fail", "pkg_resources", distributions=(), remedy="setuptools<82"),
    row("pkg-resources-removed", "fail", python_matches=used("pkg-resources"), dist={"setuptools": "84"}, remedy="setuptools<82"),
    row("mutable-dataclass-default", "fail", sources=MUTABLE, python={"version": "3.11.7"},
        remedy=("", "splatfix install /home/u/gs/submodules/dgr --python")),
    row("mutable-dataclass-default", "", sources=MUTABLE, python={"version": "3.10.14"}),
    missing("", "gaussianpro", sources=(source("gaussianpro"),)),
    row("build-out-of-memory", "pass", **room(64), sources=(files(12),)),
    row("build-out-of-memory", "warn", **room(12, swap_total=0), sources=(files(12),), says="12 compilers", remedy="MAX_JOBS=4"),
    row("build-out-of-memory", "warn", resources=Resources(cores=64, memory_total=GIB, memory_available=GIB),
        dist={"gsplat": "1.4.0"}, says="gsplat starts 10 compilers"),
    row("build-out-of-memory", "pass", **room(12, swap_total=32 * GIB), sources=(files(12),)),
    row("build-out-of-memory", "pass", **room(12), sources=(files(4),)),
    row("build-out-of-memory", "pass", **room(12), variables={"MAX_JOBS": "4"}, sources=(files(12),)),
    row("build-out-of-memory", "pass", **room(1), tools={}, sources=(files(12),)),  # without ninja one file after the other
    row("build-out-of-memory", "", **room(1)),
    row("build-out-of-memory", "", sources=(files(9),)),  # memory is not known
    row("headers-missing", "", sources=(source("other", headers_missing=(UNUSED_CUB,)),)),
    row("arch-list-malformed", "fail", **listed("blackwell"), remedy="unset TORCH_CUDA_ARCH_LIST"),
    row("arch-list-malformed", "pass", **listed("8.6;12.0+PTX")),
    row("arch-list-malformed", "pass", **listed("Ampere;Hopper;12.0")),
    row("arch-list-malformed", "pass", **listed("8.6 12.0")),
    row("arch-list-malformed", "", **listed("")),
    # a nightly's own list counts for more than the table's last row; a torch newer than the tables may know a name
    row("arch-list-malformed", "", **listed("14.0"), torch={"version": "2.99.0", "knows_archs": ("12.0", "14.0")}),
    row("arch-list-malformed", "", **listed("Feynman"), torch={"version": "2.99.0"}),
    row("arch-list-malformed", "fail", **listed("Feynman")),
    row("arch-clamped", "", gpus=(Gpu(0, "NVIDIA GB10", cc="12.1"),)),  # to 12.0, whose machine code it runs
    # single kernels are not torch's own list; torch before 2.7 cannot read sm_90a in it; 12.0 is unknown to torch 2.6
    row("arch-clamped", "", gpus=HOPPER, torch={"code": SINGLE_90A, "version": "2.6.0"}),
    row("arch-clamped", "fail", gpus=HOPPER, torch={"code": EVERY_90A, "version": "2.6.0"}),
    row("arch-clamped", "", gpus=HOPPER, torch={"code": EVERY_90A, "version": "2.9.1"}),
    row("arch-clamped", "", torch={"version": "2.6.0"}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "expected", "targets", "says", "remedy", "given"), ROWS)
def test_decision(
    changed: Changer,
    torch_with: TorchWith,
    code: str,
    expected: str,
    targets: tuple[str, ...],
    says: str,
    remedy: tuple[str, ...],
    given: dict[str, Any],
) -> None:
    facts = facts_of(given, changed, torch_with)
    findings = of(facts, code, *targets)
    assert " ".join(item.status.value for item in findings) == expected
    for item in findings:
        assert_whole(item)
    if says:
        assert says in findings[0].summary
    for number, words in enumerate(remedy):
        assert words in findings[0].remedy[number].line(windows=False)
