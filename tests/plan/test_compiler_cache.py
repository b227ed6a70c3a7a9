"""ccache and sccache in the plan, each told to the builder that the source really uses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from splatfix.facts import Facts, Source, read_source
from splatfix.plan.compiler_cache import compiler_cache

from .machines import CUDA_13, cuda_source, machine
from .test_planner import build_of, plan


def with_tools(system: str = "linux", **tools: str) -> Facts:
    facts = machine()
    return dataclasses.replace(facts, machine=dataclasses.replace(facts.machine, tools=tools, system=system))


def test_ccache_stands_before_nvcc_and_the_plan_says_why(tmp_path: Path) -> None:
    build = build_of(plan(cuda_source(tmp_path), with_tools(ninja="1.11", ccache="4.7.5", sccache="0.8")))
    assert build.variables["PYTORCH_NVCC"] == "ccache /usr/local/cuda-13.0/bin/nvcc"
    assert build.variables["CXX"] == "/usr/bin/g++", "torch asks CXX for its version as one program's name"
    said = " | ".join(reason.text for reason in build.reasons)
    assert "ccache 4.7.5 is here" in said and "CXX is called through ccache" in said


def test_sccache_alone_does_without_dependency_files(tmp_path: Path) -> None:
    build = build_of(plan(cuda_source(tmp_path), with_tools(ninja="1.11", sccache="0.8.1")))
    assert build.variables["PYTORCH_NVCC"].startswith("sccache ")
    assert build.variables["TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES"] == "1"


def test_cmake_has_launchers_of_its_own() -> None:
    source = Source("/x", ("pyproject.toml", "CMakeLists.txt"), "x", needs_cuda=True)
    variables, (reason,) = compiler_cache(with_tools(ccache="4.7.5"), CUDA_13, source)
    assert variables == {
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CUDA_COMPILER_LAUNCHER": "ccache",
    }
    assert "ccache 4.7.5" in reason.text


def test_without_one_and_on_windows_nothing_changes(tmp_path: Path) -> None:
    source = read_source(cuda_source(tmp_path))
    assert compiler_cache(with_tools(ninja="1.11"), CUDA_13, source) == ({}, ())
    assert compiler_cache(with_tools("windows", ccache="4.7.5"), CUDA_13, source) == ({}, ())
