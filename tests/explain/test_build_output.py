"""Build logs as they really look, shortened; each must give the line a person needs to see."""

from __future__ import annotations

import pytest

from splatfix.explain import explain_build, explain_image_build

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
# what pip 26 says around a setup.py that does not get through, with what that said in the middle
AROUND = """\
Processing ./.
  Preparing metadata (pyproject.toml): started
  Running command Preparing metadata (pyproject.toml)
{said}  error: subprocess-exited-with-error

  × Preparing metadata (pyproject.toml) did not run successfully.
  │ exit code: {code}
  ╰─> No available output.

  note: This error originates from a subprocess, and is likely not a problem with pip.
  Preparing metadata (pyproject.toml): finished with status 'error'
error: metadata-generation-failed

× Encountered error while generating package metadata.
note: This is an issue with the package mentioned above, not pip.
hint: See above for details.
"""
TRACE = """\
  Traceback (most recent call last):
    File "_in_process.py", line 406, in <module>
      main()
    File "build_meta.py", line 335, in run_setup
      exec(code, locals())
    File "<string>", line {line}, in <module>
  {said}
"""
OTHER_PYTHON = """\
  Preparing metadata (pyproject.toml): finished with status 'done'
ERROR: Package 'simple-knn' requires a different Python: 3.11.7 not in '>=3.13'
"""
EXIT_0 = """\
ERROR: Exception:
Traceback (most recent call last):
  File "pip/_vendor/pyproject_hooks/_impl.py", line 402, in _call_hook
    data = read_json(pjoin(td, "output.json"))
FileNotFoundError: [Errno 2] No such file or directory: 'output.json'
"""
CMAKE = """\
  -- The CUDA compiler identification is NVIDIA 13.0.88
  CMake Error at CMakeLists.txt:12 (find_package):
    By not providing "FindCGAL.cmake" in CMAKE_MODULE_PATH this project has
    asked CMake to find a package configuration file provided by "CGAL".

  -- Configuring incomplete, errors occurred!
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
    cause = explain_build(log)
    assert cause.kind == kind
    assert line in cause.lines[0]
    assert hint in " ".join(step.line() for step in cause.todo)
    assert cause.meaning


@pytest.mark.parametrize(
    ("said", "code", "kind", "line", "words"),
    [
        (
            TRACE.format(line=2, said="NoGpuHere: no GPU"),
            1,
            "python",
            "NoGpuHere: no GPU",
            "line 2 of setup.py",
        ),
        (TRACE.format(line=9, said="AssertionError"), 1, "python", "AssertionError", "line 9 of setup.py"),
        ("  this needs a licence\n", 1, "unknown", "this needs a licence", ""),
        ("", 7, "unknown", "exit code 7", ""),
        ("", -11, "crash", "SIGSEGV", "crashed"),
        ("", -9, "killed", "SIGKILL", "memory"),
    ],
)
def test_a_setup_script_that_does_not_get_through(
    said: str, code: int, kind: str, line: str, words: str
) -> None:
    cause = explain_build(AROUND.format(said=said, code=code))
    assert cause.kind == kind and line in cause.lines[0]
    assert words in cause.meaning


def test_a_source_for_another_python() -> None:
    cause = explain_build(OTHER_PYTHON)
    assert cause.lines[0].startswith("Package 'simple-knn' requires a different Python")
    assert "3.11.7" in cause.meaning and ">=3.13" in cause.todo[0].line()


def test_a_setup_script_that_ends_as_if_all_were_well() -> None:
    cause = explain_build(EXIT_0)
    assert "exit code 0" in cause.meaning and "sys.exit" in cause.todo[0].line()


def test_what_cmake_misses_is_given_whole() -> None:
    cause = explain_build(CMAKE)
    assert cause.kind == "cmake" and any("CGAL" in line for line in cause.lines)
    assert not any("Configuring incomplete" in line for line in cause.lines)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("g++: error: unrecognized command-line option '-mwindows'", "compiler"),
        ("cc1plus: error: bad value ('sapphire') for '-march=' switch", "compiler"),
        ("gcc-12: fatal error: cannot execute 'cc1plus': No such file or directory", "compiler"),
        ("/tmp/ccq.s:123: Error: no such instruction: `vpdpbusd'", "compiler"),
        ("ptxas /tmp/x.ptx, line 12; error   : Feature '.bf16' requires .target sm_90", "compiler"),
        ("nvlink error   : Undefined reference to '_Z3foov' in 'a.o'", "compiler"),
        ("ninja: error: '/s/a.cu', needed by '/b/a.o', missing and no known rule to make it", "compiler"),
        ("cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes", "killed"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "killed"),
        ("OSError: [Errno 12] Cannot allocate memory", "killed"),
    ],
)
def test_words_of_many_programs(line: str, kind: str) -> None:
    cause = explain_build(f"  [1/9] c++ -c a.cpp\n  {line}\n  error: command failed with exit code 1\n")
    assert (cause.kind, cause.lines[0]) == (kind, line)


@pytest.mark.parametrize(
    "line",
    [
        "[2/9] /usr/bin/g++-12 -c error.cpp -o error.o",
        "cc: warning: error: is a word here",
        "W1121 00:45:04.175 24066 torch/utils/cpp_extension.py:140] No CUDA runtime is found",
        "copying pkg/errors.py -> build/lib/pkg",
    ],
)
def test_lines_that_say_nothing_wrong(line: str) -> None:
    assert explain_build(f"  {line}\n  the real reason\n").lines[-1] == "the real reason"


def test_code_around_an_error_is_kept_the_next_error_not() -> None:
    cause = explain_build(GCC)
    assert any("tiles_touched" in line for line in cause.lines)
    assert not any("expected ';'" in line for line in cause.lines)


def test_what_the_code_mentions_is_not_what_is_wrong() -> None:
    log = "x.c:2:17: error: expected expression before ';'\n    2 | uint32_t half = ;\n      |                 ^\n"
    cause = explain_build(log)
    assert cause.kind == "compiler" and not cause.todo and not cause.meaning


def test_a_log_that_says_nothing_known_gives_its_end() -> None:
    cause = explain_build("first\n" + "\n".join(f"line {n}" for n in range(20)))
    assert cause.kind == "unknown" and cause.lines == tuple(f"line {n}" for n in range(15, 20))


def test_where_nothing_is_known_the_builds_own_last_words_count() -> None:
    log = "  doing this\n  giving up for no reason\n" + NO_COMPILER.partition("'gcc'\n")[2]
    assert explain_build(log).lines == ("doing this", "giving up for no reason")


def test_the_class_of_the_whole_log_and_its_fix_where_the_line_has_none() -> None:
    assert explain_build(GCC).failure_class == "missing_cstdint"
    log = "/usr/bin/ld: cannot find -lEGL: No such file or directory\ncollect2: error: ld returned 1 exit status\n"
    cause = explain_build(log)
    assert (cause.kind, cause.failure_class) == ("linker", "egl_missing")
    assert "EGL" in cause.meaning and "libegl1" in cause.todo[0].line()
    assert explain_build("nothing of note\n").failure_class == ""


OFFLINE = """\
Step 6/21 : RUN set -eu;     wanted="${APT_PACKAGES}";
Err:1 http://mirror.example bookworm InRelease
  Temporary failure resolving 'mirror.example'
Reading package lists...
W: Failed to fetch http://mirror.example/dists/bookworm/InRelease  Temporary failure resolving 'mirror.example'
E: Unable to locate package python3-venv
The command '/bin/sh -c set -eu;' returned a non-zero code: 100
"""
MISMATCH = """\
Step 6/21 : RUN set -eu; echo "splatfix: python-mismatch: the base image has Python ${found}" >&2; exit 1
 ---> Running in 0034a8570db7
splatfix: python-mismatch: the base image has Python 3.12, the lane's wheels are for 3.11
Removing intermediate container 0034a8570db7
The command '/bin/sh -c set -eu; echo "splatfix: python-mismatch: the base image"' returned a non-zero code: 1
"""
PODMAN = """\
[1/4] STEP 5/14: RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"
error running container: from /usr/bin/crun creating container for [/bin/sh -c sh /usr/local/share/splatfix/prepare.sh]: \
cgroups in hybrid mode not supported, drop all controllers from cgroupv2
: exit status 1
building at STEP "RUN sh /usr/local/share/splatfix/prepare.sh "${PYTHON_VERSION}" "${APT_PACKAGES}"": while running runtime: \
exit status 1
"""
FULL_DISK = """\
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
The command '/bin/sh -c python3 -m venv' returned a non-zero code: 1
"""
UNSUPPORTED = """\
Step 14/30 : RUN /opt/stack/bin/python -m pip wheel --no-build-isolation ./source
nvcc fatal   : Unsupported gpu architecture 'compute_120'
error: command '/usr/local/cuda/bin/nvcc' failed with exit code 1
ERROR: Failed building wheel for splat_probe
The command '/bin/sh -c pip wheel' returned a non-zero code: 1
"""
NO_WHEEL = """\
Looking in links: /context/wheelhouse
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.6
"""
CERTIFICATE = """\
Ign:1 https://mirror.example bookworm InRelease
Err:1 https://mirror.example bookworm InRelease
  Certificate verification failed: The certificate is NOT trusted. The certificate issuer is unknown.
E: Unable to locate package python3-venv
"""
ALPINE = """\
/bin/sh: apt-get: not found
The command '/bin/sh -c set -eu;' returned a non-zero code: 127
"""


@pytest.mark.parametrize(
    ("log", "kind", "line", "failure", "solvable"),
    [
        (OFFLINE, "image", "Temporary failure resolving 'mirror.example'", "", True),
        (MISMATCH, "image", "the base image has Python 3.12", "", True),
        (FULL_DISK, "image", "No space left on device", "", True),
        (NO_WHEEL, "image", "No matching distribution found for numpy==2.4.6", "", False),
        (CERTIFICATE, "image", "The certificate is NOT trusted", "", True),
        (ALPINE, "image", "apt-get: not found", "", True),
        (PODMAN, "image", "cgroups in hybrid mode not supported", "", True),
        (UNSUPPORTED, "unknown", "Unsupported gpu architecture", "toolkit_too_old_for_arch", True),
        ("something else\nthe last word\n\n", "unknown", "the last word", "", False),
        ("something else\nERROR: it says\nthe last word", "unknown", "ERROR: it says", "", False),
    ],
)
def test_an_image_that_is_not_built(log: str, kind: str, line: str, failure: str, solvable: bool) -> None:
    cause = explain_image_build(log.splitlines())
    assert line in cause.lines[0]
    assert (cause.kind, cause.failure_class, bool(cause.todo)) == (kind, failure, solvable)


def test_a_full_disk_explains_what_comes_before_it() -> None:
    cause = explain_image_build(["E: Unable to locate package gcc", "tar: No space left on device"])
    assert cause.lines == ("tar: No space left on device",)


def test_an_image_build_that_printed_nothing() -> None:
    assert explain_image_build([]).lines == ()
