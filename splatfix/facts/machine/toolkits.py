"""Every CUDA toolkit on the machine, and the one that torch.utils.cpp_extension would choose."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from splatfix.core.resources import TOOLKIT_MARKER, toolkit_folder, user_cache
from splatfix.facts.machine.libraries import cub_version
from splatfix.facts.system.live import System, captured, folder_of, which_all, whole_number
from splatfix.facts.system.parallel import each
from splatfix.model import Fact, Toolkit, ToolkitChoice

_TARGETS = ("x86_64-linux", "sbsa-linux", "aarch64-linux")
_WINDOWS = "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA"
# Debian and Ubuntu split their own package: nvcc's parts here, headers in /usr/include, libraries in the usual folder
_DEBIAN = "/usr/lib/nvidia-cuda-toolkit"
_HPC = "/opt/nvidia/hpc_sdk"

# What the sources of splatting extensions include or link, through ATen/cuda/CUDAContext.h
# and the kernels themselves (headers of a default toolkit installation).
NEEDED_HEADERS = (
    *("cuda_runtime.h", "cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h"),
    *("cooperative_groups.h", "cub/cub.cuh", "thrust/device_vector.h"),
)
# By these a folder is a toolkit's.
_TOOLKIT_HEADERS = ("cuda_runtime.h", "crt/host_config.h")


class _Candidate(NamedTuple):
    """A folder that may be a toolkit's root, and how it was found."""

    root: str
    via: str
    nvcc: str | None = None
    """The nvcc on PATH that led to it."""
    is_wrapper: bool = False
    """That nvcc is a wrapper script."""


def packaged(system: System, sites: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of pip's NVIDIA packages in these site-packages: ``nvidia/cu13``, ``nvidia/cublas``..."""
    return tuple(f"{site}/nvidia/{name}" for site in sites for name in system.listdir(f"{site}/nvidia"))


def in_cache(system: System) -> Fact[tuple[str, ...]]:
    """Find which CUDA has a whole toolkit in splatfix's own cache."""
    unnamed = toolkit_folder("", user_cache(system.env))
    folder = unnamed.parent.as_posix()
    names = (name for name in system.listdir(folder) if name.startswith(unnamed.name))
    whole = (name for name in names if system.exists(f"{folder}/{name}/{TOOLKIT_MARKER}"))
    return Fact(tuple(name.removeprefix(unnamed.name) for name in whole), folder)


def probe(system: System, brought: Sequence[str] = ()) -> Fact[tuple[Toolkit, ...]]:
    """All toolkits, each once, with every way it was found.

    Args:
        brought: what :func:`packaged` gives: toolkits among them, and folders that may hold a header that a toolkit lacks.
    """
    candidates = list(_candidates(system))
    for folder in brought:
        if name := captured(r"/(nvidia/cu\d+)$", folder):
            candidates.append(_Candidate(folder, f"pip packages in the environment ({name})"))
    by_root: dict[str, list[_Candidate]] = {}
    for candidate in candidates:
        if _holds_toolkit(system, candidate.root):
            by_root.setdefault(system.realpath(candidate.root), []).append(candidate)
    includes = tuple(f"{folder}/include" for folder in brought)
    toolkits = each(lambda pair: _describe(system, *pair, includes), by_root.items())
    searched = "CUDA_HOME, CUDA_PATH, PATH, the usual folders, the environment's own packages"
    return Fact(tuple(toolkits), searched)


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
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := system.env.get(variable):
            return _choice(system, root, f"the environment variable {variable}")
    if "CUDA_PATH" in system.env:
        rule = "the environment variable CUDA_PATH, which is set but empty"
        return ToolkitChoice("", rule, has_headers=False)
    on_path = which_all(system, "nvcc")
    if on_path:
        rule = f"the folder above the one of the first nvcc on PATH ({on_path[0]})"
        return _choice(system, folder_of(folder_of(on_path[0])), rule, on_path[0])
    if system.name == "windows":
        versions = [name for name in system.listdir(_WINDOWS) if re.fullmatch(r"v\d+\.\d+", name)]
        if versions:
            return _choice(system, f"{_WINDOWS}/{versions[0]}", "the first folder of the CUDA installation")
        return ToolkitChoice(None, "no CUDA_HOME, no nvcc on PATH, no CUDA installation folder")
    if system.exists("/usr/local/cuda"):
        return _choice(system, "/usr/local/cuda", "the default folder /usr/local/cuda")
    return ToolkitChoice(None, "no CUDA_HOME, no nvcc on PATH, no /usr/local/cuda")


def _choice(system: System, root: str, rule: str, nvcc: str | None = None) -> ToolkitChoice:
    nvcc = nvcc or _nvcc_in(system, root)
    own_root = ask_root(system, nvcc) if nvcc else None
    if own_root is not None and system.realpath(own_root) == system.realpath(root):
        own_root = None
    has_headers = system.exists(f"{root}/include/cuda_runtime.h")
    return ToolkitChoice(root, rule, nvcc, own_root, has_headers, system.realpath(root))


def ask_root(system: System, nvcc: str) -> str | None:
    """The toolkit root that an nvcc names as its own (``TOP`` in its dry run), seen through links and scripts."""
    null = "NUL" if system.name == "windows" else "/dev/null"
    done = system.run([nvcc, "--dryrun", "-x", "cu", "-c", null, "-o", null])
    variables = dict(re.findall(r"^#\$ (TOP|_HERE_)=(.+)$", done.stderr + done.stdout, re.MULTILINE))
    if not variables:
        return None
    # Debian's nvcc.profile sets no TOP
    root = system.realpath(variables.get("TOP", f"{variables.get('_HERE_', '').strip()}/..").strip())
    if root == _DEBIAN:
        return "/usr"
    return root


def _candidates(system: System) -> Iterator[_Candidate]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if system.env.get(variable):
            yield _Candidate(system.env[variable], variable)
    for nvcc in which_all(system, "nvcc"):
        above, root = folder_of(folder_of(nvcc)), ask_root(system, nvcc)
        if root and system.starts_with_script(nvcc) and system.realpath(nvcc) != f"{root}/bin/nvcc":
            yield _Candidate(root, f"PATH, through the wrapper script {nvcc}", nvcc, is_wrapper=True)
        elif root and system.realpath(above) != root:
            yield _Candidate(root, f"PATH, through the link {nvcc}", nvcc)
        else:
            yield _Candidate(root or above, f"PATH ({nvcc})", nvcc)
    yield from _usual_folders(system)
    prefix = system.env.get("CONDA_PREFIX")
    if prefix:
        folders = [prefix]
        if system.name == "windows":
            folders.append(f"{prefix}/Library")
        if not _nvcc_in(system, prefix):
            folders += [f"{prefix}/targets/{target}" for target in _TARGETS]
        yield from (_Candidate(folder, "CONDA_PREFIX") for folder in folders)


def _usual_folders(system: System) -> Iterator[_Candidate]:
    if system.name == "windows":
        for name in system.listdir(_WINDOWS):
            yield _Candidate(f"{_WINDOWS}/{name}", _WINDOWS)
        # the installer sets one variable per version: CUDA_PATH_V12_4
        for name in sorted(system.env):
            if re.fullmatch(r"CUDA_PATH_V\d+_\d+", name.upper()):
                yield _Candidate(system.env[name], name)
        return
    for base in ("/usr/local", "/opt", "/usr/lib"):
        for name in system.listdir(base):
            if re.match(r"cuda(-|$)", name):
                yield _Candidate(f"{base}/{name}", f"{base}/{name}")
    if system.exists(f"{_DEBIAN}/bin/nvcc"):
        yield _Candidate("/usr", f"{_DEBIAN} (the distribution's own package)")
    for platform in filter(re.compile("Linux_").match, system.listdir(_HPC)):
        for release in system.listdir(f"{_HPC}/{platform}"):
            base = f"{_HPC}/{platform}/{release}/cuda"
            for name in filter(re.compile(r"\d+\.\d+").fullmatch, system.listdir(base)):
                yield _Candidate(f"{base}/{name}", _HPC)


def _nvcc_in(system: System, root: str) -> str | None:
    return next(filter(system.exists, (f"{root}/bin/nvcc", f"{root}/bin/nvcc.exe")), None)


def _include(system: System, root: str) -> str | None:
    for folder in ("include", *(f"targets/{target}/include" for target in _TARGETS)):
        if any(system.exists(f"{root}/{folder}/{header}") for header in _TOOLKIT_HEADERS):
            return f"{root}/{folder}"
    return None


def _holds_toolkit(system: System, root: str) -> bool:
    if _nvcc_in(system, root):
        # /usr/local with a wrapper script in bin is not a toolkit root; a conda prefix or a real toolkit is
        return _include(system, root) is not None or system.exists(f"{root}/nvvm")
    return all(system.exists(f"{root}/include/{header}") for header in _TOOLKIT_HEADERS)


def _describe(
    system: System, root: str, candidates: Sequence[_Candidate], includes: tuple[str, ...]
) -> Toolkit:
    nvcc, include = _nvcc_in(system, root), _include(system, root)
    version, archs, error = None, (), ""
    if nvcc is not None:  # else a runtime with headers, as conda and pip bring it
        done = system.run([nvcc, "--version"])
        version = captured(r"\bV([0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,6})\b", done.stdout) or None
        codes = system.run([nvcc, "--list-gpu-code"]).stdout
        archs = tuple(re.findall(r"^\s*(sm_[0-9]{2,3}[af]?)\s*$", codes, re.MULTILINE))
        if version is None:
            error = f"nvcc --version: {done.why() or 'no version in its answer'}"
    limits = cub = ""
    if include:
        limits = system.read(f"{include}/crt/host_config.h") or ""
        cub = cub_version(system, include) or cub_version(system, f"{include}/cccl")
    paths = _cudart_paths(system)
    cudart = [path for path in paths if system.exists(f"{root}/{path}")]
    missing = _missing(system, root, include, nvcc)
    if not cudart:
        missing.append(paths[0])
    major = (version or "").partition(".")[0]
    lending: list[str] = []
    for folder in includes:
        # NVIDIA's packages for CUDA 13 and later are in nvidia/cu13, those for 11 and 12 in nvidia/cublas...
        named = captured(r"/nvidia/cu(\d{2})/include$", folder)
        if named == major or (not named and major in ("", "11", "12")):
            lending += (folder, f"{folder}/cccl")
    elsewhere: dict[str, str] = {}
    for header in (part.removeprefix("include/") for part in missing if part.startswith("include/")):
        if folder := next((folder for folder in lending if system.exists(f"{folder}/{header}")), ""):
            elsewhere[header] = folder
    return Toolkit(
        root=root,
        version=version,
        found_via=tuple(dict.fromkeys(candidate.via for candidate in candidates)),
        nvcc=nvcc,
        on_path=tuple(candidate.nvcc for candidate in candidates if candidate.nvcc),
        wrapper=next((candidate.nvcc for candidate in candidates if candidate.is_wrapper), None),
        archs=archs,
        gcc_max=_highest_accepted(limits, r"__GNUC__ > ([0-9]{1,4})\b"),
        clang_max=_highest_accepted(limits, r"__clang_major__ >= ([0-9]{1,4})\b", less=1),
        msvc_max=_highest_accepted(limits, r"_MSC_VER >= ([0-9]{1,5})\b", less=1),
        missing=tuple(missing),
        cudart_in=tuple(path.rpartition("/")[0] for path in cudart),
        has_lib64=system.exists(f"{root}/lib64") if system.name == "linux" else None,
        cub=cub,
        elsewhere=elsewhere,
        error=error,
    )


def _highest_accepted(limits: str, pattern: str, less: int = 0) -> int | None:
    """The header refuses ``__GNUC__ > N``, but ``__clang_major__ >= N`` and ``_MSC_VER >= N``: there N - 1 is the highest."""
    bound = whole_number(captured(pattern, limits))
    if bound is None:
        return None
    return bound - less


def _missing(system: System, root: str, include: str | None, nvcc: str | None) -> list[str]:
    missing = []
    if nvcc is None:
        missing.append("bin/nvcc")  # naming its parts would say nothing more
    else:
        # what nvcc starts or reads itself, each where NVIDIA has it, then in Debian's layout
        debian, bitcode = f"{root}/{_DEBIAN.removeprefix('/usr/')}", "nvvm/libdevice/libdevice.10.bc"
        exe = ".exe" if system.name == "windows" else ""
        for part in (f"bin/ptxas{exe}", f"bin/cudafe++{exe}", f"nvvm/bin/cicc{exe}", bitcode):
            name = part.rpartition("/")[2]
            paths = (
                f"{root}/{part}",
                f"{debian}/{part}",
                f"{debian}/bin/{name}",
                f"{debian}/libdevice/{name}",
            )
            if not any(map(system.exists, paths)):
                missing.append(part)
    # CUDA 13 keeps cub and thrust under include/cccl
    includes = (include, f"{include}/cccl") if include else ()
    for header in NEEDED_HEADERS:
        if not any(system.exists(f"{folder}/{header}") for folder in includes):
            missing.append(f"include/{header}")
    return missing


def _cudart_paths(system: System) -> tuple[str, ...]:
    if system.name == "windows":
        return ("lib/x64/cudart.lib",)
    folders = ["lib64", "lib", *(f"targets/{target}/lib" for target in _TARGETS)]
    folders += [f"lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")]
    return tuple(f"{folder}/libcudart.so" for folder in folders)
