"""Finds NVIDIA's and binutils' own tools, and asks them what the reader should have said."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from splatfix.binaries import Binary, EntryKind

IN_LANE = os.environ.get("SPLATFIX_NATIVE_LANE") == "1"
_Found = TypeVar("_Found")


def required(found: _Found | None, what: str) -> _Found:
    """What was looked for; if it is missing, skip, or fail where the native lane promised it."""
    if found is not None:
        return found
    if IN_LANE:
        pytest.fail(f"the native lane lacks {what}")
    pytest.skip(f"needs {what}")


def tool(name: str) -> str:
    """A program of the system."""
    return required(shutil.which(name), f"`{name}` on PATH")


def run(*command: str | os.PathLike[str], cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def cuda_root() -> Path:
    """A toolkit root with a real nvcc."""
    for folder in filter(None, (os.environ.get("SPLATFIX_CUDA_HOME"), "/usr/local/cuda")):
        if (Path(folder) / "bin" / "nvcc").is_file():
            return Path(folder)
    return required(None, "a CUDA toolkit (SPLATFIX_CUDA_HOME or /usr/local/cuda)")


NATIVE_PYTHON = shutil.which(os.environ.get("SPLATFIX_NATIVE_PYTHON", ""))
"""The interpreter of an environment with a CUDA build of torch."""


def native_packages() -> Path:
    """Its site-packages."""
    python = required(NATIVE_PYTHON, "SPLATFIX_NATIVE_PYTHON, an interpreter with a CUDA build of torch")
    return Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


@cache
def cuobjdumps() -> tuple[str, ...]:
    """Every cuobjdump at hand: SPLATFIX_CUOBJDUMP, PATH, or distributions of this and the native environment."""
    found = [os.environ.get("SPLATFIX_CUOBJDUMP") or shutil.which("cuobjdump")]
    folders = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    folders += [native_packages()] if NATIVE_PYTHON else []
    # triton's copy comes last: it is older than that of nvidia-cuda-cuobjdump
    for pattern in ("nvidia/*/bin/cuobjdump", "triton/backends/nvidia/bin/cuobjdump"):
        for folder in folders:
            found += map(str, sorted(folder.glob(pattern), reverse=True))
    tools = tuple(dict.fromkeys(filter(None, found)))
    return required(tools or None, "cuobjdump (pip install nvidia-cuda-cuobjdump)")


class Refused(Exception):
    """No cuobjdump at hand can read a file: the 13.x ones call some sm_70 code of CUDA 12.1 an invalid ELF."""


class Seen(NamedTuple):
    """One piece of device code, as far as both cuobjdump and the reader describe it."""

    kind: EntryKind
    arch: str
    ptx_version: tuple[int, int] | None
    compressed: bool
    debug: bool


_KINDS = {"elf": EntryKind.SASS, "ptx": EntryKind.PTX, "nvvm": EntryKind.LTO}
_HEAD = re.compile(r"^Fatbin (\w+) code:$", re.MULTILINE)
_NO_CODE = "does not contain device code"


def _cuobjdump(*arguments: str | os.PathLike[str]) -> str:
    complaints = []
    for program in cuobjdumps():
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="replace", timeout=900
        )
        output = done.stdout + done.stderr
        if done.returncode == 0 or _NO_CODE in output:
            return output
        complaints.append(f"{program}: {done.stderr.strip()}")
    raise Refused("\n".join(complaints))


def dumped(path: Path) -> Counter[Seen]:
    """Every entry by `cuobjdump -all`: link-time code too, and with the `f` that the listings drop."""
    pieces = _HEAD.split(_cuobjdump("-all", path))[1:]
    found: Counter[Seen] = Counter()
    for word, text in zip(pieces[::2], pieces[1::2], strict=True):
        lines = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
        kind = _KINDS[word]
        major, minor = re.findall(r"\d+", lines["code version"])
        version = (int(major), int(minor)) if kind is EntryKind.PTX else None
        marks = [mark in text.splitlines() for mark in ("compressed", "has debug info")]
        found[Seen(kind, lines["arch"].strip(), version, *marks)] += 1
    return found


def read(binaries: Iterable[Binary]) -> Counter[Seen]:
    """The reader's answer in the same form."""
    return Counter(
        Seen(entry.kind, entry.arch, entry.ptx_version, entry.compressed is not None, entry.debug)
        for binary in binaries
        for box in binary.fatbins
        for entry in box.entries
    )
