"""``splatfix fleet run --ray`` on a real cluster of several nodes: ``make ray``."""

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from splatfix.fleet import ray_cluster
from tests.conftest import ROOT
from tests.report.verdicts import TOO_OLD, verdict

SCRIPT = ROOT / "tests" / "fleet" / "ray_cluster.py"
RECORD = ROOT / "tests" / "records" / "ray.json"
NOT_STARTED = 75
"""Ray's processes did not come up in the time that Ray gives them."""
EXPECTED = {"n1": "", "n2": "its worker was killed", "n3": "Ray has lost the node", "n4": ""}


NODE = ray_cluster._RayNode("id", "n1", 1.0)


class Given:
    """As much of Ray as answers are read by."""

    exceptions = SimpleNamespace(
        RayTaskError=LookupError,
        OutOfMemoryError=MemoryError,
        TaskUnschedulableError=OSError,
        RayError=RuntimeError,
    )

    def __init__(self, answer: tuple[int, str, str]) -> None:
        self.answer = answer

    def get(self, _: object) -> tuple[int, str, str]:
        return self.answer


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_killed_worker_and_a_lost_node_are_told_and_the_others_judged(tmp_path: Path) -> None:
    python = os.environ.get("SPLATFIX_RAY_PYTHON")
    if not python:
        pytest.skip("NOT RUN ON RAY: make ray")
    for _ in range(5):
        done = subprocess.run(
            [python, SCRIPT, tmp_path / "lane"], capture_output=True, text=True, timeout=1200
        )
        if done.returncode != NOT_STARTED:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    outcome: dict[str, Any] = json.loads(done.stdout)
    ran = outcome["run"]
    assert {node["node"]: node["reason"] for node in ran["nodes"]} == EXPECTED
    judged = {node["node"]: node["state"] for node in ran["nodes"] if node["state"]}
    assert judged.keys() == {"n1", "n4"} and ran["exit_code"] in (1, 3)
    folder = Path(ran["folder"])
    assert {path.stem for path in (folder / "verdicts").iterdir()} == {"n1", "n4"}
    assert len([line for line in outcome["progress"] if line.strip()[:1].isdecimal()]) >= 4
    assert outcome["gone"]["error"]["code"] == "ray-not-reached"
    # what stands in nodes.txt is told by the report
    out = folder / "fleet"
    argv = [python, "-m", "splatfix", "fleet", "report", folder, "--json"]
    argv += ["--nodes", folder / "nodes.txt", "--out", out]
    report = json.loads(subprocess.run(argv, capture_output=True, text=True).stdout)
    lost = {item["node"]: item["reason"] for item in report["remarks"] if item["why"] == "lost"}
    assert lost == {name: reason for name, reason in EXPECTED.items() if reason}
    measured = ("ray", "nodes", "seconds_to_start", "seconds")
    record = {**{name: outcome[name] for name in measured}, "judged": judged, "lost": lost}
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((0, json.dumps({"verdict": verdict("n1")}), ""), ""),
        ((0, json.dumps({"verdict": verdict("n2")}), ""), "the verdict that came is of 'n2'"),
        ((0, json.dumps({"verdict": verdict("n1", TOO_OLD, state="ok")}), ""), "it says ok"),
        (
            (2, json.dumps({"error": {"what": "There is no policy."}}), ""),
            "exit code 2): There is no policy.",
        ),
        ((1, "", "Traceback\nNo module named splatfix\n"), "exit code 1): No module named splatfix"),
        ((0, "[" * 100_000, ""), "nested too deeply"),
    ],
)
def test_what_a_task_brought(answer: tuple[int, str, str], reason: str) -> None:
    made = ray_cluster._answer(Given(answer), None, NODE)
    assert isinstance(made, ray_cluster.Answer) and reason in made.reason
    assert (made.verdict is None) == bool(made.reason) == bool(reason)


def test_a_gate_that_was_killed_is_asked_about() -> None:
    """With the node's end its gate may end first."""
    killed = ray_cluster._answer(Given((-9, "", "")), None, NODE)
    assert killed == "splatfix gate was killed there by signal 9"
