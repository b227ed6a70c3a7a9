"""The real NVRTC, without a GPU: every kernel for every architecture, what is kept, and what is said where there is none."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from splatfix.binaries import read_binary
from splatfix.context.coverage import judge
from splatfix.install.dropins import KERNEL_VARIANTS
from splatfix.kernels import gsplat_cuda, nvrtc
from splatfix.kernels.nvrtc import Compiler, NoKernels, compile_kernels, find_compiler
from splatfix.knowledge import Arch
from tests.conftest import ROOT
from tools.cuda_kernels import ARCHITECTURES, MODULES, RECORD, grown, measure

from .emulator import stand_in_for_libcuda

SSIM: tuple[str, dict[str, object]] = ("ssim.cu", {})


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPLATFIX_KERNELS", raising=False)
    return tmp_path / "cache" / "kernels"


@pytest.mark.parametrize(
    "architecture", [*(pytest.param(arch, marks=pytest.mark.slow) for arch in (75, 90)), 120]
)
@pytest.mark.parametrize(
    "module",
    [
        *("ssim", "knn", "projection", "binning", "blending", "surfels", "contributions"),
        *("gsplat, points", "gsplat, projection", "gsplat, pixels", "gsplat, surfels"),
    ],
)
def test_the_code_is_for_that_gpu(module: str, architecture: int, compiler: Compiler, tmp_path: Path) -> None:
    file, defines = MODULES[module]
    made = compile_kernels(file, defines, architecture, compiler)
    assert made.log == "", "a warning"
    code = tmp_path / "kernels.cubin"
    code.write_bytes(made.code)
    result = judge(read_binary(code).fatbins, Arch.of_number(architecture))
    assert (result.usable, result.via) == (True, "sass")
    for kernel in json.loads(RECORD.read_text())["architectures"][f"sm_{architecture}"][module]:
        assert f".text.{kernel}\0".encode() in made.code


LISTING = """
#include "tiles.h"
extern "C" __global__ void count(In<Splat> splats, Out<int> counts, int width, int height, real slack, real compact) {
    counts[0] = count_tiles(splats[0], width, height, slack, compact);
}
extern "C" __global__ void logarithm(In<real> given, Out<real> result) { result[0] = log2(given[0]); }
"""


def test_nothing_of_a_tile_list_is_left_to_be_fused(compiler: Compiler) -> None:
    """ptxas may fuse a product and a sum of which neither has a rounding; fused already is only what the logarithm is made of."""
    options = [*nvrtc._OPTIONS, "--gpu-architecture=compute_90"]
    fused = {}
    for name, source in (("binning.cu", nvrtc._texts("binning.cu")["binning.cu"]), ("count.cu", LISTING)):
        headers = {**nvrtc._texts("binning.cu"), "common.h": nvrtc._texts("common.h")["common.h"]}
        ptx = compiler.compile(source, name, headers, options, cubin=False)[0].decode()
        for text in ptx.split(".visible .entry ")[1:]:
            products = set(re.findall(r"\bmul\.f(?:32|64)\s+(%\w+),", text))
            sums = re.findall(r"\b(?:add|sub)\.f(?:32|64)\s+%\w+, (%?\w+), (%?\w+);", text)
            assert not products & {operand for both in sums for operand in both}
            assert not re.search(r"\bmad\.\w*\.?f(32|64)", text)
            fused[text.split("(")[0]] = len(re.findall(r"\bfma\.", text))
    assert fused["logarithm"] > 0
    assert fused["count"] == fused["logarithm"] and fused["list_pairs"] == 2 * fused["logarithm"]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_kernel_takes_more_than_recorded(architecture: int, compiler: Compiler) -> None:
    """Registers, spills and memory, by the NVRTC of the record: `python -m tools.cuda_kernels` writes it anew."""
    record = json.loads(RECORD.read_text())
    if record["nvrtc"] != ".".join(map(str, compiler.version)):
        pytest.skip(f"the record is of NVRTC {record['nvrtc']}")
    for module in MODULES:
        result, code = measure(module, architecture, compiler)
        assert result and not grown(result, record["architectures"][f"sm_{architecture}"][module]), module
        assert len(code) <= 1.05 * record["bytes"][f"sm_{architecture}"][module]


def test_nothing_spills() -> None:
    record = json.loads(RECORD.read_text())["architectures"]
    assert record.keys() == {f"sm_{number}" for number in ARCHITECTURES}
    modules = [module for of_architecture in record.values() for module in of_architecture.values()]
    assert not any(kernel["spilled"] for module in modules for kernel in module.values())


def test_what_was_compiled_is_kept(cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compile", lambda *_: (bytes(range(100)), ""))
    first = compile_kernels(*SSIM, 120, compiler)
    second = compile_kernels(*SSIM, 120, compiler)
    assert (first.cached, second.cached) == (False, True) and first.code == second.code
    (kept,) = cache.rglob("*.cubin")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    for damaged in (bytes(content), content[:-1], b"", b"nonsense"):
        kept.write_bytes(damaged)
        again = compile_kernels(*SSIM, 120, compiler)
        assert not again.cached and again.code == first.code
    assert compile_kernels(*SSIM, 120, compiler).cached
    assert not compile_kernels(*SSIM, 90, compiler).cached


@pytest.mark.slow
def test_the_first_call_takes_seconds_and_the_next_process_milliseconds(compiler: Compiler) -> None:
    """All kernels of a training on an RTX 50: at most 5 s, and 50 ms where they are kept. Of this processor, not of the clock."""
    expected = [("ssim.cu", {}), ("knn.cu", {}), ("projection.cu", {})]
    for name in ("binning.cu", "blending.cu"):
        expected += [(name, options) for options in KERNEL_VARIANTS[name]]
    taken = []
    for most in (5.0, 0.05):
        started = time.process_time()
        for name, defines in expected:
            compile_kernels(name, defines, 120, compiler)
        taken.append(time.process_time() - started)
        assert taken[-1] < most, taken


def test_a_cache_that_cannot_be_written(
    cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(compiler, "compile", lambda *_: (b"code", ""))
    monkeypatch.setenv("SPLATFIX_CACHE", str(tmp_path / "file"))
    assert compile_kernels(*SSIM, 120, compiler).code
    assert compile_kernels(*SSIM, 120, compiler).code


def test_processes_at_once_share_the_cache(cache: Path) -> None:
    code = "from splatfix.kernels.nvrtc import compile_kernels; print(); compile_kernels('ssim.cu', {}, 90)"
    other = subprocess.Popen([sys.executable, "-uc", code], cwd=ROOT, stdout=subprocess.PIPE)
    assert other.stdout and other.stdout.readline()
    compile_kernels(*SSIM, 90)
    assert other.wait(120) == 0
    assert [path.suffix for path in cache.rglob("*.*.*")] == [] and len(list(cache.rglob("*.cubin"))) == 1


def test_a_gpu_newer_than_the_compiler_gets_ptx(compiler: Compiler) -> None:
    made = compile_kernels(*SSIM, 130, compiler)
    assert made.target == f"compute_{compiler.architectures[-1]}" and b".entry ssim_forward" in made.code


def test_a_gpu_older_than_the_compiler_is_refused(compiler: Compiler) -> None:
    with pytest.raises(NoKernels, match=r"sm_75 and newer, and this GPU is sm_61"):
        compile_kernels(*SSIM, 61, compiler)


def test_errors_of_the_compiler_are_told(compiler: Compiler) -> None:
    with pytest.raises(NoKernels, match=r"does not compile blending\.cu: blending\.cu\(\d+\): error"):
        compile_kernels("blending.cu", {"COLORS": "nonsense"}, 120, compiler)


def test_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_libraries", lambda: iter(()))
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(NoKernels, match="no CUDA build"):
        find_compiler()
    for cuda, package in (("12.8", "nvidia-cuda-nvrtc-cu12"), ("13.0", "nvidia-cuda-nvrtc")):
        monkeypatch.setattr(torch.version, "cuda", cuda)
        with pytest.raises(NoKernels, match=rf"No NVRTC of CUDA {cuda} was found .*: pip install {package}$"):
            find_compiler()


def test_a_library_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libnvrtc.so.13").write_text("no library")
    monkeypatch.setattr(nvrtc, "_libraries", lambda: iter((str(tmp_path / "libnvrtc.so.13"), "libm.so.6")))
    with pytest.raises(NoKernels, match=r"libm\.so\.6 is too old"):
        find_compiler()


def test_falling_back_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "ran", {})
    with pytest.warns(RuntimeWarning, match="no driver"):
        nvrtc.fall_back("knn", "no driver")
    nvrtc.fall_back("knn", "no driver")
    assert nvrtc.ran == {"knn": "torch: no driver"}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """A library in the place of libcuda that writes down how it is called: no GPU is needed to see what a launch passes."""
    loaded, real = stand_in_for_libcuda(tmp_path), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: loaded if name == "libcuda.so.1" else real(name))
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(nvrtc, "_current_stream", lambda device: 50 + device)
    loaded.calls.restype = ctypes.c_char_p
    return loaded


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is an ELF library")
def test_how_the_driver_is_called(driver: ctypes.CDLL) -> None:
    module, grid = nvrtc.Module(nvrtc._Driver(), b"the code", 2), (3, 4, 1)
    given = [torch.zeros(2), -5, None, 0.5]
    module.launch("kernel", grid, 32, given)
    nvrtc.Module(nvrtc._Driver(), b"of another GPU", 3)
    module.launch("kernel", grid, 32, given)
    launched = "launch 8: 3 4 1, 32 1 1, 0, stream 52: 1 -5 0 0.5, 1 2 28 0"
    assert driver.calls().decode().splitlines() == [
        *("context 142", "the code", "kernel", launched),
        *("context 143", "of another GPU"),
        *("context 142", launched),
    ]
    with pytest.raises(RuntimeError, match=r"cuLaunchKernel: something \(CUDA driver error 1\)"):
        module.launch("kernel", (99, 1, 1), 32, given)
    for place, item, takes in (
        (0, 5, "5, and the kernel takes a tensor or None"),
        (1, 2**31, "2147483648, and the kernel takes an integer of 32 bits"),
        (1, given[0], "a tensor, and the kernel takes an integer of 32 bits"),
        (3, "0.5", "'0.5', and the kernel takes a float of 32 bits"),
    ):
        with pytest.raises(TypeError, match=re.escape(f"kernel: argument {place} is {takes}")):
            module.launch("kernel", grid, 32, [*given[:place], item, *given[place + 1 :]])
    with pytest.raises(TypeError, match="kernel takes 4 arguments, not 3"):
        module.launch("kernel", grid, 32, given[:3])
    with pytest.raises(NoKernels, match="no kernel image is available"):
        nvrtc.Module(nvrtc._Driver(), b"no image", 0)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is an ELF library")
def test_more_numbers_than_a_kernel_counts_are_left_to_pytorch(
    driver: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = nvrtc.Module(nvrtc._Driver(), b"the code", 2)
    monkeypatch.setattr(gsplat_cuda, "module", lambda *_: kernels)
    for numbers in (2**31 - 1, 2**31):
        state = [torch.empty(numbers, device="meta") for _ in range(4)]
        with pytest.raises(NoKernels, match="2147483648 threads") if numbers == 2**31 else nullcontext():
            gsplat_cuda.KERNELS["adam"](*state, None, 1e-2, 0.9, 0.999, 1e-8)
    assert driver.calls().decode().count("launch") == 1


def test_threads_pass_what_is_theirs() -> None:
    """The driver is called without Python's lock, so that another thread may pack its arguments meanwhile."""
    both = threading.Barrier(2)

    def place() -> int:
        both.wait(60)
        return nvrtc._thread.passed.extra[1]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(place), pool.submit(place)
        assert first.result() != second.result()
