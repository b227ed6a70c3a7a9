"""Every command that a check gives can be run as it stands: whole, of one line, read by a shell, and without force."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
from pathlib import Path

import pytest

import splatfix.checks
from splatfix.checks import Goal, Remedy, run
from splatfix.facts import (
    Compiler,
    Distribution,
    Driver,
    Fact,
    Facts,
    Gpu,
    HeaderCopy,
    Resources,
    Toolkit,
    load,
)

from .conftest import extension, ptx, sass
from .test_checkout_checks import source, with_checkout

MACHINES = Path(__file__).parents[1] / "machines"
_PLACEHOLDERS = ("path/to", "SOURCE", "DATA", "...", "<", ">", "YOUR")
_FORCE = ("sudo ", "rm -rf", "--force", " -y", "--yes", "| sh", "curl ", "reboot")


def sick(facts: Facts) -> Facts:
    """As many illnesses at once as one machine can have."""
    old = Toolkit("/opt/cuda 11", "11.8.89", ("PATH",), "/opt/cuda 11/bin/nvcc", ("sm_80",), 11, 13, ("include/cusparse.h",),
                  {"cusparse.h": "/env/nvidia/include"}, cudart_in=("lib",), has_lib64=False, cub="1.15.0")  # fmt: skip
    machine = dataclasses.replace(
        facts.machine, toolkits=Fact((old,), "PATH"), wsl=True, glibc="2.42", tools={},
        compilers=Fact((Compiler("g++", "/usr/bin/g++", "15.1.0", ("PATH",)),
                        Compiler("g++", "/usr/bin/g++-11", "11.4.0", ("PATH",))), ""),
        libcuda=Fact(("/usr/lib/libcuda.so.575",), ""), linkable_libcuda=Fact((), ""), missing_graphics=Fact(("EGL/egl.h",), ""),
        header_copies=Fact((HeaderCopy("/cub", "CUB_HOME", "1.10.0", ""),), ""), container_toolkit=Fact((), ""),
        resources=Resources(cores=64, memory_total=8 << 30, memory_available=4 << 30, swap_total=0),
        gpus=Fact((Gpu(0, "RTX 5090", cc="12.0"), Gpu(1, "GTX 1080", cc="6.1")), "NVML"),
        driver=Fact(Driver("470.82.01", "11.4", False, "470.82.01"), "NVML"),
        variables={"TORCH_CUDA_ARCH_LIST": "8.6,12.0", "CUDA_VISIBLE_DEVICES": "7", "CUDA_ARCHITECTURES": "8.6",
                   "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64"},
    )  # fmt: skip
    names = {
        "setuptools": "84.0",
        "pip": "26.0",
        "gsplat": "1.5.3",
        "nvdiffrast": "0.3.1",
        "simple-knn": "2.0.1",
        "ninja": "1",
    }
    environment = dataclasses.replace(
        facts.environment,
        distributions=Fact(tuple(Distribution(name, version, "/env") for name, version in names.items()), ""),
        extensions=Fact((extension("a", sass("sm_80")), extension("b", ptx("sm_80", (9, 0)))), ""),
        toolkit_choice=Fact(None, "", "none"),
    )
    knn = source("knn", flags=("-arch=sm_75",), reads=("CUDA_ARCHITECTURES",))
    return with_checkout(dataclasses.replace(facts, machine=machine, environment=environment), sources=(knn,))


def commands(facts: Facts, *targets: str) -> list[tuple[str, str]]:
    return [
        (item.code, step.text) for item in run(facts, Goal(targets)) for step in item.remedy if step.command
    ]


def broken(texts: list[str]) -> str:
    """What a POSIX shell says of the commands without running any."""
    script = "\n".join(texts) + "\n"
    return subprocess.run(
        ["sh", "-n"], input=script, capture_output=True, text=True, timeout=30, check=False
    ).stderr


def test_commands_for_a_very_sick_machine(rtx_5080: Facts) -> None:
    found = commands(sick(rtx_5080), "sm_120", "sm_61")
    assert len({code for code, _ in found}) >= 10, found
    for code, text in found:
        assert "\n" not in text, code
        assert not [mark for mark in _PLACEHOLDERS if mark in text], f"{code}: {text}"
        assert not [mark for mark in _FORCE if mark in text], f"{code}: {text}"
    assert broken([text for _, text in found]) == ""


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MACHINES.glob("*/machine.json")))
def test_commands_for_the_recorded_machines(name: str) -> None:
    facts = load(MACHINES / name)
    found = [text for goal in ((), ("sm_120",)) for _, text in commands(facts, *goal)]
    assert not [text for text in found if any(mark in text for mark in (*_PLACEHOLDERS, *_FORCE))]
    if facts.machine.system != "windows":
        assert broken(found) == ""


def test_no_command_is_written_down_with_a_blank_to_fill_in() -> None:
    """``Remedy("...")`` is run as it is; what a person must complete is ``prose``."""
    seen = 0
    for file in sorted(Path(splatfix.checks.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == Remedy.__name__
            ):
                seen += 1
                texts = [
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                assert not [text for text in texts if any(mark in text for mark in ("path/to", "SOURCE"))], (
                    file.name,
                    texts,
                )
    assert seen > 20
