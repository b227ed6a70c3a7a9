"""The command line: exit codes, progress, and errors that a person can act on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from smoke_trainer.__main__ import config_from, main, parser
from smoke_trainer.data.public import PUBLIC_SCENES
from smoke_trainer.presets import PRESETS


def test_a_run_from_the_command_line_with_json_progress(scene_folder, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(
        [str(scene_folder("colmap-binary")), "--iterations", "12", "--out", str(out), "--json-progress"]
    )
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert told[-1] == {"event": "end", "status": "ok", "result": str(out / "result.json")}
    assert [row["iteration"] for row in told if row["event"] == "progress"][-1] == 12
    assert (out / "point_cloud" / "iteration_12" / "point_cloud.ply").is_file()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nonsuch", "--iterations", "5"], 2, "no bundled scene"),
        (["figurine", "--iterations", "0"], 2, "at least 1"),
        (["figurine", "--iterations", "5", "--renderer", "nonsuch"], 2, "no renderer"),
        (["figurine", "--iterations", "5", "--strategy", "nonsuch"], 2, "no strategy"),
        (["figurine", "--iterations", "5", "--device", "nonsuch"], 2, "no device"),
        (["figurine", "--iterations", "5", "--ssim", "nonsuch"], 2, "no SSIM"),
        (["figurine", "--iterations", "5", "--renderer", "gsplat"], 3, "cannot draw on cpu"),
        (["figurine", "--iterations", "5", "--renderer", "inria"], 3, "cannot draw on cpu"),
        (["figurine", "--iterations", "5", "--knn", "simple-knn"], 3, "cannot run on cpu"),
        (["nonsuch", "--preset", "quick"], 2, "not measured"),
    ],
)
def test_what_cannot_run_says_why_and_ends_with_its_code(arguments, code, words, tmp_path, capsys):
    assert main([*arguments, "--out", str(tmp_path / "out")]) == code
    told = capsys.readouterr().err
    assert words in told and "Traceback" not in told


def test_the_error_is_in_result_json_too(tmp_path):
    main(["figurine", "--iterations", "5", "--renderer", "gsplat", "--out", str(tmp_path)])
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["status"] == "renderer-unavailable"
    assert document["error"]["remedy"]


def test_cuda_without_a_gpu_is_an_answer_not_a_fallback(tmp_path, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["figurine", "--iterations", "5", "--device", "cuda", "--out", str(tmp_path)]) == 3
    assert "--device cuda was asked for" in capsys.readouterr().err


def test_presets_give_iterations_and_explicit_options_win():
    quick = PRESETS["quick"]["figurine"]
    config = config_from(parser().parse_args(["figurine", "--preset", "quick"]))
    assert (config.iterations, config.resolution) == (quick.iterations, quick.resolution)
    assert (config.background, config.psnr_floor) == (quick.background, quick.psnr_floor)
    config = config_from(parser().parse_args(["figurine", "--preset", "quick", "--iterations", "33"]))
    assert config.iterations == 33 and config.densify.last == 23
    assert config.psnr_floor is None  # measured for another length


def test_public_scenes_are_found_at_their_usual_size_and_missing_ones_named(tmp_path, capsys):
    (tmp_path / "360_v2" / "garden").mkdir(parents=True)
    (tmp_path / "truck").mkdir()
    config = config_from(parser().parse_args(["garden", "--data", str(tmp_path)]))
    assert (config.scene, config.resolution, config.iterations) == (
        str(tmp_path / "360_v2" / "garden"),
        4,
        30_000,
    )
    assert config_from(parser().parse_args(["truck", "--data", str(tmp_path)])).resolution == 1
    assert main(["room", "--data", str(tmp_path)]) == 3
    assert "garden, truck" in capsys.readouterr().err
    assert len(PUBLIC_SCENES) == 13


def test_help_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import smoke_trainer.__main__ as m; m.main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--renderer" in done.stdout


def test_it_runs_from_a_staged_copy_with_the_kernels_only(scene_folder, tmp_path):
    """Certification puts smoke_trainer and splatfix/kernels alone on the path of the target environment."""
    import shutil

    root = Path(__file__).resolve().parents[2]
    stage = tmp_path / "stage"
    shutil.copytree(root / "smoke_trainer", stage / "smoke_trainer", ignore=shutil.ignore_patterns("samples"))
    shutil.copytree(root / "splatfix" / "kernels", stage / "splatfix" / "kernels")
    shutil.copy(root / "splatfix" / "__init__.py", stage / "splatfix" / "__init__.py")
    command = [sys.executable, "-m", "smoke_trainer", str(scene_folder("colmap-binary")), "--iterations", "3"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        cwd=stage,
        env={"PYTHONPATH": str(stage), "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "ok"
