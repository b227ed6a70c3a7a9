"""Real logs are explained: the cause first, its consequences below it, and nothing loud where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from splatfix.explain import MachineEvidence, explain_text, known_classes
from splatfix.explain.judges import TESTS
from splatfix.explain.model import LIKELY, SURE
from splatfix.knowledge.failures import failure_classes, failures, observations
from tests.explain.conftest import cases


def verdict(log: str) -> tuple[str, float]:
    found = explain_text(log)
    return (found.causes[0].name, found.causes[0].confidence) if found.causes else ("", 0.0)


def right(case: dict[str, Any], name: str, sure: float) -> bool:
    """``none``: no class is right, and none is named."""
    return name in case["accept"] or ("none" in case["accept"] and sure < SURE)


UNNAMED = {"given": 1, "held_out": 56, "made_here": 1, "wordings": 2}
"""Cases with a cause of which the log says too little to name it."""


@pytest.mark.parametrize("name", UNNAMED)
def test_cases_stay_right(name: str) -> None:
    said = [(case, *verdict(case["log"])) for case in cases(name)]
    unnamed = [case["id"] for case, name, _ in said if not name and "none" not in case["accept"]]
    wrong = [(case["id"], name, sure) for case, name, sure in said if name and not right(case, name, sure)]
    assert len(said) >= 30 and len(unnamed) <= UNNAMED[name], unnamed
    assert len(wrong) <= len(said) // 50, wrong
    assert sum(sure >= SURE for _, _, sure in wrong) <= len(said) // 100, wrong


def test_a_wording_elsewhere_names_nothing() -> None:
    """In other programs, in help, in prose, where it was outlived, and as a warning beside another error."""
    said = [(case["id"], *verdict(case["log"])) for case in cases("lookalikes")]
    assert len(said) >= 100
    assert [row for row in said if row[2] >= SURE] == []


def test_every_class_can_be_recognised() -> None:
    for failure in failure_classes():
        assert failure.wordings and failure.why and failure.sources, failure.name
    assert [item.name for item in known_classes()] == [failure.name for failure in failure_classes()]


def test_what_the_records_name_exists() -> None:
    asked = {"rasterizer-call"}  # by the engine, for the judges
    for failure in failures().values():
        asked.update(failure.about)
        assert set(failure.explains) <= failures().keys() - {failure.name}
        for wording in failure.wordings:
            assert not wording.test or wording.test in TESTS
            asked.update(wording.all, wording.none)
    assert asked == set(observations())


@pytest.mark.parametrize(
    "log",
    [
        "",
        "\n\n\n",
        "Successfully installed simple_knn-1.1.1\n",
        "[1/4] Building CUDA object a.o\n[2/4] Linking libx.so\n",
        "Training progress: 100%|####| 30000/30000 [10:21<00:00, 48.2it/s, Loss=0.0312]\nTraining complete.",
        "error: something that nobody has ever seen\n",
        # pip was started in the folder above
        "ERROR: file:///content does not appear to be a Python project: neither 'setup.py' nor 'pyproject.toml' found.\n",
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'colour'\n",
    ],
)
def test_nothing_is_named_where_nothing_is_known(log: str) -> None:
    found = explain_text(log)
    assert not found.recognised, found.causes


def test_what_is_only_hinted_at_names_nothing() -> None:
    found = explain_text("NVML and the driver version, FLT_MAX, glm, submodule --recursive, CUDA_HOME")
    assert found.causes == ()


def test_a_traceback_that_was_cut_names_a_cause_only_where_facts_bear_it_out() -> None:
    log = 'scene = Scene(dataset, gaussians)\n  File "loader.py", line 3, in open\n    fp = builtins.open(filename, "rb")\n'
    predicted = MachineEvidence(frozenset({"dataset-images-missing"}))
    for tail in ("", "    ^^^^^^^^^\n", '  File "/usr/lib/py'):
        assert explain_text(log + tail).causes == ()
        (cause, *_) = explain_text(log + tail, predicted).causes
        assert cause.name == "dataset-images-missing"
    assert explain_text(log + "KeyError: 'colour'\n", predicted).causes == ()


def test_the_first_error_is_told_where_nothing_is_recognised() -> None:
    found = explain_text("compiling\nerror: something new\nmore of it\nerror: a second one\n")
    assert found.first_error[0] == "error: something new"


NVCC = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'\n"
NVCC_IS = "Cuda compilation tools, release {}, V{}.1\n"
OOM = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {} (GPU 0; 23.49 GiB total capacity; "
    "20.11 GiB already allocated; {} free; 21.14 GiB reserved in total by PyTorch)"
)
MISMATCH = (
    "The detected CUDA version (11.8) mismatches the version that was used to compile\nPyTorch (13.0).\n"
)
IN_ISOLATION = (
    '  File "/tmp/pip-build-env-ab12/overlay/lib/python3.11/site-packages/torch/utils/cpp_extension.py"\n'
)
RASTERIZES = "_C.rasterize_gaussians(*args)\n"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        # an architecture that nvcc refuses is too new or too old
        (NVCC.format("120"), "toolkit-too-old-for-arch"),
        (NVCC.format("86"), "toolkit-too-old-for-arch"),
        (NVCC.format("35"), "toolkit-dropped-arch"),
        (NVCC_IS.format("13.0", "13.0") + NVCC.format("70"), "toolkit-dropped-arch"),
        (NVCC_IS.format("8.0", "8.0") + NVCC.format("70"), "toolkit-too-old-for-arch"),
        (NVCC_IS.format("11.3", "11.3") + NVCC.format("90"), "toolkit-too-old-for-arch"),
        # an absurd allocation is a failed kernel; without a capacity it is judged by who asked
        (OOM.format("64.00 MiB", "11.00 MiB"), "cuda-oom-runtime"),
        (OOM.format("3.52 GiB", "1.10 GiB"), "cuda-oom-runtime"),
        (OOM.format("1948.24 GiB", "22.10 GiB"), "silent-kernel-failure"),
        (OOM.format("125.31 TiB", "20.00 GiB"), "silent-kernel-failure"),
        (f"{RASTERIZES}CUDA out of memory. Tried to allocate 35.79 GiB", "silent-kernel-failure"),
        ("CUDA out of memory. Tried to allocate 3.10 GiB", "cuda-oom-runtime"),
        ("Tried allocating 67371012.07 GiB", "silent-kernel-failure"),
        # a mismatch inside an isolated build is that of the isolation
        (MISMATCH, "cuda-torch-mismatch"),
        (IN_ISOLATION + MISMATCH, "pip-build-isolation"),
        # a strong sign is no consequence of a weak one
        ("[ITER 7000] Evaluating\nCUDA error: invalid configuration argument\n", "train-all-pruned"),
        ("CUDA error: invalid configuration argument\n", "dataset-empty-points"),
        ("Number of gaussians: 0\nmax(): Expected reduction dim to be specified for input.numel() == 0\n", "train-all-pruned"),
        # parameters that became NaN make rasterizers ask for absurd buffers
        ("Loss=nan, point=12011]\nRuntimeError: numel: integer multiplication overflow\n", "train-nan-loss"),
        # a header of CUB that another of its versions asks for
        ("/c/thrust/util.h:38:10: fatal error: cub/detail/sync.cuh: No such file or directory\n", "cub-thrust-mismatch"),
        ("/c/cub/util.h:38:10: fatal error: nv/target: No such file or directory\n", "cuda-headers-missing"),
        # where a line is said: a program lacks the library of a driver where it runs, a linker where it is built
        ("docker run x\nlibcuda.so.1: cannot open shared object file: No such file or directory\n",
         "gpu-not-passed-to-container"),
        ("libcuda.so.1: cannot open shared object file: No such file or directory\n", "no-gpu-visible"),
        ("ld: warning: libcuda.so.1, needed by libtorch_cuda.so, not found (try using -rpath)\n",
         "linker-libcuda-missing"),
        # what git cannot fetch is no checkout without its submodules
        ("fatal: No url found for submodule path 'submodules/simple-knn' in .gitmodules\n", "submodule-unlisted"),
        # a message that a terminal broke is read whole
        ("/usr/include/bits/mathcalls.h(79): error: exception\n  specification is incompatible with that of\n",
         "glibc-cuda-math-conflict"),
    ],
)  # fmt: skip
def test_numbers_and_neighbours_decide(log: str, name: str) -> None:
    assert verdict(log)[0] == name


WARNED = "bdist_wheel.py:4: FutureWarning: The 'wheel' package is no longer the canonical location of the 'bdist_wheel' command\n"
MINOR = "UserWarning: The detected CUDA version (12.0) has a minor version mismatch with the version that was used\n"
TOO_OLD = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11060).\n"
)


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (
            WARNED + "a.h:4:10: fatal error: cutlass/cutlass.h: No such file or directory\n",
            "submodules-missing",
        ),
        (WARNED + "a.cu(6): error: something that nobody has ever seen\n", ""),
        (MINOR + "a.cu(6): error: something that nobody has ever seen\n", ""),
        # a warning that says why the error came
        (TOO_OLD + "RuntimeError: No CUDA GPUs are available\n", "driver-too-old"),
    ],
)
def test_a_warning_is_no_evidence_where_an_error_is(log: str, name: str) -> None:
    explanation = explain_text(log)
    recognised = [cause.name for cause in explanation.causes if cause.confidence >= LIKELY]
    assert recognised[:1] == [name][: bool(name)]


NO_TORCH = "ModuleNotFoundError: No module named 'torch'\n"
NO_HOME = "OSError: CUDA_HOME environment variable is not set.\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
COMPILER = "a.cu(6): error: {}\nninja: build stopped: subcommand failed.\n"


@pytest.mark.parametrize(
    ("log", "sure"),
    [
        (TRACEBACK + NO_TORCH, True),
        # the command went on, and something else stopped it
        (TRACEBACK + NO_TORCH + TRACEBACK + "KeyError: 'colour'\n", False),
        (NO_TORCH + "compiling\n" + COMPILER.format("something that nobody has ever seen"), False),
        # a later traceback that was cut before its exception says nothing
        (TRACEBACK + NO_TORCH + TRACEBACK, True),
        # an unknown toolkit can be too old for an architecture that only the last one dropped
        (NVCC.format(61), False),
        (NVCC.format(35), True),
        # what the class is about is not in the log
        ("RuntimeError: CUDA error: an illegal memory access was encountered\n", False),
        ("diff_gaussian_rasterization\nRuntimeError: CUDA error: an illegal memory access was encountered\n", True),
        # what could not be imported was not built; an exception that another one answers is part of the stop
        (TRACEBACK + NO_HOME + TRACEBACK + "ImportError: cannot import name '_C'\n", True),
        (
            f"{TRACEBACK}{NO_TORCH}\nDuring handling of the above exception, another exception occurred:\n\n"
            f"{TRACEBACK}RuntimeError: not installed\n",
            True,
        ),
        (COMPILER.format("identifier FLT_MAX is undefined") + TRACEBACK + "NameError: name '_C' is not defined\n", True),
    ],
)  # fmt: skip
def test_a_cause_is_named_only_where_the_log_is_about_it_and_it_says_what_stopped_the_command(
    log: str, sure: bool
) -> None:
    found = explain_text(log)
    assert found.causes and found.recognised is sure, found.causes


def test_facts_say_which_nvcc_spoke() -> None:
    log = NVCC.format(70)
    assert explain_text(log, MachineEvidence(toolkit=(8, 0))).causes[0].name == "toolkit-too-old-for-arch"
    assert explain_text(log, MachineEvidence(toolkit=(13, 0))).causes[0].name == "toolkit-dropped-arch"


def test_facts_settle_what_the_words_leave_open() -> None:
    log = "TypeError: expected string or bytes-like object\nerror: command 'setup.py' failed\n"
    assert explain_text(log).causes == ()
    (cause, *_) = explain_text(log, MachineEvidence(predicted=frozenset({"cpu-only-torch"}))).causes
    assert cause.name == "cpu-only-torch"


def test_a_consequence_stands_below_its_cause() -> None:
    log = (
        "GPU with CUDA capability sm_120 is not compatible with the current PyTorch installation.\n"
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    first, second = explain_text(log).causes[:2]
    assert (first.name, second.name) == ("torch-arch-unsupported", "no-kernel-image")
    assert second.consequence_of == first.name and second.confidence < 0.5


def test_credentials_in_a_line_are_not_repeated() -> None:
    log = "fatal: unable to access 'https://me:hunter2@github.com/a/b.git/': Could not resolve host: github.com\n"
    found = explain_text(log)
    assert found.causes[0].name == "network-fetch-fail"
    assert "hunter2" not in str(found)


def test_a_line_that_proves_a_class_outweighs_facts_of_another_environment() -> None:
    for line, recognised in ((NO_HOME, True), (NO_TORCH, False)):
        cause = explain_text(line).causes[0]
        found = explain_text(line, MachineEvidence(ruled_out=frozenset({cause.name})))
        assert found.causes and found.recognised is recognised
        assert found.causes[0].name == cause.name and found.causes[0].confidence < cause.confidence


def test_one_line_that_many_failures_have_is_only_likely_and_two_are_evidence() -> None:
    killed, objects = "nvcc: Killed\n", "g++: error: build/ext.o: No such file or directory\n"
    for log in (killed, objects):
        assert explain_text(log).causes and not explain_text(log).recognised
    two = "Building wheel\ncc1plus: Cannot allocate memory\nnvcc error: 'cicc' died due to signal 9\n"
    assert explain_text(two).recognised and explain_text(two).causes[0].name == "build-oom"


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("While training a scene my loss became nan\n", "train-nan-loss"),
        (
            "images\nDefaultCPUAllocator: not enough memory: you tried to allocate 7077888 bytes.\n",
            "cuda-oom-runtime",
        ),
        (
            "TypeError: CameraInfo.__new__() missing 3 required positional arguments: 'bg'\n",
            "rasterizer-api-mismatch",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '../input/a.csv'\n",
            "dataset-input-folder",
        ),
        ("converting failed with code 127\n", "colmap-missing"),
    ],
)
def test_words_about_something_else_name_nothing(log: str, name: str) -> None:
    found = explain_text(log)
    assert not [cause for cause in found.causes if cause.name == name and cause.confidence >= SURE]


def test_points_that_were_read_are_not_missing() -> None:
    log = "Number of points at initialisation :  {}\ngaussians\nRuntimeError: CUDA error: invalid configuration argument\n"
    assert verdict(log.format(0))[0] == "dataset-empty-points" != verdict(log.format(100000))[0]


def test_a_full_disk_is_named_whatever_was_done() -> None:
    cause = explain_text(
        "Product.h(145): catastrophic error: error while writing: No space left on device\n"
    ).causes[0]
    assert (
        cause.name == "disk-full"
        and cause.confidence >= SURE
        and cause.why
        and "TMPDIR" in cause.fix[0].line()
    )
