"""What the steps share: where things are, how splatfix and programs of the environments are run."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.files import sha256_of
from splatfix.core.runner import Completed, ProcessRunner

from .needs import CHILDREN
from .record import Failed, Notes

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda"
"""Also in a rehearsal, where it is the CPU (``rehearsal/cuda_on_cpu.py``): the same calls are made."""

PATIENCE = 4.0
_MAKING = threading.Lock()


@dataclass(frozen=True)
class Context:
    """Where things are, and until when a step's programs may run."""

    work: str
    out: str
    sources: Mapping[str, str]
    """Folders by the names of :data:`SOURCES`."""
    rehearsal: bool = False
    deadline: float = math.inf
    """By ``time.monotonic``."""
    is_own_limit: bool = True
    """The deadline is the step's own; otherwise that of the whole plan, and a program that meets it has not failed."""
    builds: dict[str, Future[Notes]] = field(default_factory=dict)
    """Installations beside the steps, by environment."""

    def until(self, deadline: float, *, is_own_limit: bool) -> Context:
        """The same with another deadline."""
        return replace(self, deadline=deadline, is_own_limit=is_own_limit)

    def run(self, argv: Sequence[str | Path], timeout: float, **options: Any) -> Completed:
        """A program, within its timeout and the step's deadline; the step is skipped where the whole plan's time is spent."""
        timeout *= self.patience
        left = max(self.deadline - time.monotonic(), 0.1)
        done = ProcessRunner().run(argv, timeout=min(timeout, left), **options)
        if done.returncode is None and left < timeout and not self.is_own_limit:
            pytest.skip("the time for the whole plan was spent while it ran")
        return done

    def folder(self, name: str) -> Path:
        """A folder for the files of one subject."""
        path = Path(self.work) / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def python(self, environment: str) -> str:
        """The interpreter of an environment under test; made where it is not there yet.

        A venv that sees this Python's packages, so that nothing outside is changed.
        """
        folder = Path(self.work) / "env" / environment
        python = folder / "bin" / "python"
        with _MAKING:  # a build beside the other steps may ask for the same one
            if not python.exists():
                self._make_environment(folder)
        return str(python)

    def _make_environment(self, folder: Path) -> None:
        done = ProcessRunner().run([sys.executable, "-m", "venv", "--without-pip", folder], timeout=60)
        if not done.ok:
            raise Failed(f"no venv can be made with {sys.executable}: {done.why()}")
        (site,) = (folder / "lib").glob("python*/site-packages")
        installed = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        lines = [*_python_path(), *installed]
        if self.rehearsal:
            from .rehearsal import stand_in_for_cuda

            lines.append(stand_in_for_cuda(site))
        (site / "outer.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def size(self, real: int, rehearsed: int) -> int:
        """A size on a GPU, and in a rehearsal on the CPU."""
        return rehearsed if self.rehearsal else real

    @property
    def patience(self) -> float:
        """By which limits are stretched: a rehearsal shares slow cores, and its times mean nothing."""
        return PATIENCE if self.rehearsal else 1.0

    def splatfix(
        self, *arguments: str | Path, timeout: float, command: Sequence[str] = ()
    ) -> tuple[int, dict[str, Any]]:
        """A command of splatfix with ``--json``: exit code and document. ``command`` is what ``monitor`` is to start.

        Raises:
            Failed: it crashed, ran out of its time, or printed no document.
        """
        argv = [sys.executable, "-m", "splatfix", *map(str, arguments), "--json", *command]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])}
        variables |= {"SPLATFIX_CACHE": str(self.folder("cache"))}
        done = self.run(argv, timeout, env=variables)
        called = f"splatfix {' '.join(map(str, arguments))}"
        if done.returncode is None or done.returncode < 0:
            raise Failed(f"{called}: {done.why()}")
        try:
            document = json.loads(done.stdout)
        except ValueError:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise Failed(
                f"{called}: exit code {done.returncode} without a document: {' / '.join(last)}"
            ) from None
        return done.returncode, document

    def child_argv(self, environment: str, program: str, *arguments: str | Path) -> list[str]:
        """The command of a program in one of the environments: one of ``children``, or any other module of the tests."""
        call = ["-m", program] if "." in program else [str(CHILDREN / f"{program}.py")]
        return [self.python(environment), *call, *map(str, arguments)]

    def child_variables(self) -> dict[str, str]:
        """Its variables: the checkout's kernels, trainer and test helpers can be imported."""
        return {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
            "OMP_WAIT_POLICY": "PASSIVE",
        }

    def rows(
        self,
        environment: str,
        program: str,
        *arguments: str | Path,
        timeout: float,
        under: Sequence[str] = (),
    ) -> tuple[list[dict[str, Any]], str]:
        """The JSON objects that a child printed, one a line, and how it ended where it did not end well.

        What it had printed before a crash is there all the same. ``under``: the program that runs it, with its options.
        """
        argv = [*under, *self.child_argv(environment, program, *arguments)]
        done = self.run(argv, timeout, env=self.child_variables())
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.ok and rows:
            return rows, ""
        return rows, f"{program} {' '.join(map(str, arguments))}: {done.why() or 'printed no JSON'}"

    def answer(
        self, environment: str, program: str, *arguments: str | Path, timeout: float
    ) -> dict[str, Any]:
        """The JSON object in the last line that a child printed.

        Raises:
            Failed: it crashed, ran out of its time, or printed none.
        """
        argv = self.child_argv(environment, program, *arguments)
        done = self.run(argv, timeout, env=self.child_variables())
        called = f"{program} {' '.join(map(str, arguments))}"
        if not done.ok:
            raise Failed(f"{called}: {done.why()}")
        try:
            document = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            raise Failed(f"{called}: printed no JSON") from None
        if not isinstance(document, dict):
            raise Failed(f"{called}: printed {document!r:.80}")
        return document


def contents(python: str) -> dict[str, str]:
    """Every file of an environment but splatfix's journal and bytecode, with the digest of its content."""
    prefix = Path(python).parents[1]
    return {
        str(path.relative_to(prefix)): sha256_of(path)
        for path in sorted(prefix.rglob("*"))
        if path.is_file() and not {".splatfix", "__pycache__"} & set(path.parts)
    }


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Paths that differ."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def outcome_items(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What ``splatfix install`` says of each distribution."""
    items: Sequence[Mapping[str, Any]] = (document.get("outcome") or {}).get("items") or ()
    return items


def error_of(document: Mapping[str, Any]) -> str:
    """Code and first sentence of a command's error; "" where it has none."""
    error = document.get("error")
    return f"{error['code']}: {error['what']}" if error else ""


def _python_path() -> list[str]:
    """The folders of PYTHONPATH; those of carried wheels are among them."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(path).is_absolute()]
