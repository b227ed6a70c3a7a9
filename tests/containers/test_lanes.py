import re

from packaging.requirements import Requirement

from splatfix.containers import GpuNeed, find_lane, load_lanes
from splatfix.containers.image import ImageRecipe, build_arguments
from splatfix.containers.lanes import ToolkitFrom
from splatfix.model import Torch
from splatfix.plan.tools import provided_toolkit


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
