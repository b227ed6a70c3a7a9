"""Every CUDA toolkit on the machine, and the one that torch.utils.cpp_extension would choose."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from splatfix.facts.machine.libraries import cub_version
from splatfix.facts.model.environment import ToolkitChoice, Torch
from splatfix.facts.model.fact import Fact
from splatfix.facts.model.machine import Toolkit
from splatfix.facts.system.live import System, which_all
from splatfix.facts.system.parallel import each

_TIMEOUT = 8.0

_TARGETS = ("x86_64-linux", "sbsa-linux", "aarch64-linux")
_WINDOWS = "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA"
# Debian and Ubuntu split their own package: nvcc's parts here, headers in /usr/include, libraries in the usual folder
_DEBIAN = "/usr/lib/nvidia-cuda-toolkit"
_HPC = "/opt/nvidia/hpc_sdk"

# What the sources of splatting extensions include or link, through ATen/cuda/CUDAContext.h
# and the kernels themselves (headers of a default toolkit installation).
NEEDED_HEADERS = (
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cublas_v2.h",
    "cublasLt.h",
    "cusparse.h",
    "cusolverDn.h",
    "cooperative_groups.h",
    "cub/cub.cuh",
    "thrust/device_vector.h",
)


@dataclass(frozen=True)
class _Candidate:
    """A folder that may be a toolkit's root, and how it was found."""

    root: str
    via: str
    nvcc: str | None = None
    """The nvcc on PATH that led to it."""
    wrapper: bool = False
    """That nvcc is a wrapper script."""


def probe(
    system: System, packaged: Iterable[tuple[str, str]] = (), includes: tuple[str, ...] = ()
) -> Fact[tuple[Toolkit, ...]]:
    """All toolkits, each once, with every way it was found.

    Args:
        packaged: further folders to look at, as (folder, how it was found), e.g. a pip-installed ``nvidia/cu13``.
        includes: include folders of the environment's own NVIDIA packages (see :func:`packaged_includes`), to say
            which of them holds a header that a toolkit lacks.
    """
    by_root: dict[str, list[_Candidate]] = {}
    for item in [*_candidates(system), *(_Candidate(*pair) for pair in packaged)]:
        if _holds_toolkit(system, item.root):
            by_root.setdefault(system.realpath(item.root), []).append(item)
    found = each(lambda pair: _describe(system, *pair, includes), by_root.items())
    return Fact(tuple(found), "CUDA_HOME, CUDA_PATH, PATH, the usual folders, the environment's own packages")


def packaged_includes(system: System, sites: Iterable[str]) -> tuple[str, ...]:
    """The include folders that pip's NVIDIA packages bring: ``nvidia/cu13/include``, ``nvidia/cublas/include``..."""
    return tuple(
        folder
        for site in sites
        for name in system.listdir(f"{site}/nvidia")
        if system.exists(folder := f"{site}/nvidia/{name}/include")
    )


def lending_folders(torch: Torch, version: str, headers: Iterable[str]) -> tuple[str, ...]:
    """Include folders of torch's own CUDA packages that hold one of these headers, for a toolkit of that version."""
    packages = Path(torch.folder).parent / "nvidia"
    # CUDA 13 packages share one folder, older ones have one each
    places = [packages / f"cu{version.partition('.')[0]}", *sorted(packages.glob("cu[bs]*"))]
    folders = [place / "include" for place in places]
    return tuple(str(folder) for folder in folders if any((folder / header).exists() for header in headers))


def torch_choice(system: System, *, torch_is_cuda: bool) -> ToolkitChoice:
    """The CUDA_HOME that torch's ``_find_cuda_home`` arrives at on this machine, by its own rules.

    Rules, read from ``torch/utils/cpp_extension.py`` of 16 releases: CUDA_HOME or CUDA_PATH as they stand; else the
    folder above the folder of the first ``nvcc`` on PATH, links and wrapper scripts not followed; else
    ``/usr/local/cuda``; else nothing. A test holds this function and torch's own code together.

    Args:
        torch_is_cuda: the installed torch is a CUDA build; releases from 2.3.1 on set no CUDA_HOME in others.
    """
    if not torch_is_cuda:
        return ToolkitChoice(None, "this torch is a build without CUDA, so it sets no CUDA_HOME at all")
    # `get("CUDA_HOME") or get("CUDA_PATH")`, taken when it is not None: an empty CUDA_PATH stops the search
    home, path = system.env.get("CUDA_HOME"), system.env.get("CUDA_PATH")
    if home:
        return _choice(system, home, "the environment variable CUDA_HOME")
    if path:
        return _choice(system, path, "the environment variable CUDA_PATH")
    if path is not None:
        return ToolkitChoice(
            "", "the environment variable CUDA_PATH, which is set but empty", has_headers=False
        )
    on_path = which_all(system, "nvcc")
    if on_path:
        nvcc = on_path[0]
        root = posixpath.dirname(posixpath.dirname(nvcc.replace("\\", "/")))
        return _choice(system, root, f"the folder above the one of the first nvcc on PATH ({nvcc})", nvcc)
    if system.name == "windows":
        versions = [name for name in system.listdir(_WINDOWS) if re.fullmatch(r"v\d+\.\d+", name)]
        if versions:
            return _choice(system, f"{_WINDOWS}/{versions[0]}", "the first folder of the CUDA installation")
        return ToolkitChoice(None, "no CUDA_HOME, no nvcc on PATH, no CUDA installation folder")
    if system.exists("/usr/local/cuda"):
        return _choice(system, "/usr/local/cuda", "the default folder /usr/local/cuda")
    return ToolkitChoice(None, "no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda")


def _choice(system: System, root: str, rule: str, nvcc: str | None = None) -> ToolkitChoice:
    program = nvcc or _nvcc_in(system, root)
    real = ask_root(system, program) if program else None
    if real is not None and system.realpath(real) == system.realpath(root):
        real = None
    headers = system.exists(f"{root}/include/cuda_runtime.h") or system.exists(
        f"{root}/include/cuda_runtime_api.h"
    )
    return ToolkitChoice(root, rule, program, real, headers, system.realpath(root))


def ask_root(system: System, nvcc: str) -> str | None:
    """The toolkit root that an nvcc names as its own (``TOP`` in its dry run), seen through links and scripts."""
    null = "NUL" if system.name == "windows" else "/dev/null"
    done = system.run([nvcc, "--dryrun", "-x", "cu", "-c", null, "-o", null], _TIMEOUT)
    said = done.stderr + done.stdout
    top = re.search(r"^#\$ TOP=(.+)$", said, re.MULTILINE)
    here = re.search(r"^#\$ _HERE_=(.+)$", said, re.MULTILINE)  # Debian's nvcc.profile sets no TOP
    if top is None and here is None:
        return None
    root = system.realpath(top.group(1).strip() if top else f"{here.group(1).strip()}/.." if here else "")
    return "/usr" if root == _DEBIAN else root


def _candidates(system: System) -> Iterator[_Candidate]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := system.env.get(variable):
            yield _Candidate(value, variable)
    for nvcc in which_all(system, "nvcc"):
        above = posixpath.dirname(posixpath.dirname(nvcc.replace("\\", "/")))
        root = ask_root(system, nvcc)
        if root is None:
            yield _Candidate(above, f"PATH ({nvcc})", nvcc)
        elif system.starts_with_script(nvcc) and system.realpath(nvcc) != f"{root}/bin/nvcc":
            yield _Candidate(root, f"PATH, through the wrapper script {nvcc}", nvcc, wrapper=True)
        elif system.realpath(above) != root:
            yield _Candidate(root, f"PATH, through the link {nvcc}", nvcc)
        else:
            yield _Candidate(root, f"PATH ({nvcc})", nvcc)
    yield from _usual_folders(system)
    yield from _conda(system)


def _usual_folders(system: System) -> Iterator[_Candidate]:
    if system.name == "windows":
        for name in system.listdir(_WINDOWS):
            yield _Candidate(f"{_WINDOWS}/{name}", _WINDOWS)
        # the installer sets one variable per version: CUDA_PATH_V12_4
        for name in sorted(name for name in system.env if re.fullmatch(r"CUDA_PATH_V\d+_\d+", name.upper())):
            yield _Candidate(system.env[name], name)
        return
    for base in ("/usr/local", "/opt", "/usr/lib"):
        for name in system.listdir(base):
            if re.match(r"cuda(-|$)", name):
                yield _Candidate(f"{base}/{name}", f"{base}/{name}")
    if system.exists(f"{_DEBIAN}/bin/nvcc"):
        yield _Candidate("/usr", f"{_DEBIAN} (the distribution's own package)")
    for folder in (f"{_HPC}/{name}" for name in system.listdir(_HPC) if name.startswith("Linux_")):
        for release in system.listdir(folder):
            base = f"{folder}/{release}/cuda"
            for name in system.listdir(base):
                if re.fullmatch(r"\d+\.\d+", name):
                    yield _Candidate(f"{base}/{name}", _HPC)


def _conda(system: System) -> Iterator[_Candidate]:
    prefix = system.env.get("CONDA_PREFIX")
    if not prefix:
        return
    inside = [prefix, f"{prefix}/Library"] if system.name == "windows" else [prefix]
    if not _nvcc_in(system, prefix):
        inside += [f"{prefix}/targets/{target}" for target in _TARGETS]
    for folder in inside:
        yield _Candidate(folder, "CONDA_PREFIX")


def _nvcc_in(system: System, root: str) -> str | None:
    for name in ("bin/nvcc", "bin/nvcc.exe"):
        if system.exists(f"{root}/{name}"):
            return f"{root}/{name}"
    return None


def _holds_toolkit(system: System, root: str) -> bool:
    if _nvcc_in(system, root):
        # /usr/local with a wrapper script in bin is not a toolkit root; a conda prefix or a real toolkit is
        return _include(system, root) is not None or system.exists(f"{root}/nvvm")
    return system.exists(f"{root}/include/cuda_runtime.h") and system.exists(
        f"{root}/include/crt/host_config.h"
    )


def _include(system: System, root: str) -> str | None:
    for folder in ("include", *(f"targets/{target}/include" for target in _TARGETS)):
        if system.exists(f"{root}/{folder}/cuda_runtime.h") or system.exists(
            f"{root}/{folder}/crt/host_config.h"
        ):
            return f"{root}/{folder}"
    return None


def _describe(system: System, root: str, found: Sequence[_Candidate], includes: tuple[str, ...]) -> Toolkit:
    nvcc = _nvcc_in(system, root)
    include = _include(system, root)
    limits = system.read(f"{include}/crt/host_config.h") if include else None
    version, error = None, ""
    archs: tuple[str, ...] = ()
    if nvcc:
        said = system.run([nvcc, "--version"], _TIMEOUT)
        match = re.search(r"\bV([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6})\b", said.stdout)
        version = match.group(1) if match else None
        error = "" if match else f"nvcc --version: {said.why() or 'no version in its answer'}"
        listed = system.run([nvcc, "--list-gpu-code"], _TIMEOUT)
        archs = tuple(
            line.strip()
            for line in listed.stdout.splitlines()
            if re.fullmatch(r"sm_[0-9]{2,3}[af]?", line.strip())
        )
    missing = _missing(system, root, include, nvcc)
    return Toolkit(
        root=root,
        version=version,
        found_via=tuple(dict.fromkeys(item.via for item in found)),
        nvcc=nvcc,
        on_path=tuple(item.nvcc for item in found if item.nvcc),
        wrapper=next((item.nvcc for item in found if item.wrapper), None),
        archs=archs,
        gcc_max=_limit(limits, r"__GNUC__ > ([0-9]{1,4})\b"),
        clang_max=_below(limits, r"__clang_major__ >= ([0-9]{1,4})\b"),
        msvc_max=_below(limits, r"_MSC_VER >= ([0-9]{1,5})\b"),
        missing=missing,
        cudart_in=tuple(
            place.rpartition("/")[0] for place in _cudart_places(system) if system.exists(f"{root}/{place}")
        ),
        has_lib64=system.exists(f"{root}/lib64") if system.name == "linux" else None,
        cub=next(
            (cub for place in ("", "/cccl") if include and (cub := cub_version(system, include + place))), ""
        ),
        elsewhere=_elsewhere(system, missing, tuple(i for i in includes if _same_major(i, version))),
        error=error,
    )


def _limit(text: str | None, pattern: str) -> int | None:
    match = re.search(pattern, text or "")
    return int(match.group(1)) if match else None


def _below(text: str | None, pattern: str) -> int | None:
    """The header refuses ``__clang_major__ >= N`` and ``_MSC_VER >= N``; the highest it accepts is N - 1."""
    bound = _limit(text, pattern)
    return bound - 1 if bound is not None else None


def _missing(system: System, root: str, include: str | None, nvcc: str | None) -> tuple[str, ...]:
    missing = [] if nvcc else ["bin/nvcc"]
    if nvcc:
        missing += [
            part
            for part, places in _compiler_parts(system).items()
            if not any(system.exists(f"{root}/{place}") for place in places)
        ]
    for header in NEEDED_HEADERS:
        # CUDA 13 keeps cub and thrust under include/cccl
        places = (f"{include}/{header}", f"{include}/cccl/{header}") if include else ()
        if not any(system.exists(place) for place in places):
            missing.append(f"include/{header}")
    if not any(system.exists(f"{root}/{place}") for place in _cudart_places(system)):
        missing.append("lib64/libcudart.so" if system.name != "windows" else "lib/x64/cudart.lib")
    return tuple(missing)


def _compiler_parts(system: System) -> dict[str, tuple[str, ...]]:
    """What nvcc starts or reads itself, each with the places it may be in (NVIDIA's, then Debian's layout)."""
    debian = _DEBIAN.removeprefix("/usr/")
    programs: dict[str, tuple[str, ...]] = {
        part: (part, f"{debian}/{part}", f"{debian}/bin/{part.rpartition('/')[2]}")
        for part in ("bin/ptxas", "bin/cudafe++", "nvvm/bin/cicc")
    }
    if system.name == "windows":
        programs = {f"{part}.exe": (f"{part}.exe",) for part in programs}
    bitcode = "nvvm/libdevice/libdevice.10.bc"
    return {**programs, bitcode: (bitcode, f"{debian}/libdevice/libdevice.10.bc")}


def _cudart_places(system: System) -> tuple[str, ...]:
    if system.name == "windows":
        return ("lib/x64/cudart.lib",)
    folders = ["lib64", "lib", *(f"targets/{target}/lib" for target in _TARGETS)]
    folders += [f"lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")]
    return tuple(f"{folder}/libcudart.so" for folder in folders)


def _same_major(include: str, version: str | None) -> bool:
    """NVIDIA's packages for CUDA 13 and later are in ``nvidia/cu13``, those for 11 and 12 in ``nvidia/cublas``..."""
    named = re.search(r"/nvidia/cu(\d{2})/include$", include)
    major = (version or "").partition(".")[0]
    return named.group(1) == major if named else major in ("", "11", "12")


def _elsewhere(system: System, missing: tuple[str, ...], includes: tuple[str, ...]) -> dict[str, str]:
    """Of the missing headers those that some other include folder holds: ``cublas_v2.h`` -> that folder."""
    found: dict[str, str] = {}
    for part in missing:
        header = part.removeprefix("include/")
        if header == part:
            continue
        for folder in (place for base in includes for place in (base, f"{base}/cccl")):
            if system.exists(f"{folder}/{header}"):
                found[header] = folder
                break
    return found
