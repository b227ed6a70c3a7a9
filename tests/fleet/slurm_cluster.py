"""Slurm's own daemons on one machine: four nodes, by the page of the documentation. ``make slurm`` runs it as root, writes
``tests/records/slurm.json`` and leaves /etc/slurm as it was.

    python -m tests.fleet.slurm_cluster RECORD [--no-training]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from splatfix.core.codec import to_json
from splatfix.core.lenient import object_in
from splatfix.facts import Facts
from tests.machines import facts_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clusters" / "slurm.md"
ETC = Path("/etc/slurm")
NODES = ("n1", "n2", "n3", "n4")
CONF = """\
ClusterName=splatfix
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort=16817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
GresTypes=gpu
SlurmdTimeout=10
SlurmdParameters=config_overrides
NodeName=n[1-4] NodeHostname=localhost Port=[17001-17004] CPUs=1 RealMemory=2000 Gres=gpu:1
PartitionName=gpu Nodes=n[1-4] Default=YES State=UP
"""


def silent(facts: Facts) -> dict[str, Any]:
    """The facts of a machine whose driver does not answer cuInit in time."""
    document: dict[str, Any] = to_json(facts)
    document["machine"]["cuda"].update(value=None, error="libcuda.so.1: no answer within 20 s", absent=False)
    return document


def blocks(language: str) -> list[str]:
    """The code blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


class Cluster:
    """Four slurmd and a controller, whose nodes have the facts that ``become`` gives them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("spool", "controller", "nodes", "verdicts", "state"):
            (place / name).mkdir()
        for node in NODES:
            (place / f"gpu-{node}").touch()  # what stands for /dev/nvidia0

    def become(self, node: str, facts: str) -> None:
        """Give a node the facts of a machine: at once, as a reboot would."""
        document = silent(facts_of("h200")) if facts == "silent" else to_json(facts_of(facts))
        new = self.place / "nodes" / f"{node}.new"
        new.write_text(json.dumps(document))
        new.rename(self.place / "nodes" / f"{node}.json")

    def configure(self, *lines: str) -> None:
        """Write the configuration and the page's programs."""
        gres = "".join(f"NodeName={node} Name=gpu File={self.place}/gpu-{node}\n" for node in NODES)
        (ETC / "gres.conf").write_text(gres)
        (ETC / "slurm.conf").write_text(CONF.format(folder=self.place) + "\n".join(lines) + "\n")
        for name, text in zip(("splatfix-health", "splatfix-prolog"), blocks("sh")[1:3], strict=True):
            program = f"{sys.executable} -m splatfix gate --facts {self.place}/nodes/$SLURMD_NODENAME.json"
            text = text.replace("/shared/splatfix/bin/splatfix gate", program)
            text = text.replace("/var/lib/splatfix", f"{self.place}/state").replace(
                "/shared/verdicts", f"{self.place}/verdicts"
            )
            assert program in text and "/shared" not in text
            # slurmd gives its programs no PATH and no folder to import from
            text = text.replace("#!/bin/sh\n", f"#!/bin/sh\nexport PYTHONPATH={ROOT} PATH=/usr/bin:/bin\n")
            (ETC / name).write_text(text)
            (ETC / name).chmod(0o755)

    def start_controller(self) -> None:
        subprocess.run(["slurmctld"], check=True)

    def stop_controller(self) -> None:
        end(int((self.place / "slurmctld.pid").read_text()), signal.SIGTERM)

    def start_node(self, node: str) -> None:
        subprocess.run(["slurmd", "-N", node], check=True)
        # Slurm takes a node that was lost for down until somebody says otherwise
        subprocess.run(
            ["scontrol", "update", f"NodeName={node}", "State=RESUME"], stderr=subprocess.DEVNULL, check=False
        )

    def cut_power(self, node: str) -> None:
        """End the node's daemon and all that runs on it, without a word."""
        pid = int((self.place / f"{node}.pid").read_text())
        mark = f"SLURMD_NODENAME={node}\0".encode()
        children = [
            int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in content(path)
        ]
        stepds = subprocess.run(
            ["pgrep", "-f", "^slurmstepd: .*"], capture_output=True, text=True, check=False
        ).stdout
        parents = {parent_of(child) for child in children} & {int(word) for word in stepds.split()}
        for number in (pid, *parents, *children):
            end(number, signal.SIGKILL)

    def stop(self) -> None:
        for node in NODES:
            if (self.place / f"{node}.pid").exists():
                self.cut_power(node)
        if (self.place / "slurmctld.pid").exists():
            self.stop_controller()


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
    until = time.monotonic() + 10
    while time.monotonic() < until and Path(f"/proc/{process}").exists():
        time.sleep(0.05)


def state(node: str) -> tuple[str, str]:
    """State and reason of a node, as Slurm tells them."""
    shown = subprocess.run(
        ["scontrol", "show", "node", node, "--oneliner"], capture_output=True, text=True, check=False
    )
    word = re.search(r" State=(\S+)", shown.stdout)
    reason = re.search(r" Reason=(.*?)(?: \[\S+\])?\s*$", shown.stdout)
    return word[1] if word else "", reason[1] if reason else ""


def drained(node: str, reason: str = "") -> bool:
    word, why = state(node)
    return "DRAIN" in word and why.startswith(reason)


def wait_for(what: str, condition: Callable[[], object], seconds: float = 60.0) -> float:
    """Seconds until it holds."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise SystemExit(f"not within {seconds:g} s: {what}; {[(node, *state(node)) for node in NODES]}")
        time.sleep(0.2)
    took = time.monotonic() - started
    print(f"{took:6.1f} s  {what}", flush=True)
    return took


@contextmanager
def cluster() -> Iterator[Cluster]:
    """It runs while this lasts; /etc/slurm is as it was then."""
    if (ETC / "slurm.conf").exists():
        raise SystemExit("/etc/slurm/slurm.conf is there already: this machine has a Slurm of its own")
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge")
        subprocess.run(["munged"], user="munge", group="munge", extra_groups=[], check=True)
    with tempfile.TemporaryDirectory(prefix="splatfix-slurm-", ignore_cleanup_errors=True) as place:
        made = Cluster(Path(place))
        try:
            yield made
        finally:
            made.stop()
            for name in ("slurm.conf", "gres.conf", "splatfix-health", "splatfix-prolog"):
                (ETC / name).unlink(missing_ok=True)


OURS = "splatfix: driver-library-mismatch"


def health_checks(made: Cluster) -> dict[str, Any]:
    """The broken node is drained with our reason, the unknown one is not, the mended one is returned."""
    for node, facts in zip(
        NODES, ("h200", "driver-without-reboot", "silent", "driver-without-reboot"), strict=True
    ):
        made.become(node, facts)
    made.configure(*re.sub("Interval=300", "Interval=2", blocks("ini")[0]).splitlines())
    started = time.monotonic()
    made.start_controller()
    for node in NODES:
        made.start_node(node)
    for node in ("n2", "n4"):
        wait_for(f"{node} is drained with our reason", partial(drained, node, OURS))
    made.become("n4", "h200")
    wait_for("n4 is returned", lambda: not drained("n4"))
    assert drained("n2") and not drained("n1") and not drained("n3")
    took = time.monotonic() - started
    verdict = json.loads((made.place / "verdicts" / "n3.json").read_text())
    assert (verdict["state"], verdict["drain"]) == ("unknown", False)

    subprocess.run(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=new fans"], check=True)
    made.stop_controller()
    made.become("n2", "h200")
    time.sleep(5)  # health checks run meanwhile, and reach nobody
    made.start_controller()
    wait_for(
        "after a controller's restart the mended node is returned",
        lambda: state("n2")[0] and not drained("n2"),
    )
    assert state("n1") == ("IDLE+DRAIN", "new fans"), "an administrator's"
    subprocess.run(["scontrol", "update", "NodeName=n1", "State=RESUME"], check=True)
    return {"seconds": round(took, 1), "drained": ["n2", "n4"], "unknown": ["n3"], "returned": ["n4", "n2"]}


def prolog(made: Cluster) -> dict[str, Any]:
    """A job on a node that broke since its last check goes back into the queue."""
    made.configure(blocks("ini")[1], "HealthCheckInterval=0")
    subprocess.run(["scontrol", "reconfigure"], check=True)
    time.sleep(2)
    made.become("n2", "driver-without-reboot")
    argv = ["sbatch", "--parsable", "--nodelist=n2", f"--output={made.place}/job.log", "--wrap=true"]
    job = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    wait_for("the prolog drains the node", lambda: drained("n2"))

    def word() -> str:
        argv = ["squeue", "--noheader", "--states=all", f"--job={job}", "--format=%T"]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()

    wait_for("its job waits again", lambda: word() in ("PENDING", "REQUEUE_HOLD"))
    reason = state("n2")[1]
    assert reason.startswith(OURS), reason
    subprocess.run(["scancel", job], check=True)
    made.become("n2", "h200")
    subprocess.run(["scontrol", "update", "NodeName=n2", "State=RESUME"], check=True)
    return {"job": "requeued", "reason": reason}


# Name of an array, how many certifications, and how: as short as certify lets one be, and with a training in it.
ARRAYS = (
    ("diagnosis", 20, ("--level", "1")),
    ("training", 6, ("--scene", "plaza", "--iterations", "5", "--device", "cpu")),
)


def under_way() -> list[list[str]]:
    """Job, number and node of each certification that runs."""
    argv = ["squeue", "--noheader", "--array", "--states=R", "--format=%F %K %N"]
    rows = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return [row.split() for row in rows if len(row.split()) == 3 and row.split()[1] != "N/A"]


def certifications(made: Cluster, name: str, count: int, how: Sequence[str]) -> dict[str, Any]:
    """One job is killed and one node lost, halfway."""
    made.configure("HealthCheckInterval=0")
    subprocess.run(["scontrol", "reconfigure"], check=True)
    out = made.place / name
    argv = [sys.executable, "-m", "splatfix", "fleet", "run", "--slurm", "--json", "--out", str(out)]
    options = ["--certify", str(count), "--sbatch=--gres=gpu:1", "--", *how]
    started = time.monotonic()
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # four jobs run at a time, on how ever few cores
    running = subprocess.Popen([*argv, *options], cwd=ROOT, env=one_thread, stdout=subprocess.PIPE, text=True)

    def report(number: str) -> dict[str, Any]:
        return object_in(out / "certificates" / number / "certificate.json")

    def ready() -> tuple[list[str], list[str]] | None:
        """Two on different nodes that have written nothing yet or, where they train, one of them an unfinished certificate."""
        rows = [row for row in under_way() if report(row[1]).get("unfinished", True)]
        begun = [row for row in rows if name != "training" or report(row[1])]
        return next(((one, two) for one in begun for two in rows if one[2] != two[2]), None)

    wait_for(f"{name}: two certifications are under way", ready, 600)
    chosen = ready()
    assert chosen is not None
    (array, victim, _), (_, moved, lost) = chosen
    subprocess.run(["scancel", "--signal=KILL", "--full", f"{array}_{victim}"], check=True)
    made.cut_power(lost)
    print(f"killed {victim}, cut the power of {lost} with {moved} on it", flush=True)
    output, _ = running.communicate()
    tasks = {item["name"]: item for item in json.loads(output)["certifications"]}
    with (out / "matrix" / "certificates.csv").open(newline="") as table:
        matrix = list(csv.DictReader(table))
    reports = [report(str(number)) for number in range(count)]
    made.start_node(lost)
    wait_for(f"{lost} is back", lambda: state(lost)[0] == "IDLE")
    return {
        "options": " ".join(how),
        "seconds": round(time.monotonic() - started),
        "certifications": count,
        "certificates": sum(bool(item) and not item["unfinished"] for item in reports),
        "verdicts": sorted({item["verdict"] for item in reports if item and not item["unfinished"]}),
        "unfinished": [item for item in tasks.values() if item["reason"]],
        "lost_node": lost,
        "its_certification_ran_on": tasks[f"certification {moved}"]["node"],
        "rows_of_the_matrix": len(matrix),
        "exit_code": running.returncode,
    }


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # the daemons are stopped then too
    parser = argparse.ArgumentParser()
    parser.add_argument("record", type=Path)
    parser.add_argument("--no-training", dest="training", action="store_false", help="minutes less")
    given = parser.parse_args()
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout.split()[
        -1
    ]
    record: dict[str, Any] = {"slurm": version, "nodes": len(NODES), "page": str(PAGE.relative_to(ROOT))}
    with cluster() as made:
        record["health_checks"] = health_checks(made)
        record["prolog"] = prolog(made)
        for name, count, how in ARRAYS[: None if given.training else 1]:
            record[name] = certifications(made, name, count, how)
    given.record.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
