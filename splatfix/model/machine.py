"""The machine as data: GPUs, driver, toolkits, compilers, resources."""

from collections.abc import Mapping

from msgspec import Struct, field

from splatfix.model.fact import Fact, Sm, Version


class Gpu(Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU as its driver, or failing that the PCI bus, shows it."""

    index: int
    name: str
    vendor: str = "nvidia"
    """``nvidia``, ``amd``, ``apple`` or ``intel``."""
    cc: str | None = None
    """Compute capability such as ``12.0``; None when nothing on this machine could tell."""
    memory_total: int | None = None
    """Bytes."""
    bus_id: str | None = None
    uuid: str | None = None
    mig: bool | None = None
    pci_id: str | None = None
    """Vendor and device such as ``10de:2c02``."""
    kernel_driver: str | None = None
    """The kernel driver bound to the card (``nvidia``, ``nouveau``, ``vfio-pci``, ``amdgpu``...); "" when none is."""
    mig_devices: tuple[str, ...] = ()
    """Names of its MIG instances, when it is cut into some."""
    mig_uuids: tuple[str, ...] = ()
    """Their UUIDs, in the same order."""
    shown_by: str = "driver"
    """Who lists it: the ``driver`` (NVML, libcuda, a Jetson's device tree), the ``kernel module`` alone
    (/proc/driver/nvidia), or only the PCI ``bus``, on which a container sees all cards of its host."""
    max_clocks: tuple[int, int] | None = None
    """Highest clocks of its multiprocessors and of its memory in MHz."""
    power_limit: int | None = None
    """Milliwatts that it may draw now."""
    default_power_limit: int | None = None
    """Milliwatts of the limit that it came with."""
    nvml_error: int | None = None
    """NVML's code where it counts the card and gives no handle for it (15: the GPU is lost)."""
    compute_mode: str = ""
    """``exclusive`` (one program at a time) or ``prohibited``; "" where it takes every program."""
    compute_processes: int | None = None
    """How many programs compute on it now; asked only where it is exclusive."""
    uncorrected_errors: int | None = None
    """Errors of its memory since the driver was loaded that ECC could not correct; None without ECC."""
    remap_pending: bool | None = None
    """A damaged row of its memory is replaced at the next reset; None for cards that replace none."""
    remap_failed: bool | None = None
    """A damaged row could not be replaced."""


class CudaDevice(Struct, frozen=True, forbid_unknown_fields=True):
    """One device as CUDA itself numbers them: a card, or the MIG instance that a program gets of it."""

    name: str
    cc: str | None = None
    memory_total: int | None = None
    """Bytes."""
    bus_id: str | None = None
    uuid: str | None = None


class Driver(Struct, frozen=True, forbid_unknown_fields=True):
    """The NVIDIA driver in two halves: kernel module and user-mode library."""

    version: Version | None
    """Kernel-module version such as ``580.95.05``."""
    cuda: Version | None
    """Highest CUDA level the user-mode driver offers, such as ``13.0``."""
    open_module: bool | None = None
    library_version: Version | None = None
    """Version of the user-mode library, when it differs from the kernel module's or is known apart."""
    nvml_error: int | None = None
    """NVML's own code when it refused to start (18: library and kernel module differ)."""
    cuda_error: int | None = None
    """``cuInit``'s code when the driver refused to start (803: as above; 100: no device), or a signal's number, negative."""


class Adapter(Struct, frozen=True, forbid_unknown_fields=True):
    """One device that a Vulkan or Metal program (a wgpu trainer such as brush) would see."""

    name: str
    backend: str
    """``vulkan`` or ``metal``."""
    kind: str
    """``discrete``, ``integrated``, ``virtual``, ``cpu`` or ``other``."""
    driver: str = ""


class Toolkit(Struct, frozen=True, forbid_unknown_fields=True):
    """One CUDA toolkit on disk."""

    root: str
    version: Version | None
    """Such as ``13.0.88``, as nvcc says it; None when nvcc did not answer."""
    found_via: tuple[str, ...]
    """Every way it was found, for people: ``CUDA_HOME``, ``PATH, through the link /usr/bin/nvcc``."""
    nvcc: str | None = None
    archs: tuple[Sm, ...] = ()
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
    cudart_in: tuple[str, ...] = ()
    """Folders below the root that hold the library to link against (``lib64``, ``targets/x86_64-linux/lib``)."""
    has_lib64: bool | None = None
    """There is a folder ``lib64``, which decides where torch's builder lets the linker look."""
    cub: str = ""
    """Version of its own CUB, such as ``2.3.2``; "" when that could not be read."""
    error: str = ""
    on_path: tuple[str, ...] = ()
    """The nvcc programs on PATH that belong to it, links and wrapper scripts among them."""
    wrapper: str | None = None
    """The one of ``on_path`` that is a wrapper script."""


class Compiler(Struct, frozen=True, forbid_unknown_fields=True):
    """One host compiler."""

    kind: str
    """``gcc``, ``g++``, ``clang``, ``clang++`` or ``cl``."""
    path: str
    version: str | None
    """Such as ``12.2.0``; for cl the ``_MSC_VER`` style ``19.39``."""
    found_via: tuple[str, ...]
    error: str = ""


class HeaderCopy(Struct, frozen=True, forbid_unknown_fields=True):
    """CUB or Thrust in an include folder, with their versions ("" for what is not there)."""

    folder: str
    via: str
    """Why compilers search it: ``CPATH``, ``CUB_HOME``..."""
    cub: str
    thrust: str


class Colmap(Struct, frozen=True, forbid_unknown_fields=True):
    """The COLMAP on PATH."""

    version: str
    cuda: bool | None
    """Built with CUDA, as it says itself."""


class Xid(Struct, frozen=True, forbid_unknown_fields=True):
    """An error that NVIDIA's driver wrote into the kernel's log."""

    bus_id: str
    code: int
    count: int


class Disk(Struct, frozen=True, forbid_unknown_fields=True):
    """A file system."""

    point: str
    """Where it is mounted."""
    total: int
    """Bytes."""
    free: int
    """Bytes that a program without root's privileges may still write."""


class Confinement(Struct, frozen=True, forbid_unknown_fields=True):
    """What a container was started with, apart from its GPUs."""

    shm: int | None = None
    """Bytes of /dev/shm; None where it is not limited."""
    processes: int | None = None
    """How many processes and threads its control group may hold; None for no limit."""
    memory: int | None = None
    """Bytes that its control group may hold; None for no limit."""
    read_only: bool | None = None
    """Its root file system."""
    writable: tuple[str, ...] = ()
    """Folders for temporary files that are mounted into it and can be written."""
    user: int | None = None
    closed_devices: tuple[str, ...] = ()
    """Device files of the driver that are here, and that this user may not read and write."""
    wsl_device: bool = False
    """/dev/dxg, the way to the GPU in WSL2, is here."""


class Resources(Struct, frozen=True, forbid_unknown_fields=True):
    """What a build may use up."""

    cores: int | None = None
    memory_total: int | None = None
    """Bytes; the smaller of RAM and the cgroup's limit."""
    memory_available: int | None = None
    swap_total: int | None = None


class MachineFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What is true of the machine, whatever Python is used on it."""

    system: str
    """``linux``, ``windows`` or ``darwin``."""
    machine: str
    """``x86_64``, ``aarch64``, ``arm64``..."""
    kernel: str = ""
    distribution: str = ""
    glibc: Version | None = None
    libc: Fact[str] = field(default_factory=Fact)
    """Such as ``glibc 2.35`` or ``musl 1.2.4``; wheels of torch need glibc."""
    model: str = ""
    """The machine's own name where it decides something: ``NVIDIA Jetson AGX Orin Developer Kit``, ``Apple M2 Max``."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``... or None."""
    wsl: bool = False
    gpus: Fact[tuple[Gpu, ...]] = field(default_factory=Fact)
    driver: Fact[Driver] = field(default_factory=Fact)
    cuda: Fact[tuple[CudaDevice, ...]] = field(default_factory=Fact)
    """What CUDA itself lists, in the order of ``cuda:0``, ``cuda:1``..., for a program with the same environment variables.
    Absent: there is no libcuda that the loader takes; unknown: it did not start, or did not answer."""
    cuda_unfiltered: Fact[tuple[CudaDevice, ...]] = field(default_factory=Fact)
    """The same without CUDA_VISIBLE_DEVICES. Asked only where CUDA found no device with it: it then shows what is to blame."""
    device_files: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """The driver's files in /dev: ``nvidia0``, ``nvidiactl``, ``nvidia-uvm``..."""
    adapters: Fact[tuple[Adapter, ...]] = field(default_factory=Fact)
    toolkits: Fact[tuple[Toolkit, ...]] = field(default_factory=Fact)
    own_toolkits: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Which CUDA (``13.0``) has a whole toolkit in splatfix's own cache."""
    compilers: Fact[tuple[Compiler, ...]] = field(default_factory=Fact)
    tools: Mapping[str, str] = field(default_factory=dict)
    """Version of each build tool that was found: ninja, cmake, git, docker, ccache, colmap."""
    libcuda: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Every ``libcuda.so.1`` on the loader's way, the one that is loaded first."""
    linkable_libcuda: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Every ``libcuda.so`` that the linker finds for ``-lcuda``."""
    header_copies: Fact[tuple[HeaderCopy, ...]] = field(default_factory=Fact)
    """CUB and Thrust in include folders that are searched beside the toolkit's."""
    missing_graphics: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Headers of OpenGL and EGL that are not here."""
    missing_msvc_runtime: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """DLLs of the Visual C++ redistributable that are not here."""
    confinement: Fact[Confinement] = field(default_factory=Fact)
    """Known only in a container."""
    container_toolkit: Fact[tuple[str, ...]] = field(default_factory=Fact)
    """Parts of NVIDIA's container toolkit, where docker is."""
    colmap: Fact[Colmap] = field(default_factory=Fact)
    xids: Fact[tuple[Xid, ...]] = field(default_factory=Fact)
    """The driver's errors in the kernel's log."""
    disks: Fact[tuple[Disk, ...]] = field(default_factory=Fact)
    """The file systems that builds and temporary files are on."""
    resources: Resources = field(default_factory=Resources)
    variables: Mapping[str, str] = field(default_factory=dict)
    """The environment variables that decide something in a splatting build or run."""
