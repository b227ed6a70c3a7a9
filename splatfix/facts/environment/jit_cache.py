"""Extensions that torch compiled at first use and keeps: where they are, how old they are, what they were built for."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Any

from splatfix.binaries import Binary, BinaryError
from splatfix.facts.environment.extensions import links_torch
from splatfix.facts.environment.linkage import read_linkage
from splatfix.facts.machine.libraries import Loader
from splatfix.facts.model.environment import JitCache, Torch
from splatfix.facts.model.fact import FatbinGroup, group_fatbins
from splatfix.facts.system.live import System

# Folder of one Python and CUDA, as torch/utils/cpp_extension.py (_get_build_directory) names it: py311_cu130, py312t_cpu.
_TAG = re.compile(r"py\d+[a-z]*_(cpu|cu\d+|rocm?\w*)")

_ARCH_FLAG = re.compile(r"-gencode[= ]\S+|-arch[= ]\S+")


def cache_roots(system: System) -> tuple[tuple[str, bool], ...]:
    """Folders that may hold the cache, each with whether TORCH_EXTENSIONS_DIR names it.

    torch puts its own tag between the default folder and the extensions, and none where the variable is set.
    """
    if named := system.env.get("TORCH_EXTENSIONS_DIR"):
        return ((named.replace("\\", "/").rstrip("/"), True),)
    env = system.env
    if system.name == "windows":
        base = env.get("LOCALAPPDATA", "").replace("\\", "/")
        return ((f"{base}/torch_extensions/torch_extensions/Cache", False),) if base else ()
    if system.name == "darwin":
        return ((f"{env['HOME']}/Library/Caches/torch_extensions", False),) if env.get("HOME") else ()
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    return ((f"{base}/torch_extensions", False),) if base else ()


def own_tag(raw: Mapping[str, Any], torch: Torch | None) -> str:
    """The tag of the target environment: its Python and its torch's CUDA; "" without a torch."""
    if torch is None:
        return ""
    major, minor = str(raw["version"]).split(".")[:2]
    cuda = f"cu{torch.cuda.replace('.', '')}" if torch.cuda else "cpu"
    return f"py{major}{minor}{raw.get('abiflags', '')}_{cuda}"


def read_jit_caches(loader: Loader, tag: str) -> tuple[JitCache, ...]:
    """Every cached extension. Only those that the target environment would load are looked at for missing symbols."""
    system = loader.system
    found: list[JitCache] = []
    binaries: dict[str, Binary] = {}
    for root, named in cache_roots(system):
        for folder, folder_tag in _folders(system, root):
            current = (named and not folder_tag) or (bool(tag) and folder_tag == tag)
            item = _read(system, folder, folder_tag, current, binaries)
            if item is not None:
                found.append(item)
    linkage = read_linkage(loader, binaries) if binaries else {}
    return tuple(
        dataclasses.replace(item, linkage=linkage[item.library]) if item.library in linkage else item
        for item in found
    )


def _folders(system: System, root: str) -> Iterator[tuple[str, str]]:
    for name in system.listdir(root):
        if _TAG.fullmatch(name):
            for child in system.listdir(f"{root}/{name}"):
                yield f"{root}/{name}/{child}", name
        else:
            yield f"{root}/{name}", ""


def _read(
    system: System, folder: str, tag: str, current: bool, binaries: dict[str, Binary]
) -> JitCache | None:
    names = system.listdir(folder)
    name = folder.rsplit("/", 1)[-1]
    libraries = [f"{folder}/{item}" for item in names if item.endswith((".so", ".pyd"))]
    # torch numbers a library anew (name_v1.so) when it recompiles in one process; the newest is what it loads
    library = max(libraries, key=lambda path: system.modified(path) or 0.0, default=None)
    if library is None and not {"build.ninja", "lock"} & set(names):
        return None
    ninja = system.read(f"{folder}/build.ninja") or ""
    error = ""
    code: tuple[FatbinGroup, ...] = ()
    if library is not None:
        try:
            binary = system.read_binary(library)
            code = group_fatbins(binary.fatbins)
            if current and links_torch(binary):
                binaries[library] = binary
        except (BinaryError, OSError) as problem:
            error = str(problem)
    torch = re.search(r"-(?:isystem|I)\s*(\S+?/torch)/include\b", ninja)
    nvcc = re.search(r"^nvcc\s*=\s*(\S+?)/bin/nvcc", ninja, re.MULTILINE)
    return JitCache(
        name=name,
        folder=folder,
        tag=tag,
        current=current,
        built=_when(system, library),
        locked=_when(system, f"{folder}/lock") if "lock" in names else None,
        library=library,
        code=code,
        torch_folder=torch.group(1) if torch else "",
        cuda_home=nvcc.group(1) if nvcc else "",
        gencode=tuple(dict.fromkeys(_ARCH_FLAG.findall(ninja))),
        error=error,
    )


def _when(system: System, path: str | None) -> str | None:
    seconds = system.modified(path) if path else None
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).isoformat(timespec="seconds")
