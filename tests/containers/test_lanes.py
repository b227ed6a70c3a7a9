from splatfix.containers import find_lane, load_lanes
from splatfix.containers.image import ImageRecipe, build_arguments
from splatfix.containers.lanes import ToolkitFrom
from splatfix.facts import Torch
from splatfix.plan.tools import provided_toolkit


def test_the_toolkit_of_a_lane_is_the_one_that_splatfix_installs() -> None:
    torch = Torch("2.11.0+cu130", "13.0", None, "")
    provided = provided_toolkit(torch, "linux")
    assert provided is not None
    _, ours, _ = provided
    for lane in load_lanes().values():
        if lane.toolkit is ToolkitFrom.PYPI:
            assert lane.downloads == ours.requirements


def test_a_lane_without_a_compiler_compiles_by_nvrtc() -> None:
    lane = find_lane("nvrtc")
    arguments = build_arguments(ImageRecipe(lane, {}, extensions=lane.extensions, targets=lane.targets))
    assert arguments["INSTALL_ARGUMENTS"] == "--target sm_120 --backend nvrtc"


def test_a_lane_is_like_another() -> None:
    lane, other = find_lane("cu128"), find_lane("cu130")
    assert lane.name == "cu128" and lane.torch != other.torch and lane.memory == other.memory
