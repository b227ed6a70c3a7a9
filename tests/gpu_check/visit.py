"""What a step is given: where things are, how programs are run within their time, and the record that grows with it."""

from __future__ import annotations

import datetime
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet  # the built-in one only from Python 3.11 on
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import splatfix
from splatfix.core.files import sha256_of, write_text
from splatfix.core.runner import Completed, Runner

from .needs import PEERS
from .record import KIND, Notes, exit_code_of, public, table

ROOT = Path(__file__).resolve().parents[2]
KEPT = 30.0
"""Seconds of the whole that are kept for taking back."""
PATIENCE = 4.0
"""By which limits are stretched in a rehearsal: it shares slow cores, and its times mean nothing."""
WAIT = 120.0
"""Seconds at most that a step waits for an installation; one from sources goes on beside the steps behind."""
Answer, Rows = tuple[int, dict[str, Any]], tuple[list[dict[str, Any]], str]
SPENT = "the time for the whole visit was spent"


@dataclass
class Visit:
    """One visit, ``seconds`` long; its limits of programs are for hanging, not for measuring."""

    work: Path
    out: Path
    sources: Path | None
    machine: Mapping[str, str]
    seconds: float
    rehearsal: bool
    began: float = field(default_factory=time.monotonic)
    steps: list[dict[str, Any]] = field(default_factory=list)
    installs: dict[str, Future[Notes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pool, self._lock = ThreadPoolExecutor(4), threading.RLock()
        self._before: dict[str, dict[str, str]] = {}
        first = self.work / "first" / "tests"  # no other package of that name comes before the checkout's
        first.mkdir(parents=True)
        (first / "__init__.py").write_text(f"__path__ = [{str(ROOT / 'tests')!r}]\n", encoding="utf-8")
        # a tree that travelled has no .git
        carried = (self.sources or self.work) / "commit"
        done = Runner().run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], timeout=10)
        commit = carried.read_text("utf-8") if carried.is_file() else done.stdout or "unknown"
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        about = {"splatfix": splatfix.__version__, "commit": commit.strip(), "machine": self.machine}
        self._about = {"kind": KIND, "rehearsal": self.rehearsal, "date": now, **about}

    def sources_by_peer(self) -> tuple[list[str], list[str]]:
        """Return the peers that come as wheels, as `install` calls them; and those that come as sources only."""
        sources = self.sources or self.work
        there = {path.name.split("-")[0] for path in sources.glob("*.whl")}
        wheels = [name for name, package in PEERS.items() if package in there]
        return wheels, [name for name in PEERS if (sources / name).is_dir() and name not in wheels]

    def size(self, real: int, rehearsed: int) -> int:
        """Choose a size: on a GPU, or in a rehearsal on the CPU."""
        return rehearsed if self.rehearsal else real

    def scene(self, count: int) -> str:
        """Return the size of a scene of 1080p with so many Gaussians; in a rehearsal of a thumbnail."""
        return f"{self.size(1920, 64)}x{self.size(count, 300)}"

    def elapsed(self) -> float:
        """Return the seconds since the visit began."""
        return round(time.monotonic() - self.began, 1)

    def run(self, argv: Sequence[Any], seconds: float, kept: float = KEPT) -> Completed:
        """Run a program within its limit; the step is skipped where the visit's time is spent. What it says is kept."""
        limit, left = seconds * (PATIENCE if self.rehearsal else 1), self.seconds - kept - self.elapsed()
        if left < 1:
            pytest.skip(SPENT)
        command = [str(word) for word in argv]
        done = Runner().run(command, timeout=min(limit, left), env=self.variables(), cwd=self.work)
        said = f"$ {' '.join(command)}\n{done.stdout[-20000:]}{done.stderr[-6000:]}\n= {done.why() or 0}\n"
        with self._lock, (self.out / "output.txt").open("a", encoding="utf-8") as log:
            log.write(said)
        if done.returncode is None and left < limit:
            pytest.skip(SPENT)
        return done

    def splatfix(self, *words: Any, seconds: float, command: Sequence[str] = ()) -> Answer:
        """Run a command of splatfix with ``--json``: exit code and document, which is an error where it printed none."""
        done = self.run([sys.executable, "-m", "splatfix", *words, "--json", *command], seconds)
        try:
            return done.returncode or 0, dict(json.loads(done.stdout))
        except ValueError:
            return -1, {"error": {"code": "no-document", "what": f"splatfix {words[0]}: {done.why()}"}}

    def variables(self) -> dict[str, str]:
        """Return the variables of children: the checkout can be imported, kernels are compiled once, pytest has no plugins."""
        path = [*map(str, (self.work / "first", ROOT, ROOT / "tests")), os.environ.get("PYTHONPATH")]
        more = {"PYTHONPATH": ":".join(filter(None, path)), "SPLATFIX_CACHE": str(self.work / "cache")}
        return {**os.environ, **more, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_WAIT_POLICY": "PASSIVE"}

    def child(
        self, environment: str, program: Path | str, *words: Any, seconds: float, under: Sequence[Any] = ()
    ) -> Rows:
        """Run a file or module in an environment: the JSON objects it printed, one a line, and how it ended where not well."""
        call = [program] if isinstance(program, Path) else ["-m", program]
        done = self.run([*under, self.python(environment), *call, *words], seconds)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return rows, "" if done.ok and rows else f"{program}: {done.why() or 'printed no JSON'}"

    def python(self, environment: str) -> str:
        """Return the interpreter of a venv that sees this Python's packages; made at the first call."""
        folder = self.work / "env" / environment
        with self._lock:
            if environment not in self._before:
                argv = [sys.executable, "-m", "venv", "--without-pip", folder]
                done = Runner().run(argv, timeout=60)
                assert done.ok, f"no venv can be made with {sys.executable}: {done.why()}"
                (site,) = folder.glob("lib/python*/site-packages")
                lines = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
                if self.rehearsal:
                    from .rehearsal import stand_in_for_cuda

                    lines.append(stand_in_for_cuda(site))
                (site / "outer.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
                self._before[environment] = files_of(folder)
        return str(folder / "bin" / "python")

    def install(self, environment: str) -> Future[Notes]:
        """Begin what belongs into an environment, once, beside the steps."""
        with self._lock:
            if environment not in self.installs:
                self.installs[environment] = self._pool.submit(self._install, environment)
        return self.installs[environment]

    def installed(self, environment: str, notes: Notes | None = None) -> str:
        """Return the environment once what belongs there is installed; ``notes`` get what that showed.

        Where it is not installed, the step with notes has failed, and any other is skipped.
        """
        if environment == "stack" and not any(self.sources_by_peer()):
            pytest.skip("GPU_SOURCES holds no wheel and no source of a peer")
        wait = WAIT * PATIENCE if self.rehearsal else min(WAIT, self.seconds - KEPT - self.elapsed())
        try:
            shown = self.install(environment).result(timeout=wait)
        except NotYet:
            pytest.skip(f"what belongs into the environment {environment} is not yet installed")
        if notes is not None:
            notes.claims += shown.claims
            notes.problems += shown.problems
            notes.numbers |= shown.numbers
        if shown.problems:
            ended = pytest.skip if notes is None else pytest.fail
            ended(f"what belongs into the environment {environment} is not there: {shown.problems[0]}")
        return environment

    def _install(self, environment: str) -> Notes:
        """Run ``splatfix install``: the drop-ins; the peers, from wheels or sources; or one source of the environment's name."""
        notes, options, sources = Notes(), list[str](), self.sources or self.work
        wheels, others = self.sources_by_peer()
        names = [str(sources / name) for name in (others if environment == "stack" else [environment])]
        if environment == "dropins":
            # a CPU build of torch takes no other
            names = ["fused_ssim", "simple_knn", "diff_gaussian_rasterization@v1"]
            options = ["--backend", "pure" if self.rehearsal else "nvrtc"]
        elif environment == "stack" and wheels:
            names = wheels
            options = ["--backend", "wheels", "--index", str(sources), "--offline"]
        argv = ["install", *names, "--python", self.python(environment), "--yes", *options]
        code, document = self.splatfix(*argv, seconds=500)
        called = ", ".join(Path(name).name for name in names)
        notes.expect(code == 0, f"splatfix install {called}", error_of(document) or f"exit code {code}")
        for item in (document.get("outcome") or {}).get("items") or ():
            notes.numbers[item["subject"]] = {"seconds": round(item["seconds"], 1), "proof": item["proof"]}
            for rung in item["proof"]:
                # what has no reference is said so in the proof; that is no failure of the installation
                if rung["name"] in ("built", "loads") or (rung["name"] == "computes" and rung["reached"]):
                    notes.expect(bool(rung["reached"]), f"{item['subject']} {rung['name']}", rung["shown_by"])
        return notes

    def take_back(self, notes: Notes) -> None:
        """Revert every installation; each environment must be what it was before the first."""
        for environment, before in self._before.items():
            if environment in self.installs:
                self.installs[environment].exception()
                words = ("-m", "splatfix", "revert", "--all", "--python", self.python(environment))
                done = self.run([sys.executable, *words], KEPT, kept=0)
                good = done.ok or "nothing-to-revert" in done.stdout + done.stderr  # it had failed
                notes.expect(good, f"revert in {environment}", done.why() or "exit code 0")
            after = files_of(self.work / "env" / environment)
            changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            notes.expect(not changed, f"{environment} is as it was", ", ".join(changed[:5]) or "every file")

    def ended(self, name: str, title: str, outcome: str, began: float, notes: Notes) -> None:
        """Write the record anew, so that a visit that is cut off leaves what it had seen."""
        if self.rehearsal and outcome == "passed":
            outcome = "rehearsed"
        step = {"name": name, "title": title, "outcome": outcome, "began": began}
        self.steps.append(step | {"seconds": round(self.elapsed() - began, 1)} | vars(notes))
        document = self.document()
        write_text(self.out / "table.md", table(document))
        write_text(self.out / "record.json", json.dumps(document, indent=1))

    def document(self) -> dict[str, Any]:
        """Return the record of what was seen so far."""
        ending = {"seconds": self.elapsed(), "exit_code": exit_code_of(self.steps), "steps": self.steps}
        return public(self._about | ending, ROOT)


def files_of(folder: Path) -> dict[str, str]:
    """Return the digest of every file of an environment but splatfix's journal and bytecode, by path."""
    paths = [path for path in folder.rglob("*") if not {".splatfix", "__pycache__"} & {*path.parts}]
    return {str(path.relative_to(folder)): sha256_of(path) for path in paths if path.is_file()}


def error_of(document: Mapping[str, Any]) -> str:
    """Return code and first sentence of a command's error; "" where it has none."""
    error = document.get("error")
    return f"{error['code']}: {error['what']}" if error else ""
