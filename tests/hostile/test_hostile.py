"""Hostile input by the hundred: every class of ``python -m tests.hostile``, with limits on time and memory per case."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ONE_IN, ROOT, Survived
from tests.hostile.__main__ import KINDS


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes where other work shares the machine; each case has its own limit
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_survives(kind: str, survived: Survived) -> None:
    argv = [sys.executable, "-m", "tests.hostile", kind, "--count", str(KINDS[kind][2] // ONE_IN)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    tally = json.loads(done.stdout)
    failures = [
        f"python -m tests.hostile {kind} --only {name}\n{why}" for name, why in tally["failed"].items()
    ]
    assert not failures, "\n".join(failures[:10])
    survived(kind, tally["tried"])
