"""``certify --repo --dry-run``: which script is run, what it reaches, and what it would run on, from text alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from splatfix.facts.source.reader import FolderReader
from splatfix.facts.source.scripts import all_trainers, find_trainers, reach_of
from tests.conftest import Splatfix
from tests.plan.machines import cuda_source, with_submodules
from tests.plan.test_faces import called, source
from tests.plan.test_replacement import NAME
from tests.tables import data

TRAIN: str = data(__file__)["texts"]["train"]


Tried = Callable[..., tuple[int, Any]]


@pytest.fixture
def tried(splatfix: Splatfix) -> Tried:
    """The exit code of a dry run, and its document."""

    def run(*words: str) -> tuple[int, Any]:
        named = ("certify", "--python", sys.executable, "--dry-run", "--json", "--repo")
        done = splatfix(*named, *words)
        return done.returncode, json.loads(done.stdout)

    return run


def trainer(folder: Path, text: str = TRAIN, name: str = "train.py", **face: Any) -> Path:
    called(folder, **face)
    (folder / "train.py").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("results", "code"),
    [(("image", "radii", "depth"), 0), (("image", "radii", "normal"), 1), (("image", "radii", "x"), 3)],
)
def test_it_says_whether_it_would_run(
    tried: Tried, tmp_path: Path, results: tuple[str, ...], code: int
) -> None:
    folder = trainer(tmp_path / "gs", results=results)
    exit_code, document = tried(str(folder))
    assert (exit_code, document["exit_code"], document["script"]) == (code, code, "train.py")
    served = [item["module"] for item in document["replacement"]["dropins"]]
    assert (NAME in served) is (code == 0)
    if code == 3:
        assert tried(str(folder), "--face", "color,radii,depth")[0] == 0
        assert tried(str(folder), "--face", "color,radii,deep")[0] == 2


def test_why_names_places(splatfix: Splatfix, tmp_path: Path) -> None:
    folder = trainer(tmp_path / "gs", results=("image", "radii", "x"))
    face = ("--face", "color,radii,depth")
    done = splatfix("certify", "--repo", folder, "--python", sys.executable, "--dry-run", "--verbose", *face)
    assert done.returncode == 0 and "gaussian_renderer/__init__.py:7" in done.stdout
    assert "taken for the sum" in done.stdout


def test_it_refuses_what_the_run_refuses(tried: Tried, empty_venv: Path, tmp_path: Path) -> None:
    """It said "would run", and the run ended in "This environment lacks numpy", or for want of its scene or GPU."""
    folder = str(trainer(tmp_path / "gs", results=("image", "radii", "depth")))
    (tmp_path / "gs" / "odd.py").write_text(f"import nowhere\n{TRAIN}")
    for words, code, exit_code in (
        (("--scene", str(tmp_path / "none")), "no-scene", 2),
        (("--script", "odd.py"), "not-as-it-is", 1),
        (("--device", "cuda"), "no-gpu", 3),
        (("--python", str(empty_venv)), "environment-not-ready", 3),
    ):
        got, document = tried(folder, *words)
        assert (got, document["error"]["code"]) == (exit_code, code) and document["replacement"]["dropins"]


SECOND: str = data(__file__)["texts"]["second"]


@pytest.mark.parametrize("is_called", [False, True])
def test_what_the_trainer_never_calls_does_not_refuse(tried: Tried, tmp_path: Path, is_called: bool) -> None:
    """Mini-Splatting and PUP 3D-GS import rasterizers of their pruning in functions that their trainers do not call."""
    text = TRAIN
    if is_called:
        text = text.replace("import render\n", "import render, render_other\n")
        text = text.replace("render(camera, pc)", "render_other(camera, pc)")
    folder = trainer(tmp_path / "gs", text)
    with (folder / "gaussian_renderer" / "__init__.py").open("a") as file:
        file.write(SECOND)
    assert tried(str(folder))[0] == int(is_called)


HELPER: str = data(__file__)["texts"]["helper"]


def test_a_caller_that_is_not_reached_does_not_refuse(tried: Tried, tmp_path: Path) -> None:
    """Street Gaussians makes its rasterizer in a helper, and carries a renderer of another fork that nothing imports."""
    folder = trainer(tmp_path / "gs", TRAIN.replace("gaussian_renderer", "helper").replace("render", "make"))
    (folder / "helper.py").write_text(HELPER)
    renderer = folder / "gaussian_renderer" / "__init__.py"
    renderer.write_text(renderer.read_text().replace("image_height", "bg_depth"))
    assert tried(str(folder))[0] != 0
    source(folder / "submodules" / NAME.replace("_", "-"))
    assert tried(str(folder))[0] == 0


def test_a_script_of_another_name(tried: Tried, tmp_path: Path) -> None:
    folder = trainer(tmp_path / "gs", name="ms/train.py")
    assert tried(str(folder))[1]["script"] == "ms/train.py"
    (folder / "train_dash.py").write_text(TRAIN)
    code, document = tried(str(folder))
    error = document["error"]
    assert code == 2 and "which-script" in json.dumps(error)
    assert "--script train_dash.py" in json.dumps(error)
    assert tried(str(folder), "--script", "train_dash.py")[0] == 0
    assert "no-such-script" in json.dumps(tried(str(folder), "--script", "nothing.py")[1])


def test_a_renderer_in_an_empty_submodule_is_missing(tried: Tried, tmp_path: Path) -> None:
    """ever_training "would run", and its renderer was not there."""
    folder = with_submodules(trainer(tmp_path / "gs", results=("image", "radii", "depth")), "ever", "viewer")
    assert tried(str(folder))[0] == 0
    with (folder / "gaussian_renderer" / "__init__.py").open("a") as file:
        file.write("from ever.tracer import trace\n")
    code, document = tried(str(folder))
    assert (code, document["error"]["code"]) == (1, "source-incomplete")
    assert "empty: ever." in str(document["error"])


REACHED: dict[str, str] = data(__file__)["reached"]


def test_what_a_script_reaches(tmp_path: Path) -> None:
    for name, text in REACHED.items():
        (tmp_path / name).write_text(text)
    reach = reach_of(tmp_path, [tmp_path / "train.py"], FolderReader())
    assert reach.modules == {"json", "deep", "numpy", "told"} and not reach.everything
    assert reach.has("b.py", "used") and not reach.has("b.py", "unused")
    (tmp_path / "c.py").write_text("import importlib\ndef late():\n    importlib.import_module(name)\n")
    reach = reach_of(tmp_path, [tmp_path / "train.py"], FolderReader())
    assert reach.everything == "c.py:3" and reach.has("b.py", "unused")


def test_an_extension_alone_is_told_apart_from_a_trainer(tried: Tried, tmp_path: Path) -> None:
    cuda_source(tmp_path, "simple_knn")
    code, document = tried(str(tmp_path))
    error = document["error"]
    assert (code, error["code"]) == (2, "no-trainer")
    assert "the source of a package (simple_knn)" in error["what"]
    assert error["todo"][0]["argv"][:3] == ["splatfix", "install", str(tmp_path)]


def test_trainers_by_what_they_reach(tmp_path: Path) -> None:
    """MonoGS starts slam.py, whose backward pass is two modules away."""
    (tmp_path / "utils").mkdir()
    (tmp_path / "slam.py").write_text("from utils.back import run\nif __name__ == '__main__':\n    run()\n")
    (tmp_path / "view.py").write_text("if __name__ == '__main__':\n    print()\n")
    (tmp_path / "utils" / "back.py").write_text("def run(loss):\n    loss.backward()\n")
    (tmp_path / "tests").mkdir()
    for test in ("tests/strategy.py", "test_strategy.py"):
        (tmp_path / test).write_text("if __name__ == '__main__':\n    loss.backward()\n")
    assert find_trainers(tmp_path) == ("slam.py",)
    (tmp_path / "train.py").write_text("")
    assert find_trainers(tmp_path) == ("train.py",)
    assert all_trainers(tmp_path) == ("slam.py",)
