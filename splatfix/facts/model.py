"""The facts as data: what was learned about one machine and one Python environment, and how. Never a judgement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from splatfix.binaries import EntryKind, FatContainer, arch_order

T = TypeVar("T")

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value with how it was learned, or the reason why it is not known.

    ``value is None`` means unknown; ``error`` then says why. A fact that is known to be nothing has a type whose
    emptiness says so (an empty tuple of GPUs).
    """

    value: T | None = None
    found_via: str = ""
    error: str = ""

    @property
    def known(self) -> bool:
        """There is a value to reason with."""
        return self.value is not None


def unknown(error: str, found_via: str = "") -> Fact[Any]:
    """A fact nobody could learn, with the reason."""
    return Fact(None, found_via, error)


# --- the machine -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver, or failing that the PCI bus, shows it."""

    index: int
    name: str
    vendor: str = "nvidia"
    """``nvidia``, ``amd``, ``apple`` or ``intel``."""
    cc: str | None = None
    """Compute capability such as ``12.0``; None when nothing on this machine could tell."""
    memory_total: int | None = None
    """Bytes."""
    memory_free: int | None = None
    """Bytes, at the moment of the probe."""
    bus_id: str | None = None
    uuid: str | None = None
    mig: bool | None = None
    display: bool | None = None
    """A screen is attached."""
    pci_id: str | None = None
    """Vendor and device such as ``10de:2c02``."""
    kernel_driver: str | None = None
    """The kernel driver bound to the card (``nvidia``, ``nouveau``, ``vfio-pci``, ``amdgpu``...); "" when none is."""
    mig_devices: tuple[str, ...] = ()
    """Names of its MIG instances, when it is cut into some."""


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver in two halves: kernel module and user-mode library."""

    version: str | None
    """Kernel-module version such as ``580.95.05``."""
    cuda: str | None
    """Highest CUDA level the user-mode driver offers, such as ``13.0``."""
    open_module: bool | None = None
    library_version: str | None = None
    """Version of the user-mode library, when it differs from the kernel module's or is known apart."""
    nvml_error: int | None = None
    """NVML's own code when it refused to start (18: library and kernel module differ)."""
    cuda_error: int | None = None
    """``cuInit``'s code when the driver refused to start (803: as above; 100: no device)."""


@dataclass(frozen=True)
class Adapter:
    """One device that a Vulkan or Metal program (a wgpu trainer such as brush) would see."""

    name: str
    backend: str
    """``vulkan`` or ``metal``."""
    kind: str
    """``discrete``, ``integrated``, ``virtual``, ``cpu`` or ``other``."""
    driver: str = ""


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit on disk."""

    root: str
    version: str | None
    """Such as ``13.0.88``, as nvcc says it; None when nvcc did not answer."""
    found_via: tuple[str, ...]
    """Every road that led to it, e.g. ``PATH (wrapper script)``."""
    nvcc: str | None = None
    archs: tuple[str, ...] = ()
    """What it can compile for, from ``nvcc --list-gpu-code``."""
    gcc_max: int | None = None
    """Highest gcc major that its own ``crt/host_config.h`` accepts."""
    clang_max: int | None = None
    missing: tuple[str, ...] = ()
    """Headers, libraries and compiler parts a splatting extension needs that are not there."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Missing headers that the environment's own NVIDIA packages hold, each with its include folder."""
    msvc_max: int | None = None
    """Highest ``_MSC_VER`` that its ``crt/host_config.h`` accepts, such as 1939."""
    error: str = ""


@dataclass(frozen=True)
class ToolkitChoice:
    """Which folder ``torch.utils.cpp_extension`` would take as CUDA_HOME, and by which of its rules."""

    root: str | None
    rule: str
    nvcc: str | None = None
    real_root: str | None = None
    """The root the found nvcc names as its own, when that is another folder."""
    has_headers: bool | None = None
    """``include/cuda_runtime.h`` lies under ``root``."""


@dataclass(frozen=True)
class Compiler:
    """One host compiler."""

    kind: str
    """``gcc``, ``g++``, ``clang``, ``clang++`` or ``cl``."""
    path: str
    version: str | None
    """Such as ``12.2.0``; for cl the ``_MSC_VER`` style ``19.39``."""
    found_via: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True)
class Resources:
    """What a build may use up."""

    cores: int | None = None
    memory_total: int | None = None
    """Bytes; the smaller of RAM and the cgroup's limit."""
    memory_available: int | None = None
    swap_total: int | None = None
    disk_free: Mapping[str, int] = field(default_factory=dict)
    """Bytes free where builds (``temporary``), caches (``cache``) and the environment (``environment``) lie."""
    shared_memory: int | None = None
    """Bytes free in /dev/shm."""
    limits: Mapping[str, str] = field(default_factory=dict)
    """Soft limits of this process by name (``open files``: ``1024``, or ``unlimited``)."""
    cgroup: str = ""
    """``v1`` or ``v2`` when a control group holds memory or cores down; "" otherwise."""


@dataclass(frozen=True)
class MachineFacts:
    """What is true of the machine, whatever Python is used on it."""

    system: str
    """``linux``, ``windows`` or ``darwin``."""
    machine: str
    """``x86_64``, ``aarch64``, ``arm64``..."""
    kernel: str = ""
    distribution: str = ""
    glibc: str | None = None
    libc: Fact[str] = field(default_factory=Fact)
    """Such as ``glibc 2.35`` or ``musl 1.2.4``; wheels of torch need glibc."""
    model: str = ""
    """The machine's own name where it decides something: ``NVIDIA Jetson AGX Orin Developer Kit``, ``Apple M2 Max``."""
    l4t: str | None = None
    """Release of NVIDIA's Linux for Tegra, such as ``36.4.3``."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``... or None."""
    wsl: bool = False
    wsl_version: int | None = None
    """1 or 2; only 2 has a GPU."""
    gpus: Fact[tuple[Gpu, ...]] = field(default_factory=Fact)
    driver: Fact[Driver] = field(default_factory=Fact)
    adapters: Fact[tuple[Adapter, ...]] = field(default_factory=Fact)
    toolkits: Fact[tuple[Toolkit, ...]] = field(default_factory=Fact)
    compilers: Fact[tuple[Compiler, ...]] = field(default_factory=Fact)
    tools: Mapping[str, str] = field(default_factory=dict)
    """Version of each build tool that was found: ninja, cmake, git, docker, ccache, colmap."""
    resources: Resources = field(default_factory=Resources)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that decide something in a splatting build or run."""


# --- one Python environment --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """The target environment's Python."""

    executable: str
    version: str
    """``3.11.7``."""
    implementation: str
    abi_tag: str
    """The extension-module suffix tag, e.g. ``cpython-311-x86_64-linux-gnu``."""
    platform_tag: str
    prefix: str
    base_prefix: str
    kind: str
    """``venv``, ``virtualenv``, ``conda``, ``uv``, ``pipx`` or ``system``."""
    site_packages: tuple[str, ...]
    externally_managed: bool = False


@dataclass(frozen=True)
class Distribution:
    """One installed distribution, as its metadata says."""

    name: str
    version: str
    location: str
    editable: bool = False
    installer: str = ""
    origin: str = ""
    """Where it was installed from, when pip wrote it down (``direct_url.json``)."""
    made_by_splatfix: str = ""
    """``built`` or ``swap`` when splatfix installed it; "" otherwise."""


@dataclass(frozen=True)
class Code:
    """One entry of a fat binary: machine code or PTX for one architecture."""

    kind: EntryKind
    arch: str
    """``sm_90a``; the same spelling for PTX, whose kind tells it apart."""
    ptx_version: tuple[int, int] | None = None


@dataclass(frozen=True)
class ContainerGroup:
    """All fat-binary containers of a file that carry the same entries; big libraries have hundreds."""

    entries: tuple[Code, ...]
    count: int


def group_containers(containers: Iterable[FatContainer]) -> tuple[ContainerGroup, ...]:
    """Containers with equal entries counted together, most frequent first; empty containers are left out."""
    counts = Counter(
        tuple(
            sorted({(entry.kind, entry.arch, entry.ptx_version) for entry in container.entries}, key=_order)
        )
        for container in loaded_containers(containers)
    )
    return tuple(ContainerGroup(tuple(Code(*entry) for entry in key), n) for key, n in counts.most_common())


def loaded_containers(containers: Iterable[FatContainer]) -> tuple[FatContainer, ...]:
    """The containers that a driver loads: not the empty ones, and of a separately compiled file (``-rdc=true``) only the
    device-linked ones. Its relocatable containers are link-time input that stays behind in the file; they count only
    where nothing was linked, as in an object file."""
    filled = [container for container in containers if container.entries]
    linked = tuple(container for container in filled if not container.relocatable)
    return linked or tuple(filled)


def _order(
    entry: tuple[EntryKind, str, tuple[int, int] | None],
) -> tuple[bool, tuple[int, str], tuple[int, int]]:
    """Machine code before PTX, then by architecture number."""
    kind, arch, version = entry
    return kind is not EntryKind.SASS, arch_order(arch), version or (0, 0)


@dataclass(frozen=True)
class Torch:
    """The installed torch, read as text from its own files; torch is not imported for this."""

    version: str
    cuda: str | None
    """``torch.version.cuda``; None for a build without CUDA."""
    hip: str | None
    folder: str
    cxx11_abi: bool | None = None
    code: tuple[ContainerGroup, ...] = ()
    """What the fat binaries of ``libtorch_cuda`` carry; empty for a CPU build."""
    code_error: str = ""
    """Why ``libtorch_cuda`` could not be read, when it could not."""
    knows_archs: tuple[str, ...] = ()
    """The list that its ``cpp_extension`` accepts in TORCH_CUDA_ARCH_LIST, read from its source."""


@dataclass(frozen=True)
class Extension:
    """One native module or library in the environment that links torch or carries GPU code."""

    path: str
    """Relative to its site-packages folder, with forward slashes."""
    folder: str
    distribution: str | None
    """The distribution that owns the file, by its RECORD."""
    code: tuple[ContainerGroup, ...]
    needed: tuple[str, ...]
    links_torch: bool
    importable: bool
    """Its name is that of a Python extension module (and not of a plain library)."""
    size: int
    error: str = ""
    """Why the file could not be read, when it could not."""


@dataclass(frozen=True)
class ImportProbe:
    """What happened when the target interpreter imported a module in a child process."""

    module: str
    ok: bool
    outcome: str
    """``ok``, ``exception``, ``signal``, ``timeout`` or ``not installed``."""
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class EnvironmentFacts:
    """What is true of one Python environment."""

    interpreter: Fact[Interpreter] = field(default_factory=Fact)
    distributions: Fact[tuple[Distribution, ...]] = field(default_factory=Fact)
    torch: Fact[Torch] = field(default_factory=Fact)
    """Unknown with an error when torch is absent or its files could not be read; see ``torch_installed``."""
    torch_installed: Fact[bool] = field(default_factory=Fact)
    toolkit_choice: Fact[ToolkitChoice] = field(default_factory=Fact)
    extensions: Fact[tuple[Extension, ...]] = field(default_factory=Fact)
    imports: tuple[ImportProbe, ...] = ()


@dataclass(frozen=True)
class Facts:
    """One document for a machine and a target environment; goes to JSON and back without loss."""

    machine: MachineFacts
    environment: EnvironmentFacts
    splatfix: str
    """The version of splatfix that gathered the facts."""
    gathered: str = ""
    """UTC time, ISO 8601."""
    schema_version: int = SCHEMA_VERSION
