"""Where the dynamic loader of a target interpreter looks for libraries; nothing is loaded to know it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from splatfix.facts.system import System

# torch's libraries, those first that answer most names. Releases before 2.0 split libtorch_cuda in two.
_TORCH_LIBRARIES = (
    "c10",
    "torch_cpu",
    "torch_python",
    "c10_cuda",
    "torch_cuda",
    "torch_cuda_cpp",
    "torch_cuda_cu",
    "c10_hip",
    "torch_hip",
    "torch",
)


@dataclass(frozen=True)
class Loader:
    """Where the target interpreter's loader looks for libraries, once it has imported torch."""

    system: System
    executable: str
    prefix: str
    """The prefix whose interpreter runs: the base one of a venv."""
    sites: tuple[str, ...]
    torch_folder: str | None
    conda: bool = False
    _found: dict[tuple[str, str], str | None] = field(default_factory=dict, compare=False)

    @cached_property
    def folders(self) -> tuple[str, ...]:
        """Folders that are searched for every library, in the loader's order."""
        env = self.system.env
        if self.system.name == "windows":
            root = env.get("SYSTEMROOT", "C:\\Windows").replace("\\", "/")
            own = (f"{self.prefix}", f"{self.prefix}/DLLs", f"{self.prefix}/Library/bin", f"{root}/System32")
            return (*self.torch_folders, *own)
        folders = [item for item in env.get("LD_LIBRARY_PATH", "").split(":") if item]
        folders += self.torch_folders
        if self.conda:  # its interpreter carries RPATH $ORIGIN/../lib, which holds for all it loads
            folders.append(f"{self.prefix}/lib")
        folders += self._configured("/etc/ld.so.conf")
        triplet = f"{self.system.machine}-linux-gnu"
        folders += [f"/lib/{triplet}", f"/usr/lib/{triplet}", "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
        return tuple(dict.fromkeys(folders))

    @cached_property
    def torch_folders(self) -> tuple[str, ...]:
        """Folders whose libraries are in the process once torch was imported (all of ``nvidia/*/lib`` is taken for it)."""
        found = [f"{self.torch_folder}/lib"] if self.torch_folder else []
        part = "bin" if self.system.name == "windows" else "lib"
        for site in self.sites:
            found += [f"{site}/nvidia/{name}/{part}" for name in self.system.listdir(f"{site}/nvidia")]
        return tuple(found)

    @cached_property
    def torch_libraries(self) -> tuple[str, ...]:
        """Paths of torch's own libraries."""
        form = "{}.dll" if self.system.name == "windows" else "lib{}.so"
        paths = [f"{self.torch_folder}/lib/{form.format(name)}" for name in _TORCH_LIBRARIES]
        return tuple(path for path in paths if self.torch_folder and self.system.exists(path))

    def find(self, name: str, rpath: Sequence[str] = (), origin: str = "") -> str | None:
        """The file that a needed library name leads to; None when it lies nowhere."""
        for folder in rpath:
            path = f"{re.sub(r'[$]ORIGIN|[$][{]ORIGIN[}]', lambda _: origin, folder)}/{name}"
            if self.system.exists(path):
                return path
        key = (name, origin if self.system.name == "windows" else "")
        if key not in self._found:
            self._found[key] = self._search(name, origin)
        return self._found[key]

    def _search(self, name: str, origin: str) -> str | None:
        if "/" in name:
            return name if self.system.exists(name) else None
        if self.system.name == "windows":
            for folder in (origin, *self.folders):
                for entry in self.system.listdir(folder):
                    if entry.lower() == name.lower():
                        return f"{folder}/{entry}"
            # forwarders that no folder holds; the system resolves them itself
            return name if name.lower().startswith(("api-ms-", "ext-ms-")) else None
        for folder in self.folders:
            if self.system.exists(f"{folder}/{name}"):
                return f"{folder}/{name}"
        return None

    def _configured(self, file: str, depth: int = 0) -> list[str]:
        """Folders of ld.so.conf, from which ldconfig makes the loader's cache."""
        folders: list[str] = []
        for line in (self.system.read(file) or "").splitlines():
            text = line.partition("#")[0].strip()
            if text.startswith("include ") and depth < 3:
                pattern = text.split(None, 1)[1]
                folder, _, name = pattern.rpartition("/")
                folder = folder if folder.startswith("/") else f"/etc/{folder}".rstrip("/")
                ending = name.partition("*")[2] if "*" in name else name
                for entry in self.system.listdir(folder):
                    if entry.endswith(ending):
                        folders += self._configured(f"{folder}/{entry}", depth + 1)
            elif text.startswith("/"):
                folders.append(text)
        return folders
