"""Runs the CUDA kernels on the CPU: compiled by the host compiler, with cuda_on_cpu.h in the place of CUDA."""

from __future__ import annotations

import ctypes
import functools
import getpass
import hashlib
import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import splatfix.kernels

SOURCES = Path(splatfix.kernels.__file__).parent / "cuda"
HERE = Path(__file__).parent
_SEEDS = itertools.count(1)
COMPILER = shutil.which("g++") or shutil.which("clang++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
CALLERS = ("ssim_cuda", "knn_cuda", "rasterizer_cuda", "surfels_cuda", "contributions_cuda", "gsplat_cuda")
"""The files of `splatfix.kernels` that ask for CUDA kernels."""
OPTIONS = "-std=c++17 -O1 -fwrapv -Wall -Wno-unknown-pragmas -Werror -shared -fPIC"
_KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(')
_BY_NAME = (
    "\nstatic bool run_by_name(const char* name, dim3 g, dim3 b, void** arguments, size_t count) {\n%s}\n"
)
_CASE = 'if (!strcmp(name, "{0}")) return emu::run({0}, g, b, arguments, count), true;\n'


class KernelError(AssertionError):
    """A kernel did what it must not: outside its arrays, a race, a barrier that not all reach."""


class Window(NamedTuple):
    """In the place of an array too long to have: only what is from `start` on, in elements of the tensor."""

    tensor: torch.Tensor
    start: int


class _Raw(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_longlong), ("start", ctypes.c_longlong)]


@functools.cache
def _library(text: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    assert COMPILER is not None
    cases = "".join(_CASE.format(name) for name in _KERNEL.findall(text))
    source = f'{text}{_BY_NAME % (cases + "return false;")}#include "entry.h"\n'
    shim = "".join(header.read_text() for header in sorted([*HERE.glob("*.h"), *SOURCES.glob("*.h")]))
    key = hashlib.sha256(repr((source, shim, flags)).encode()).hexdigest()[:16]
    kept = Path(tempfile.gettempdir(), f"splatfix-emulated-{getpass.getuser()}")
    kept.mkdir(mode=0o700, exist_ok=True)
    library = kept / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory() as folder:
            file, built = Path(folder, "kernels.cpp"), Path(folder, "kernels.so")
            file.write_text(source)
            options = [*OPTIONS.split(), *flags, f"-I{SOURCES}", f"-I{HERE}"]
            argv = [COMPILER, *options, str(file), "-o", str(built)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert not done.returncode, done.stderr[:4000]
            shutil.copy(built, library.with_suffix(f".{Path(folder).name}"))
            library.with_suffix(f".{Path(folder).name}").rename(library)
    return ctypes.CDLL(str(library))


class Emulated:
    """A compiled kernel file whose `launch` is that of `splatfix.kernels.cuda`, for CPU tensors."""

    def __init__(
        self, source: str, defines: Mapping[str, object], dtype: torch.dtype, seed: int | None = None
    ) -> None:
        """`seed`: of the order of threads and blocks; None for another one at every launch."""
        self._real = ctypes.c_double if dtype == torch.float64 else ctypes.c_float
        values = {**defines, "REAL": "double" if dtype == torch.float64 else "float"}
        self._library = _library(source, tuple(f"-D{k}={v}" for k, v in values.items()))
        self.seed = seed

    def launch(
        self, kernel: str, grid: Sequence[int], threads: int, arguments: Sequence[Any], first_block: int = 0
    ) -> None:
        """Run a kernel, or its blocks from `first_block` on; raises `KernelError` with all that it did wrong."""
        if not all(0 < size <= most for size, most in zip(grid, (2**31 - 1, 65535, 65535), strict=False)):
            raise KernelError(f"{kernel}: a grid of {tuple(grid)} is an error of cuLaunchKernel")
        kept = [self._argument(value) for value in arguments]
        pointers = (ctypes.c_void_p * len(kept))(
            *(ctypes.cast(ctypes.pointer(one), ctypes.c_void_p) for one in kept)
        )
        three = ctypes.c_uint * 3
        message = ctypes.create_string_buffer(8000)
        seed = next(_SEEDS) if self.seed is None else self.seed
        sizes = three(*(*grid, 1, 1)[:3]), three(threads, 1, 1), first_block
        given, room = (pointers, ctypes.c_size_t(len(kept))), ctypes.c_size_t(len(message))
        result = self._library.emulate(kernel.encode(), *sizes, *given, seed, message, room)
        if result:
            words = message.value.decode() or "there is no such kernel"
            raise KernelError(f"{kernel} (seed {seed}): {words}")

    def _argument(self, value: Any) -> Any:
        if value is None:
            return _Raw(None, 0, 0)
        if isinstance(value, torch.Tensor):
            value = Window(value, 0)
        if isinstance(value, Window):
            held, size = value.tensor, value.tensor.element_size()
            assert held.is_contiguous()
            return _Raw(held.data_ptr(), held.numel() * size, value.start * size)
        if isinstance(value, float):
            return self._real(value)
        return ctypes.c_int(value)


def stand_in_for_libcuda(folder: Path, *flags: str) -> ctypes.CDLL:
    """The compiled driver.c of this folder."""
    library = folder / "libcuda.so.1"
    argv = ["cc", "-O1", "-shared", "-fPIC", "-w", *flags, str(HERE / "driver.c"), "-o", str(library)]
    subprocess.run(argv, check=True)
    return ctypes.CDLL(str(library))


Module = Callable[[str, Mapping[str, object], torch.Tensor], Emulated]
"""As `splatfix.kernels.nvrtc.module`, for CPU tensors."""


def emulated_module(name: str, defines: Mapping[str, object], like: torch.Tensor) -> Emulated:
    """The kernels of a file as they are."""
    return Emulated((SOURCES / name).read_text(), defines, like.dtype)


def text_with(name: str, file: str, right: str = "", wrong: str = "") -> str:
    """The source of a module, into which `file` is pasted where it includes that; in both, `wrong` for every `right`."""
    text = (SOURCES / name).read_text()
    include = f'#include "{file}"'
    if name == file or include in text:
        text = text.replace(include, (SOURCES / file).read_text().replace("#pragma once", ""))
        assert right in text
        if right:
            text = text.replace(right, wrong)
    return text


def use_kernels(module: Module, patch: pytest.MonkeyPatch) -> None:
    """Whoever asks for kernels gets these."""
    for file in CALLERS:
        patch.setattr(f"splatfix.kernels.{file}.module", module)
