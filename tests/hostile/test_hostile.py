"""Hostile input by the hundred: every class of ``python -m tests.hostile``, with limits on time and memory per case."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.conftest import ONE_IN, ROOT, Survived
from tests.hostile.__main__ import KINDS
from tests.hostile.harness import Case, run_one


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


def ends(_: object) -> None:
    """A case that is fine."""


def fails(_: object) -> None:
    assert 1 + 1 == 3


def hangs(_: object) -> None:
    while True:
        pass


def grows(_: object) -> None:
    bytearray(60 << 20)


def runs_away(_: object) -> None:
    kept = [bytearray(1 << 20)]
    while True:
        kept.append(bytearray(16 << 20))


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (ends, ""),
        (fails, "AssertionError"),
        (hangs, "not done within"),
        (grows, "MB of memory"),
        (runs_away, "MemoryError"),
    ],
)
def test_the_limits_hold(run: Callable[[object], None], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hostile.harness.SECONDS", 0.5 if run is hangs else 20.0)
    monkeypatch.setattr("tests.hostile.harness.MEGABYTES", 50 if run is grows else 500)
    monkeypatch.setattr("tests.hostile.harness._ADDRESS_SPACE", 256 << 20)
    found, _, _ = run_one(Case("x", run))
    assert why in found and bool(found) == bool(why)
