"""What becomes of the jobs of a run, by what Slurm 22.05 answered on four slurmd (``make slurm`` runs the daemons)."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from splatfix.app import fleet_run
from splatfix.core.errors import SplatfixError
from splatfix.core.runner import Completed
from splatfix.fleet.slurm_jobs import Slurm, Task, watch
from tests.app.test_merge import BASE
from tests.conftest import Splatfix
from tests.fleet.slurm_cluster import blocks
from tests.report.verdicts import TOO_OLD, verdict, write

SINFO = "n1|idle|none\nn2|drained|splatfix: driver-library-mismatch: The NVIDIA\nn3|down*|Not responding\nn4|mixed|none\n"


def squeue(*rows: tuple[str, str, str, str]) -> str:
    return "".join(f"{job:<64}{state:<24}{node:<256}{why:<128}\n" for job, state, node, why in rows)


class Cluster:
    """Slurm's commands; each squeue gives the next answer, the last one for ever. None: the controller does not answer."""

    def __init__(
        self, *answers: str | None, sinfo: str = SINFO, leave: Callable[[list[str]], None] | None = None
    ) -> None:
        self.answers, self.sinfo, self.leave = list(answers), sinfo, leave
        self.calls: list[list[str]] = []
        self.number = 16

    def run(self, argv: Sequence[Any], **_: Any) -> Completed:
        words = [str(word) for word in argv]
        self.calls.append(words)
        if words[0] == "sinfo":
            return Completed(tuple(words), 0, self.sinfo)
        if words[0] == "sbatch":
            self.number += 1
            if self.leave:
                self.leave(words)
            return Completed(tuple(words), 0, f"{self.number};cluster\n")
        if words[0] == "squeue":
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer is None:
                return Completed(
                    tuple(words), 1, "", "slurm_load_jobs error: Unable to contact slurm controller\n"
                )
            return Completed(tuple(words), 0, answer)
        return Completed(tuple(words), 0)


def watched(cluster: Cluster, jobs: dict[str, str], seconds: float = 60) -> dict[str, Task]:
    return {task.name: task for task in watch(Slurm(cluster), "x", jobs, seconds, lambda _: None)}


def test_jobs_are_followed_to_their_end() -> None:
    cluster = Cluster(
        squeue(
            ("6_0", "RUNNING", "n1", "None"),
            ("6_1", "RUNNING", "n2", "None"),
            ("7", "PENDING", "", "Resources"),
        ),
        None,  # a controller's restart
        squeue(
            ("6_0", "PENDING", "", "BeginTime"),
            ("6_1", "CANCELLED", "n2", "None"),
            ("7", "NODE_FAIL", "n3", "None"),
        ),
        squeue(("6_0", "COMPLETED", "n2", "None")),
    )
    tasks = watched(cluster, {"6_0": "certification 0", "6_1": "certification 1", "7": "n3"})
    assert {name: (task.state, task.node, task.reason) for name, task in tasks.items()} == {
        "certification 0": ("COMPLETED", "n2", ""),
        "certification 1": ("CANCELLED", "n2", "it was cancelled"),
        "n3": ("NODE_FAIL", "n3", "its node was lost"),
    }


def test_a_job_that_slurm_forgot_and_one_that_never_starts() -> None:
    cluster = Cluster(
        squeue(("8", "RUNNING", "n1", "None"), ("9", "PENDING", "", "ReqNodeNotAvail")), squeue()
    )
    tasks = watched(cluster, {"8": "n1", "9": "n2"}, seconds=0.05)
    assert tasks["n1"].state == "" and not tasks["n1"].reason, "its folder tells"
    assert tasks["n2"].reason == "it did not start: ReqNodeNotAvail"
    assert ["scancel", "--name=x"] in cluster.calls


def test_of_a_prolog_only_a_verdict_drains() -> None:
    """The page's: also where its disk is away (127), or the gate is killed."""
    script = blocks("sh")[2]
    for code, drains in ((0, 0), (1, 1), (2, 0), (3, 0), (127, 0), (137, 0)):
        instead = script.replace("/shared/splatfix/bin/splatfix", f"sh -c 'exit {code}'")
        assert instead != script and subprocess.run(["sh", "-c", instead], check=False).returncode == drains


@pytest.mark.parametrize("sinfo", ["", None])
def test_no_slurm(sinfo: str | None) -> None:
    cluster = Cluster("", sinfo=sinfo or "")
    with pytest.raises(SplatfixError) as caught:
        Slurm(cluster).nodes("gpu")
    assert (caught.value.code, caught.value.exit_code) == ("no-slurm", 3)


def certificate(**values: object) -> str:
    return json.dumps({"unfinished": False, **BASE} | values)


def test_what_came_is_merged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    splatfix: Splatfix,
) -> None:
    """n1 fine, n2 drained, n3 down, n4's job lost with its node; certification 0 killed halfway, 1 leaves nothing, 2 whole."""
    out = tmp_path / "a run"

    def leave(words: list[str]) -> None:
        script = words[-1].removeprefix("--wrap=")
        assert script.startswith("exec ") and words[2].startswith("--job-name=splatfix-")
        if "--nodelist=n1" in words:
            write(out / "verdicts", verdict("n1"))
        if "--array=0-2" in words:
            # as the job's shell makes of it
            argv = subprocess.run(
                ["sh", "-c", f"set -- {script.removeprefix('exec ')}; printf '%s\\n' \"$@\""],
                env={"SLURM_ARRAY_TASK_ID": "0"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            assert argv[-4:] == ["--out", str(out / "certificates" / "0"), "--level", "3"], argv
            (out / "certificates" / "0").mkdir()
            (out / "certificates" / "0" / "certificate.json").write_text(
                certificate(unfinished=True, verdict="undetermined")
            )
            (out / "certificates" / "2").mkdir()
            (out / "certificates" / "2" / "certificate.json").write_text(certificate())

    cluster = Cluster(
        squeue(
            ("17", "COMPLETED", "n1", "None"),
            ("18", "NODE_FAIL", "n4", "None"),
            ("19_0", "FAILED", "n1", "RaisedSignal:9(Killed)"),
            ("19_1", "FAILED", "n4", "NonZeroExitCode"),
            ("19_2", "CANCELLED", "n1", "None"),
        ),
        leave=leave,
    )
    monkeypatch.setattr(fleet_run, "ProcessRunner", lambda: cluster)
    done = splatfix("fleet", "run", "--slurm", "--certify", "3", "--out", out, "--json", "--", "--level", "3")
    document = json.loads(done.stdout)
    assert done.returncode == 3, done.stderr
    assert {
        item["node"]: (item["state"], item["reason"].partition(":")[0]) for item in document["nodes"]
    } == {
        "n1": ("ok", ""),
        "n2": (None, "drained"),
        "n3": (None, "down*"),
        "n4": (None, "its node was lost"),
    }
    reasons = {item["name"]: item["reason"] for item in document["certifications"]}
    assert reasons["certification 0"].startswith("it was ended before its end (FAILED)")
    assert reasons["certification 1"].startswith("it left nothing (FAILED)")
    assert reasons["certification 2"] == "", "it was whole before its job was cancelled"
    assert "certification 1" in (out / "matrix" / "certificates.csv").read_text()
    assert (out / "nodes.txt").read_text().splitlines()[::2] == ["n1", "n3  # down*: Not responding"]
    done = splatfix("fleet", "run", "--out", out)
    assert done.returncode == 2 and "scheduler" in done.stderr


def test_what_lies_in_its_folder_is_read_as_a_strangers(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    splatfix: Splatfix,
) -> None:
    """Each of the nodes and certifications did end well, by what Slurm says."""
    whole = json.dumps(verdict("torn"))
    left = {
        "torn": whole[: len(whole) // 2],
        "liar": json.dumps(verdict("liar", TOO_OLD, state="ok")),
        "other": '{"state": "ok"}',
        "mask": json.dumps(verdict("nobody")),
        "twins": json.dumps(verdict("twins", machine="a")),
        "twins-b": json.dumps(verdict("twins", TOO_OLD, machine="b")),
        "ahead": json.dumps(verdict("ahead", finished="2126-01-01T00:00:00+00:00")),
    }
    expected = {
        "ahead": ("unknown", ""),
        "liar": (None, "its verdict cannot be read: it says ok"),
        "mask": (None, "it left nothing"),
        "none": (None, "it left nothing"),
        "other": (None, "its verdict cannot be read: it is no verdict"),
        "torn": (None, "its verdict cannot be read: it is cut off"),
        "twins": ("fail", ""),
    }
    certificates = ("{", '{"exit_code": "x"}', certificate(verdict="undetermined"))

    def leave(words: list[str]) -> None:
        for name, text in left.items():
            (tmp_path / "run" / "verdicts" / f"{name}.json").write_text(text)
        for number, text in enumerate(certificates):
            (tmp_path / "run" / "certificates" / str(number)).mkdir(exist_ok=True)
            (tmp_path / "run" / "certificates" / str(number) / "certificate.json").write_text(text)

    jobs = [str(17 + number) for number in range(len(expected))] + [f"24_{number}" for number in range(3)]
    done_well = squeue(*((job, "COMPLETED", "n", "None") for job in jobs))
    cluster = Cluster(done_well, sinfo="".join(f"{node}|idle|none\n" for node in expected), leave=leave)
    monkeypatch.setattr(fleet_run, "ProcessRunner", lambda: cluster)
    done = splatfix("fleet", "run", "--slurm", "--certify", "3", "--out", tmp_path / "run", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    for item in document["nodes"]:
        state, reason = expected[item["node"]]
        assert item["state"] == state and item["reason"].startswith(reason), item
        assert bool(reason) == bool(item["reason"])
    assert len(document["nodes"]) == len(expected)
    reasons = [item["reason"] for item in document["certifications"]]
    assert "JSON" in reasons[0] and "not a certificate" in reasons[1] and reasons[2] == "", reasons
