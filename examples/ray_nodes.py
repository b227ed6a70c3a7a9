"""Runs ``splatfix diagnose`` on every node of a Ray cluster that offers GPUs, and shows what fails there.

    python ray_nodes.py [ADDRESS] [options of splatfix diagnose]

ADDRESS is Ray's (``auto``, ``HEAD:6379``); Ray's workers need splatfix. Exit code 1: something fails; 3: a node is unknown.
"""

import json
import os
import subprocess
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

SECONDS = 300  # for all of it: a busy node needs half a minute to start a worker


@ray.remote(num_cpus=0, max_retries=0)  # beside whatever trains there
def diagnose(options):
    # Ray hides the GPUs from a task that takes none
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    argv = [sys.executable, "-m", "splatfix", "diagnose", "--json", *options]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=SECONDS)
    try:
        findings = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError):
        return 3, f"no diagnosis (exit code {done.returncode}): {done.stderr[-500:]}"
    failed = [f"{item['check']}: {item['summary']}" for item in findings if item["status"] == "fail"]
    return done.returncode, "; ".join(failed) or "nothing fails"


def answer(task):
    try:
        return ray.get(task, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return 3, f"no answer within {SECONDS} s"
    except ray.exceptions.RayError as error:
        return 3, f"no answer: {str(error).splitlines()[0]}"


def main():
    address, *options = sys.argv[1:] or ["auto"]
    ray.init(address, log_to_driver=False)
    tasks = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("GPU"):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            tasks[node["NodeName"]] = diagnose.options(scheduling_strategy=there).remote(options)
    ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=SECONDS)
    answers = {name: answer(task) for name, task in tasks.items()}
    for name, (code, text) in answers.items():
        print(name, code, text, sep="\t")
    codes = {code for code, _ in answers.values()}
    sys.exit(1 if 1 in codes else 0 if codes == {0} else 3)


main()
