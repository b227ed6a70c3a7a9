"""The ways out of every simulated machine, for its own GPUs and for three others, as an expert would rank them.

``SPLATFIX_UPDATE_GOLDENS=1 pytest tests/machines`` writes the goldens anew; read them before they are committed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from splatfix.context import Goal
from splatfix.core.files import dumps, write_json
from splatfix.plan import Lane, Road, find_ways
from splatfix.report.options import ways_part
from tests.machines import HERE, NAMES, facts_of
from tests.machines.test_machines import UPDATE

TARGETS = ("auto", "sm_120", "sm_90", "sm_75")
LANES = (Lane("cpu", "torch==2.13.0+cpu", False), Lane("cu130", "torch==2.11.0+cu130", True))

# What the first way out of each machine's own trouble is, by an expert's word.
FIRST = {
    "a100-conda-without-nvcc": Road.INSTALL_TOOLKIT,
    "a100-mig-kubernetes": Road.KEEP,
    "amd-rx-7900-xtx": Road.SWAP,
    "apple-m2-max": Road.SWAP,
    "card-without-driver": Road.INSTALL_TOOLKIT,
    "driver-without-reboot": Road.KEEP,
    "gb10-dgx-spark": Road.KEEP,
    "gtx-1080-ti-dropped": Road.OTHER_TORCH,
    "h200": Road.KEEP,
    "jetson-agx-orin": Road.KEEP,
    "rtx-2080-ubuntu-package": Road.REBUILD,
    "rtx-3090-and-5090": Road.REBUILD,
    "rtx-4090-windows-vs2022": Road.REBUILD,
    "rtx-5060-ti-wsl2": Road.KEEP,
    "rtx-5080": Road.KEEP,
    "t4-container": Road.KEEP,
    "t4-container-without-gpu": Road.KEEP,
}


def readable(machine: str, target: str) -> dict[str, Any]:
    """The ways out with every step as its sentence."""
    made = ways_part(find_ways(Goal((target,)), facts_of(machine), LANES))
    return {
        "targets": made["targets"],
        "plans": [
            {
                "road": plan["road"],
                "steps": [" $ ".join([step["text"], *step.get("commands", ())]) for step in plan["steps"]],
                "because": [reason["text"] for reason in plan["reasons"]],
                "not_known": plan["unsure"],
                "can_prove": plan["can_prove"],
                "cannot_prove": {limit["rung"]: limit["why"] for limit in plan["cannot_prove"]},
            }
            for plan in made["plans"]
        ],
        "shut": {road["what"]: road["why"] for road in made["rejected"]},
        "notes": made["notes"],
    }


@pytest.mark.parametrize("name", NAMES)
def test_plans_read_as_the_golden(name: str) -> None:
    found = {target: readable(name, target) for target in TARGETS}
    golden: Path = HERE / name / "plans.json"
    if UPDATE:
        write_json(golden, found)
    kept = json.loads(golden.read_text(encoding="utf-8"))
    assert json.loads(dumps(found)) == kept, (
        "if the new plans are right, write them anew: SPLATFIX_UPDATE_GOLDENS=1 pytest tests/machines"
    )


def test_every_machine_has_its_expert() -> None:
    assert set(FIRST) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_way_is_the_experts(name: str) -> None:
    assert find_ways(Goal(), facts_of(name), LANES).plans[0].road is FIRST[name]
