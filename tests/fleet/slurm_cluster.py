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
from collections import Counter
from collections.abc import Callable, Iterator
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
CONF = Path(__file__).with_name("slurm.conf").read_text(encoding="utf-8")


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
            # slurmd gives its programs no PATH, and no folder to import from
            program = f"env PYTHONPATH={ROOT} {sys.executable} -m splatfix gate --facts {self.place}/nodes/$SLURMD_NODENAME.json"
            text = text.replace("/shared/splatfix/bin/splatfix gate", program)
            text = text.replace("/var/lib/splatfix", f"{self.place}/state").replace(
                "/shared/verdicts", f"{self.place}/verdicts"
            )
            assert program in text and "/shared" not in text
            (ETC / name).write_text(text)
            (ETC / name).chmod(0o755)

    def reconfigure(self, *lines: str) -> None:
        """As an administrator does it."""
        self.configure(*lines)
        subprocess.run(["scontrol", "reconfigure"], check=True)

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


def every_two_seconds() -> list[str]:
    """The page's health check, which it runs every five minutes."""
    return blocks("ini")[0].replace("Interval=300", "Interval=2").splitlines()


def health_checks(made: Cluster) -> dict[str, Any]:
    """The broken node is drained with our reason, the unknown one is not, the mended one is returned."""
    for node, facts in zip(
        NODES, ("h200", "driver-without-reboot", "silent", "driver-without-reboot"), strict=True
    ):
        made.become(node, facts)
    made.configure(*every_two_seconds())
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
    made.reconfigure(blocks("ini")[1], "HealthCheckInterval=0")
    time.sleep(5)  # each slurmd reads it in its own time, and says nothing
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


def epilog(made: Cluster) -> dict[str, Any]:
    """A job breaks its node: nothing follows it there, until the health check finds the node well."""
    made.become("n2", "driver-without-reboot")
    broken = (made.place / "nodes" / "n2.json").rename(made.place / "broken.json")
    made.become("n2", "h200")
    script = f"cp {broken} {made.place}/nodes/n2.json"
    subprocess.run(
        ["sbatch", "--wait", "--nodelist=n2", "--output=/dev/null", f"--wrap={script}"], check=True
    )
    wait_for("the epilog drains the node", partial(drained, "n2", OURS))
    reason = state("n2")[1]

    (made.place / "verdicts" / "n2.json").unlink()
    made.reconfigure(*every_two_seconds(), blocks("ini")[1])

    def checked() -> tuple[str, int]:
        assert drained("n2", OURS), "a check that fails, or is the first that fails, returns nothing"
        verdict = object_in(made.place / "verdicts" / "n2.json")
        return verdict.get("state", ""), (verdict.get("previous") or {}).get("count", 0)

    wait_for("three health checks fail", lambda: checked()[0] == "fail" and checked()[1] >= 2)
    made.become("n2", "silent")
    wait_for("two more know nothing", lambda: checked()[0] == "unknown" and checked()[1] >= 1)
    made.become("n2", "h200")
    wait_for("the mended node is returned", lambda: not drained("n2"))
    return {"job": "completed", "reason": reason, "returned_by": "health check"}


# Twenty as short as certify judges one with a training in it.
COUNT, HOW = 20, ("--scene", "plaza", "--iterations", "100", "--device", "cpu")


def under_way() -> list[list[str]]:
    """Job, number and node of each certification that runs."""
    argv = ["squeue", "--noheader", "--array", "--states=R", "--format=%F %K %N"]
    rows = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    return [row.split() for row in rows if len(row.split()) == 3 and row.split()[1] != "N/A"]


def certifications(made: Cluster) -> dict[str, Any]:
    """One job is killed and one node lost while they train."""
    made.reconfigure("HealthCheckInterval=0")
    out = made.place / "run"
    argv = [sys.executable, "-m", "splatfix", "fleet", "run", "--slurm", "--json", "--out", str(out)]
    options = ["--certify", str(COUNT), "--sbatch=--gres=gpu:1", "--", *HOW]
    started = time.monotonic()
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # four jobs run at a time, on how ever few cores
    running = subprocess.Popen([*argv, *options], cwd=ROOT, env=one_thread, stdout=subprocess.PIPE, text=True)

    def report(number: int | str) -> dict[str, Any]:
        return object_in(out / "certificates" / str(number) / "certificate.json")

    chosen: list[tuple[list[str], list[str]]] = []

    def ready() -> bool:
        """Two on different nodes have begun their trainings."""
        rows = [row for row in under_way() if report(row[1]).get("unfinished")]
        chosen[:] = [(one, two) for one in rows for two in rows if one[2] != two[2]]
        return bool(chosen)

    wait_for("two certifications train", ready, 1200)
    (array, victim, _), (_, moved, lost) = chosen[0]
    subprocess.run(["scancel", "--signal=KILL", "--full", f"{array}_{victim}"], check=True)
    made.cut_power(lost)
    print(f"killed {victim}, cut the power of {lost} with {moved} on it", flush=True)
    output, _ = running.communicate()
    tasks = {item["name"]: item for item in json.loads(output)["certifications"]}
    with (out / "matrix" / "certificates.csv").open(newline="") as table:
        matrix = {row["file"].split("/")[-2]: row["verdict"] for row in csv.DictReader(table)}
    reports = [report(number) for number in range(COUNT)]
    made.start_node(lost)
    wait_for(f"{lost} is back", lambda: state(lost)[0] == "IDLE")
    whole = [item for item in reports if item and not item["unfinished"]]
    seen = {
        "options": " ".join(HOW),
        "seconds": round(time.monotonic() - started),
        "certifications": COUNT,
        "certificates": len(whole),
        "trained": sum(bool(item["scenes"]) for item in whole),
        "verdicts": sorted({item["verdict"] for item in whole}),
        "unfinished": [item for item in tasks.values() if item["reason"]],
        "lost_node": lost,
        "its_certification_ran_on": tasks[f"certification {moved}"]["node"],
        "matrix": dict(Counter(matrix.values())),
        "exit_code": running.returncode,
    }
    print(json.dumps({**seen, "rows": matrix}, indent=2), flush=True)
    assert [item["name"] for item in seen["unfinished"]] == [f"certification {victim}"]
    assert seen["its_certification_ran_on"] not in ("", lost) and running.returncode == 3
    return seen


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
        record["epilog"] = epilog(made)
        if given.training:
            record["certifications"] = certifications(made)
    given.record.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
