"""Build logs as they really look, shortened; each must give the line a person needs to see."""

from __future__ import annotations

import pytest

from splatfix.install.root_cause import find_root_cause

NVCC = """\
  [1/5] /usr/local/cuda/bin/nvcc -c cuda_rasterizer/forward.cu -o forward.o
  FAILED: [code=255] forward.o
  /usr/local/cuda/bin/nvcc -c cuda_rasterizer/forward.cu -o forward.o
  cuda_rasterizer/forward.cu(439): error: namespace "cub" has no member "Max"
      cub::BlockReduce<float, 256>(temp).Reduce(depth, cub::Max());
                                                            ^

  1 error detected in the compilation of "cuda_rasterizer/forward.cu".
  ninja: build stopped: subcommand failed.
  Traceback (most recent call last):
    File "cpp_extension.py", line 2506, in _run_ninja_build
      subprocess.run(
  subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 255.

  The above exception was the direct cause of the following exception:
  RuntimeError: Error compiling objects for extension
  ERROR: Failed building wheel for diff_gaussian_rasterization
"""
GCC = """\
  In file included from cuda_rasterizer/rasterizer_impl.cu:12:
  cuda_rasterizer/rasterizer_impl.h:24:59: error: 'uint32_t' was not declared in this scope
     24 |         uint32_t* tiles_touched;
        |         ^~~~~~~~
  cuda_rasterizer/rasterizer_impl.h:25:10: error: expected ';'
"""
VERSION = """\
  Traceback (most recent call last):
    File "setup.py", line 10, in <module>
      setup(
    File "cpp_extension.py", line 450, in _check_cuda_version
      raise RuntimeError(CUDA_MISMATCH_MESSAGE.format(cuda_str_version, torch.version.cuda))
  RuntimeError:
  The detected CUDA version (12.1) mismatches the version that was used to compile
  PyTorch (13.0). Please make sure to use the same CUDA versions.

  ERROR: Failed building wheel for x
"""
MISSING = """\
  Traceback (most recent call last):
    File "setup.py", line 3, in <module>
      import pybind11
  ModuleNotFoundError: No module named 'pybind11'
  error: subprocess-exited-with-error
"""
LINK = """\
  building 'pkg._C' extension
  g++ -shared forward.o -lcudart -o _C.so
  /usr/bin/ld: cannot find -lcudart: No such file or directory
  collect2: error: ld returned 1 exit status
  error: command '/usr/bin/g++' failed with exit code 1
"""
KILLED = """\
  [3/5] nvcc -c backward.cu
  x.cu:1:1: error: something said by the dying compiler
  nvcc error   : 'cicc' died due to signal 9 (Kill signal)
  ninja: build stopped: subcommand failed.
"""
FULL = """\
  x.cu:1:1: fatal error: error writing to /tmp/ccX.s: No space left on device
"""
ARCH = """\
  nvcc fatal   : Unsupported gpu architecture 'compute_70'
"""


NO_COMPILER = """\
  building 'tiny_probe._C' extension
  gcc -Wall -fPIC -c probe.c -o build/probe.o
  error: [Errno 2] No such file or directory: 'gcc'
  error: subprocess-exited-with-error

  × Building wheel for tiny_probe (pyproject.toml) did not run successfully.
  note: This error originates from a subprocess, and is likely not a problem with pip.
"""
NO_COMPILER_NEWER = "  error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory\n"


@pytest.mark.parametrize(
    ("log", "kind", "line", "hint"),
    [
        (NVCC, "compiler", 'error: namespace "cub" has no member "Max"', "functor"),
        (GCC, "compiler", "'uint32_t' was not declared", "<cstdint>"),
        (VERSION, "python", "RuntimeError:", "--cuda-home"),
        (MISSING, "python", "No module named 'pybind11'", "pip install pybind11"),
        (LINK, "linker", "cannot find -lcudart", "ln -s"),
        (KILLED, "killed", "died due to signal 9", "--jobs 1"),
        (FULL, "disk-full", "No space left on device", "TMPDIR"),
        (ARCH, "compiler", "compute_70", "setup.py"),
        (NO_COMPILER, "no-program", "'gcc'", "build-essential"),
        (NO_COMPILER_NEWER, "no-program", "x86_64-linux-gnu-gcc", "build-essential"),
    ],
)
def test_cause(log: str, kind: str, line: str, hint: str) -> None:
    cause = find_root_cause(log)
    assert cause.kind == kind
    assert line in cause.lines[0]
    assert hint in " ".join(cause.todo)
    assert cause.meaning


def test_code_around_a_compiler_error_is_kept_and_the_next_error_is_not() -> None:
    cause = find_root_cause(GCC)
    assert any("tiles_touched" in line for line in cause.lines)
    assert not any("expected ';'" in line for line in cause.lines)


def test_what_the_code_mentions_is_not_what_is_wrong() -> None:
    log = "x.c:2:17: error: expected expression before ';'\n    2 | uint32_t half = ;\n      |                 ^\n"
    cause = find_root_cause(log)
    assert cause.kind == "compiler" and not cause.todo and not cause.meaning


def test_the_text_of_a_python_error_is_kept() -> None:
    assert any("12.1" in line and "mismatches" in line for line in find_root_cause(VERSION).lines)


def test_a_log_that_says_nothing_known_gives_its_end() -> None:
    cause = find_root_cause("first\n" + "\n".join(f"line {n}" for n in range(20)))
    assert cause.kind == "unknown" and cause.lines == tuple(f"line {n}" for n in range(15, 20))


def test_where_nothing_is_known_the_builds_own_last_words_count() -> None:
    log = "  doing this\n  giving up for no reason\n" + NO_COMPILER.partition("'gcc'\n")[2]
    assert find_root_cause(log).lines == ("doing this", "giving up for no reason")
