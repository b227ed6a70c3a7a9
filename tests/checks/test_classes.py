"""Every class of failure is foreseen by checks that exist, or says why no facts foretell it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from splatfix.checks import all_checks
from splatfix.checks.classes import FORESIGHT, foreseen_by
from splatfix.cli import app
from splatfix.knowledge.failures import failure_classes

CODES = {item.code: item for item in all_checks()}


def test_the_table_holds_every_class_in_the_vocabularys_order_and_no_other() -> None:
    assert set(FORESIGHT) == {row.name for row in failure_classes()}
    assert len(FORESIGHT) == 75


@pytest.mark.parametrize("name", sorted(FORESIGHT))
def test_a_class_has_checks_that_exist_or_a_reason(name: str) -> None:
    item = FORESIGHT[name]
    assert item.codes or len(item.limit) > 25, "neither a check nor a reason"
    assert len(set(item.codes)) == len(item.codes)
    for code in item.codes:
        assert code in CODES, f"{code} is no check"
        assert name in CODES[code].page.rpartition("Foresees:")[2], "its page does not name the class"


def test_data_runs_and_the_network_are_what_facts_do_not_foretell() -> None:
    blind = {name for name, item in FORESIGHT.items() if not item.codes}
    assert blind == {
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


def test_there_are_at_least_seventy_checks() -> None:
    assert len(CODES) >= 70
    assert foreseen_by("ninja-not-on-path") == ("ninja_missing",)
    assert foreseen_by("gpu-present") == ()
    assert "nerfstudio-project/gsplat#1053" in CODES["no-kernel-image"].page, "reports that show the class"
    assert "Foresees" not in CODES["gpu-present"].page


def test_the_command_shows_the_page_with_its_classes_and_every_bracket() -> None:
    shown = CliRunner().invoke(app, ["checks", "show", "docker-gpu-runtime-missing"])
    assert shown.exit_code == 0
    assert "Foresees: docker_gpu_runtime_missing" in shown.output
    assert "[[gpu]]" in shown.output, "a page quotes messages; rich must not read them as markup"
