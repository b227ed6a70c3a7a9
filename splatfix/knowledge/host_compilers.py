"""Host compilers: which gcc, clang and MSVC each nvcc accepts (``host_config.h``); torch has a table of its own."""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from splatfix.core import versions
from splatfix.knowledge.rows import rows
from splatfix.knowledge.tables import Version, cached, pair, table, version

Compiler = Literal["gcc", "clang", "msvc"]


class CompilerLimits(Struct, frozen=True):
    """What one nvcc accepts. Maxima are inclusive majors; ``msvc`` is the inclusive range of ``_MSC_VER`` or unknown."""

    gcc_max_major: int
    clang_max_major: int
    msvc: tuple[int, int] | None
    source: str

    def accepts(self, compiler: Compiler, number: int) -> bool | None:
        """Whether nvcc takes gcc or clang of this major, or MSVC of this ``_MSC_VER``; None: not known."""
        if compiler == "gcc":
            return number <= self.gcc_max_major
        if compiler == "clang":
            return number <= self.clang_max_major
        if self.msvc is None:
            return None
        return self.msvc[0] <= number <= self.msvc[1]


@cached
def _limits() -> Mapping[Version, CompilerLimits]:
    return {version(cuda): row for cuda, row in rows(CompilerLimits, "host_compilers", "limits").items()}


def limits(cuda: tuple[int, ...]) -> CompilerLimits | None:
    """The bounds of nvcc of this CUDA (major, minor[, patch]), or None when the table lacks it.

    11.4.0 is stricter than later 11.4 updates; (11, 4) without a patch gets the later ones.
    """
    rows = _limits()
    if cuda[:2] == (11, 4):
        return rows.get((11, 4, 0) if cuda[2:3] == (0,) else (11, 4, 1))
    return rows.get(cuda[:2])


def library_unreadable(cuda: tuple[int, ...], gcc_major: int) -> bool:
    """nvcc of this CUDA accepts this gcc by its header and then cannot read its C++ library."""
    rows = table("host_compilers")["unreadable_libraries"].values()
    return any(pair(row["cuda"]) == cuda[:2] and row["gcc_major"] == gcc_major for row in rows)


def oldest_gcc_of_torch(torch_version: str) -> int | None:
    """The oldest gcc major that the headers of this torch take; None: older than any in use, or not known."""
    release = versions.release(torch_version)[:2]
    rows = table("host_compilers")["torch_headers"].items()
    return max((row["oldest_gcc"] for since, row in rows if release >= version(since)), default=None)


def compiler_check_skipped(torch_version: str, setting: str | None) -> str:
    """Why torch does not hold its own table against the host compiler, in words; "" where it does.

    A torch that was built from source (NVIDIA's containers and Jetson wheels: ``2.9.0a0+50eac811a6.nv25.09``) never does;
    ``setting`` is TORCH_DONT_CHECK_COMPILER_ABI. Source: ``_check_cuda_version``, which a test holds this against.
    """
    off = table("cpp_extension")["compiler_check_off"]
    if setting in off["values"]:
        return f"{off['variable']}={setting}"
    if re.match(r"\d+\.\d+\.\d+\w+\+\w+", torch_version):
        return "this torch was built from source"
    return ""
