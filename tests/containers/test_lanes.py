from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from splatfix.containers import find_lane, load_lanes
from splatfix.core.errors import Exit, SplatfixError

GOOD = """
[lanes.cpu]
description = "d"
base_image = "debian:bookworm-slim"
dockerfile = "debian.Dockerfile"
python = "3.11"
glibc = "2.36"
torch = "torch==2.13.0+cpu"
torch_index = "https://example.invalid/cpu"
gpu = false
suite = "quick"
timeout_s = 60
"""


def lanes_file(tmp_path: Path, text: str) -> Path:
    (tmp_path / "debian.Dockerfile").write_text("ARG BASE_IMAGE\n")
    path = tmp_path / "lanes.toml"
    path.write_text(text)
    return path


def test_bundled_lanes_are_complete() -> None:
    lanes = load_lanes()
    assert "cpu" in lanes
    for name, lane in lanes.items():
        dockerfile = lane.dockerfile_path.read_text()
        assert lane.name == name
        for argument in ("BASE_IMAGE", "PYTHON_VERSION", "APT_PACKAGES", *lane.build_args):
            assert f"ARG {argument}" in dockerfile
        torch = Requirement(lane.torch)
        assert len(torch.specifier) == 1, "one build, not a range of them"
        for line in lane.requirements:
            assert Requirement(line).name != "torch"
        assert lane.gpu or "+cpu" in lane.torch, "no CUDA libraries for a lane without a GPU"


def test_cpu_lane_needs_no_gpu() -> None:
    assert find_lane("cpu").gpu is False


def test_a_new_lane_is_data(tmp_path: Path) -> None:
    cuda = (
        GOOD.replace("lanes.cpu", "lanes.cuda-128")
        .replace("gpu = false", "gpu = true")
        .replace("+cpu", "+cu128")
    )
    extra = 'apt = ["g++"]\n[lanes.cuda-128.build_args]\nARCHS = "12.0"\n'
    lane = find_lane("cuda-128", lanes_file(tmp_path, GOOD + cuda + extra))
    assert (lane.gpu, lane.torch, lane.apt, dict(lane.build_args)) == (
        True,
        "torch==2.13.0+cu128",
        ("g++",),
        {"ARCHS": "12.0"},
    )


def test_unknown_lane() -> None:
    with pytest.raises(SplatfixError) as caught:
        find_lane("cpuu")
    assert caught.value.code == "unknown-lane"
    assert caught.value.exit_code == Exit.USAGE
    assert "cpu" in caught.value.todo[0].line()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("gpu = false", 'gpu = "no"'), "$.gpu"),
        (("gpu = false", ""), "'gpu' is missing"),
        (("gpu = false", "gpu = false\nGPU = true"), "unknown key 'GPU'"),
        (("debian.Dockerfile", "fedora.Dockerfile"), "fedora.Dockerfile"),
        (('"3.11"', '"3"'), "minor version"),
        (('"2.36"', '"glibc"'), "glibc"),
        (("torch==2.13.0+cpu", "torch>=2"), "one build"),
        (("timeout_s = 60", "timeout_s = 0"), "timeout_s"),
        (("[lanes.cpu]", "[lanes.cpu"), "line 2"),
        (("[lanes.cpu]\n", "lanes = 1\n[cpu]\n"), "dict expected"),
    ],
)
def test_invalid_value_is_named(tmp_path: Path, change: tuple[str, str], named: str) -> None:
    with pytest.raises(SplatfixError) as caught:
        load_lanes(lanes_file(tmp_path, GOOD.replace(*change)))
    assert caught.value.code == "lanes-unreadable"
    assert named in caught.value.what
