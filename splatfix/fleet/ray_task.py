"""What runs on a node of a Ray cluster: a task that needs nothing but Python, sent with the call."""

from __future__ import annotations

import os
import subprocess
import sys

MOST_OUTPUT = 1 << 20
"""Characters of an answer that are sent back."""


SECONDS = 10
"""That the gate gets for its verdict."""
LIMIT = 60
"""Seconds after which a gate is ended that does not keep to that."""


def is_there() -> bool:
    """The node takes tasks."""
    return True


def judge(node: str, policy: str) -> tuple[int, str, str]:
    """Run ``splatfix gate`` of this worker's environment.

    Args:
        policy: a file, by its path on the node; "" for the default one.

    Returns:
        Exit code, and what it wrote to standard output and standard error.

    Raises:
        subprocess.TimeoutExpired: it did not end.
    """
    argv = [sys.executable, "-m", "splatfix", "gate", "--json", "--node", node, "--timeout", str(SECONDS)]
    if policy:
        argv += ["--policy", policy]
    # Ray hides the GPUs from tasks that ask for none; the gate looks at all, and takes none from a training
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout[:MOST_OUTPUT], done.stderr[-2000:]
