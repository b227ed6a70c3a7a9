"""The command line: exit codes, progress, errors that a person can act on, packages that are missing, and a closed pipe."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from smoke_trainer.__main__ import config_from, main, parser
from smoke_trainer.data.find import PUBLIC_SCENES
from smoke_trainer.data.load import SAMPLES
from tests.tables import data

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_from_the_command_line_with_json_progress(scene_folder, tmp_path, capsys):
    out = tmp_path / "out"
    scene = str(scene_folder("colmap-binary"))
    code = main([scene, "--iterations", "12", "--out", str(out), "--json-progress"])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert printed[-1] == {"event": "end", "status": "ok", "result": str(out / "result.json")}
    progress = [row for row in printed if row["event"] == "progress"]
    assert progress[-1]["iteration"] == 12
    assert [index for index, row in enumerate(progress) if "run" in row] == [0]
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    began = progress[0]["run"]
    assert all(began[name] == result[name] for name in ("config", "resolution", "versions", "machine"))
    for part, ran in result["implementations"].items():
        assert began["implementations"][part]["name"] == ran["name"]
    assert (out / "point_cloud" / "iteration_12" / "point_cloud.ply").is_file()


@pytest.mark.parametrize(("arguments", "exit_code", "code", "names"), data(__file__)["errors"])
def test_errors_have_a_code_and_name_the_cause(
    arguments: str, exit_code: int, code: str, names: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments.endswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    out = tmp_path / "out"
    assert main([*arguments.split(), "--out", str(out)]) == exit_code
    printed = capsys.readouterr().err
    assert printed.startswith(f"error[{code}]: ") and names in printed and "Traceback" not in printed
    if out.exists():
        document = json.loads((out / "result.json").read_text())
        assert document["error"]["code"] == code and document["error"]["hint"]


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_an_output_folder_that_cannot_be_is_said(out, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["figurine", "--iterations", "2", "--out", str(tmp_path / out)]) == 3
    printed = capsys.readouterr().err
    assert "error[cannot-write]" in printed and str(tmp_path / out) in printed and "Traceback" not in printed


def test_a_full_disk_at_the_end_is_an_error(scene_folder, tmp_path, capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "out"))

    monkeypatch.setattr("smoke_trainer.ply.write_gaussians", full)
    monkeypatch.setattr("smoke_trainer.report._write_json", full)
    scene = str(scene_folder("colmap-binary"))
    assert main([scene, "--iterations", "2", "--out", str(tmp_path / "out")]) == 3
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "expected"), data(__file__)["configurations"])
def test_presets_and_public_scenes_have_their_own_and_explicit_options_win(command, expected, tmp_path):
    """A floor of PSNR is for the preset's own length, size and points."""
    for folder in ("360_v2/garden", "truck", "mine/shed"):
        (tmp_path / folder / "sparse").mkdir(parents=True)
    (tmp_path / "room" / "train").mkdir(parents=True)  # a folder of photos, not the scene of that name
    config = config_from(parser().parse_args(command.replace("DATA", str(tmp_path)).split()))
    values = {**vars(config.densify), **vars(config), "scene": config.scene.replace(str(tmp_path), "DATA")}
    values["psnr_floor"] = config.psnr_floor is not None
    assert {name: values[name] for name in expected} == expected


def test_a_scene_that_is_not_there_is_named_with_those_that_are(tmp_path, capsys):
    (tmp_path / "360_v2" / "garden" / "sparse").mkdir(parents=True)
    assert main(["room", "--data", str(tmp_path)]) == 3
    assert "scenes found: garden" in capsys.readouterr().err


def test_data_trains_all_scenes_and_names_skipped_ones(scene_folder, tmp_path, capsys):
    for name in ("playroom", "stump", "mine"):
        (tmp_path / "data" / "set").mkdir(parents=True, exist_ok=True)
        scene_folder("colmap-binary").rename(tmp_path / "data" / "set" / name)
    out = tmp_path / "out"
    options = ["--iterations", "3", "--resolution", "24", "--json-progress"]
    assert main(["--data", str(tmp_path / "data"), "--out", str(out), *options]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    skipped = {row["scene"]: row["reason"] for row in printed if row["event"] == "skipped"}
    assert set(skipped) == set(PUBLIC_SCENES) - {"playroom", "stump"}
    assert skipped["garden"].startswith(f"not found in {tmp_path / 'data'}")
    asked = {"playroom": ("budget", 5.0), "stump": ("budget", 15.0), "mine": ("default", None)}
    for name, requested in asked.items():
        document = json.loads((out / name / "result.json").read_text())
        assert (document["scene"], document["status"]) == (name, "ok")
        assert (document["config"]["strategy"], document["config"]["budget"]) == requested
    assert main(["--data", str(tmp_path / "out")]) == 3
    assert "error[unreadable-scene]" in capsys.readouterr().err


def test_an_unreadable_scene_does_not_stop_the_others(scene_folder, tmp_path, capsys):
    for name in ("broken", "sound"):
        (tmp_path / "data").mkdir(exist_ok=True)
        scene_folder("colmap-binary").rename(tmp_path / "data" / name)
    (tmp_path / "data" / "broken" / "sparse" / "0" / "cameras.bin").write_bytes(b"")
    out = tmp_path / "out"
    assert main(["--data", str(tmp_path / "data"), "--out", str(out), "--iterations", "3"]) == 3
    assert "cameras.bin is empty" in capsys.readouterr().err
    for name, status in (("broken", "unreadable-scene"), ("sound", "ok")):
        assert json.loads((out / name / "result.json").read_text())["status"] == status


@pytest.mark.slow
def test_it_runs_from_a_staged_copy_with_the_kernels_only(scene_folder, tmp_path):
    """Certification puts smoke_trainer and splatfix/kernels alone on the path of the target environment."""
    stage = tmp_path / "stage"
    shutil.copytree(ROOT / "smoke_trainer", stage / "smoke_trainer", ignore=shutil.ignore_patterns("samples"))
    shutil.copytree(ROOT / "splatfix" / "kernels", stage / "splatfix" / "kernels")
    shutil.copy(ROOT / "splatfix" / "__init__.py", stage / "splatfix" / "__init__.py")
    command = [sys.executable, "-m", "smoke_trainer", str(scene_folder("colmap-binary")), "--iterations", "3"]
    command += ["--out", str(tmp_path / "out")]
    env = {"PYTHONPATH": str(stage), "PATH": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=stage, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out" / "result.json").read_text())["status"] == "ok"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("import torch.nothing", "No module named 'torch.nothing'"),
        ("raise ImportError('libcudnn.so.9: cannot open shared object file')", "libcudnn.so.9"),
        ("raise OSError('libgomp.so.1: wrong ELF class')", "libgomp.so.1: wrong"),
    ],
)
def test_a_package_that_does_not_load_is_said(line, cause, tmp_path):
    (tmp_path / "torch.py").write_text(f"{line}\n")
    argv = [sys.executable, "-m", "smoke_trainer", "nope", "--out", str(tmp_path)]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=given)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert f"error[package-missing]: {sys.executable} cannot load the smoke trainer: {cause}" in done.stderr
    assert f"{sys.executable} -m pip install torch numpy Pillow" in done.stderr


def test_a_closed_pipe_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    argv = [sys.executable, "-m", "smoke_trainer", "--list", "--data", str(SAMPLES)]
    done = subprocess.run(argv, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")
