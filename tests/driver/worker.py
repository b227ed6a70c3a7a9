"""Diagnoses scenarios in one process, whose loader finds the simulated libraries: ``python -m tests.driver.worker``.

A line of JSON in, a line of JSON out. Only the paths of the machine's own files are moved; NVML is loaded by nvidia-ml-py in
this process, libcuda by splatfix' probe in a child of it.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from splatfix.app.diagnose import DiagnoseRequest, diagnose
from splatfix.app.result import Result
from splatfix.core.codec import to_json
from splatfix.facts import collect, load
from splatfix.facts.system.live import System
from splatfix.report.console import out
from tests.driver.environments import with_healthy_environment
from tests.tables import data

MOVED = data(__file__)["moved"]


class Moved(System):
    """The machine, with the files of a driver and of a container below another folder."""

    def _at(self, path: str) -> str:
        return os.environ["SIMULATED_ROOT"] + path if path.startswith(MOVED) else path

    def read(self, path: str) -> str | None:
        return super().read(self._at(path))

    def exists(self, path: str) -> bool:
        return super().exists(self._at(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        inside = path.rstrip("/") + "/"
        return super().listdir(os.environ["SIMULATED_ROOT"] + path if inside == "/dev/" else self._at(inside))

    def realpath(self, path: str) -> str:
        return super().realpath(self._at(path)).removeprefix(os.environ["SIMULATED_ROOT"])


def answer(ask: dict[str, Any]) -> dict[str, Any]:
    """What ``diagnose`` says with these variables, the facts that it stands on, and what the same machine is told with a
    healthy environment on it."""
    with mock.patch.dict(os.environ, ask["env"], clear=True), tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "facts.json"
        begun = time.monotonic()
        result = diagnose(DiagnoseRequest(python=ask["python"], save=saved))
        said = shown(result)
        seconds = time.monotonic() - begun
        reply = {"facts": json.loads(saved.read_text()), "seconds": seconds, "said": said}
        if ask["healthy"]:
            other = Path(folder) / "healthy.json"
            other.write_text(json.dumps(to_json(with_healthy_environment(load(saved)))))
            reply["healthy"] = shown(diagnose(DiagnoseRequest(facts_file=other)))
        return reply


def shown(result: Result[Any]) -> dict[str, Any]:
    """A result as a person gets it."""
    with out().capture() as text:
        result.show(out())
    return {"text": text.get(), "exit_code": int(result.exit_code), "document": result.document()}


if __name__ == "__main__":
    with mock.patch.object(collect, "System", Moved):
        for line in sys.stdin:
            said = answer(json.loads(line))
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()
