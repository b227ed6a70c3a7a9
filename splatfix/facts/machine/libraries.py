"""System libraries and headers: where the dynamic loader looks, libcuda, OpenGL, CUB, the MSVC runtime."""

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct, field

from splatfix.facts.system.live import System, captured, which_all, whole_number
from splatfix.facts.tables import TABLES
from splatfix.model import Colmap, Fact, HeaderCopy, absent, unknown

_CDI = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
# What torch's Windows wheels load from the Visual C++ redistributable of 2015 to 2022.
_MSVC_RUNTIME = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")
_GRAPHICS = ("EGL/egl.h", "GL/gl.h", "GLES3/gl3.h")


class Loader(Struct, frozen=True, dict=True):
    """Where the target interpreter's loader looks for libraries, once it has imported torch."""

    system: System
    executable: str = ""
    prefix: str = ""
    """The prefix whose interpreter runs: the base one of a venv."""
    sites: tuple[str, ...] = ()
    torch_folder: str | None = None
    conda: bool = False
    _known: dict[tuple[str, str], str | None] = field(default_factory=dict)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders that are searched for every library, in the loader's order."""
        env = self.system.env
        if self.system.name == "windows":
            root = env.get("SYSTEMROOT", "C:\\Windows").replace("\\", "/")
            own = (f"{self.prefix}", f"{self.prefix}/DLLs", f"{self.prefix}/Library/bin", f"{root}/System32")
            return (*self.torch_folders, *own)
        folders = [*_split_path(env.get("LD_LIBRARY_PATH", "")), *self.torch_folders]
        if self.conda:  # its interpreter carries RPATH $ORIGIN/../lib, which holds for all it loads
            folders.append(f"{self.prefix}/lib")
        folders += self._configured()
        return tuple(dict.fromkeys((*folders, *system_folders(self.system))))

    @cached_property
    def torch_folders(self) -> tuple[str, ...]:
        """Folders whose libraries are in the process once torch was imported (all of ``nvidia/*/lib`` is taken for it)."""
        folders = [f"{self.torch_folder}/lib"] if self.torch_folder else []
        inside = "bin" if self.system.name == "windows" else "lib"
        for site in self.sites:
            folders += [f"{site}/nvidia/{name}/{inside}" for name in self.system.listdir(f"{site}/nvidia")]
        return tuple(folders)

    @cached_property
    def torch_libraries(self) -> tuple[str, ...]:
        if not self.torch_folder:
            return ()
        form = "{}.dll" if self.system.name == "windows" else "lib{}.so"
        paths = [f"{self.torch_folder}/lib/{form.format(name)}" for name in TABLES["torch_libraries"]]
        return tuple(filter(self.system.exists, paths))

    def find(self, name: str, rpath: Sequence[str] = (), origin: str = "") -> str | None:
        """The file that a needed library name leads to; None when there is none."""
        for folder in rpath:
            path = f"{folder.replace('${ORIGIN}', origin).replace('$ORIGIN', origin)}/{name}"
            if self.system.exists(path):
                return path
        # only on Windows the folder of who needs it counts by itself
        key = (name, origin if self.system.name == "windows" else "")
        if key not in self._known:
            self._known[key] = self._search(name, origin)
        return self._known[key]

    def _search(self, name: str, origin: str) -> str | None:
        paths = [f"{folder}/{name}" for folder in self.folders]
        if "/" in name:
            paths = [name]
        elif self.system.name == "windows":
            # forwarders that no folder holds are resolved by the system itself
            if name.lower().startswith(("api-ms-", "ext-ms-")):
                return name
            paths.insert(0, f"{origin}/{name}")
        return next(filter(self.system.exists, paths), None)

    def _configured(self) -> list[str]:
        """Folders of ld.so.conf, and of the files that it includes on every distribution; ldconfig makes the loader's cache
        from them."""
        names = [name for name in self.system.listdir("/etc/ld.so.conf.d") if name.endswith(".conf")]
        files = [*(f"/etc/ld.so.conf.d/{name}" for name in names), "/etc/ld.so.conf"]
        lines = [line.strip() for file in files for line in (self.system.read(file) or "").splitlines()]
        return [line.partition("#")[0].rstrip() for line in lines if line.startswith("/")]


def system_folders(system: System) -> tuple[str, ...]:
    """Return the folders of libraries that loader and linker search when nothing names another, in their order."""
    triplet = f"{system.machine}-linux-gnu"
    return (f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


def loaded_libcuda(system: System) -> Fact[tuple[str, ...]]:
    """Every ``libcuda.so.1`` the loader would meet, the one it takes first, with links followed."""
    folders = Loader(system).folders
    if not any(system.exists(f"{folder}/libc.so.6") for folder in folders):
        return unknown("the loader's folders could not be looked at")
    paths = [f"{folder}/libcuda.so.1" for folder in folders]
    real = dict.fromkeys(system.realpath(path) for path in paths if system.exists(path))
    return Fact(tuple(real), "LD_LIBRARY_PATH, ld.so.conf and the loader's own folders")


def linkable_libcuda(system: System) -> Fact[tuple[str, ...]]:
    """Every ``libcuda.so`` that ``-lcuda`` can find without further flags: in LIBRARY_PATH and the system's folders."""
    folders = _split_path(system.env.get("LIBRARY_PATH", ""))
    paths = [f"{folder}/libcuda.so" for folder in (*folders, *system_folders(system), "/usr/local/lib")]
    return Fact(tuple(filter(system.exists, paths)), "LIBRARY_PATH and the linker's own folders")


def missing_graphics(system: System) -> Fact[tuple[str, ...]]:
    """Headers of OpenGL and EGL that nvdiffrast's GL rasterizer includes and that are not here."""
    if not system.exists("/usr/include/stdlib.h"):
        return unknown("no C headers in /usr/include to judge by")
    folders = ["/usr/include", "/usr/local/include"]
    if system.env.get("CONDA_PREFIX"):
        folders.append(f"{system.env['CONDA_PREFIX']}/include")
    here = {name for name in _GRAPHICS for folder in folders if system.exists(f"{folder}/{name}")}
    return Fact(tuple(name for name in _GRAPHICS if name not in here), ", ".join(folders))


def header_copies(system: System) -> Fact[tuple[HeaderCopy, ...]]:
    """CUB and Thrust in folders that compilers search before or beside the toolkit's own."""
    searched = []  # by compilers, in their order, and why
    for variable in ("CPATH", "CPLUS_INCLUDE_PATH", "CUB_HOME"):
        searched += [(folder, variable) for folder in _split_path(system.env.get(variable, ""))]
    if system.env.get("CONDA_PREFIX"):
        searched.append((f"{system.env['CONDA_PREFIX']}/include", "CONDA_PREFIX"))
    searched += [(folder, "the compiler's own search") for folder in ("/usr/local/include", "/usr/include")]
    copies: dict[str, HeaderCopy] = {}
    for folder, via in searched:
        thrust = _version(system.read(f"{folder}/thrust/version.h"), "THRUST_VERSION")
        cub = cub_version(system, folder)
        if cub or thrust:
            copies.setdefault(system.realpath(folder), HeaderCopy(folder, via, cub, thrust))
    return Fact(tuple(copies.values()), "CPATH, CPLUS_INCLUDE_PATH, CUB_HOME and the usual include folders")


def cub_version(system: System, folder: str) -> str:
    """``2.3.2`` from ``cub/version.cuh`` below an include folder; "" when it is not there."""
    return _version(system.read(f"{folder}/cub/version.cuh"), "CUB_VERSION")


def container_toolkit(system: System) -> Fact[tuple[str, ...]]:
    """What of NVIDIA's container toolkit is here, where docker is; unknown without docker."""
    if not which_all(system, "docker"):
        return unknown("there is no docker on PATH")
    parts = [path for name in TABLES["container_toolkit"] for path in which_all(system, name)[:1]]
    return Fact((*parts, *filter(system.exists, _CDI)), "PATH and /etc/cdi")


def missing_msvc_runtime(system: System) -> Fact[tuple[str, ...]]:
    """DLLs of the Visual C++ redistributable that are not in System32."""
    folder = f"{system.env.get('SYSTEMROOT') or 'C:/Windows'}/System32".replace("\\", "/")
    if not system.exists(f"{folder}/kernel32.dll"):
        return unknown("System32 could not be looked at")
    return Fact(tuple(name for name in _MSVC_RUNTIME if not system.exists(f"{folder}/{name}")), folder)


def colmap(system: System) -> Fact[Colmap]:
    """Version of the COLMAP on PATH, and whether it says of itself that it was built with CUDA."""
    if not which_all(system, "colmap"):
        return absent("no colmap on PATH", "PATH")
    done = system.run(["colmap", "help"])
    version = captured(r"COLMAP (\d[\d.]*)", done.stdout)
    if not version:
        return unknown(f"colmap help: {done.why() or 'no version in its answer'}")
    built = captured(r"\b(with|without) CUDA\b", done.stdout)
    return Fact(Colmap(version.rstrip("."), {"with": True, "without": False}.get(built)), "colmap help")


def _split_path(value: str) -> list[str]:
    return [folder for folder in value.split(":") if folder]


def _version(text: str | None, macro: str) -> str:
    """``#define CUB_VERSION 200302`` -> ``2.3.2`` (major * 100000 + minor * 100 + patch, as the headers say)."""
    number = whole_number(captured(rf"^\s*#\s*define\s+{macro}\s+(\d+)", text or "", re.MULTILINE))
    if number is None:
        return ""
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
