"""NVML (libnvidia-ml): what its error numbers mean for an install, and its numbers for GPU generations."""

from __future__ import annotations

from dataclasses import dataclass

from splatfix.knowledge._tables import table


@dataclass(frozen=True)
class NvmlError:
    """One NVML error."""

    code: int
    name: str
    meaning: str


def nvml_error(code: int) -> NvmlError | None:
    """What an NVML error number means, or None when the table lacks it."""
    row = table("nvml")["errors"].get(str(code))
    return NvmlError(code, row["name"], row["meaning"]) if row else None


def generation(number: int) -> str | None:
    """nvmlDeviceGetArchitecture's number as a name: 10 -> "Blackwell"."""
    row = table("nvml")["architectures"].get(str(number))
    return str(row["name"]) if row else None


def library_names(platform: str) -> tuple[str, ...]:
    """Where NVML lies, in the order of search; empty for a platform that has none."""
    row = table("nvml")["libraries"].get(platform)
    return tuple(row["names"]) if row else ()


def decode_cuda_version(value: int) -> tuple[int, int]:
    """nvmlSystemGetCudaDriverVersion_v2's number: 12040 -> (12, 4)."""
    return value // 1000, value % 1000 // 10
