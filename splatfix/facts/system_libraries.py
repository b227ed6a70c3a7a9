"""What lies around a build: the driver's library, graphics headers, copies of CUB and Thrust, container and Windows runtimes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from splatfix.facts.loader import Loader
from splatfix.facts.model import Colmap, Fact, HeaderCopy, unknown
from splatfix.facts.system import System, which_all

_TIMEOUT = 8.0
# A docker daemon finds the first of these on its PATH when --gpus is asked for; a CDI file serves newer ones.
_CONTAINER_TOOLKIT = (
    "nvidia-container-runtime-hook",
    "nvidia-container-runtime",
    "nvidia-ctk",
    "nvidia-container-cli",
)
_CDI = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
# What torch's Windows wheels load from the Visual C++ redistributable of 2015 to 2022.
_MSVC_RUNTIME = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")
_GRAPHICS = ("EGL/egl.h", "GL/gl.h", "GLES3/gl3.h")


def loaded_libcuda(system: System) -> Fact[tuple[str, ...]]:
    """Every ``libcuda.so.1`` the loader would meet, the one it takes first, with links followed."""
    if system.name != "linux":
        return unknown(f"{system.name} has no libcuda.so.1")
    folders = Loader(system, "", "", (), None).folders
    if not any(system.exists(f"{folder}/libc.so.6") for folder in folders):
        return unknown("the loader's folders could not be looked at")
    found = (f"{folder}/libcuda.so.1" for folder in folders)
    real = dict.fromkeys(system.realpath(path) for path in found if system.exists(path))
    return Fact(tuple(real), "LD_LIBRARY_PATH, ld.so.conf and the loader's own folders")


def linkable_libcuda(system: System) -> Fact[tuple[str, ...]]:
    """Every ``libcuda.so`` that ``-lcuda`` can find without further flags: in LIBRARY_PATH and the system's folders."""
    if system.name != "linux":
        return unknown(f"{system.name} has no libcuda.so")
    triplet = f"{system.machine}-linux-gnu"
    folders = [item for item in system.env.get("LIBRARY_PATH", "").split(":") if item]
    folders += [
        f"/lib/{triplet}",
        f"/usr/lib/{triplet}",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
        "/lib",
        "/usr/local/lib",
    ]
    found = tuple(path for folder in folders if system.exists(path := f"{folder}/libcuda.so"))
    return Fact(found, "LIBRARY_PATH and the linker's own folders")


def missing_graphics(system: System) -> Fact[tuple[str, ...]]:
    """Headers of OpenGL and EGL that nvdiffrast's GL rasterizer includes and that are not here."""
    if system.name != "linux":
        return unknown("looked at on Linux only")
    folders = ["/usr/include", "/usr/local/include"]
    if not system.exists("/usr/include/stdlib.h"):
        return unknown("no C headers in /usr/include to judge by")
    if prefix := system.env.get("CONDA_PREFIX"):
        folders.append(f"{prefix}/include")
    lost = (name for name in _GRAPHICS if not any(system.exists(f"{folder}/{name}") for folder in folders))
    return Fact(tuple(lost), ", ".join(folders))


def header_copies(system: System) -> Fact[tuple[HeaderCopy, ...]]:
    """CUB and Thrust in folders that compilers search before or beside the toolkit's own."""
    if system.name != "linux":
        return unknown("looked at on Linux only")
    return Fact(
        tuple(_header_copies(system)), "CPATH, CPLUS_INCLUDE_PATH, CUB_HOME and the usual include folders"
    )


def cub_version(system: System, folder: str) -> str:
    """``2.3.2`` from ``cub/version.cuh`` below an include folder; "" when it is not there."""
    return _version(system.read(f"{folder}/cub/version.cuh"), "CUB_VERSION")


def container_toolkit(system: System) -> Fact[tuple[str, ...]]:
    """What of NVIDIA's container toolkit is here, where docker is; unknown without docker."""
    if system.name != "linux" or not which_all(system, "docker"):
        return unknown("there is no docker on PATH")
    found = [path for name in _CONTAINER_TOOLKIT for path in which_all(system, name)[:1]]
    found += [path for path in _CDI if system.exists(path)]
    return Fact(tuple(found), "PATH and /etc/cdi")


def missing_msvc_runtime(system: System) -> Fact[tuple[str, ...]]:
    """DLLs of the Visual C++ redistributable that are not in System32."""
    folder = f"{system.env.get('SYSTEMROOT') or 'C:/Windows'}/System32".replace("\\", "/")
    if system.name != "windows" or not system.exists(f"{folder}/kernel32.dll"):
        return unknown("System32 could not be looked at" if system.name == "windows" else "not Windows")
    return Fact(tuple(name for name in _MSVC_RUNTIME if not system.exists(f"{folder}/{name}")), folder)


def colmap(system: System) -> Fact[Colmap]:
    """Version of the COLMAP on PATH, and whether it says of itself that it was built with CUDA."""
    if not which_all(system, "colmap"):
        return Fact(None, "PATH", "no colmap on PATH")
    said = system.run(["colmap", "help"], _TIMEOUT)
    version = re.search(r"COLMAP (\d[\d.]*)", said.stdout)
    if version is None:
        return unknown(f"colmap help: {said.why() or 'no version in its answer'}")
    cuda = re.search(r"\b(with|without) CUDA\b", said.stdout)
    return Fact(
        Colmap(version.group(1).rstrip("."), cuda.group(1) == "with" if cuda else None), "colmap help"
    )


def _header_copies(system: System) -> Iterator[HeaderCopy]:
    env = system.env
    places: list[tuple[str, str]] = []
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "CUB_HOME"):
        places += [(folder, name) for folder in env.get(name, "").split(":") if folder]
    if prefix := env.get("CONDA_PREFIX"):
        places.append((f"{prefix}/include", "CONDA_PREFIX"))
    places += [
        ("/usr/local/include", "the compiler's own search"),
        ("/usr/include", "the compiler's own search"),
    ]
    seen: set[str] = set()
    for folder, via in places:
        real = system.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        thrust = _version(system.read(f"{folder}/thrust/version.h"), "THRUST_VERSION")
        if (cub := cub_version(system, folder)) or thrust:
            yield HeaderCopy(folder, via, cub, thrust)


def _version(text: str | None, macro: str) -> str:
    """``#define CUB_VERSION 200302`` -> ``2.3.2`` (major * 100000 + minor * 100 + patch, as the headers say)."""
    match = re.search(rf"^\s*#\s*define\s+{macro}\s+(\d+)", text or "", re.MULTILINE)
    if match is None:
        return ""
    number = int(match.group(1))
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
