"""An image: what its build says and is told of it, what is read of it, and the lanes that it is for."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from splatfix.containers.building import follow_build
from splatfix.containers.image import BUNDLED, ImageRecipe, install_arguments, own_source
from splatfix.core.errors import require
from splatfix.core.toml import parse_toml
from splatfix.knowledge.lanes import GpuNeed, ToolkitFrom, find_lane, load_lanes
from splatfix.model import Torch
from splatfix.plan.tools import own_toolkit
from tests.conftest import ROOT
from tests.files import put
from tests.plan.machines import refused


def build_log(answers: Iterable[dict[str, Any]], log: Path) -> str:
    """What the log has of a build that ended well."""
    follow_build(answers, "cpu", log, lambda line: None)
    return log.read_text(encoding="utf-8")


def test_chunks_become_lines_without_color(tmp_path: Path) -> None:
    """A recorded failure: the engine sends apt's red line in two chunks."""
    said = ["Step 6/21 : RUN apt-get install nothing\n", "Reading package lists...", "\n"]
    said += ["\x1b[91mE\x1b[0m", "\x1b[91m: Unable to locate package nothing\n\x1b[0m"]
    error = "The command 'apt-get install nothing' returned a non-zero code: 100"
    answers = [*({"stream": words} for words in said), {"aux": {"ID": "sha256:0"}}]
    answers.append({"errorDetail": {"code": 100}, "error": error})
    log = tmp_path / "build.log"
    problem = refused(build_log, answers, log)
    assert problem.what.endswith("E: Unable to locate package nothing")
    assert problem.details["log"] == str(log)
    assert log.read_text().splitlines()[1:] == [
        "Reading package lists...",
        "E: Unable to locate package nothing",
        error,
    ]


FAILED = parse_toml(Path(__file__).with_name("failed_builds.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("build", FAILED["builds"], ids=itemgetter("reason"))
def test_the_cause_is_that_of_the_engines_answers(build: dict[str, Any], tmp_path: Path) -> None:
    answers = [{"stream": "Step 3/9 : RUN x\n"}, {"stream": build["said"]}, build["last"]]
    error = refused(build_log, answers, tmp_path / "log")
    assert error.code == "docker-build-failed"
    assert error.what == f"The image of lane cpu was not built: {build['reason']}"


def test_the_log_of_a_build_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("splatfix.core.output.MOST_LOG", 1 << 20)
    text = build_log(({"stream": "x" * 4095 + "\n"} for _ in range(1000)), tmp_path / "log")
    assert (1 << 20) - 4096 < len(text) < (1 << 20) + (1 << 18)


def test_own_source_is_what_a_wheel_installs(tmp_path: Path) -> None:
    """Copied elsewhere it runs alone, with its data, and lists the same files as a source again."""
    source = own_source()
    put(tmp_path, {name: path.read_bytes() for name, path in source.items()})
    code = (
        "import json, splatfix, smoke_trainer; from splatfix.knowledge.lanes import load_lanes;"
        " from splatfix.containers.image import own_source;"
        " print(json.dumps([splatfix.__file__, smoke_trainer.__file__, sorted(load_lanes()), sorted(own_source())]))"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.check_output([sys.executable, "-B", "-c", code], env=env, cwd=tmp_path)
    package, trainer, lanes, names = json.loads(said)
    assert Path(package).parent == tmp_path / "splatfix"
    assert Path(trainer).parent == tmp_path / "smoke_trainer"
    assert lanes == sorted(load_lanes())
    assert names == list(source)


def test_bundled_data_is_that_of_the_wheel() -> None:
    project = parse_toml((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {name: f"splatfix/_bundled/{name}" for name in BUNDLED}


BUILDS = Path(__file__).with_name("builds")
"""What the engines say of a build, and what is told of it."""


def test_stages_and_what_is_done_instead_of_every_line(tmp_path: Path) -> None:
    for engine in ("docker", "podman"):
        told: list[str] = []
        said = (BUILDS / f"{engine}.log").read_text(encoding="utf-8")
        follow_build([{"stream": said}], "cpu", tmp_path / "log", told.append)
        assert told == (BUILDS / f"{engine}.txt").read_text(encoding="utf-8").splitlines()


def test_bundled_lanes_are_complete() -> None:
    for lane in load_lanes().values():
        assert len(Requirement(lane.torch).specifier) == 1, "one build, not a range of them"
        assert "torch" not in {Requirement(line).name for line in lane.requirements}
        no_cuda = lane.gpu is GpuNeed.NONE and lane.toolkit is ToolkitFrom.NOTHING
        assert ("+cpu" in lane.torch) is no_cuda, "no CUDA libraries for a lane without a GPU"
        assert lane.shown and lane.sources and lane.timeout_s > 0
        assert re.fullmatch(r"\d+\.\d+", lane.python) and re.fullmatch(r"\d+[bkmg]?", lane.memory)
        assert bool(lane.toolkit.value) == bool(lane.targets), "a compiler has something to compile for"
        assert lane.targets or not lane.extensions
        assert all(re.fullmatch(r"sm_\d+[af]?", target) for target in lane.targets)


def test_the_toolkit_of_a_lane_is_the_one_that_splatfix_installs() -> None:
    torch = Torch("2.11.0+cu130", "13.0", None, "")
    ours = require(own_toolkit(torch, "linux"))
    for lane in load_lanes().values():
        if lane.toolkit is ToolkitFrom.PYPI:
            assert lane.downloads == ours.requirements


def test_the_lane_without_a_compiler_shares_the_layers_of_torch() -> None:
    """Of everything that goes into the stage with torch nothing differs."""
    ours, other = find_lane("nvrtc"), find_lane("cuda-from-pypi")
    assert (ours.build_apt, ours.downloads) == ((), ())
    same = ("base_image", "python", "torch", "torch_index", "requirements")
    assert all(getattr(ours, name) == getattr(other, name) for name in same)
    assert install_arguments(ImageRecipe(ours)) == ["--target", "sm_120", "--backend", "nvrtc"]
