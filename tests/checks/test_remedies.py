"""Every command that a check gives can be run as it stands: whole, of one line, read by a shell, and without force."""

import re
import subprocess

import pytest
from msgspec.structs import replace

from splatfix.checks import run_checks
from splatfix.context import Goal, make_context
from splatfix.core.shell import quoted
from splatfix.core.step import commands as runnable
from splatfix.model import (
    CodeMatch,
    Compiler,
    Distribution,
    Driver,
    Fact,
    Facts,
    Gpu,
    HeaderCopy,
    ImportProbe,
    JitCache,
    Resources,
    Toolkit,
    ToolkitChoice,
)
from tests.archs import goal
from tests.machines import NAMES, facts_of

from .conftest import cuda, extension, ptx, sass, source, with_checkout, with_facts, with_python

_PLACEHOLDERS = ("path/to", "SOURCE", "DATA", "...", "<", ">", "YOUR")
_FORCE = ("sudo ", "rm -rf", "--force", " -y", "--yes", "| sh", "curl ", "reboot")


NEW_GCC = Compiler("g++", "/usr/bin/g++", "15.1.0", ("PATH",))
OLD_GCC = Compiler("g++", "/usr/bin/g++-11", "11.4.0", ("PATH",))


def sick(facts: Facts) -> Facts:
    """As many problems at once as one machine can have."""
    root = "/opt/cuda 11"
    lacking = (("include/cusparse.h",), {"cusparse.h": "/env/nvidia/include"})
    made = (root, "11.8.89", ("PATH",), f"{root}/bin/nvcc", ("sm_80",), 11, 13, *lacking)
    old = Toolkit(*made, cudart_in=("lib",), has_lib64=False, cub="1.15.0")
    text = "setuptools==84.0 pip==26.0 gsplat==1.5.3 nvdiffrast==0.3.1 simple-knn==2.0.1 ninja==1"
    pairs = [pin.split("==") for pin in text.split(" ")]
    facts = with_facts(
        facts,
        toolkits=Fact((old,), "PATH"),
        wsl=True,
        glibc="2.42",
        tools={},
        compilers=Fact((NEW_GCC, OLD_GCC), ""),
        libcuda=Fact(("/usr/lib/libcuda.so.575",), ""),
        linkable_libcuda=Fact((), ""),
        missing_graphics=Fact(("EGL/egl.h",), ""),
        header_copies=Fact((HeaderCopy("/cub", "CUB_HOME", "1.10.0", ""),), ""),
        container_toolkit=Fact((), ""),
        resources=Resources(cores=64, memory_total=8 << 30, memory_available=4 << 30, swap_total=0),
        gpus=Fact((Gpu(0, "RTX 5090", cc="12.0"), Gpu(1, "GTX 1080", cc="6.1")), "NVML"),
        driver=Fact(Driver("470.82.01", "11.4", False, "470.82.01"), "NVML"),
        variables={
            "TORCH_CUDA_ARCH_LIST": "8.6,12.0",
            "CUDA_VISIBLE_DEVICES": "7",
            "CUDA_ARCHITECTURES": "8.6",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64",
        },
        distributions=Fact(tuple(Distribution(name, version, "/env") for name, version in pairs), ""),
        extensions=Fact((extension("a", sass("sm_80")), extension("b", ptx("sm_80", (9, 0)))), ""),
        toolkit_choice=Fact(None, "", "none"),
    )
    knn = source("knn", flags=("-arch=sm_75",), reads=("CUDA_ARCHITECTURES",))
    return with_checkout(facts, sources=(knn,))


def commands(facts: Facts, *targets: str) -> list[tuple[str, str]]:
    windows = facts.machine.system == "windows"
    findings = run_checks(make_context(facts, goal(*targets)))
    return [(item.code, one.shell(windows=windows)) for item in findings for one in runnable(item.remedy)]


def broken(texts: list[str]) -> str:
    """What a POSIX shell says of the commands without running any."""
    script = "\n".join(texts) + "\n"
    return subprocess.run(
        ["sh", "-n"], input=script, capture_output=True, text=True, timeout=30, check=False
    ).stderr


def test_commands_for_a_very_sick_machine(rtx_5080: Facts) -> None:
    given = commands(sick(rtx_5080), "sm_120", "sm_61")
    assert len({code for code, _ in given}) >= 9, given
    for code, text in given:
        assert "\n" not in text, code
        assert not [mark for mark in _PLACEHOLDERS if mark in text], f"{code}: {text}"
        assert not [mark for mark in _FORCE if mark in text], f"{code}: {text}"
    assert broken([text for _, text in given]) == ""


def test_commands_on_windows_are_for_its_own_shell(rtx_5080: Facts) -> None:
    """cmd knows neither export nor unset nor rm."""
    state = (True, None, "2026-01-01T00:00:00", "x.pyd", (sass("sm_61"),))
    cache = JitCache("gsplat_cuda", r"C:\cache\gsplat_cuda", "py311_cu128", *state)
    choice = ToolkitChoice("C:/x", "CUDA_HOME", None, "C:/y", False)
    windows = {"system": "windows", "wsl": False, "compilers": Fact((), "")}
    facts = with_facts(sick(rtx_5080), jit_caches=Fact((cache,), ""), toolkit_choice=Fact(choice), **windows)
    facts = replace(facts, gathered="2026-01-02T00:00:00")
    given = commands(facts, "sm_120", "sm_61")
    assert {"jit-cache-locked", "jit-cache-arch", "no-gpu-visible", "cuda-home-wrong"} <= {
        code for code, _ in given
    }
    assert not [text for _, text in given if re.match(r"(export|unset|rm|ls) ", text) or "${" in text], given
    assert ("jit-cache-locked", r"del C:\cache\gsplat_cuda\lock") in given


@pytest.mark.parametrize(
    ("kind", "start"),
    [("uv", "uv pip {} --python /env/bin/python "), ("venv", "/env/bin/python -m pip {} ")],
)
def test_pip_is_called_where_it_answers(rtx_5080: Facts, kind: str, start: str) -> None:
    """uv makes environments without pip; of a Python that lets nobody install (PEP 668) tests/cli has every command."""
    base = with_python(sick(rtx_5080), kind=kind)
    torch = base.environment.torch.value
    assert torch is not None
    old = replace(torch, version="2.1.0+cu121", builder_imports=("pkg_resources",))
    have = [item for item in base.environment.distributions.value or () if item.name not in ("pip", "ninja")]
    distributions = (*have, Distribution("numpy", "2.1.0", "/env"))
    facts = with_facts(base, torch=Fact(old, ""), distributions=Fact(distributions, ""))
    steps = []
    for item in run_checks(make_context(facts, Goal())):
        for step in item.remedy:
            is_pip = re.search(r"\bpip (un)?install\b", step.line())
            if is_pip and "environment of its own" not in step.text:
                steps.append(step)
    assert len(steps) >= 4
    for step in steps:
        verb = "uninstall" if "pip uninstall" in step.line() else "install"
        assert step.command is not None and step.line().startswith(start.format(verb)), step.text


def advised(facts: Facts, *targets: str) -> list[tuple[str, str]]:
    """Every step, command or prose, that says to call splatfix on an environment."""
    windows = facts.machine.system == "windows"
    findings = run_checks(make_context(facts, goal(*targets)))
    steps = [(item.code, step.line(windows=windows)) for item in findings for step in item.remedy]
    calls = re.compile(r"splatfix (install|verify|certify|diagnose)\b")
    return [(code, text) for code, text in steps if calls.search(text)]


def assert_whole(facts: Facts, *targets: str) -> set[str]:
    """Each names the environment that was looked at, and for which GPU; the codes that gave some."""
    interpreter = facts.environment.interpreter.value
    given = advised(facts, *targets)
    windows = facts.machine.system == "windows"
    for code, text in given:
        if interpreter is not None and "path/to/venv" not in text:
            assert f"--python {quoted(interpreter.executable, windows=windows)}" in text, (code, text)
        if "splatfix install" in text:
            assert "--target " in text, (code, text)
        for name in targets if code not in OF_ONE_GPU else ():
            assert f"--target {name}" in text or "path/to/venv" in text, (code, text)
    return {code for code, _ in given}


# They speak of one GPU at a time, and so does their advice.
OF_ONE_GPU = ("torch-arch-unsupported", "arch-unknown-to-torch")


def ailing(facts: Facts, *gpus: Gpu) -> Facts:
    """A machine on which nearly every check that advises `splatfix install` has something to say."""
    matches = (CodeMatch("cub-functors", "x.cu", 3, "cub::Max()"), CodeMatch("cstdint", "x.h", 1, ""))
    knn = source("cached", matches=matches)
    rigid = source("rigid", flags=("-gencode=arch=compute_60,code=sm_60",), cxx_flags=("-std=c++14",))
    old = extension("b", ptx("sm_80", (9, 0)), needed=("libtorch.so", "libcudart.so.11.0"))
    other_python = replace(extension("c"), path="c/_C.cpython-39-x86_64-linux-gnu.so")
    facts = with_facts(
        facts,
        gpus=Fact(gpus, "NVML"),
        compilers=Fact((Compiler("g++", "/usr/bin/g++", "13.3.0", ("PATH",)),), "PATH"),
        extensions=Fact((extension("a", sass("sm_80")), old, other_python), ""),
        imports=(ImportProbe("a", False, "exception", "undefined symbol"),),
        **cuda("13.0.88", "sm_75", "sm_120", root="/usr/local/cuda"),
    )
    return with_checkout(facts, sources=(knn, rigid))


@pytest.mark.parametrize("targets", [(), ("sm_120",), ("sm_120", "sm_90")])
@pytest.mark.parametrize("name", NAMES)
def test_advice_for_the_simulated_machines_is_whole(name: str, targets: tuple[str, ...]) -> None:
    assert_whole(facts_of(name), *targets)


@pytest.mark.parametrize("targets", [(), ("sm_120",)])
def test_advice_to_build_names_environment_and_gpu(rtx_5080: Facts, targets: tuple[str, ...]) -> None:
    with_gpu = assert_whole(ailing(rtx_5080, Gpu(0, "RTX 5080", cc="12.0")), *targets)
    without = assert_whole(ailing(rtx_5080), *targets)
    always = {"cub-max-removed", "cuda-runtime-mismatch", "extension-python-mismatch"}
    always |= {"extension-import-fails", "cxx-standard-forced", "toolkit-dropped-arch"}
    assert always < with_gpu, always - with_gpu
    assert {"no-kernel-image", "arch-list-ignored"} < with_gpu
    assert always <= without
    assert_whole(sick(rtx_5080), *targets)


def test_what_needs_a_gpu_named_first_is_no_command(rtx_5080: Facts) -> None:
    blind = ailing(rtx_5080)
    (build,) = [text for code, text in advised(blind) if code == "cub-max-removed"]
    assert build.endswith("--target ARCH")
    assert build not in [text for _, text in commands(blind)]
    (same,) = [text for code, text in commands(blind, "sm_120") if code == "cub-max-removed"]
    assert same == "splatfix install /home/u/gs/submodules/cached --python /env/bin/python --target sm_120"


def test_an_environment_that_did_not_answer_is_not_named(rtx_5080: Facts) -> None:
    silent = with_facts(rtx_5080, interpreter=Fact(None, "", "no answer"))
    facts = ailing(silent, Gpu(0, "RTX 5080", cc="12.0"))
    (build,) = [text for code, text in commands(facts) if code == "cub-max-removed"]
    assert build == "splatfix install /home/u/gs/submodules/cached --target sm_120"
