"""Parts of simulated machines: what drivers, toolkits, compilers, Pythons and kernels answer, the same for all of them.

A part takes its fields from the machine's file; what it says stands in ``answers.toml``, with blanks for them.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from splatfix.core.codec import from_json
from splatfix.core.toml import table_beside
from splatfix.facts.system.playback import NO_NVML, RawMachine

ANSWERS = table_beside(__file__, "answers.toml")


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

    def add(self, part: str, **values: Any) -> None:
        """What a part of answers.toml says, its blanks filled in."""
        row = ANSWERS["parts"][part]
        values = {**row.get("usual", {}), **values}
        self.raw["paths"]["exists"] += [path.format(**values) for path in row.get("exists", ())]
        for place in ("files", "env"):
            filled = {key.format(**values): text.format(**values) for key, text in row.get(place, {}).items()}
            self.raw[place].update(filled)
        for link, target in row.get("links", {}).items():
            self.raw["paths"]["links"][link.format(**values)] = target.format(**values)
        for command in row.get("commands", ()):
            said = {name: command.get(name, "").format(**values) for name in ("stdout", "stderr")}
            self.command([word.format(**values) for word in command["argv"]], **said)

    def exists(self, *paths: str) -> None:
        self.raw["paths"]["exists"] += paths

    def command(
        self, argv: Iterable[str], stdout: str = "", stderr: str = "", returncode: int | None = 0
    ) -> None:
        answer = {"argv": list(argv), "returncode": returncode, "stdout": stdout, "stderr": stderr}
        self.raw["commands"].append(answer)

    def linux(self, pretty: str, kernel: str, *, glibc: str, gib: int, cores: int, swap_gib: int = 8) -> None:
        """What every Linux says of itself."""
        name, _, version = pretty.partition(" ")
        digits, total = f"{(1 << cores) - 1:x}", gib * 1024**2
        groups = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
        short = version.split(".0")[0][:5]
        own = {"pretty": pretty, "name": name, "version": short, "kernel": kernel, "glibc": glibc}
        memory = {"total": total - 1_300_000, "free": total // 2, "available": total * 3 // 4}
        memory |= {"cached": total // 5, "swap": swap_gib * 1024**2}
        limits = {"processes": gib * 4000, "mask": ",".join(reversed(groups)), "last": cores - 1}
        self.add("linux", **own, **memory, **limits)
        newest = ANSWERS["libstdcxx"].get(glibc, ANSWERS["libstdcxx"]["2.35"])
        minor = int(glibc.split(".")[1])
        provided = {
            "libc.so.6": [f"GLIBC_2.{number}" for number in (17, *range(28, minor + 1))],
            "libstdc++.so.6": ["GLIBCXX_3.4.29", "CXXABI_1.3.11", *newest],
            "libgcc_s.so.1": [],
        }
        for library, versions in provided.items():
            path = f"/lib/{self.raw['machine']['machine']}-linux-gnu/{library}"
            self.exists(path)
            self._symbols("provided_versions", path, versions)
            self._symbols("provided_versions", f"/usr{path}", versions)

    def _symbols(self, call: str, path: str, answer: Any) -> None:
        self.raw["symbols"].append({"call": call, "arguments": [path], "answer": answer})

    def kernel_module(self, *, is_open: bool, devices: bool = True, **fields: str) -> None:
        """What a loaded module leaves; a container need not have the ``devices``."""
        self.add("kernel_module" if is_open else "closed_module", **fields)
        if devices:
            self.add("devices")

    def gcc(self, version: str, banner: str) -> None:
        for name in ("gcc", "g++"):
            for called in (name, f"{name}-{version.split('.')[0]}"):
                self.add("compiler", name=called, banner=banner)

    def tools(self, **versions: str) -> None:
        for name, version in versions.items():
            self.add(name, version=version)

    def vulkaninfo(self, *devices: Mapping[str, str]) -> None:
        """``vulkaninfo --summary`` of Vulkan-Tools."""
        shown = (ANSWERS["vulkan_device"].format(index=number, **row) for number, row in enumerate(devices))
        self.add("vulkaninfo", devices="".join(shown))

    def toolkit(self, release: str, root: str = "", target: str = "x86_64-linux") -> None:
        """A whole CUDA toolkit as NVIDIA's packages lay it out."""
        root = root or f"/usr/local/cuda-{release}"
        self._nvcc(f"{root}/bin", release, f"{root}/bin/..")
        self._headers(root, release)
        if self.windows:
            self.add("windows_toolkit", root=root)
            return
        self.add("toolkit", root=root, target=target)
        self.raw["env"]["PATH"] = "/usr/local/cuda/bin:" + self.raw["env"]["PATH"]
        self._nvcc("/usr/local/cuda/bin", release, "/usr/local/cuda/bin/..")

    def debian_toolkit(self, release: str) -> None:
        """Debian's and Ubuntu's own nvidia-cuda-toolkit: nvcc is a script that starts the real one elsewhere."""
        own = "/usr/lib/nvidia-cuda-toolkit"
        for folder in ("/usr/bin", f"{own}/bin"):
            self._nvcc(folder, release, "")
            self.raw["commands"][-1]["stderr"] = ANSWERS["debian_dryrun"].format(own=own)
        self.raw["paths"]["scripts"].append("/usr/bin/nvcc")
        self._headers("/usr", release)
        self.add("debian_toolkit", own=own)

    def _headers(self, root: str, release: str) -> None:
        # CUDA 13 moved the C++ libraries into a folder of their own
        cccl = f"{root}/include/cccl" if release.startswith("13") else f"{root}/include"
        self.add(
            "headers", root=root, cccl=cccl, override=ANSWERS["override"], **ANSWERS["toolkits"][release]
        )

    def _nvcc(self, folder: str, release: str, top: str) -> None:
        """What an nvcc says to ``--version``, ``--list-gpu-code`` and a dry run."""
        row, exe = ANSWERS["toolkits"][release], ".exe" if self.windows else ""
        codes = "".join(f"sm_{code}\n" for code in row["codes"].split())
        words = {"release": release, "full": row["full"], "codes": codes, "here": folder, "top": top}
        self.add("nvcc", nvcc=f"{folder}/nvcc{exe}", null="NUL" if self.windows else "/dev/null", **words)

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
        said: dict[str, object] = {"executable": executable, "version": version, "conda": kind == "conda"}
        said |= {"suffix": self.suffix, "platform": platform, "prefix": prefix}
        said["base"] = prefix if kind == "conda" else base
        quoted = {name: json.dumps(value) for name, value in (*said.items(), ("site", self.site))}
        self.add("probe", python=executable, **quoted)
        self.raw["machine"].update(python=executable, own_python=executable)
        self.exists(self.site, executable)
        self.add(kind, prefix=prefix, slash=slash, base=base, version=version)
        for name, number in ANSWERS["packages"][packages].items():
            record = f"{name}-{number}.dist-info/METADATA,,\n"
            self._distribution(name, number, record, "conda" if kind == "conda" else "pip")

    def _distribution(self, name: str, version: str, record: str, installer: str = "pip") -> None:
        self.add(
            "distribution", site=self.site, name=name, version=version, record=record, installer=installer
        )

    def _binary(self, path: str, size: int, needed: Sequence[str], code: Sequence[str], count: int) -> None:
        self.raw["binaries"][path] = {
            "format": "pe" if self.windows else "elf",
            "size": size,
            "needed": needed,
            "fatbins": [{"code": code, "count": count}] if code else [],
        }

    def torch(self, version: str, cuda: str | None = None, archs: str = "", hip: str | None = None) -> None:
        """An installed torch: its text files as the wheels have them, and what its big library carries."""
        package, start = f"{self.site}/torch", ANSWERS["torch_init"]
        digest = base64.urlsafe_b64encode(hashlib.sha256(start.encode()).digest()).decode().rstrip("=")
        record = f"torch/__init__.py,sha256={digest},{len(start)}\ntorch/version.py,,\n"
        self._distribution("torch", version, record)
        release = [int(number) for number in version.split("+")[0].split(".")[:2]]
        known: list[str] = []
        for since, listed in ANSWERS["torch_archs"].items():
            if [int(number) for number in since.split(".")] <= release:
                known += listed.split()
        self.add("torch", package=package, init=start, version=version, cuda=cuda, hip=hip, archs=known)
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
            part = getattr(parts, name, partial(parts.add, name))
            part(**fields.pop(name))
    for card in fields.pop("cards", ()):
        parts.add("card", **card)
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
        seen = {name: card[name] for name in ("index", "name", "cc", "memory_total", "bus_id", "uuid")}
        seen |= {"memory_total": card["memory_total"] or 0, "bus_id": card["bus_id"][-12:]}
        gpus.append(seen | {"name": (card["mig_devices"] or [card["name"]])[0]})
    return {"init": 0, "cuda": nvml["cuda"], "gpus": gpus}
