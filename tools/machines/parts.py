"""Parts of simulated machines: what drivers, toolkits, compilers, Pythons and kernels answer, the same for all of them.

A part takes its fields from the machine's file; the texts stand in ``answers.toml``.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from splatfix.core.codec import from_json
from splatfix.core.toml import table_beside
from splatfix.facts.system.playback import NO_NVML, RawMachine

ANSWERS = table_beside(__file__, "answers.toml")
FILES, COMMANDS = ANSWERS["files"], ANSWERS["commands"]
HEADERS = ("cuda_runtime.h", "cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")


class Parts:
    """Raw answers of one machine as its parts add them."""

    def __init__(self, source: str, system: str = "linux", machine: str = "x86_64") -> None:
        self.windows = system == "windows"
        about = {"source": f"simulated: {source}", "system": system, "machine": machine}
        paths: dict[str, Any] = {"exists": [], "links": {}, "scripts": []}
        self.raw: dict[str, Any] = {"machine": about, "paths": paths, "nvml": NO_NVML, "binaries": {}}
        self.raw |= {"files": {}, "env": {}, "commands": [], "symbols": []}
        self.site = self.cudart = ""
        """The site-packages folder of its Python, and the number of torch's CUDA runtime library."""

    def file(self, path: str, text: str) -> None:
        self.raw["files"][path] = text

    def exists(self, *paths: str) -> None:
        self.raw["paths"]["exists"] += paths

    def link(self, path: str, target: str) -> None:
        self.raw["paths"]["links"][path] = target

    def command(
        self, argv: Iterable[str], stdout: str = "", stderr: str = "", returncode: int | None = 0
    ) -> None:
        answer = {"argv": list(argv), "returncode": returncode, "stdout": stdout, "stderr": stderr}
        self.raw["commands"].append(answer)

    def linux(self, pretty: str, kernel: str, *, glibc: str, gib: int, cores: int, swap_gib: int = 8) -> None:
        """What every Linux says of itself."""
        name, _, version = pretty.partition(" ")
        version = version.split(".0")[0][:5]
        self.file("/etc/os-release", FILES["os_release"].format(pretty=pretty, name=name, version=version))
        self.file("/proc/sys/kernel/osrelease", kernel + "\n")
        total = gib * 1024**2
        meminfo = FILES["meminfo"].format(
            total=total - 1_300_000,
            free=total // 2,
            available=total * 3 // 4,
            cached=total // 5,
            swap=swap_gib * 1024**2,
        )
        self.file("/proc/meminfo", meminfo)
        digits = f"{(1 << cores) - 1:x}"
        groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
        mask = ",".join(reversed(groups))
        self.file("/proc/self/status", FILES["status"].format(mask=mask, last=cores - 1))
        self.file("/proc/self/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
        self.file("/proc/self/limits", FILES["limits"].format(processes=gib * 4000))
        self.exists("/sys/fs/cgroup/cgroup.controllers", "/dev/shm", "/usr/bin/getconf", "/usr/bin/ldd")
        self.command(["getconf", "GNU_LIBC_VERSION"], f"glibc {glibc}\n")
        self.raw["env"].update(HOME="/home/user", PATH="/usr/local/bin:/usr/bin:/bin")
        self.link("/bin", "/usr/bin")
        self.link("/lib", "/usr/lib")
        newest = ANSWERS["libstdcxx"].get(glibc, ANSWERS["libstdcxx"]["2.35"])
        minor = int(glibc.split(".")[1])
        arch = self.raw["machine"]["machine"]
        provided = {
            "libc.so.6": [f"GLIBC_2.{number}" for number in (17, *range(28, minor + 1))],
            "libstdc++.so.6": ["GLIBCXX_3.4.29", "CXXABI_1.3.11", *newest],
            "libgcc_s.so.1": [],
        }
        for library, versions in provided.items():
            path = f"/lib/{arch}-linux-gnu/{library}"
            self.exists(path)
            self._symbols("provided_versions", path, versions)
            self._symbols("provided_versions", f"/usr{path}", versions)

    def _symbols(self, call: str, path: str, answer: Any) -> None:
        self.raw["symbols"].append({"call": call, "arguments": [path], "answer": answer})

    def card(self, bus: str, vendor: str, device: str, driver: str, kind: str = "0x030000") -> None:
        """A display controller on the PCI bus, as /sys/bus/pci/devices shows it."""
        base = f"/sys/bus/pci/devices/{bus}"
        self.file(f"{base}/vendor", f"0x{vendor}\n")
        self.file(f"{base}/device", f"0x{device}\n")
        self.file(f"{base}/class", f"{kind}\n")
        self.exists(f"{base}/driver")
        self.link(f"{base}/driver", f"/sys/bus/pci/drivers/{driver}")

    def kernel_module(
        self, version: str, *, is_open: bool, arch: str = "x86_64", date: str, devices: bool = True
    ) -> None:
        """/proc/driver/nvidia/version and what else a loaded module leaves; a container need not have the ``devices``."""
        line = FILES["open_module" if is_open else "closed_module"]
        line = line.format(arch=arch, version=version, date=date)
        self.file("/proc/driver/nvidia/version", FILES["nvrm"].format(line=line))
        self.file("/sys/module/nvidia/version", version + "\n")
        if devices:
            self.exists("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")

    def user_driver(self, version: str, folder: str = "/usr/lib/x86_64-linux-gnu") -> None:
        """The libraries of the driver's user-mode half, with their links."""
        for name in ("libcuda.so", "libnvidia-ml.so"):
            self.exists(f"{folder}/{name}.1")
            self.link(f"{folder}/{name}.1", f"{folder}/{name}.{version}")
        library = {"library_path": "libGLX_nvidia.so.0", "api_version": "1.4.303"}
        document = {"file_format_version": "1.0.1", "ICD": library}
        self.file("/usr/share/vulkan/icd.d/nvidia_icd.json", json.dumps(document, indent=4))

    def gcc(self, version: str, banner: str) -> None:
        for name in ("gcc", "g++"):
            for path in (f"/usr/bin/{name}", f"/usr/bin/{name}-{version.split('.')[0]}"):
                self.exists(path)
                answer = COMMANDS["gcc"].format(name=path.rpartition("/")[2], banner=banner)
                self.command([path, "--version"], answer)

    def tools(self, **versions: str) -> None:
        for name, version in versions.items():
            self.exists(f"/usr/bin/{name}")
            self.command([name, "--version"], COMMANDS[name].format(version))

    def vulkaninfo(self, *devices: Mapping[str, str]) -> None:
        """``vulkaninfo --summary`` of Vulkan-Tools."""
        self.exists("/usr/bin/vulkaninfo")
        answer = COMMANDS["vulkaninfo"]
        for index, device in enumerate(devices):
            answer += COMMANDS["vulkan_device"].format(index=index, **device)
        self.command(["vulkaninfo", "--summary"], answer)

    def toolkit(self, release: str, root: str = "", target: str = "x86_64-linux") -> None:
        """A whole CUDA toolkit as NVIDIA's packages lay it out."""
        root = root or f"/usr/local/cuda-{release}"
        exe = ".exe" if self.windows else ""
        self._nvcc(f"{root}/bin/nvcc{exe}", release, f"{root}/bin/..")
        self._headers(root, release)
        self.exists(f"{root}/bin/ptxas{exe}", f"{root}/bin/cudafe++{exe}")
        self.exists(f"{root}/nvvm/bin/cicc{exe}", f"{root}/nvvm/libdevice/libdevice.10.bc")
        if self.windows:
            self.exists(f"{root}/lib/x64/cudart.lib")
            return
        library = f"{root}/targets/{target}/lib"
        self.exists(f"{library}/libcudart.so", "/usr/local/cuda")
        self.link(f"{root}/lib64", library)
        self.link("/usr/local/cuda", root)
        self.raw["env"]["PATH"] = "/usr/local/cuda/bin:" + self.raw["env"]["PATH"]
        self._nvcc("/usr/local/cuda/bin/nvcc", release, "/usr/local/cuda/bin/..")

    def debian_toolkit(self, release: str) -> None:
        """Debian's and Ubuntu's own nvidia-cuda-toolkit: nvcc is a script that starts the real one elsewhere."""
        own = "/usr/lib/nvidia-cuda-toolkit"
        for nvcc in ("/usr/bin/nvcc", f"{own}/bin/nvcc"):
            self._nvcc(nvcc, release, "")
            self.raw["commands"][-1]["stderr"] = COMMANDS["debian_dryrun"].format(own=own)
        self.raw["paths"]["scripts"].append("/usr/bin/nvcc")
        self._headers("/usr", release)
        self.exists("/usr/bin/ptxas", "/usr/bin/cudafe++", f"{own}/bin/cicc")
        self.exists(f"{own}/libdevice/libdevice.10.bc", "/usr/lib/x86_64-linux-gnu/libcudart.so")

    def _headers(self, root: str, release: str) -> None:
        # CUDA 13 moved the C++ libraries into a folder of their own
        cccl = f"{root}/include/cccl" if release.startswith("13") else f"{root}/include"
        self.exists(*(f"{root}/include/{name}" for name in (*HEADERS, "cooperative_groups.h")))
        self.exists(f"{cccl}/cub/cub.cuh", f"{cccl}/thrust/device_vector.h")
        limits = ANSWERS["toolkits"][release]
        config = FILES["host_config"].format(override=FILES["override"], **limits)
        self.file(f"{root}/include/crt/host_config.h", config)

    def _nvcc(self, nvcc: str, release: str, top: str) -> None:
        """What an nvcc says to ``--version``, ``--list-gpu-code`` and a dry run."""
        row, null = ANSWERS["toolkits"][release], "NUL" if self.windows else "/dev/null"
        self.exists(nvcc)
        version = COMMANDS["nvcc_version"].format(release=release, full=row["full"])
        self.command([nvcc, "--version"], version)
        self.command([nvcc, "--list-gpu-code"], "".join(f"sm_{code}\n" for code in row["codes"].split()))
        dryrun = COMMANDS["nvcc_dryrun"].format(here=nvcc.rpartition("/")[0], top=top)
        self.command([nvcc, "--dryrun", "-x", "cu", "-c", null, "-o", null], stderr=dryrun)

    def python(self, prefix: str, version: str, kind: str, packages: str, base: str = "/usr") -> None:
        """A Python environment (``venv``, ``uv`` or ``conda``) with the ``packages`` of one list of answers.toml."""
        short = ".".join(version.split(".")[:2])
        tag = short.replace(".", "")
        system, arch = self.raw["machine"]["system"], self.raw["machine"]["machine"]
        self.site, executable = f"{prefix}/lib/python{short}/site-packages", f"{prefix}/bin/python"
        self.suffix, platform = f".cpython-{tag}-{arch}-linux-gnu.so", f"linux-{arch}"
        slash = "/"
        if system == "windows":
            self.site, executable = f"{prefix}\\Lib\\site-packages", f"{prefix}\\Scripts\\python.exe"
            self.suffix, platform = f".cp{tag}-win_amd64.pyd", "win-amd64"
            slash = "\\"
        elif system == "darwin":
            self.suffix, platform = f".cpython-{tag}-darwin.so", "macosx-11.0-arm64"
        answer = {
            "executable": executable,
            "version": version,
            "implementation": "CPython",
            "ext_suffix": self.suffix,
            "platform": platform,
            "prefix": prefix,
            "base_prefix": prefix if kind == "conda" else base,
            "conda": kind == "conda",
            "externally_managed": False,
            "site_packages": [self.site],
            "path": [self.site],
            "bits": 64,
            "abiflags": "",
        }
        self.raw["machine"].update(python=executable, own_python=executable)
        self.command([executable, "{splatfix}/facts/environment/probe_env.py"], json.dumps(answer) + "\n")
        self.exists(self.site, executable)
        start = f"home = {base}/bin\n"
        if kind == "venv":
            rest = f"include-system-site-packages = false\nversion = {version}\n"
            self.file(f"{prefix}{slash}pyvenv.cfg", start + rest)
        elif kind == "uv":
            rest = f"implementation = CPython\nuv = 0.8.22\nversion_info = {version}\n"
            self.file(f"{prefix}{slash}pyvenv.cfg", start + rest)
        else:
            self.exists(f"{prefix}/conda-meta/history")
            self.raw["env"]["CONDA_PREFIX"] = prefix
        for name, number in ANSWERS["packages"][packages].items():
            record = f"{name}-{number}.dist-info/METADATA,,\n"
            self._distribution(name, number, record, "conda" if kind == "conda" else "pip")

    def _distribution(self, name: str, version: str, record: str, installer: str = "pip") -> None:
        info = f"{self.site}/{name}-{version}.dist-info"
        self.file(f"{info}/INSTALLER", f"{installer}\n")
        self.file(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.file(f"{info}/RECORD", record)

    def _binary(self, path: str, size: int, needed: Sequence[str], code: Sequence[str], count: int) -> None:
        self.raw["binaries"][path] = {
            "format": "pe" if self.windows else "elf",
            "size": size,
            "needed": needed,
            "fatbins": [{"code": code, "count": count}] if code else [],
        }

    def torch(self, version: str, cuda: str | None = None, archs: str = "", hip: str | None = None) -> None:
        """An installed torch: its text files as the wheels have them, and what its big library carries."""
        package = f"{self.site}/torch"
        text = FILES["torch_version"].format(version=version, cuda=cuda, hip=hip)
        self.file(f"{package}/version.py", text)
        start = FILES["torch_init"]
        self.file(f"{package}/__init__.py", start)
        digest = base64.urlsafe_b64encode(hashlib.sha256(start.encode()).digest()).decode().rstrip("=")
        record = f"torch/__init__.py,sha256={digest},{len(start)}\ntorch/version.py,,\n"
        self._distribution("torch", version, record)
        release = [int(number) for number in version.split("+")[0].split(".")[:2]]
        known: list[str] = []
        for since, listed in ANSWERS["torch_archs"].items():
            if [int(number) for number in since.split(".")] <= release:
                known += listed.split()
        self.file(f"{package}/utils/cpp_extension.py", FILES["cpp_extension"].format(archs=known))
        names = ["c10", "torch", "torch_cpu", "torch_python"]
        if cuda:
            names += ["c10_cuda", "torch_cuda"]
            major = cuda.split(".")[0]
            # CUDA 11 numbered its runtime library, which comes with torch's own NVIDIA packages, by minor version
            self.cudart = "11.0" if major == "11" else major
            folder = "cu13" if major == "13" else "cuda_runtime"
            runtime = f"{self.site}/nvidia/{folder}/lib/libcudart.so.{self.cudart}"
            if self.windows:
                runtime = f"{self.site}/torch/lib/cudart64_{major}.dll"
            self.exists(runtime)
        for name in names:
            path = f"{package}/lib/{name}.dll" if self.windows else f"{package}/lib/lib{name}.so"
            code = [f"sass sm_{arch}" for arch in archs.split()] if name == "torch_cuda" else []
            self._binary(path, 10**8, [], code, 400)

    def extension(self, package: str, code: Sequence[str], version: str = "0.0.0") -> None:
        """A compiled splatting extension, built here from source, with one fatbin per .cu file."""
        path = f"{package}/_C{self.suffix}"
        torch = [f"lib{name}.so" for name in ("c10", "torch", "torch_cpu", "torch_python")]
        cuda = [f"libcudart.so.{self.cudart}", "libc10_cuda.so", "libtorch_cuda.so"]
        needed = [*torch, *cuda, "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"]
        self._distribution(package, version, f"{package}/__init__.py,,\n{path},,\n")
        self.exists(f"{self.site}/{package}/__init__.py")
        self._binary(f"{self.site}/{path}", 1_900_000, needed, code, 3)
        versions = [["libstdc++.so.6", "GLIBCXX_3.4.29"], ["libc.so.6", "GLIBC_2.32"]]
        answer = {"imported": [], "weak": [], "versions": versions}
        self._symbols("symbol_needs", f"{self.site}/{path}", answer)

    def nvml(self, gpus: Sequence[Mapping[str, Any]] | None = None, **answer: Any) -> None:
        """What NVML answers through pynvml: the driver and its GPUs, or an error."""
        self.raw["nvml"] = dict(answer)
        if gpus is not None:
            self.raw["nvml"]["gpus"] = [_gpu(index, **fields) for index, fields in enumerate(gpus)]

    def libcuda(self, answer: Mapping[str, Any] | None) -> None:
        """What the driver library answers; where its machine does not say, as NVML does."""
        wsl = "/usr/lib/wsl/lib/libcuda.so.1"
        library = "libcuda.so.1"
        if self.windows:
            library = "nvcuda.dll"
        elif wsl in self.raw["paths"]["exists"]:
            library = wsl
        argv = [self.raw["machine"]["own_python"], "{splatfix}/facts/machine/probe_cuda.py", library]
        self.command(argv, json.dumps(answer or _libcuda_like(self.raw["nvml"], library)))


def simulate(description: Mapping[str, Any]) -> RawMachine:
    """The raw answers of a machine from its file."""
    fields = dict(description)
    identity = {name: fields.pop(name) for name in ("source", "system", "machine") if name in fields}
    parts = Parts(**identity)
    files, env, libcuda = fields.pop("files", {}), fields.pop("env", {}), fields.pop("libcuda", None)
    exists, commands = fields.pop("exists", ()), fields.pop("commands", ())
    for name in ("linux", "kernel_module", "user_driver", "toolkit", "debian_toolkit", "gcc", "tools"):
        if name in fields:
            getattr(parts, name)(**fields.pop(name))
    for card in fields.pop("cards", ()):
        parts.card(**card)
    if "vulkaninfo" in fields:
        parts.vulkaninfo(*fields.pop("vulkaninfo"))
    parts.python(**fields.pop("python"))
    if "torch" in fields:
        parts.torch(**fields.pop("torch"))
    for extension in fields.pop("extensions", ()):
        parts.extension(**extension)
    if "nvml" in fields:
        parts.nvml(**fields.pop("nvml"))
    # what the machine says for itself holds against what its parts said
    parts.exists(*exists)
    parts.raw["files"].update(files)
    parts.raw["env"].update(env)
    for command in commands:
        parts.command(**command)
    parts.libcuda(libcuda)
    if fields:
        raise ValueError(f"no such parts: {', '.join(fields)}")
    return from_json(RawMachine, parts.raw)


def _gpu(
    index: int, name: str, cc: str, bus_id: str, mebibytes: int | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "index": index,
        "name": name,
        "cc": [int(number) for number in cc.split(".")],
        "memory_total": mebibytes * 2**20 if mebibytes else None,
        "bus_id": bus_id,
        "uuid": f"GPU-00000000-0000-0000-0000-{index + 1:012d}",
        "mig": None,
        "mig_devices": [],
        **more,
    }


def _libcuda_like(nvml: Mapping[str, Any], library: str) -> dict[str, Any]:
    """Without NVML there is no libcuda either. Of a card that is cut into MIG instances a program gets the first."""
    if "error" in nvml:
        return {"error": f"{library}: cannot open shared object file: No such file or directory"}
    gpus = []
    for card in nvml["gpus"]:
        names = card["mig_devices"] or [card["name"]]
        gpus.append(
            {
                "index": card["index"],
                "name": names[0],
                "cc": card["cc"],
                "memory_total": card["memory_total"] or 0,
                "bus_id": card["bus_id"][-12:],
                "uuid": card["uuid"],
            }
        )
    return {"init": 0, "cuda": nvml["cuda"], "gpus": gpus}
