"""The clock and the record of the steps: a step is a test that takes `visit` and `notes`."""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.scratch import temporary_folder

from . import needs
from .record import Notes, exit_code_of, table
from .visit import KEPT, SPENT, Visit

_VISIT, _NOTES, _BEGAN = pytest.StashKey[Visit](), pytest.StashKey[Notes](), pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add, given = parser.getgroup("gpu-check").addoption, os.environ.get("GPU_SOURCES")
    add("--out", type=Path, default=Path("gpu-check"), help="folder for what is left")
    add("--sources", type=Path, default=given and Path(given), help="folder of the peers' wheels or sources")
    add("--budget", type=float, default=540.0, help="seconds for the whole; a rehearsal has no limit")
    add("--rehearse", action="store_true", help="on the CPU with stand-ins; shows nothing of a GPU")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of a rehearsal what has no stand-in."""
    if config.getoption("--rehearse", False):
        items[:] = [item for item in items if "[gsplat]" not in item.name]


def pytest_sessionstart() -> None:
    """End in a line where a package is not there, before anything imports it."""
    absent = [name for name, module in needs.PACKAGES.items() if importlib.util.find_spec(module) is None]
    if absent:
        said = f"Nothing was run: this Python lacks {', '.join(absent)}; docs/gpu-check.md says how to carry them"
        pytest.exit(said, returncode=3)


@pytest.fixture(scope="session")
def visit(request: pytest.FixtureRequest) -> Iterator[Visit]:
    """Begin the visit, and the installations beside its first steps; at its end all is taken back."""
    options = request.config.option
    # ninja lies beside the interpreter, compute-sanitizer and ncu in the toolkit
    os.environ["PATH"] += f":{Path(sys.executable).parent}:/usr/local/cuda/bin"
    with temporary_folder() as work:
        sources, obstacle = options.sources, ""
        if options.rehearse:
            from .rehearsal import prepare

            (machine, sources), options.budget = prepare(work), 1e6
        else:
            machine, obstacle = needs.machine()
        if sources and not sources.is_dir():
            obstacle = f"GPU_SOURCES: {sources} is no folder"
        elif (options.out / "record.json").exists() and not options.rehearse:
            obstacle = f"{options.out} holds the record of another visit; name another folder with --out"
        with contextlib.suppress(OSError):
            options.out.mkdir(parents=True, exist_ok=True)
        if not os.access(options.out, os.W_OK | os.X_OK):
            obstacle = f"nothing can be written to {options.out}; name another folder with --out"
        if obstacle:
            pytest.exit(f"Nothing was run: {obstacle}", returncode=3)
        given = (options.out.absolute(), sources and sources.absolute(), machine, options.budget)
        request.config.stash[_VISIT] = current = Visit(work, *given, options.rehearse)
        wheels, others = current.sources_by_peer()
        for environment in ("dropins", *["stack"] * bool(wheels or others), *others * bool(wheels)):
            current.install(environment)
        yield current
        notes, began = Notes(), current.elapsed()
        current.take_back(notes)
        left = sorted(path.name for path in current.out.iterdir())
        notes.expect(len(left) <= 8, "a machine that gives back 8 files gives back these", ", ".join(left))
        current.ended("taken_back", "installations", "failed" if notes.problems else "passed", began, notes)


@pytest.fixture
def notes(request: pytest.FixtureRequest, visit: Visit) -> Notes:
    """Give a step what it writes down in; skip it where the visit's time is spent."""
    notes = request.node.stash[_NOTES] = Notes()
    request.node.stash[_BEGAN] = visit.elapsed()
    if visit.seconds - visit.elapsed() < KEPT + 5:
        pytest.skip(SPENT)
    return notes


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    notes = item.stash.get(_NOTES, None)
    if notes and (notes.problems or not notes.claims):
        pytest.fail("; ".join(notes.problems) or "it ended and showed nothing", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Write down how a step ended; returns the report."""
    report: Any = yield
    notes = item.stash.get(_NOTES, None)
    if notes is not None and (call.when == "call" or (call.when == "setup" and call.excinfo)):
        if call.excinfo and not notes.problems:
            notes.problems.append(" ".join(str(call.excinfo.value).split())[:400])
        title = (item.obj.__doc__ or "").partition("\n")[0]  # type: ignore[attr-defined]
        name, began = item.name.removeprefix("test_"), item.stash[_BEGAN]
        item.config.stash[_VISIT].ended(name, title, report.outcome, began, notes)
    return report  # type: ignore[no-any-return]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End with the record's exit code: 0 every step passed, 1 one failed, 3 one was skipped."""
    if _VISIT in session.config.stash:
        session.exitstatus = exit_code_of(session.config.stash[_VISIT].steps)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _VISIT in config.stash:
        terminalreporter.write_line(table(config.stash[_VISIT].document()))
