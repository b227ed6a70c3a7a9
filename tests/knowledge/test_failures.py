"""Failures: the vocabulary, the messages that say by themselves what is wrong, and the checks that predict a class."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from splatfix.checks import all_checks
from splatfix.core.step import commands
from splatfix.knowledge import using
from splatfix.knowledge.failures import (
    Failure,
    explain_message,
    failure_class,
    failure_classes,
    failures,
    messages,
)

CODES = {item.code: item for item in all_checks()}


@pytest.mark.parametrize(
    ("line", "key", "failure"),
    [
        ("x.h:2:3: error: 'uint32_t' was not declared in this scope", "cstdint", "missing-cstdint"),
        ('x.h(2): error: identifier "intptr_t" is undefined', "cstdint", "missing-cstdint"),
        ('a.cu(9): error: identifier "FLT_MAX" is undefined', "cfloat", "missing-cfloat"),
        ('a.cu(9): error: namespace "cub" has no member "Equality"', "cub-functors", ""),
        (
            'a.cu(9): error: namespace "thrust" has no member "sequence"',
            "thrust-sequence",
            "missing-thrust-include",
        ),
        ("#error C++17 or later compatible compiler is required to use PyTorch.", "cxx-standard-17", ""),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "pkg-resources", "setuptools-incompatible"),
        ("ModuleNotFoundError: No module named 'pybind11.setup_helpers'", "module-missing", "module-missing"),
        ("main.h:8:10: fatal error: cuda_texture_types.h: No such file or directory", "texture-headers", ""),
        ("a.cu:1:10: fatal error: THC/THC.h: No such file or directory", "thc-headers", ""),
        ("ModuleNotFoundError: No module named 'distutils'", "distutils", ""),
        ("ModuleNotFoundError: No module named 'torch._six'", "torch-six", ""),
        (
            "ValueError: mutable default <class 'a.Sort'> for field sort is not allowed: use default_factory",
            "mutable-dataclass-default",
            "",
        ),
        (
            "AttributeError: 'FigureCanvasAgg' object has no attribute 'tostring_rgb'. Did you mean: 'tostring_argb'?",
            "matplotlib-tostring",
            "",
        ),
        (
            "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
            "torch-load-pickles",
            "",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_70'", "fixed-architectures", ""),
        ("a.h:1:10: fatal error: glm/glm.hpp: No such file or directory", "glm-missing", "glm-missing"),
    ],
)
def test_a_message_is_explained_by_its_record(line: str, key: str, failure: str) -> None:
    kind = "python" if line.startswith("ModuleNotFoundError") else "compiler"
    found = explain_message(line, kind)
    assert (found.key, found.failure_class) == (key, failure)
    assert found.meaning and found.steps and "{" not in found.meaning


def test_groups_of_a_message_are_filled_in() -> None:
    found = explain_message("ModuleNotFoundError: No module named 'pybind11'", "python")
    assert [command.argv[-1] for command in commands(found.steps)] == ["pybind11"]
    found = explain_message('error: namespace "cub" has no member "Sum"')
    assert found is not None and "cub::Sum" in found.meaning


def test_every_message_has_its_class() -> None:
    for message in messages():
        assert not message.failure_class or failure_class(message.failure_class), message.key


def test_old_spellings_of_a_class_are_accepted(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[failures.no_kernel_image]\nfix = "Mine."\n')
    with using(mine):
        assert failure_class("no_kernel_image") is failure_class("no-kernel-image")
        assert failures()["no-kernel-image"].fix == "Mine."
        assert not [name for name in failures() if "_" in name]


def test_the_vocabulary_of_failures() -> None:
    rows = failure_classes()
    assert len(rows) == len({row.name for row in rows}) > 76
    assert all(re.fullmatch("[a-z0-9-]+", row.name) for row in rows)
    assert all(row.definition and row.fix for row in rows)
    row = failure_class("no-kernel-image")
    assert row is not None and "TORCH_CUDA_ARCH_LIST" in row.fix and row.examples
    assert failure_class("nothing") is None


@pytest.mark.parametrize("row", failure_classes(), ids=lambda row: row.name)
def test_a_class_has_checks_or_a_reason(row: Failure) -> None:
    assert row.checks or len(row.limit) > 25, "neither a check nor a reason"
    assert len(set(row.checks)) == len(row.checks)
    for code in row.checks:
        assert code in CODES, f"{code} is no check"
        assert row.name in CODES[code].page.rpartition("Predicts:")[2], "its page does not name the class"
