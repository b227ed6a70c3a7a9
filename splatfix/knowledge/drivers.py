"""NVIDIA drivers: which CUDA runtimes and PTX versions each can serve, what GPUs ask of them, and what CUDA errors mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from splatfix.knowledge._tables import (
    Version,
    cached,
    pair,
    parse_version,
    table,
)
from splatfix.knowledge.archs import Arch, arch_info

Platform = Literal["linux", "windows"]
Cuda = tuple[int, int]
PtxIsa = tuple[int, int]


@dataclass(frozen=True)
class DriverFloor:
    """The oldest driver for something, and how sure that is."""

    version: Version
    verified: bool
    note: str
    source: str


@dataclass(frozen=True)
class ErrorCode:
    """One CUDA runtime error: its number, its name in driver_types.h, and what it means in an install."""

    code: int
    name: str
    meaning: str


@dataclass(frozen=True)
class ForwardCompat:
    """The cuda-compat packages: newer libcuda on an older kernel driver, on some GPUs only."""

    package: str
    conda_package: str
    library_dir: str
    variable: str
    supported_on: tuple[str, ...]
    error_elsewhere: int
    note: str
    source: str


@dataclass(frozen=True)
class _Levels:
    branches: tuple[tuple[int, Cuda], ...]
    """First driver branch of each CUDA level, ascending."""
    known_through: int
    """The newest driver branch whose CUDA level was seen."""
    ptx: Mapping[Cuda, PtxIsa]


@cached
def _levels() -> _Levels:
    document = table("drivers")
    branches = sorted((int(branch), pair(row["cuda"])) for branch, row in document["driver_levels"].items())
    return _Levels(
        branches=tuple(branches),
        known_through=max(int(document["driver_levels_known_through"]), branches[-1][0]),
        ptx=dict(sorted((pair(cuda), pair(row["ptx"])) for cuda, row in document["ptx_isa"].items())),
    )


def parse_driver(text: str) -> Version:
    """``"550.144.03"`` -> (550, 144, 3). KnowledgeError (a ValueError) when it is no version.

    Compare drivers as tuples: (580,) is below every 580.x.
    """
    return parse_version(text)


def parse_cuda(cuda: str | Cuda | Version) -> Cuda:
    """``"13.0"``, ``"13.0.2"`` or a tuple -> (13, 0)."""
    return pair(cuda)


def runtime_floor(cuda: int | Cuda, platform: Platform = "linux") -> Version | None:
    """Oldest driver on which code with this CUDA runtime starts at all (minor-version compatibility); None: not known.

    ``cuda`` is the major, or (major, minor): 11.0 has a lower floor of its own. On a driver older than the
    toolkit's own (``native_driver``) cubins run but the toolkit's PTX does not. Source: CUDA release notes, table 2.
    """
    floors = table("drivers")["runtime_floors"]
    row = None
    if isinstance(cuda, int):
        row = floors.get(str(cuda))
    else:
        row = floors.get(f"{cuda[0]}.{cuda[1]}") or floors.get(str(cuda[0]))
    return parse_driver(row[platform]) if row and row.get(platform) else None


def native_driver(cuda: str | Cuda, platform: Platform = "linux", *, update: int = 0) -> Version | None:
    """The driver that came with a toolkit (all features, PTX too); None: not bundled, or not in the table."""
    major, minor = parse_cuda(cuda)
    row = table("drivers")["native"].get(f"{major}.{minor}.{update}")
    return parse_driver(row[platform]) if row and row.get(platform) else None


def cuda_level_of_driver(driver: str | Version) -> Cuda | None:
    """The CUDA version that nvidia-smi shows for this driver (Linux or Windows); None: older or newer than the table.

    Source: the first driver branch of each CUDA level.
    """
    version = parse_driver(driver) if isinstance(driver, str) else driver
    levels = _levels()
    if version[0] > levels.known_through:
        return None
    return _level_at_most(version[0], levels)


def cuda_level_at_least(driver: str | Version) -> Cuda | None:
    """As ``cuda_level_of_driver``, but a driver newer than the table gets the newest known level: a lower bound."""
    version = parse_driver(driver) if isinstance(driver, str) else driver
    return _level_at_most(version[0], _levels())


def _level_at_most(branch: int, levels: _Levels) -> Cuda | None:
    found = None
    for first, cuda in levels.branches:
        if branch >= first:
            found = cuda
    return found


def first_branch_of_cuda(cuda: Cuda) -> int | None:
    """The first driver branch whose CUDA level is ``cuda`` or above; None: not known."""
    return next((branch for branch, level in _levels().branches if level >= cuda), None)


def ptx_isa_of_cuda(cuda: Cuda) -> PtxIsa | None:
    """The PTX version that this toolkit writes, and that a driver of this CUDA level reads; None: not in the table."""
    return _levels().ptx.get(cuda)


def cuda_of_ptx_isa(isa: PtxIsa) -> Cuda | None:
    """The first CUDA version with this PTX version: what a driver must offer; None: not in the table."""
    return next((cuda for cuda, ptx in _levels().ptx.items() if ptx >= isa), None)


def max_ptx_of_driver(driver: str | Version) -> PtxIsa | None:
    """The newest PTX version that this driver's JIT reads; None: not known (see ``driver_runs_ptx``)."""
    level = cuda_level_of_driver(driver)
    return ptx_isa_of_cuda(level) if level else None


def ptx_jit_ok(ptx_isa: PtxIsa, driver_cuda_level: Cuda | None) -> bool | None:
    """Whether a driver of this CUDA level can translate PTX of this version. False means error 222; None: not known."""
    if driver_cuda_level is None:
        return None
    exact = ptx_isa_of_cuda(driver_cuda_level)
    if exact is not None:
        return ptx_isa <= exact
    older = [ptx for cuda, ptx in _levels().ptx.items() if cuda < driver_cuda_level]
    newer = [ptx for cuda, ptx in _levels().ptx.items() if cuda > driver_cuda_level]
    if older and ptx_isa <= max(older):
        return True
    if newer and ptx_isa > min(newer):
        return False
    return None


def driver_runs_ptx(driver: str | Version, ptx_isa: PtxIsa) -> bool | None:
    """As ``ptx_jit_ok`` from a driver version; a driver newer than the table surely reads what the newest known reads."""
    level = cuda_level_of_driver(driver)
    if level is not None:
        return ptx_jit_ok(ptx_isa, level)
    return True if ptx_jit_ok(ptx_isa, cuda_level_at_least(driver)) else None


def error_code(code: int) -> ErrorCode | None:
    """What a CUDA runtime error number means, or None when it is not among those that installs produce."""
    row = table("drivers")["errors"].get(str(code))
    return ErrorCode(code, row["name"], row["meaning"]) if row else None


def error_by_name(name: str) -> ErrorCode | None:
    """As ``error_code``, from a name such as ``cudaErrorNoKernelImageForDevice``."""
    for code, row in table("drivers")["errors"].items():
        if row["name"] == name:
            return ErrorCode(int(code), row["name"], row["meaning"])
    return None


def gpu_driver_floor(arch: Arch) -> DriverFloor | None:
    """The oldest Linux driver that knows this GPU, or None when no source names one."""
    document = table("drivers")
    row = document["gpu_floors"].get(str(arch.number))
    if row is None:
        return None
    source = document["source"].get(row["source"], row["source"])
    return DriverFloor(parse_driver(row["linux"]), row["verified"], row.get("note", ""), source)


def gpu_last_branch(arch: Arch) -> tuple[int, bool] | None:
    """The last driver branch for this GPU and whether that is verified; None: no end known."""
    row = table("drivers")["gpu_ceilings"].get(str(arch.number))
    return (int(row["last_branch"]), bool(row["verified"])) if row else None


def open_modules(arch: Arch) -> Literal["required", "supported", "unsupported"] | None:
    """Whether this GPU takes NVIDIA's open kernel modules; None for an architecture that the table lacks."""
    info = arch_info(arch)
    if info is None:
        return None
    row = table("drivers")["open_modules"]
    if any(re.search(name, info.name) for name in row["required_names"]):
        return "required"
    return "supported" if arch.number >= row["supported_from"] else "unsupported"


def forward_compat() -> ForwardCompat:
    """What is known of the cuda-compat packages."""
    document = table("drivers")
    row = document["forward_compat"]
    return ForwardCompat(
        package=row["package"],
        conda_package=row["conda_package"],
        library_dir=row["library_dir"],
        variable=row["variable"],
        supported_on=tuple(row["supported_on"]),
        error_elsewhere=row["error_elsewhere"],
        note=row["note"],
        source=document["source"].get(row["source"], row["source"]),
    )
