"""Whether a compiled extension needs a GPU, for those who would run it on the CPU. Standard library only."""

from __future__ import annotations

import mmap
from pathlib import Path

# Names of CUDA's and HIP's libraries, and of the section with GPU code: an extension that holds none of them runs on the CPU.
_SIGNS = (
    b"libcudart",
    b"libc10_cuda",
    b"libtorch_cuda",
    b".nv_fatbin",
    b"libamdhip64",
    b"cudart64",
    b"c10_cuda.dll",
)


def needs_gpu(library: Path) -> bool:
    """Whether a shared library links CUDA or HIP, or holds code for a GPU. One that cannot be read counts as such: most are."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(sign) >= 0 for sign in _SIGNS)
    except (OSError, ValueError):  # ValueError: it is empty
        return True
