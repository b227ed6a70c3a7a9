"""Runs ``test_visit`` with pytest, for the command."""

from __future__ import annotations

import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest

from .conftest import BUDGET, STEP, VISIT
from .context import ROOT, Context
from .visit import Step, Visit, chosen

__all__ = ["BUDGET", "Context", "Visit", "chosen", "collect", "run"]

# No plugins, options or output of the machine's pytest, and nothing of the other tests: they may want other packages.
PLAN = Path(__file__).with_name("test_visit.py")
_INI = "[pytest]\nmarkers =\n    gpu: needs an NVIDIA GPU\n"


def collect() -> list[Step]:
    """The steps in order."""
    plugin = _Chosen()
    _pytest("--collect-only", plugin=plugin)
    return plugin.steps


def run(visit: Visit, names: Set[str]) -> None:
    """Run the chosen steps; the results are in the visit."""
    _pytest(plugin=_Chosen(visit, names))


class _Chosen:
    """Hands the visit to the session, and leaves out the steps that are not among ``names``."""

    def __init__(self, visit: Visit | None = None, names: Set[str] | None = None) -> None:
        self.visit = visit
        self.names = names
        self.steps: list[Step] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        if self.visit is not None:
            config.stash[VISIT] = self.visit

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.names is not None:
            items[:] = [item for item in items if item.stash[STEP].name in self.names]
        self.steps = [item.stash[STEP] for item in items]


def _pytest(*options: str, plugin: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ini = Path(folder) / "pytest.ini"
        ini.write_text(_INI, encoding="utf-8")
        argv = ["-c", str(ini), "--rootdir", str(ROOT), "--confcutdir", str(PLAN.parent)]
        argv += ["-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:xdist", "-s", *options]
        code = pytest.main([*argv, str(PLAN)], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}")
