"""Machine code is counted as it runs, and the record's estimates are those of its own figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.cuda_kernels import RECORD
from tools.kernel_estimates import ASSUMPTIONS, estimates
from tools.sass import Loop, _kernels


def test_a_loop_is_what_comes_back_to_its_head() -> None:
    listing = Path(__file__).with_name("blend.sass").read_text(encoding="utf-8")
    kernel = dict(_kernels(listing))["blend"]
    assert (len(kernel.instructions), kernel.doubles(), kernel.atomics()) == (15, 1, 1)
    assert kernel.loops() == [Loop(instructions=10, shortest=8, steps=1, shuffles=1, atomics=1)]


@pytest.fixture(scope="module")
def record() -> Any:
    return json.loads(RECORD.read_text())


def test_the_estimates_follow_from_the_record(record: Any) -> None:
    assumptions = {name: part for name, part in ASSUMPTIONS.items() if name != "peers"}
    assert record["assumptions"] == assumptions
    made = estimates(record["architectures"], record["peers"]["architectures"])
    assert made == record["estimated_milliseconds"]
    slower = json.loads(json.dumps(record["architectures"]))
    for loop in slower["sm_120"]["blending"]["blend"]["loops"]:
        loop["instructions"] *= 2
    again = estimates(slower, record["peers"]["architectures"])
    assert again["RTX 5090"]["ours"]["in all"] > made["RTX 5090"]["ours"]["in all"]
    assert again["T4"] == made["T4"]


def test_what_was_asked_of_the_way_back_and_of_ssim(record: Any) -> None:
    """At most 60 instructions for a step with pixels that travel, and 13 KB of shared memory a block of SSIM."""
    for modules in record["architectures"].values():
        loops = modules["blending, colors only"]["blend_backward"]["loops"]
        steps = [loop["instructions"] / loop["steps"] for loop in loops if loop["shuffles"]]
        assert len(steps) == 2 and max(steps) <= 60
        for kernel in modules["ssim"].values():
            assert kernel["shared"] <= 13 << 10 and kernel["occupancy"] >= 0.75
