"""Reports of runs that did not come to their end: what a killed splatfix and a killed trainer leave behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from smoke_trainer.progress import words
from splatfix.app.certify import exit_code_of
from splatfix.certify import SUITES, Certificate, Interrupted, Outcome, Verdict, certify
from splatfix.certify.criteria import judge
from splatfix.core.errors import Exit
from splatfix.core.proof import RungName
from splatfix.core.runner import Completed
from splatfix.model import Facts
from tests.certify.conftest import (
    SHORT,
    RecordedKernels,
    RecordedTrainer,
    reached,
    sabotage,
    subject,
    trained,
)
from tests.tables import data

STATE = {"scene": 2, "scenes": 3, "iteration": 120, "iterations": 200, "loss": 0.25, "rss_gb": 0.5}


def reports_of(out: Path, known: Facts, **results: dict[str, Any]) -> tuple[list[Certificate], Certificate]:
    seen: list[Certificate] = []
    last = certify(
        subject(SUITES["quick"], out), facts=known, interim=seen.append, runner=RecordedTrainer(**results)
    )
    return seen, last


def test_a_report_before_each_scene(tmp_path: Path, known: Facts) -> None:
    seen, last = reports_of(tmp_path, known)
    assert [len(item.scenes) for item in seen] == [0, 1, 2]
    for item in seen:
        levels = reached(item.proof)
        assert (item.verdict, item.unfinished, item.interrupted) == (Verdict.UNDETERMINED, True, False)
        assert levels[RungName.COMPUTES] is True and levels[RungName.TRAINS] is None
        assert exit_code_of(item) is Exit.UNDETERMINED
    assert seen[1].summary.startswith(
        "Not finished, or killed: written after 1 of 3 scenes, in study (scene 2 of 3). "
    )
    assert (last.verdict, last.unfinished, last.under_way) == (Verdict.CERTIFIED, False, {})


def test_a_scene_that_failed_stays_a_failure(tmp_path: Path, known: Facts) -> None:
    seen, last = reports_of(tmp_path, known, courtyard={"iterations": 200})
    assert seen[0].verdict is Verdict.UNDETERMINED and not seen[0].reasons
    assert [item.verdict for item in [*seen[1:], last]] == [Verdict.NOT_CERTIFIED] * 3
    assert all(reason.startswith("courtyard: ") for reason in seen[1].reasons)


def test_an_interrupt_within_a_scene_says_how_far_it_was(tmp_path: Path, known: Facts) -> None:
    class Stopped(RecordedTrainer):
        def run(self, argv: Sequence[str | Path], **options: Any) -> Completed:
            if "smoke_trainer" in map(str, argv):
                options["on_line"](json.dumps({**STATE, "event": "progress"}))
                raise KeyboardInterrupt
            return super().run(argv, **options)

    with pytest.raises(Interrupted) as caught:
        certify(subject(SUITES["quick"], tmp_path), facts=known, runner=Stopped())
    found = caught.value.certificate
    assert found is not None
    assert (found.scenes, found.interrupted, found.unfinished) == ((), True, False)
    assert found.summary.startswith(
        "Interrupted after 0 of 3 scenes, in courtyard (scene 1 of 3) at iteration"
    )
    assert [item.scene for item in found.skipped] == list(SUITES["quick"].scenes)


@pytest.mark.parametrize(("code", "stdout", "stderr", "error", "measured", "why"), data(__file__)["ended"])
def test_how_a_trainer_without_a_result_ended(
    code: int | None, stdout: str, stderr: str, error: str, measured: str, why: str
) -> None:
    done = Completed(("t",), code, stdout, stderr, 1.0, error)
    (found,) = judge(trained({}, done=done, latest=words(STATE, left=False)))
    assert (found.code, found.outcome) == ("training-finishes", Outcome.FAILED)
    assert measured in found.measured and (why or "stopped early") in found.why
    (at_once,) = judge(trained({}, done=Completed(("t",), -9, "", "", 1.0)))
    assert at_once.measured == "0 iterations: ended by SIGKILL"


@pytest.mark.slow
@pytest.mark.every_push
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_trainer_that_the_system_kills(tmp_path: Path, known: Facts) -> None:
    """Killed at iteration 25, as by the kernel where memory runs out."""
    killed = sabotage("smoke_trainer/train.py", data(__file__)["texts"]["killed"])
    certificate = certify(subject(SHORT, tmp_path, stage_files=killed), known, runner=RecordedKernels())
    (reason,) = certificate.reasons
    assert reason.startswith("figurine: training-finishes: iteration ") and ": ended by SIGKILL. " in reason
    assert "Gaussians" in reason and reason.endswith("otherwise a person or a batch system did.")


def trainers_of(out: Path) -> list[str]:
    """The command lines of trainers that write below this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            found.append(path.read_bytes().decode(errors="replace"))
    return [words for words in found if "smoke_trainer" in words and str(out) in words]


@contextlib.contextmanager
def training_study(out: Path) -> Iterator[subprocess.Popen[str]]:
    """A real certification, in the midst of its second scene."""
    argv = [sys.executable, "-m", "splatfix", "certify", "--suite", "quick", "--iterations", "60"]
    process = subprocess.Popen(
        [*argv, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    series = out / "study" / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 900  # against a hang; kernels alone took 140 s on a busy machine
        while not series.is_file() or not series.read_text():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


SIGTERM = pytest.param(signal.SIGTERM, marks=pytest.mark.every_push)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT, SIGTERM])
def test_a_signal_leaves_a_report(number: signal.Signals, tmp_path: Path) -> None:
    """And no trainer; what can still be said names the report."""
    pytest.importorskip("torch")
    out = tmp_path / "report"
    killed = number is signal.SIGKILL
    with training_study(out) as process:
        assert trainers_of(out)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    if killed:
        assert process.returncode == -9
    else:
        assert (process.returncode, stdout) == (130, "")
        told = f"The certificate of what was run, marked as interrupted: {out / 'certificate.html'}."
        assert " ".join(stderr.split()).endswith(f"Interrupted: nothing was certified. {told}")
    waiting_until = time.monotonic() + 30
    while trainers_of(out):
        assert time.monotonic() < waiting_until, "the trainer outlives its parent"
        time.sleep(0.05)
    document = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    assert (document["unfinished"], document["interrupted"]) == (killed, not killed)
    assert (document["verdict"], document["exit_code"]) == ("undetermined", 3)
    assert [item["scene"] for item in document["scenes"]] == ["courtyard"]
    assert document["scenes"][0]["result"]["heldout"]["psnr"] > 0
    told = "Interrupted after 1 of 3 scenes"
    if killed:
        told = "Not finished, or killed: written after 1 of 3 scenes"
    assert document["summary"].startswith(told)
    for name in ("certificate.md", "certificate.html"):
        assert told in (out / name).read_text(encoding="utf-8")
    assert not list(out.glob(".certificate*")), "no half-written file"
