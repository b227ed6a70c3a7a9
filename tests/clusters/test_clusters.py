"""The examples on engines that exist, ``make clusters``: Slurm's daemons and a Ray cluster on this machine; Kubernetes' schema.

Slurm runs as root (Debian: slurm-wlm and munge), four nodes with the facts of simulated machines; /etc/slurm is left as it was.
"""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from splatfix.checks import all_checks
from splatfix.core.codec import to_json
from tests.conftest import ROOT
from tests.machines import facts_of
from tests.tables import data

EXAMPLES = ROOT / "examples"
PYTHON = os.environ.get("SPLATFIX_CLUSTERS_PYTHON", "")
"""Of an environment with Ray and splatfix."""
ETC = Path("/etc/slurm")
NODES = ("n1", "n2", "n3", "n4")
TEXTS: dict[str, str] = data(__file__)["texts"]
CHECK = ETC / "slurm-health-check.sh"
HEALTH_CHECK = (f"HealthCheckProgram={CHECK}", "HealthCheckInterval=2", "HealthCheckNodeState=ANY")
OURS = "splatfix: driver-library-mismatch"
COUNT, HOW = 6, ("--scene", "plaza", "--iterations", "100", "--device", "cpu")
"""Certifications as short as they are judged."""


def test_examples_are_short_and_name_checks_that_exist() -> None:
    known = {check.code for check in all_checks()} | {check.family for check in all_checks()}
    files = [*EXAMPLES.iterdir()]
    assert len(files) == 4
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60, file
        assert re.search(r"splatfix['\", ]+(diagnose|certify) ?", text), file
        assert set(re.findall(r"--only,? ([\w-]+)", text)) <= known, file


def slurm(*argv: str, check: bool = True) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=check).stdout.strip()


class Cluster:
    """Four slurmd and a controller, whose nodes have the facts that ``become`` gives them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("spool", "controller", "nodes", "bin"):
            (place / name).mkdir()
        for node in NODES:
            (place / f"gpu-{node}").touch()  # what stands for /dev/nvidia0
        # what stands for /opt/splatfix/bin: on each node another machine is diagnosed
        (place / "bin" / "python").symlink_to(sys.executable)
        program = f"exec env PYTHONPATH={ROOT} OMP_NUM_THREADS=1 {sys.executable} -m splatfix"
        (place / "bin" / "splatfix").write_text(
            f'#!/bin/sh\n[ "$1" = diagnose ] && set -- "$@" --facts {place}/nodes/$SLURMD_NODENAME.json\n{program} "$@"\n'
        )
        (place / "bin" / "splatfix").chmod(0o755)
        CHECK.write_text(self.example("slurm-health-check.sh"))
        CHECK.chmod(0o755)

    def example(self, name: str) -> str:
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        assert "/opt/splatfix/bin" in text
        return text.replace("/opt/splatfix/bin", f"{self.place}/bin")

    def become(self, node: str, machine: str) -> None:
        """Give a node the facts of a machine, at once; "silent" is one whose driver does not answer."""
        document = to_json(facts_of("h200" if machine == "silent" else machine))
        if machine == "silent":
            error = "libcuda.so.1: no answer within 20 s"
            document["machine"]["cuda"].update(value=None, error=error, absent=False)
        new = self.place / "nodes" / f"{node}.new"
        new.write_text(json.dumps(document))
        new.rename(self.place / "nodes" / f"{node}.json")

    def configure(self, *lines: str) -> None:
        gres = "".join(f"NodeName={node} Name=gpu File={self.place}/gpu-{node}\n" for node in NODES)
        (ETC / "gres.conf").write_text(gres)
        (ETC / "slurm.conf").write_text(TEXTS["conf"].format(folder=self.place) + "\n".join(lines) + "\n")

    def reconfigure(self, *lines: str) -> None:
        self.configure(*lines)
        slurm("scontrol", "reconfigure")
        time.sleep(5)  # each slurmd reads it in its own time, and says nothing

    def start_node(self, node: str) -> None:
        slurm("slurmd", "-N", node)
        # Slurm takes a node that was lost for down until somebody says otherwise
        slurm("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)

    def cut_power(self, node: str) -> None:
        """End the node's daemon and all that runs on it, without a word."""
        mark = f"SLURMD_NODENAME={node}\0".encode()
        children = [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in content(path)
        ]
        stepds = {int(word) for word in slurm("pgrep", "-f", "^slurmstepd: .*", check=False).split()}
        daemon = int((self.place / f"{node}.pid").read_text())
        for number in (daemon, *({parent_of(child) for child in children} & stepds), *children):
            end(number, signal.SIGKILL)

    def stop(self) -> None:
        for node in NODES:
            if (self.place / f"{node}.pid").exists():
                self.cut_power(node)
        if (self.place / "slurmctld.pid").exists():
            end(int((self.place / "slurmctld.pid").read_text()), signal.SIGTERM)


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def parent_of(process: int) -> int:
    fields = content(Path(f"/proc/{process}/stat")).rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def end(process: int, number: int) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return
    wait_for("a process ends", lambda: not Path(f"/proc/{process}").exists(), 10)


def state(node: str) -> tuple[str, str]:
    """State and reason of a node, as Slurm tells them."""
    shown = slurm("scontrol", "show", "node", node, "--oneliner", check=False)
    word, reason = re.search(r" State=(\S+)", shown), re.search(r" Reason=(.*?)(?: \[\S+\])?\s*$", shown)
    return word[1] if word else "", reason[1] if reason else ""


def drained(node: str, reason: str = "") -> bool:
    word, why = state(node)
    return "DRAIN" in word and why.startswith(reason)


def wait_for(what: str, condition: Callable[[], object], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not PYTHON:
        pytest.skip("NOT RUN ON SLURM: make clusters")
    assert shutil.which("slurmctld"), "apt-get install slurm-wlm munge"
    assert not (ETC / "slurm.conf").exists(), "this machine has a Slurm of its own"
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge")
        subprocess.run(["munged"], user="munge", group="munge", extra_groups=[], check=True)
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        for node, machine in zip(
            NODES, ("h200", "driver-without-reboot", "silent", "driver-without-reboot"), strict=True
        ):
            made.become(node, machine)
        made.configure(*HEALTH_CHECK)
        slurm("slurmctld")
        for node in NODES:
            made.start_node(node)
        yield made
    finally:
        made.stop()
        for path in (CHECK, ETC / "slurm.conf", ETC / "gres.conf"):
            path.unlink(missing_ok=True)


@pytest.mark.slow
def test_the_health_check_drains_what_is_broken_and_returns_what_is_mended(cluster: Cluster) -> None:
    for node in ("n2", "n4"):
        wait_for(f"{node} is drained", partial(drained, node, OURS))
    cluster.become("n4", "h200")
    wait_for("n4 is returned", lambda: not drained("n4"))
    slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=new fans")
    time.sleep(5)  # health checks run meanwhile
    assert state("n1") == ("IDLE+DRAIN", "new fans"), "an administrator's"
    assert drained("n2", OURS) and not drained("n3"), "what is unknown drains nothing"
    slurm("scontrol", "update", "NodeName=n1", "State=RESUME")
    cluster.become("n2", "h200")
    wait_for("n2 is returned", lambda: not drained("n2"))


@pytest.mark.slow
def test_as_a_prolog_it_sends_the_job_back_into_the_queue(cluster: Cluster) -> None:
    cluster.reconfigure(f"Prolog={CHECK}", "HealthCheckInterval=0")
    cluster.become("n2", "driver-without-reboot")
    job = slurm("sbatch", "--parsable", "--nodelist=n2", "--output=/dev/null", "--wrap=true")
    wait_for("the prolog drains the node", partial(drained, "n2", OURS))
    word = ("squeue", "--noheader", "--states=all", f"--job={job}", "--format=%T")
    wait_for("its job waits again", lambda: slurm(*word) in ("PENDING", "REQUEUE_HOLD"))
    slurm("scancel", job)
    cluster.become("n2", "h200")
    slurm("scontrol", "update", "NodeName=n2", "State=RESUME")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_an_array_of_certifications_one_killed_and_one_node_lost(
    cluster: Cluster, splatfix: Callable[..., Any]
) -> None:
    """The matrix has all of them: those of the lost node ran again, the one killed is unfinished (scancel would interrupt it)."""
    cluster.reconfigure("HealthCheckInterval=0")
    out, job = cluster.place / "run", cluster.place / "array.sbatch"
    job.write_text(cluster.example("slurm-array.sbatch"))
    argv = ["sbatch", "--wait", f"--array=0-{COUNT - 1}", "--gres=gpu:1", str(job), str(out), *HOW]
    running = subprocess.Popen(argv, cwd=cluster.place)

    def certificate(number: int | str) -> dict[str, Any]:
        text = content(out / str(number) / "certificate.json")
        return json.loads(text) if text else {}  # type: ignore[no-any-return]

    chosen: list[tuple[list[str], list[str]]] = []

    def two_train() -> bool:
        lines = slurm("squeue", "--noheader", "--array", "--states=R", "--format=%F %K %N").splitlines()
        rows = [
            row for row in map(str.split, lines) if len(row) == 3 and certificate(row[1]).get("unfinished")
        ]
        chosen[:] = [(one, two) for one in rows for two in rows if one[2] != two[2]]
        return bool(chosen)

    wait_for("two on different nodes train", two_train, 600)
    (_, victim, _), (_, moved, lost) = chosen[0]
    subprocess.run(["pkill", "-KILL", "-f", f"certify --out {out}/{victim} "], check=True)
    cluster.cut_power(lost)
    assert running.wait(1500) != 0, "one was killed"
    merged = splatfix("report", "merge", out, "--out", out / "matrix")
    assert merged.returncode == 0, merged.stderr
    with (out / "matrix" / "certificates.csv").open(newline="") as table:
        matrix = {
            row["file"].split("/")[-2]: (row["verdict"], row["problem"]) for row in csv.DictReader(table)
        }
    assert matrix.pop(victim)[1] == "run unfinished"
    assert set(matrix) == {str(number) for number in range(COUNT)} - {victim}
    assert moved in matrix and {verdict for verdict, _ in matrix.values()} == {"certified"}


@pytest.mark.slow
def test_what_could_not_be_judged_is_tried_once_more(cluster: Cluster) -> None:
    cluster.reconfigure("HealthCheckInterval=0")
    job = cluster.place / "array.sbatch"
    job.write_text(cluster.example("slurm-array.sbatch"))
    argv = ["sbatch", "--wait", "--array=0-0", job, cluster.place / "short", *HOW, "--iterations", "5"]
    done = subprocess.run(argv, cwd=cluster.place, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "Restarts=1 " in slurm("scontrol", "show", "job", done.stdout.split()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_node_of_a_ray_cluster_is_told(tmp_path: Path) -> None:
    if not PYTHON:
        pytest.skip("NOT RUN ON RAY: make clusters")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(TEXTS["site"])
    (tmp_path / "cluster.py").write_text(TEXTS["ray"])
    machines = ("h200", "driver-without-reboot", "h200", "h200")
    for node, machine in zip(NODES, machines, strict=True):
        (tmp_path / f"{node}.json").write_text(json.dumps(to_json(facts_of(machine))))
    facts = (tmp_path / f"{node}.json" for node in NODES)
    argv = [PYTHON, tmp_path / "cluster.py", EXAMPLES / "ray_nodes.py", *facts]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=1200, check=False)
    told = dict(re.findall(r"^(n\d)\t(.*)$", done.stdout, re.MULTILINE))
    assert done.returncode == 1, done.stderr[-3000:]
    assert told["n1"].startswith("0\t") and told["n2"].startswith("1\tdriver-library-mismatch: "), told
    assert told["n3"].startswith("3\tno answer") and told["n4"].startswith("3\tno answer"), told


@pytest.mark.slow
def test_the_job_is_valid_for_kubernetes() -> None:
    if not PYTHON:
        pytest.skip("NOT HELD AGAINST KUBERNETES' SCHEMA: make clusters")
    check = (
        "import sys, yaml, kubernetes_validate\n"
        "job = yaml.safe_load(open(sys.argv[1]))\n"
        "print(kubernetes_validate.validate(job, '1.33', strict=True))"
    )
    done = subprocess.run(
        [PYTHON, "-c", check, EXAMPLES / "kubernetes-job.yaml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
