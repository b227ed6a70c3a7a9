"""NVIDIA drivers: which CUDA runtimes and PTX versions each can serve, what GPUs ask of them, and why CUDA does not start."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from splatfix.knowledge.archs import Arch
from splatfix.knowledge.rows import row_of
from splatfix.knowledge.tables import Version, cached, pair, parse_version, source_of, table, version

Platform = Literal["linux", "windows"]
Cuda = tuple[int, int]
PtxIsa = tuple[int, int]

FORWARD_COMPAT_REFUSED = 804
"""cudaErrorCompatNotSupportedOnDevice: a cuda-compat libcuda on a GPU that it is not for."""


class StartFailure(Struct, frozen=True):
    """Why ``cuInit`` refuses, by its code."""

    name: str
    """Such as ``CUDA_ERROR_SYSTEM_NOT_READY``."""
    means: str
    remedy: tuple[str, ...]
    """What helps, in order; a line that begins with ``$ `` is a command."""
    container_remedy: tuple[str, ...] = ()
    """What helps a container, where that is something else."""


@cached
def _branches() -> list[tuple[int, Cuda]]:
    """The first driver branch of each CUDA level, ascending."""
    rows = table("drivers")["driver_levels"].items()
    return sorted((int(branch), pair(row["cuda"])) for branch, row in rows)


@cached
def _ptx() -> Mapping[Cuda, PtxIsa]:
    return dict(sorted((pair(cuda), pair(row["ptx"])) for cuda, row in table("drivers")["ptx_isa"].items()))


def runtime_floor(cuda: int | Cuda, platform: Platform = "linux") -> Version | None:
    """Oldest driver on which code with this CUDA runtime starts at all (minor-version compatibility); None: not known.

    ``cuda`` is the major, or (major, minor): 11.0 has a lower floor of its own. On a driver older than the
    toolkit's own (``native_driver``) cubins run but the toolkit's PTX does not. Source: CUDA release notes, table 2.
    """
    row = _floor_row(cuda)
    if not row or not row.get(platform):
        return None
    return parse_version(row[platform])


def _floor_row(cuda: int | Cuda) -> Mapping[str, Any] | None:
    floors: Mapping[str, Any] = table("drivers")["runtime_floors"]
    if isinstance(cuda, int):
        return floors.get(str(cuda))
    return floors.get(f"{cuda[0]}.{cuda[1]}") or floors.get(str(cuda[0]))


def source_of_floors(cuda: Cuda | None, archs: Iterable[Arch]) -> str:
    """Where the tables have :func:`runtime_floor` and :func:`gpu_driver_floor` from."""
    gpus = table("drivers")["gpu_floors"]
    rows = [gpus.get(str(arch.number)) for arch in archs]
    if cuda is not None:
        rows.insert(0, _floor_row(cuda))
    return "; ".join(dict.fromkeys(source_of("drivers", row) for row in rows if row))


def cuda_level_of_driver(driver: str | Version) -> Cuda | None:
    """The CUDA version that nvidia-smi shows for this driver (Linux or Windows); None: older or newer than the table.

    Source: the first driver branch of each CUDA level.
    """
    # a branch that is newer than what was looked at may be of the next CUDA level
    known_through = max(int(table("drivers")["driver_levels_known_through"]), _branches()[-1][0])
    if version(driver)[0] > known_through:
        return None
    return cuda_level_at_least(driver)


def cuda_level_at_least(driver: str | Version) -> Cuda | None:
    """As ``cuda_level_of_driver``, but a driver newer than the table gets the newest known level: a lower bound."""
    branch = version(driver)[0]
    return next((level for first, level in reversed(_branches()) if first <= branch), None)


def first_branch_of_cuda(cuda: Cuda) -> int | None:
    """The first driver branch whose CUDA level is ``cuda`` or above; None: not known."""
    return next((branch for branch, level in _branches() if level >= cuda), None)


def ptx_isa_of_cuda(cuda: Cuda) -> PtxIsa | None:
    """The PTX version that this toolkit writes, and that a driver of this CUDA level reads; None: not in the table."""
    return _ptx().get(cuda)


def cuda_of_ptx_isa(isa: PtxIsa) -> Cuda | None:
    """The first CUDA version with this PTX version: what a driver must offer; None: not in the table."""
    return next((cuda for cuda, ptx in _ptx().items() if ptx >= isa), None)


def ptx_jit_ok(ptx_isa: PtxIsa, driver_cuda_level: Cuda | None) -> bool | None:
    """Whether a driver of this CUDA level can translate PTX of this version. False means error 222; None: not known."""
    if driver_cuda_level is None:
        return None
    # what older levels read it reads too, and no more than newer ones
    least = max((ptx for cuda, ptx in _ptx().items() if cuda <= driver_cuda_level), default=None)
    most = min((ptx for cuda, ptx in _ptx().items() if cuda >= driver_cuda_level), default=None)
    if least and ptx_isa <= least:
        return True
    return False if most and ptx_isa > most else None


def gpu_driver_floor(arch: Arch) -> Version | None:
    """The oldest Linux driver that knows this GPU, or None when no source names one."""
    row = table("drivers")["gpu_floors"].get(str(arch.number))
    return None if row is None else parse_version(row["linux"])


def gpu_last_branch(arch: Arch) -> tuple[int, bool] | None:
    """The last driver branch for this GPU and whether that is verified; None: no end known."""
    row = table("drivers")["gpu_ceilings"].get(str(arch.number))
    if row is None:
        return None
    return int(row["last_branch"]), bool(row["verified"])


def driver_words(driver: tuple[int, ...]) -> str:
    """A driver's version as NVIDIA writes it: ``(450, 80, 2)`` -> ``450.80.02``."""
    major, *others = driver
    return ".".join([str(major), *(f"{part:02d}" for part in others)])


def meaning_of_xid(code: int) -> str | None:
    """What an error that the driver logs says of the card; None where it is a program's, or not in the table."""
    row = table("drivers")["xids"].get(str(code))
    return None if row is None else str(row["means"])


def start_failure(code: int) -> StartFailure | None:
    """What a code of ``cuInit`` means; None for one that is not in the table."""
    return row_of(StartFailure, "drivers", "cuda_start", str(code))
