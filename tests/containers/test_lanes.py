from pathlib import Path

import pytest
from packaging.requirements import Requirement

from splatfix.containers import GpuNeed, find_lane, load_lanes
from splatfix.containers.image import ImageRecipe, build_arguments
from splatfix.containers.lanes import ToolkitFrom
from splatfix.core.errors import Exit
from splatfix.core.resources import bundled
from splatfix.facts import Torch
from splatfix.plan.tools import provided_toolkit
from tests.plan.machines import refused

GOOD = Path(__file__).with_name("lane.toml").read_text(encoding="utf-8")


def lanes_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lanes.toml"
    path.write_text(text)
    return path


def test_bundled_lanes_are_complete() -> None:
    lanes = load_lanes()
    dockerfile = (bundled("dockerfiles") / "debian.Dockerfile").read_text()
    assert "cpu" in lanes
    for name, lane in lanes.items():
        assert lane.name == name
        for argument in build_arguments(ImageRecipe(lane, {})):
            assert f"ARG {argument}" in dockerfile
        torch = Requirement(lane.torch)
        assert len(torch.specifier) == 1, "one build, not a range of them"
        for line in lane.requirements:
            assert Requirement(line).name != "torch"
        no_cuda = lane.gpu is GpuNeed.NONE and lane.toolkit is ToolkitFrom.NOTHING
        assert ("+cpu" in lane.torch) is no_cuda, "no CUDA libraries for a lane without a GPU"
        assert lane.shown and lane.sources


def test_the_toolkit_of_a_lane_is_the_one_that_splatfix_installs() -> None:
    torch = Torch("2.11.0+cu130", "13.0", None, "")
    provided = provided_toolkit(torch, "linux")
    assert provided is not None
    _, ours, _ = provided
    for lane in load_lanes().values():
        if lane.toolkit is ToolkitFrom.PYPI:
            assert lane.downloads == ours.requirements


def test_the_lane_without_a_compiler_shares_the_layers_of_torch() -> None:
    """Of everything that goes into the stage with torch nothing differs."""
    ours, other = find_lane("nvrtc"), find_lane("cuda-from-pypi")
    assert (ours.build_apt, ours.downloads) == ((), ())
    same = ("base_image", "python", "torch", "torch_index", "requirements")
    assert all(getattr(ours, name) == getattr(other, name) for name in same)
    arguments = build_arguments(ImageRecipe(ours, {}, extensions=ours.extensions, targets=ours.targets))
    assert arguments["INSTALL_ARGUMENTS"] == "--target sm_120 --backend nvrtc"


def test_a_lane_is_like_another(tmp_path: Path) -> None:
    lanes = load_lanes(lanes_file(tmp_path, GOOD + '[lanes.b]\nlike = "cpu"\nsuite = "standard"\n'))
    assert (lanes["b"].suite, lanes["b"].memory, lanes["b"].name) == ("standard", "8g", "b")


def test_a_new_lane_is_data(tmp_path: Path) -> None:
    cuda = (
        GOOD.replace("lanes.cpu", "lanes.cuda-128")
        .replace('gpu = "none"', 'gpu = "required"')
        .replace("+cpu", "+cu128")
    )
    lane = find_lane("cuda-128", lanes_file(tmp_path, f'{GOOD}{cuda}build_apt = ["g++"]\n'))
    assert (lane.gpu, lane.torch, lane.build_apt) == (GpuNeed.REQUIRED, "torch==2.13.0+cu128", ("g++",))


def test_unknown_lane() -> None:
    error = refused(find_lane, "cpuu")
    assert error.code == "unknown-lane"
    assert error.exit_code == Exit.USAGE
    assert "cpu" in error.todo[0].line()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('gpu = "none"', 'gpu = "no"'), "$.gpu"),
        (('gpu = "none"', ""), "required field `gpu`"),
        (('gpu = "none"', 'gpu = "none"\nGPU = true'), "unknown field `GPU`"),
        (('"8g"', '"much"'), "$.memory"),
        (("sources = []", 'sources = []\nlike = "cpu"'), "no other lane"),
        (("sources = []", 'sources = []\ntargets = ["120"]'), "$.targets[0]"),
        (("sources = []", 'sources = []\ntargets = ["sm_120"]'), "belong together"),
        (('"3.11"', '"3"'), "$.python"),
        (("torch==2.13.0+cpu", "torch>=2"), "$.torch"),
        (("timeout_s = 60", "timeout_s = 0"), "timeout_s"),
        (("[lanes.cpu]", "[lanes.cpu"), "line 1"),
        (("[lanes.cpu]\n", "lanes = 1\n[cpu]\n"), "Expected `object`"),
    ],
)
def test_invalid_value_is_named(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    error = refused(load_lanes, lanes_file(tmp_path, GOOD.replace(*change)))
    assert error.code == "lanes-unreadable"
    assert named in error.what
