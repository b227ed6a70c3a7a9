"""Parts of simulated machines: what drivers, toolkits, compilers, Pythons and kernels answer, written once for all of them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from splatfix.facts.system.playback import RawMachine

# What `nvcc --list-gpu-code` of each release prints, from the releases' own nvcc or ptxas (compat.md section 1).
_TO_12 = "50 52 53 60 61 62 70 72 75 80 86 87 89 90"
GPU_CODES = {
    "11.5": "35 37 50 52 53 60 61 62 70 72 75 80 86 87",
    "11.8": f"35 37 {_TO_12}",
    "12.1": _TO_12,
    "12.4": _TO_12,
    "12.6": _TO_12,
    "12.8": f"{_TO_12} 100 101 120",
    "12.9": f"{_TO_12} 100 101 103 120 121",
    "13.0": "75 80 86 87 88 89 90 100 110 103 120 121",
}
# (full version, gcc max, clang below, msvc below) of each release's crt/host_config.h (compat.md section 3)
TOOLKITS = {
    "11.5": ("11.5.119", 11, 13, 1930),
    "11.8": ("11.8.89", 11, 15, 1940),
    "12.1": ("12.1.105", 12, 16, 1940),
    "12.4": ("12.4.131", 13, 18, 1950),
    "12.6": ("12.6.68", 13, 19, 1950),
    "12.8": ("12.8.93", 14, 20, 1950),
    "12.9": ("12.9.86", 14, 20, 1950),
    "13.0": ("13.0.88", 15, 21, 1950),
}
HEADERS = (
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cublas_v2.h",
    "cublasLt.h",
    "cusparse.h",
    "cusolverDn.h",
    "cooperative_groups.h",
)
_ARCHS_OF_TORCH = (
    ((0, 0), "3.5 3.7 5.0 5.2 5.3 6.0 6.1 6.2 7.0 7.2 7.5 8.0 8.6"),
    ((2, 0), "8.9 9.0"),
    ((2, 1), "8.7"),
    ((2, 3), "9.0a"),
    ((2, 6), "10.0"),
    ((2, 7), "10.0a 12.0 12.0a"),
    ((2, 8), "10.3 10.3a 12.1 12.1a"),
    ((2, 9), "11.0 11.0a"),
)


class Machine:
    """The parts of one simulated machine."""

    def __init__(self, name: str, source: str, system: str = "linux", machine: str = "x86_64") -> None:
        self.name = name
        self.windows = system == "windows"
        self.about: dict[str, Any] = {"source": f"simulated: {source}", "system": system, "machine": machine}
        self.env: dict[str, str] = {}
        self.paths: dict[str, Any] = {"exists": [], "links": {}, "scripts": [], "modified": {}}
        self.commands: list[dict[str, Any]] = []
        self.binaries: dict[str, Any] = {}
        self.symbols: list[dict[str, Any]] = []
        self.files: dict[str, str] = {}
        self.nvml: dict[str, Any] = {"error": "NVML Shared Library Not Found", "error_code": 12}

    def file(self, path: str, text: str) -> None:
        self.files[path] = text

    def exists(self, *paths: str) -> None:
        self.paths["exists"] += paths

    def command(self, argv: Iterable[str], stdout: str = "", code: int | None = 0, stderr: str = "") -> None:
        self.commands.append({"argv": list(argv), "returncode": code, "stdout": stdout, "stderr": stderr})

    def raw(self) -> RawMachine:
        wsl = "/usr/lib/wsl/lib/libcuda.so.1"
        library = "nvcuda.dll" if self.windows else wsl if wsl in self.paths["exists"] else "libcuda.so.1"
        argv = [self.about["own_python"], "{splatfix}/facts/machine/probe_cuda.py", library]
        if all(item["argv"] != argv for item in self.commands):
            self.command(argv, json.dumps(cuda_answer(self.nvml, library)))
        return RawMachine(
            self.about,
            self.env,
            self.paths,
            self.commands,
            self.nvml,
            self.binaries,
            self.symbols,
            self.files,
        )


def gpu(index: int, name: str, cc: str, mebibytes: int | None, bus: str, **more: Any) -> dict[str, Any]:
    """One GPU as NVML answers through pynvml."""
    total = mebibytes * 2**20 if mebibytes else None
    return {
        "index": index,
        "name": name,
        "cc": [int(n) for n in cc.split(".")],
        "memory_total": total,
        "bus_id": bus,
        "uuid": f"GPU-00000000-0000-0000-0000-{index + 1:012d}",
        "mig": None,
        "mig_devices": [],
        **more,
    }


def cuda_answer(nvml: Mapping[str, Any], library: str) -> dict[str, Any]:
    """What libcuda answers where NVML answers so; without NVML there is no libcuda either. Of a card that is cut into MIG
    instances a program gets the first."""
    if "error" in nvml:
        return {"error": f"{library}: cannot open shared object file: No such file or directory"}
    gpus = [
        {
            "index": card["index"],
            "name": (card["mig_devices"] or [card["name"]])[0],
            "cc": card["cc"],
            "memory_total": card["memory_total"] or 0,
            "bus_id": card["bus_id"][-12:],
            "uuid": card["uuid"],
        }
        for card in nvml["gpus"]
    ]
    return {"init": 0, "cuda": nvml["cuda"], "gpus": gpus}


def linux(
    m: Machine, pretty: str, kernel: str, *, glibc: str, gib: int, cores: int, swap_gib: int = 8
) -> None:
    """What every Linux says of itself."""
    name, _, version = pretty.partition(" ")
    m.file(
        "/etc/os-release",
        f'PRETTY_NAME="{pretty}"\nNAME="{name}"\nVERSION_ID="{version.split(".0")[0][:5]}"\n',
    )
    m.file("/proc/sys/kernel/osrelease", kernel + "\n")
    total = gib * 1024**2
    m.file(
        "/proc/meminfo",
        f"MemTotal:       {total - 1_300_000} kB\nMemFree:        {total // 2} kB\n"
        f"MemAvailable:   {total * 3 // 4} kB\nBuffers:          512340 kB\nCached:         {total // 5} kB\n"
        f"SwapCached:            0 kB\nSwapTotal:       {swap_gib * 1024**2} kB\nSwapFree:        {swap_gib * 1024**2} kB\n",
    )
    mask = f"{(1 << cores) - 1:x}"
    groups = [mask[max(0, end - 8) : end] for end in range(len(mask), 0, -8)]
    m.file(
        "/proc/self/status",
        f"Name:\tpython\nState:\tR (running)\nCpus_allowed:\t{','.join(groups[::-1])}\n"
        f"Cpus_allowed_list:\t0-{cores - 1}\n",
    )
    m.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
    m.exists("/sys/fs/cgroup/cgroup.controllers", "/dev/shm", "/usr/bin/getconf", "/usr/bin/ldd")
    m.file(
        "/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max file size             unlimited            unlimited            bytes     \n"
        "Max stack size            8388608              unlimited            bytes     \n"
        f"Max processes             {gib * 4000:<20} {gib * 4000:<20} processes \n"
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         8388608              8388608              bytes     \n"
        "Max address space         unlimited            unlimited            bytes     \n",
    )
    m.command(["getconf", "GNU_LIBC_VERSION"], f"glibc {glibc}\n")
    m.env |= {"HOME": "/home/user", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    m.paths["links"] |= {"/bin": "/usr/bin", "/lib": "/usr/lib"}
    folder = f"/lib/{m.about['machine']}-linux-gnu"
    minor = int(glibc.split(".")[1])
    gnu = {
        35: ("GLIBCXX_3.4.30", "CXXABI_1.3.13"),
        39: ("GLIBCXX_3.4.33", "CXXABI_1.3.15"),
    }  # Ubuntu 22.04 and 24.04
    provided = {
        "libc.so.6": [f"GLIBC_2.{n}" for n in (17, *range(28, minor + 1))],
        "libstdc++.so.6": ["GLIBCXX_3.4.29", "CXXABI_1.3.11", *gnu.get(minor, gnu[35])],
    }
    for name in ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        m.exists(f"{folder}/{name}")
        for place in (f"{folder}/{name}", f"/usr{folder}/{name}"):
            m.symbols.append(
                {"call": "provided_versions", "arguments": [place], "answer": provided.get(name, [])}
            )


def card(m: Machine, bus: str, vendor: str, device: str, driver: str | None, kind: str = "0x030000") -> None:
    """A display controller on the PCI bus, as /sys/bus/pci/devices shows it."""
    base = f"/sys/bus/pci/devices/{bus}"
    for name, text in (("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("class", kind)):
        m.file(f"{base}/{name}", text + "\n")
    if driver:
        m.exists(f"{base}/driver")
        m.paths["links"][f"{base}/driver"] = f"/sys/bus/pci/drivers/{driver}"


def kernel_module(m: Machine, version: str, *, is_open: bool, arch: str = "x86_64", date: str = "") -> None:
    """/proc/driver/nvidia/version and what else a loaded module leaves."""
    if is_open:
        line = f"NVIDIA UNIX Open Kernel Module for {arch}  {version}  Release Build  (dvs-builder@U22-I3-AE18-23-3)  {date}"
    else:
        line = f"NVIDIA UNIX {arch} Kernel Module  {version}  {date}"
    m.file(
        "/proc/driver/nvidia/version",
        f"NVRM version: {line}\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) \n",
    )
    m.file("/sys/module/nvidia/version", version + "\n")
    m.exists("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")


def user_driver(m: Machine, version: str, folder: str = "/usr/lib/x86_64-linux-gnu") -> None:
    """The libraries of the driver's user-mode half, with their links."""
    for name in ("libcuda.so", "libnvidia-ml.so"):
        m.exists(f"{folder}/{name}.1")
        m.paths["links"][f"{folder}/{name}.1"] = f"{folder}/{name}.{version}"
    m.file(
        "/usr/share/vulkan/icd.d/nvidia_icd.json",
        json.dumps(
            {
                "file_format_version": "1.0.1",
                "ICD": {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4.303"},
            },
            indent=4,
        ),
    )


def ubuntu_gcc(m: Machine, version: str, package: str) -> None:
    """gcc and g++ of a distribution; ``package`` stands in the brackets."""
    major = version.split(".")[0]
    for kind in ("gcc", "g++"):
        for path in (f"/usr/bin/{kind}", f"/usr/bin/{kind}-{major}"):
            m.exists(path)
            name = path.rsplit("/", 1)[-1]
            m.command(
                [path, "--version"],
                f"{name} ({package}) {version}\nCopyright (C) 2023 Free Software Foundation, Inc.\n"
                "This is free software; see the source for copying conditions.  There is NO\nwarranty; not even for "
                "MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE.\n\n",
            )


def tools(m: Machine, **versions: str) -> None:
    """ninja, cmake and git with their answers."""
    words = {
        "ninja": "{}\n",
        "cmake": "cmake version {}\n\nCMake suite maintained and supported by Kitware (kitware.com/cmake).\n",
        "git": "git version {}\n",
    }
    for name, version in versions.items():
        m.exists(f"C:/Program Files/Git/cmd/{name}.exe" if m.windows else f"/usr/bin/{name}")
        m.command([name, "--version"], words[name].format(version))


def toolkit(
    m: Machine, release: str, root: str | None = None, *, target: str = "x86_64-linux", on_path: bool = True
) -> str:
    """A whole CUDA toolkit as NVIDIA's packages lay it out; gives back its root."""
    root = root or f"/usr/local/cuda-{release}"
    exe = ".exe" if m.windows else ""
    nvcc_answers(m, f"{root}/bin/nvcc{exe}", release, f"{root}/bin/..")
    m.exists(
        *(f"{root}/{name}" for name in _headers(release)),
        *(f"{root}/bin/{part}{exe}" for part in ("ptxas", "cudafe++")),
        f"{root}/nvvm/bin/cicc{exe}",
        f"{root}/nvvm/libdevice/libdevice.10.bc",
    )
    m.file(f"{root}/include/crt/host_config.h", host_config(*TOOLKITS[release][1:]))
    if m.windows:
        m.exists(f"{root}/lib/x64/cudart.lib")
        return root
    library = f"{root}/targets/{target}/lib"
    m.exists(f"{library}/libcudart.so", "/usr/local/cuda")
    m.paths["links"] |= {f"{root}/lib64": library, "/usr/local/cuda": root}
    if on_path:
        m.env["PATH"] = f"/usr/local/cuda/bin:{m.env['PATH']}"
        nvcc_answers(m, "/usr/local/cuda/bin/nvcc", release, "/usr/local/cuda/bin/..")
    return root


def debian_toolkit(m: Machine, release: str) -> None:
    """Debian's and Ubuntu's own nvidia-cuda-toolkit: nvcc is a script that starts the real one elsewhere."""
    own = "/usr/lib/nvidia-cuda-toolkit"
    for nvcc in ("/usr/bin/nvcc", f"{own}/bin/nvcc"):
        nvcc_answers(m, nvcc, release, "")
        m.commands[-1]["stderr"] = (
            f"#$ _NVVM_BRANCH_=nvvm\n#$ _SPACE_= \n#$ _CUDART_=cudart\n#$ _HERE_={own}/bin\n#$ _THERE_={own}/bin\n"
            f"#$ _TARGET_SIZE_=\n#$ _TARGET_DIR_=\n#$ _TARGET_SIZE_=64\n#$ NVVMIR_LIBRARY_DIR={own}/libdevice\n"
            "#$ LIBRARIES=  -L/usr/lib/x86_64-linux-gnu/stubs -L/usr/lib/x86_64-linux-gnu\n"
        )
    m.paths["scripts"].append("/usr/bin/nvcc")
    m.exists(
        *(f"/usr/{name}" for name in _headers(release)),
        "/usr/bin/ptxas",
        "/usr/bin/cudafe++",
        f"{own}/bin/cicc",
        f"{own}/libdevice/libdevice.10.bc",
        "/usr/lib/x86_64-linux-gnu/libcudart.so",
    )
    m.file("/usr/include/crt/host_config.h", host_config(*TOOLKITS[release][1:]))


def _headers(release: str) -> list[str]:
    cccl = "include/cccl" if release.startswith("13") else "include"
    return [*(f"include/{name}" for name in HEADERS), f"{cccl}/cub/cub.cuh", f"{cccl}/thrust/device_vector.h"]


def nvcc_answers(m: Machine, nvcc: str, release: str, top: str) -> None:
    """What an nvcc says to ``--version``, ``--list-gpu-code`` and a dry run."""
    full, null = TOOLKITS[release][0], "NUL" if m.windows else "/dev/null"
    m.exists(nvcc)
    m.command(
        [nvcc, "--version"],
        "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
        f"Built on Tue_May_27_02:21:03_PDT_2025\nCuda compilation tools, release {release}, V{full}\n"
        f"Build cuda_{release}.r{release}/compiler.36037853_0\n",
    )
    m.command([nvcc, "--list-gpu-code"], "".join(f"sm_{code}\n" for code in GPU_CODES[release].split()))
    m.command(
        [nvcc, "--dryrun", "-x", "cu", "-c", null, "-o", null],
        stderr="#$ _NVVM_BRANCH_=nvvm\n#$ _SPACE_= \n"
        f"#$ _HERE_={nvcc.rpartition('/')[0]}\n#$ TOP={top}\n#$ CICC_PATH={top}/nvvm/bin\n",
    )


def host_config(gcc: int, clang: int, msvc: int) -> str:
    """The lines of crt/host_config.h that refuse compilers, as its releases have them."""
    said = (
        "The nvcc flag '-allow-unsupported-compiler' can be used to override this version check; however, using an "
        "unsupported host compiler may cause compilation failure or incorrect run time execution. Use at your own risk."
    )
    return (
        f"#if defined(__GNUC__)\n\n#if __GNUC__ > {gcc}\n\n#error -- unsupported GNU version! gcc versions later than {gcc} "
        f"are not supported! {said}\n\n#endif /* __GNUC__ > {gcc} */\n\n#if (__clang_major__ >= {clang}) || (__clang_major__ < 3)"
        f" || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))\n#error -- unsupported clang version! clang version must be less "
        f"than {clang} and greater than 3.2 . {said}\n\n#endif\n\n#if _MSC_VER < 1910 || _MSC_VER >= {msvc}\n\n"
        f"#error -- unsupported Microsoft Visual Studio version! Only the versions between 2017 and 2022 (inclusive) are "
        f"supported! {said}\n\n#endif\n"
    )


def python(
    m: Machine, prefix: str, version: str, kind: str, packages: Mapping[str, str], *, base: str = "/usr"
) -> str:
    """A Python environment with its distributions; gives back its site-packages folder."""
    short = ".".join(version.split(".")[:2])
    tag = short.replace(".", "")
    arch = m.about["machine"]
    if m.windows:
        site, executable = f"{prefix}\\Lib\\site-packages", f"{prefix}\\Scripts\\python.exe"
        suffix, platform = f".cp{tag}-win_amd64.pyd", "win-amd64"
    elif m.about["system"] == "darwin":
        site, executable = f"{prefix}/lib/python{short}/site-packages", f"{prefix}/bin/python"
        suffix, platform = f".cpython-{tag}-darwin.so", "macosx-11.0-arm64"
    else:
        site, executable = f"{prefix}/lib/python{short}/site-packages", f"{prefix}/bin/python"
        suffix, platform = f".cpython-{tag}-{arch}-linux-gnu.so", f"linux-{arch}"
    answer = {
        "executable": executable,
        "version": version,
        "implementation": "CPython",
        "ext_suffix": suffix,
        "platform": platform,
        "prefix": prefix,
        "base_prefix": prefix if kind == "conda" else base,
        "conda": kind == "conda",
        "externally_managed": False,
        "site_packages": [site],
        "path": [site],
        "bits": 64,
        "abiflags": "",
    }
    m.about |= {"python": executable, "own_python": executable}
    m.command([executable, "{splatfix}/facts/environment/probe_env.py"], json.dumps(answer) + "\n")
    slash = "\\" if m.windows else "/"
    m.exists(site, executable)
    if kind == "venv":
        m.file(
            f"{prefix}{slash}pyvenv.cfg",
            f"home = {base}/bin\ninclude-system-site-packages = false\nversion = {version}\n",
        )
    if kind == "uv":
        m.file(
            f"{prefix}{slash}pyvenv.cfg",
            f"home = {base}/bin\nimplementation = CPython\nuv = 0.8.22\nversion_info = {version}\n",
        )
    if kind == "conda":
        m.exists(f"{prefix}/conda-meta/history")
        m.env["CONDA_PREFIX"] = prefix
    for name, number in packages.items():
        info = f"{site}/{name}-{number}.dist-info"
        m.file(f"{info}/INSTALLER", "conda\n" if kind == "conda" else "pip\n")
        m.file(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
        m.file(f"{info}/RECORD", f"{name}-{number}.dist-info/METADATA,,\n")
    return site


def torch(
    m: Machine,
    site: str,
    version: str,
    cuda: str | None,
    archs: str = "",
    *,
    hip: str | None = None,
    ptx: tuple[str, str] | None = None,
) -> None:
    """An installed torch: its text files as the wheels have them, and what its big library carries."""
    git = "5811a8d7da873dd699ff6687092c225caffcf1bb"
    m.file(
        f"{site}/torch/version.py",
        "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = {version!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\ngit_version = {git!r}\nhip: Optional[str] = {hip!r}\n",
    )
    start = '"""\nThe torch package contains data structures for multi-dimensional tensors.\n"""\n'
    m.file(f"{site}/torch/__init__.py", start)
    digest = base64.urlsafe_b64encode(hashlib.sha256(start.encode()).digest()).decode().rstrip("=")
    info = f"{site}/torch-{version}.dist-info"
    m.file(f"{info}/INSTALLER", "pip\n")
    m.file(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    m.file(f"{info}/RECORD", f"torch/__init__.py,sha256={digest},{len(start)}\ntorch/version.py,,\n")
    release = tuple(int(n) for n in version.split("+")[0].split(".")[:2])
    known = " ".join(words for since, words in _ARCHS_OF_TORCH if since <= release).split()
    shown = ", ".join(f"'{arch}'" for arch in known)
    m.file(
        f"{site}/torch/utils/cpp_extension.py",
        "import setuptools\nfrom setuptools.command.build_ext import build_ext\n\n"
        f"def _get_cuda_arch_flags(cflags=None):\n    supported_arches = [{shown}]\n",
    )
    windows = m.windows
    names = ("c10", "torch", "torch_cpu", "torch_python", *(("c10_cuda", "torch_cuda") if cuda else ()))
    if cuda:  # the runtime library comes with torch's own NVIDIA packages
        major = cuda.split(".")[0]
        folder = f"{site}/nvidia/cu13" if major == "13" else f"{site}/nvidia/cuda_runtime"
        runtime = (
            f"{site}/torch/lib/cudart64_{major}.dll" if windows else f"{folder}/lib/libcudart.so.{major}"
        )
        m.exists(runtime if major != "11" else runtime.replace(".so.11", ".so.11.0"))
    for name in names:
        path = f"{site}/torch/lib/{name}.dll" if windows else f"{site}/torch/lib/lib{name}.so"
        code = [f"sass sm_{arch}" for arch in archs.split()] + ([f"ptx sm_{ptx[0]} {ptx[1]}"] if ptx else [])
        fatbins = [{"code": code, "count": 400}] if name == "torch_cuda" else []
        m.binaries[path] = {
            "format": "pe" if windows else "elf",
            "size": 10**8,
            "needed": [],
            "fatbins": fatbins,
        }


def extension(
    m: Machine,
    site: str,
    package: str,
    module: str,
    code: Iterable[str],
    *,
    cudart: str,
    python_tag: str,
    version: str = "0.0.0",
) -> None:
    """A compiled splatting extension, built here from source, with one fatbin per .cu file."""
    suffix = f".{python_tag}.pyd" if m.windows else f".{python_tag}-{m.about['machine']}-linux-gnu.so"
    path = f"{module}/_C{suffix}"
    needed = [
        "libc10.so",
        "libtorch.so",
        "libtorch_cpu.so",
        "libtorch_python.so",
        f"libcudart.so.{cudart}",
        "libc10_cuda.so",
        "libtorch_cuda.so",
        "libstdc++.so.6",
        "libgcc_s.so.1",
        "libc.so.6",
    ]
    if m.windows:
        needed = [
            "c10.dll",
            "torch_cpu.dll",
            "torch_python.dll",
            "c10_cuda.dll",
            f"cudart64_{cudart}.dll",
            "KERNEL32.dll",
        ]
    info = f"{site}/{package}-{version}.dist-info"
    m.file(f"{info}/INSTALLER", "pip\n")
    m.file(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    m.file(f"{info}/RECORD", f"{module}/__init__.py,,\n{path},,\n")
    m.exists(f"{site}/{module}/__init__.py")
    m.binaries[f"{site}/{path}"] = {
        "format": "pe" if m.windows else "elf",
        "size": 1_900_000,
        "needed": needed,
        "fatbins": [{"code": list(code), "count": 3}],
    }
    m.symbols.append(
        {
            "call": "symbol_needs",
            "arguments": [f"{site}/{path}"],
            "answer": {
                "imported": [],
                "weak": [],
                "versions": [["libstdc++.so.6", "GLIBCXX_3.4.29"], ["libc.so.6", "GLIBC_2.32"]],
            },
        }
    )
