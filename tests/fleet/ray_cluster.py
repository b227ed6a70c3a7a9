"""A real Ray cluster of a head and four nodes on this machine, asked by ``splatfix fleet run --ray`` while one worker is
killed and one node lost. Runs in an environment with Ray and splatfix; prints one JSON document.

    python tests/fleet/ray_cluster.py FOLDER
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
import ray
from ray.cluster_utils import Cluster

STORE = 80 << 20
NOT_STARTED = 75
"""Exit code where Ray's own processes did not come up: to be tried again."""
LONG = 300
"""Seconds that anything may take: on a busy machine a worker starts within half a minute."""
SLOW = """
import sys, time
if "gate" in sys.orig_argv and {"n2", "n3"} & set(sys.orig_argv):
    time.sleep(3000)
"""
"""A sitecustomize.py: so long do the gates of two nodes take that there is time to kill them."""


def gate_of(node: str) -> tuple[int, int]:
    """The process of a node's gate, and the Ray worker that started it."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                argv = (place / "cmdline").read_bytes().split(b"\0")
                if b"gate" in argv and node.encode() in argv:
                    parent = int((place / "stat").read_text().rpartition(") ")[2].split()[1])
                    return int(place.name), parent
            except OSError:
                continue
        time.sleep(0.05)
    raise TimeoutError(f"no gate of {node}")


def started(slow: dict[str, str]) -> tuple[Cluster, dict[str, Any]]:
    """A head and four nodes, of which two are slow. Ray gives each of them 30 seconds, which a busy machine may not have."""
    head = {"num_cpus": 1, "object_store_memory": STORE, "node_name": "head", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = {}
    for name in ("n1", "n2", "n3", "n4"):
        nodes[name] = cluster.add_node(
            wait=False,
            num_cpus=1,
            num_gpus=1,
            object_store_memory=STORE,
            node_name=name,
            env_vars=slow if name in ("n2", "n3") else {},
        )
    cluster.wait_for_nodes(LONG)
    return cluster, nodes


def main() -> None:
    folder = Path(sys.argv[1])
    (folder / "slow").mkdir(parents=True, exist_ok=True)
    (folder / "slow" / "sitecustomize.py").write_text(SLOW)
    begun = time.monotonic()
    try:
        cluster, nodes = started({"PYTHONPATH": str(folder / "slow")})
    except Exception as error:  # noqa: BLE001 - what Ray raises has no class of its own
        print(error, file=sys.stderr)
        sys.exit(NOT_STARTED)
    up = time.monotonic() - begun
    argv = [sys.executable, "-m", "splatfix", "fleet", "run"]
    argv += ["--ray", cluster.address, "--out", str(folder / "run")]
    begun = time.monotonic()
    with subprocess.Popen(
        [*argv, "--wait", str(LONG), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asked:
        gates = {name: gate_of(name) for name in ("n2", "n3")}
        os.kill(gates["n2"][1], signal.SIGKILL)
        cluster.remove_node(nodes["n3"], allow_graceful=False)
        out, err = asked.communicate(timeout=2 * LONG)
    seconds = time.monotonic() - begun
    if not out.startswith("{"):
        sys.exit(f"fleet run ended with {asked.returncode}: {out[:2000]}{err[-2000:]}")
    for gate, _ in gates.values():  # Ray ends its own processes, not what they started
        with suppress(ProcessLookupError):
            os.kill(gate, signal.SIGKILL)
    cluster.shutdown()
    again = [*argv[:-1], str(folder / "again"), "--json"]
    gone = subprocess.run(again, capture_output=True, text=True, check=False, timeout=LONG).stdout
    print(
        json.dumps(
            {
                "ray": ray.__version__,
                "nodes": len(nodes) + 1,
                "seconds_to_start": round(up, 1),
                "seconds": round(seconds, 1),
                "exit_code": asked.returncode,
                "run": json.loads(out),
                "progress": err.splitlines(),
                "gone": json.loads(gone),
            }
        )
    )


if __name__ == "__main__":
    main()
