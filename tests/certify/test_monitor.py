"""Watching a trainer from outside: real children, and made-up answers of NVML."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from splatfix.certify import monitor
from splatfix.certify.monitor import HIDDEN, Meter, Summary, watch
from splatfix.facts import System
from splatfix.facts.machine.nvml import GpuUse
from splatfix.facts.machine.resources import HostUse
from tests.conftest import Splatfix
from tests.plan.machines import refused

MIB, GIB = 1 << 20, 1 << 30
ME = os.getpid()
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


class Readings:
    """Answers of NVML, one moment after another; the last one stays."""

    def __init__(self, *moments: Sequence[GpuUse], problem: str = "") -> None:
        self.moments, self.problem = list(moments), problem

    def read(self) -> tuple[GpuUse, ...]:
        if len(self.moments) > 1:
            return tuple(self.moments.pop(0))
        return tuple(*self.moments)


def card(used: float, processes: dict[int, int | None], busy: int = 50) -> list[GpuUse]:
    return [GpuUse(0, "NVIDIA GeForce RTX 4090", 24 * GIB, int(used * GIB), busy, processes)]


def held(*gib: float) -> list[list[GpuUse]]:
    """Moments in which this process holds so much on a card where another one holds 4 GiB."""
    return [card(4 + size, {1: 4 * GIB, ME: int(size * GIB)}) for size in gib]


def watched(work: str, folder: Path, **options: Any) -> Summary:
    """A watch of a Python program to its end."""
    options = {"interval": 0.1, "gpus": Readings(problem="NVML: Driver Not Loaded"), **options}
    return watch((sys.executable, "-c", work), folder, **options)


def metered(recorded: Readings, count: int) -> tuple[Meter, Summary]:
    meter = Meter(recorded, System())
    for second in range(count):
        meter.take(float(second), ME, HostUse(2 * GIB, 1.5 * second, (ME,)))
    return meter, meter.summary("train.py", 0, float(count), Path(), None)


@linux
def test_command_is_watched_to_its_end(tmp_path: Path) -> None:
    """With the child that it starts, and the files of an earlier watch moved aside."""
    (tmp_path / "summary.json").write_text("earlier")
    child = "import time; held = bytearray(80 << 20); time.sleep(0.6)"
    work = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])\n"
    work += "import time\nwhile time.process_time() < 0.8: pass\nraise SystemExit(7)"
    summary = watched(work, tmp_path)
    assert summary.exit_code == 7 and summary.samples >= 4
    assert summary.rss_peak_gb is not None and 80 * MIB / GIB < summary.rss_peak_gb < 1.0
    # CPU seconds, not the load: on a busy machine the command runs longer
    assert summary.cpu_percent_mean is not None and summary.cpu_percent_mean / 100 * summary.seconds > 0.3
    assert summary.vram_peak_gb is None
    assert summary.notes == ("VRAM is not measured: NVML: Driver Not Loaded",)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == summary.samples
    assert {"vram_reserved_gb", "vram_used_share", "rss_gb", "cpu_percent"} <= set(rows[0])
    assert json.loads((tmp_path / "summary.json").read_text())["command_exit_code"] == 7
    assert (tmp_path / "previous" / "summary.json").read_text() == "earlier"


@linux
def test_running_process(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.6)"])
    summary = watch((str(child.pid),), tmp_path, interval=0.1)
    assert summary.exit_code is None and summary.target == f"process {child.pid}"
    assert summary.samples >= 2 and child.wait() == 0
    for words, code in (
        ((str(child.pid),), "no-such-process"),
        (("/no/such/trainer",), "cannot-start"),
    ):
        error = refused(watch, words, tmp_path)
        assert (error.code, int(error.exit_code)) == (code, 2)


@linux
def test_ctrl_c_goes_to_the_command(tmp_path: Path) -> None:
    trainer = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.3), sys.exit(5)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)"
    )
    options = ["--interval", "0.05", "--out", str(tmp_path), "--json"]
    argv = [sys.executable, "-m", "splatfix", "monitor", *options]
    argv += [sys.executable, "-c", trainer]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    watcher = subprocess.Popen(argv, text=True, start_new_session=True, **pipes)
    assert watcher.stderr is not None and watcher.stderr.readline() == "ready\n"
    time.sleep(0.3)
    os.killpg(watcher.pid, signal.SIGINT)  # as a terminal does: to the watcher and to what it watches
    stdout, _ = watcher.communicate(timeout=20)
    assert watcher.returncode == 5
    assert json.loads(stdout)["command_exit_code"] == 5


def test_peak_baseline_and_creep_on_a_shared_gpu() -> None:
    growing = [0.0, 0.5, 2.0, 5.0, *[6.0] * 10, 6.5, 7.0, 6.8]
    _, summary = metered(Readings(*held(0.0, *growing)), len(growing))
    assert (summary.vram_peak_gb, summary.vram_settled_gb, summary.vram_creep_gb) == (7.0, 6.0, 1.0)
    assert summary.share_above_97_percent == 0.0 and summary.gpu_utilisation_mean == 50
    assert summary.cpu_percent_mean == 150.0 and summary.rss_peak_gb == 2.0 and summary.notes == ()


def test_a_gpu_that_fills_up_and_never_settles() -> None:
    _, full = metered(Readings(*held(0.0, 10.0, 19.0, 19.5, 19.6)), 4)
    assert full.share_above_97_percent == 0.5
    _, summary = metered(Readings(*held(0.0, *(1.0 + 0.5 * step for step in range(14)))), 14)
    assert summary.vram_peak_gb == 7.5 and summary.vram_settled_gb is None and summary.vram_creep_gb is None
    assert len(summary.notes) == 1


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param({ME: None}, id="wsl: no share"),
        pytest.param({}, id="container: no processes"),
        pytest.param({4_194_000: 6 * GIB}, id="container: the host's numbers"),
    ],
)
def test_hidden_share_is_estimated_and_noted(hidden: dict[int, int | None]) -> None:
    moments = (card(1.0, {}), card(1.0, {}), card(7.0, hidden), card(7.5, hidden))
    meter, summary = metered(Readings(*moments), 3)
    assert [sample["vram_reserved_gb"] for sample in meter.samples] == [0.0, 6.0, 6.5]
    assert summary.notes[0] == HIDDEN


@linux
def test_other_visible_processes_do_not_count() -> None:
    other = card(9.0, {os.getppid(): 8 * GIB})
    meter, summary = metered(Readings(card(1.0, {}), other, other), 2)
    assert [sample["vram_reserved_gb"] for sample in meter.samples] == [0.0, 0.0]
    assert summary.notes == () and meter.samples[-1]["vram_used_share"] is None


def test_driver_that_stops_answering_is_noted() -> None:
    recorded = Readings(*held(0.0, 1.0))
    meter = Meter(recorded, System())
    meter.take(0.0, ME, None)
    recorded.moments, recorded.problem = [], "NVML: no answer within 10 s"
    assert meter.take(1.0, ME, None)["vram_reserved_gb"] is None
    assert list(meter.notes) == ["VRAM is not measured: NVML: no answer within 10 s"]


@linux
def test_the_summary_goes_beside_what_the_command_says(splatfix: Splatfix, tmp_path: Path) -> None:
    work = "import sys, time; print(sys.argv[1:]); time.sleep(0.3); sys.exit(3)"
    words = (sys.executable, "-c", work, "--json", "--out", "x")
    done = splatfix("monitor", "--interval", "0.1", "--out", tmp_path, *words)
    assert (done.returncode, done.stdout) == (3, "['--json', '--out', 'x']\n")
    assert "exit code 3" in done.stderr and str(tmp_path / "metrics.jsonl") in done.stderr


@linux
def test_wrong_options_start_nothing(splatfix: Splatfix, tmp_path: Path) -> None:
    mark, file = tmp_path / "ran", tmp_path / "file"
    file.write_text("")
    for words, code in ((["--out", str(file)], 3), (["--interval", "nan"], 2), (["--interval", "inf"], 2)):
        done = splatfix("monitor", *words, "touch", str(mark), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, ""), words
    assert not mark.exists() and not (tmp_path / "splatfix-monitor").exists()


@linux
def test_a_watch_that_fails_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "set_aside", lambda *_: None)
    (tmp_path / "metrics.jsonl").mkdir()
    commands: list[Any] = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: commands.append(start(*a, **k)) or commands[0])
    with pytest.raises(IsADirectoryError):
        watched("import time; time.sleep(600)", tmp_path)
    assert commands[0].wait(timeout=20) == -signal.SIGTERM


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_ends_only_the_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exit code of a signal is the shell's."""
    monkeypatch.setattr(monitor, "set_aside", lambda *_: None)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    summary = watched("import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)", tmp_path)
    assert summary.exit_code == 137 and summary.samples > 1
    (note,) = [note for note in summary.notes if "No space left" in note]
    assert note.startswith("the series ends at ")
