"""The facts as data: what was learned about one machine and one Python environment, and how. Never a judgement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from splatfix.binaries import EntryKind, FatContainer, arch_order
from splatfix.facts.source import Source

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
    """Where it was installed from, when pip wrote it down (``direct_url.json``), or where an egg-link points."""
    made_by_splatfix: str = ""
    """``built`` or ``swap`` when splatfix installed it; "" otherwise."""
    source_gone: bool = False
    """An editable install whose source folder is no longer there."""
    pins: tuple[str, ...] = ()
    """Its ``Requires-Dist`` entries that name torch, triton or numpy exactly (``torch==2.9.1``); read for torch's own
    family of packages only."""


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
    builder_imports: tuple[str, ...] = ()
    """What its ``cpp_extension`` imports of setuptools' family, such as ``pkg_resources`` or ``pkg_resources.packaging``."""


@dataclass(frozen=True)
class Linkage:
    """What the loader would find for one native file; nothing was loaded to learn it."""

    unresolved: tuple[str, ...] = ()
    """Libraries of ``needed`` that lie nowhere the loader would look, with torch imported first."""
    versions: tuple[tuple[str, str], ...] = ()
    """The highest symbol version wanted of each family, with its library: ``("libstdc++.so.6", "GLIBCXX_3.4.32")``."""
    torch_symbols: int = 0
    """How many of its imports are names of torch's C++ namespaces or Python glue."""
    torch_missing: tuple[str, ...] = ()
    """Those that the installed torch does not export (at most twenty are kept)."""
    own_missing: tuple[str, ...] = ()
    """Other imports that no library it needs, and not the interpreter, exports (at most twenty are kept)."""
    cxx11_abi: bool | None = None
    """std::string of the new C++ ABI in the names it imports from torch; None when no name tells."""
    error: str = ""
    """Why part of this could not be learned, when it could not."""


@dataclass(frozen=True)
class RuntimeLibrary:
    """A library of the C and C++ runtime as the target interpreter would load it."""

    name: str
    """``libc.so.6`` or ``libstdc++.so.6``."""
    path: str
    versions: tuple[str, ...]
    """The highest symbol version that it defines of each family: ``GLIBCXX_3.4.30``, ``CXXABI_1.3.13``."""


@dataclass(frozen=True)
class RuntimeCopy:
    """One copy of a library of which a process should hold one: ``libcudart``, ``libc10``, ``libtorch``."""

    library: str
    """``libcudart``, ``libc10``..., without version and hash."""
    path: str
    """Relative to its site-packages folder."""
    version: str
    """The digits behind ``.so.`` ("" where there are none)."""
    bundled: bool
    """Renamed with a hash by a wheel-repair tool, so that a second copy is loaded beside torch's own."""


@dataclass(frozen=True)
class SplatPackage:
    """The Python side of a splatting extension, read as source text."""

    module: str
    """Importable name: ``diff_gaussian_rasterization``."""
    folder: str
    distributions: tuple[str, ...] = ()
    """Every installed distribution that ships or claims this module name."""
    native: tuple[str, ...] = ()
    """Compiled modules its source imports: ``diff_gaussian_rasterization._C``."""
    native_missing: tuple[str, ...] = ()
    """Those of ``native`` for which there is no file."""
    settings: tuple[str, ...] | None = None
    """Fields of its Settings tuple, in order; None where it has none."""
    settings_defaults: int = 0
    """How many fields, counted from the end, may be left out."""
    classes: tuple[str, ...] = ()
    forward: tuple[str, ...] | None = None
    """Parameters of the rasterizer's forward, without self."""
    forward_required: int = 0
    """How many of them, counted from the start, a caller must give."""
    returns: int | None = None
    """How many values a forward gives back; None where the source does not say."""
    exports: tuple[str, ...] = ()
    """Functions of its compiled module that its source calls."""
    exports_missing: tuple[str, ...] = ()
    """Those of ``exports`` whose name is nowhere in the compiled file."""
    error: str = ""


@dataclass(frozen=True)
class Shadow:
    """A module or package in a folder that Python searches first, of the name of an installed one."""

    module: str
    path: str
    native: bool
    """It holds compiled modules itself (built in place), so that importing it can work."""


@dataclass(frozen=True)
class JitCache:
    """One extension in torch's cache of extensions that were compiled at first use."""

    name: str
    folder: str
    tag: str
    """Folder of its Python and CUDA, such as ``py311_cu130``; "" under a TORCH_EXTENSIONS_DIR of the user's."""
    current: bool
    """It is the folder that the target environment itself would look in."""
    built: str | None
    """When the library was written (UTC, ISO 8601); None when there is none."""
    locked: str | None
    """When a ``lock`` file was left there (UTC, ISO 8601); None when there is none."""
    library: str | None
    code: tuple[ContainerGroup, ...] = ()
    torch_folder: str = ""
    """The torch whose headers build.ninja names."""
    cuda_home: str = ""
    """The toolkit whose nvcc build.ninja calls."""
    gencode: tuple[str, ...] = ()
    """The architecture flags in build.ninja."""
    linkage: Linkage = field(default_factory=Linkage)
    error: str = ""


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
    linkage: Linkage | None = None
    """What the loader would find for it; None for a file that was not looked at so closely."""


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
    packages: Fact[tuple[SplatPackage, ...]] = field(default_factory=Fact)
    runtime_libraries: Fact[tuple[RuntimeLibrary, ...]] = field(default_factory=Fact)
    runtime_copies: Fact[tuple[RuntimeCopy, ...]] = field(default_factory=Fact)
    shadows: Fact[tuple[Shadow, ...]] = field(default_factory=Fact)
    jit_caches: Fact[tuple[JitCache, ...]] = field(default_factory=Fact)


# --- a checkout --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submodule:
    """One entry of a checkout's .gitmodules."""

    path: str
    url: str
    empty: bool
    """Its folder is missing or holds nothing."""
    commit: str | None = None
    """The commit that is checked out in it, when git wrote it down."""


@dataclass(frozen=True)
class Pin:
    """One requirement that a checkout writes down."""

    file: str
    name: str
    spec: str
    """``==1.12.1``, ``>=2.0`` or "" for any version."""


@dataclass(frozen=True)
class Passage:
    """A place in an extension's C++ or CUDA source on which builds are known to break."""

    kind: str
    """``cub-max``, ``no-cstdint`` or ``no-cfloat``."""
    file: str
    line: int
    text: str


@dataclass(frozen=True)
class CheckoutSource:
    """One extension source inside a checkout."""

    path: str
    """Relative to the checkout."""
    source: Source
    cxx_flags: tuple[str, ...] = ()
    """Flags in setup.py that set a C++ standard, for either compiler."""
    own_path_in_flags: bool = False
    """nvcc is handed the source's own absolute path, as part of an include flag."""
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True)
class GuardedImport:
    """An import whose failure the code hides, and goes on without."""

    file: str
    line: int
    module: str
    names: tuple[str, ...]
    catches: str
    """``everything``, or the exceptions that are named."""


@dataclass(frozen=True)
class RenderCall:
    """Where a checkout calls a rasterizer, and with what."""

    file: str
    line: int
    function: str
    """The function that calls; the calls in it are each other's alternatives."""
    module: str
    settings: tuple[str, ...] = ()
    """Keywords of the Settings call."""
    settings_positional: int = 0
    forward: tuple[str, ...] = ()
    """Keywords of the rasterizer's call."""
    unpacks: int | None = None
    """How many values it takes apart; None when it keeps them together."""


@dataclass(frozen=True)
class Checkout:
    """A stack's folder, read as text."""

    folder: str
    paths: tuple[str, ...]
    """Names by which a stack is recognised: the upper two levels, as far as they are code."""
    remote: str = ""
    """Where it was cloned from, without credentials."""
    commit: str | None = None
    branch: str = ""
    submodules: tuple[Submodule, ...] = ()
    pins: tuple[Pin, ...] = ()
    sources: tuple[CheckoutSource, ...] = ()
    imports: tuple[str, ...] = ()
    """Top-level names of splatting extensions that its Python files import, and fail without."""
    guarded: tuple[GuardedImport, ...] = ()
    calls: tuple[RenderCall, ...] = ()
    shadows: tuple[Shadow, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Python files that are not Python this version can read."""


@dataclass(frozen=True)
class Facts:
    """One document for a machine and a target environment; goes to JSON and back without loss."""

    machine: MachineFacts
    environment: EnvironmentFacts
    splatfix: str
    """The version of splatfix that gathered the facts."""
    gathered: str = ""
    """UTC time, ISO 8601."""
    checkout: Fact[Checkout] = field(default_factory=Fact)
    """The stack's folder that ``--repo`` names; unknown without one."""
    schema_version: int = SCHEMA_VERSION
