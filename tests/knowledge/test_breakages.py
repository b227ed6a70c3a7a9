"""Records of known breakages: each is whole, and check, edit, build log and coverage read the same one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from splatfix.checks import all_checks
from splatfix.core.step import commands
from splatfix.knowledge import using
from splatfix.knowledge.breakages import (
    Breakage,
    breakage,
    breakages,
    explain_message,
    failure_class,
    failure_classes,
    foreseen_by,
    log_causes,
    source_patterns,
)

RECORDS = pytest.mark.parametrize("record", breakages(), ids=lambda record: record.key)
CODES = {item.code: item for item in all_checks()}


@RECORDS
def test_a_record_is_whole(record: Breakage) -> None:
    assert len(record.symptom) > 20 and record.sources
    assert bool(record.edits) != bool(record.no_edit)
    assert not record.stops or record.find
    assert not record.failure_class or failure_class(record.failure_class)
    if record.check:
        asked = record.uses or record.look_for
        assert asked and asked.key == record.key
        assert record.uses or record.find
        words = record.check.summary.format(source="dgr", cause="CUDA 13.0", file="a.cu", line=3, text="x")
        assert "{" not in words and ("dgr" in words or "a.cu:3" in words)


@RECORDS
def test_its_check_is_registered(record: Breakage) -> None:
    if record.check is None:
        assert record.look_for is None
        return
    assert CODES[record.check.code].title == record.check.title
    classes = [row.name for row in foreseen_by(record.check.code)]
    assert classes == ([record.failure_class] if record.failure_class else [])


def test_what_checkouts_are_searched_for() -> None:
    found = {pattern.key for pattern in source_patterns()}
    python = {item.key for item in breakages() if item.uses}
    assert found - python == {"cstdint", "cfloat", "cub-functors", "thrust-sequence"}
    assert "numpy-aliases" in python


@pytest.mark.parametrize(
    ("key", "versions", "system", "holds"),
    [
        ("cstdint", {"gcc": (12, 4)}, "linux", False),
        ("cstdint", {"gcc": (13, 1, 0)}, "linux", True),
        ("cstdint", {"gcc": ()}, "linux", False),
        ("cstdint", {}, "linux", False),
        ("cfloat", {"cuda": (12, 4)}, "linux", False),
        ("cfloat", {"cuda": (12, 9)}, "linux", True),
        ("cfloat", {"cuda": (13, 0)}, "linux", False),
        ("cub-functors", {"cuda": (13, 0)}, "linux", True),
        ("cxx-standard-17", {"torch": (2, 12)}, "linux", True),
        ("cxx-standard-20", {"torch": (2, 12)}, "linux", False),
        ("cxx-standard-20", {"torch": (2, 13)}, "linux", True),
        ("glibc-noexcept", {"glibc": (2, 41), "cuda": (12, 9)}, "linux", True),
        ("glibc-noexcept", {"glibc": (2, 41)}, "linux", False),
        ("msvc-std-ambiguous", {"torch": (2, 9)}, "windows", True),
        ("msvc-std-ambiguous", {"torch": (2, 9)}, "linux", False),
        ("colmap-options", {"colmap": (3, 13)}, "", True),
        ("numpy-aliases", {"numpy": (1, 23, 5)}, "", False),
        ("numpy-aliases", {"numpy": (1, 24)}, "", True),
        ("numpy-bool", {"numpy": (2, 4, 6)}, "", False),
        ("mutable-dataclass-default", {"python": (3, 10, 12)}, "", False),
        ("mutable-dataclass-default", {"python": (3, 11, 7)}, "", True),
        ("matplotlib-tostring", {"matplotlib": (3, 9, 4)}, "", False),
        ("matplotlib-tostring", {"matplotlib": (3, 10)}, "", True),
    ],
)
def test_when(key: str, versions: dict[str, tuple[int, ...]], system: str, holds: bool) -> None:
    assert breakage(key).when.holds(versions, system) is holds


def test_an_unknown_record() -> None:
    with pytest.raises(KeyError):
        breakage("nothing")


@pytest.mark.parametrize(
    ("line", "key", "failure"),
    [
        ("x.h:2:3: error: 'uint32_t' was not declared in this scope", "cstdint", "missing_cstdint"),
        ('x.h(2): error: identifier "intptr_t" is undefined', "cstdint", "missing_cstdint"),
        ('a.cu(9): error: identifier "FLT_MAX" is undefined', "cfloat", "missing_cfloat"),
        ('a.cu(9): error: namespace "cub" has no member "Equality"', "cub-functors", ""),
        (
            'a.cu(9): error: namespace "thrust" has no member "sequence"',
            "thrust-sequence",
            "missing_thrust_include",
        ),
        ("#error C++17 or later compatible compiler is required to use PyTorch.", "cxx-standard-17", ""),
        ("ModuleNotFoundError: No module named 'pkg_resources'", "pkg-resources", "setuptools_incompatible"),
        ("ModuleNotFoundError: No module named 'pybind11.setup_helpers'", "module-missing", ""),
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
        ("a.h:1:10: fatal error: glm/glm.hpp: No such file or directory", "glm", "glm_missing"),
    ],
)
def test_a_message_is_explained_by_its_record(line: str, key: str, failure: str) -> None:
    found = explain_message(line, "compiler")
    assert found is not None and (found.key, found.failure_class) == (key, failure)
    assert found.meaning and found.steps and "{" not in found.meaning


def test_groups_of_a_message_are_filled_in() -> None:
    found = explain_message("ModuleNotFoundError: No module named 'pybind11'", "python")
    assert found is not None
    assert [command.argv[-1] for command in commands(found.steps)] == ["pybind11"]
    found = explain_message('error: namespace "cub" has no member "Sum"')
    assert found is not None and "cub::Sum" in found.meaning


def test_every_message_has_its_class() -> None:
    keys = [cause.key for cause in log_causes()]
    assert len(set(keys)) == len(keys)
    for cause in log_causes():
        assert not cause.failure_class or failure_class(cause.failure_class), cause.key


def test_the_vocabulary_of_failures() -> None:
    rows = failure_classes()
    assert len(rows) == 75 == len({row.name for row in rows})
    assert all(row.name.isidentifier() and row.name == row.name.lower() for row in rows)
    assert all(row.definition and row.fix for row in rows)
    row = failure_class("no_kernel_image")
    assert row is not None and "TORCH_CUDA_ARCH_LIST" in row.fix and row.examples
    assert failure_class("nothing") is None


@pytest.mark.parametrize("row", failure_classes(), ids=lambda row: row.name)
def test_a_class_has_checks_or_a_reason(row: object) -> None:
    from splatfix.knowledge.breakages import FailureClass

    assert isinstance(row, FailureClass)
    assert row.checks or len(row.limit) > 25, "neither a check nor a reason"
    assert len(set(row.checks)) == len(row.checks)
    for code in row.checks:
        assert code in CODES, f"{code} is no check"
        assert row.name in CODES[code].page.rpartition("Predicts:")[2], "its page does not name the class"


def test_what_no_facts_foretell() -> None:
    assert {row.name for row in failure_classes() if not row.checks} == {
        "colmap_crash",
        "conda_env_exists",
        "conda_solve_fail",
        "dataset_camera_model",
        "dataset_colmap_model_missing",
        "dataset_empty_points",
        "dataset_images_missing",
        "dataset_input_folder",
        "dataset_scene_type",
        "libtorch_wrong_package",
        "msvc_link_obj_missing",
        "pip_path_as_name",
        "train_all_pruned",
        "train_nan_loss",
    }


def test_foreseen_by() -> None:
    assert [row.name for row in foreseen_by("ninja-not-on-path")] == ["ninja_missing"]
    assert foreseen_by("nvidia-gpu-missing") == ()
    assert "nerfstudio-project/gsplat#1053" in CODES["no-kernel-image"].page, "reports that show the class"
    assert "Predicts" not in CODES["nvidia-gpu-missing"].page


def test_a_user_may_change_a_record(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[breakages.cstdint.when]\ngcc = ">=15"\n')
    with using(mine):
        assert not breakage("cstdint").when.holds({"gcc": (14,)})
        assert breakage("cstdint").edits
    assert breakage("cstdint").when.holds({"gcc": (14,)})


def test_patterns_of_edits_follow_the_headers_they_add() -> None:
    """What a record's include edits add is what its ``unless`` accepts."""
    for record in breakages():
        for edit in record.edits:
            if edit.include and record.find and record.find.unless:
                assert re.search(record.find.unless, f"#include {edit.include}"), record.key
