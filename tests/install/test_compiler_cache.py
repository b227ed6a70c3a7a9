"""The script that stands in for the C++ compiler, and what a compiler cache does not change."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from splatfix.install.build import compiler_cache
from splatfix.install.wheel_cache import identity_of
from splatfix.plan.steps import BuildWheel

ACTION = BuildWheel(
    subject="x", source="/x", targets=("sm_120",), variables={"CXX": "/usr/bin/g++", "MAX_JOBS": "2"}
)


def with_cache(program: str, cxx: str) -> BuildWheel:
    return dataclasses.replace(
        ACTION, variables={**ACTION.variables, "CXX": cxx, "PYTORCH_NVCC": f"{program} /c/nvcc"}
    )


def test_the_script_calls_the_cache_with_the_compiler_and_all_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    script = programs / "ccache"
    script.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    script.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    added = compiler_cache(with_cache("ccache", "/odd place/g++-13"), tmp_path / "scratch")
    assert Path(added["CXX"]).name == "g++-13", "torch knows a compiler by its name"
    done = subprocess.run(
        [added["CXX"], "-c", "a b.cpp"], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.splitlines() == ["</odd place/g++-13>", "<-c>", "<a b.cpp>"]
    assert added["CCACHE_BASEDIR"] == str(tmp_path / "scratch")


def test_without_one_nothing_is_added(tmp_path: Path) -> None:
    assert compiler_cache(ACTION, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_is_the_same_with_and_without() -> None:
    plain = identity_of(ACTION, {"torch": "2.11"})
    assert identity_of(with_cache("ccache", "/usr/bin/g++"), {"torch": "2.11"}) == plain
    fewer = dataclasses.replace(ACTION, variables={**ACTION.variables, "MAX_JOBS": "1"})
    assert identity_of(fewer, {"torch": "2.11"}) == plain
    assert identity_of(with_cache("ccache", "/usr/bin/g++-13"), {"torch": "2.11"}) != plain
