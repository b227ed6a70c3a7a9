"""Fixtures that several rooms' tests share."""

import datetime
import gc
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import venv
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import setuptools  # noqa: F401 - before anything imports the standard library's distutils, which it replaces

ROOT = Path(__file__).resolve().parent.parent
# One thread each for torch, here and in what tests start: the tests' tensors are small, and xdist has a worker per core.
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True, scope="session")
def no_environment_is_activated() -> None:
    """Tests mean the interpreter that runs them, whatever the shell has activated."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A run in the background inherits that SIGINT is ignored, and so would every process that a test interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure() -> None:
    """Collecting makes millions of objects that all stay: to look for rubbish among them takes a third of its time."""
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``SPLATFIX_SLOW=2/8``: of the long tests the third eighth, and those that are marked as due on every push."""
    part, _, parts = os.environ.get("SPLATFIX_SLOW", "0/1").partition("/")
    left = [
        item
        for item in items
        if item.get_closest_marker("slow")
        and not item.get_closest_marker("every_push")
        and zlib.crc32(item.nodeid.encode()) % int(parts) != int(part)
    ]
    if left:
        config.hook.pytest_deselected(items=left)
        leave_out = {id(item) for item in left}
        items[:] = [item for item in items if id(item) not in leave_out]


def pytest_collection_finish() -> None:
    """What was collected stays, and is not looked through again by any collection of a test."""
    gc.freeze()
    gc.enable()


Survived = Callable[[str, int], None]
Splatfix = Callable[..., subprocess.CompletedProcess[str]]
"""What the fixture ``splatfix`` is."""
# One in so many of the hostile inputs and kills is tried: CI sets it, `make slow` and `make hostile` try all.
ONE_IN = int(os.environ.get("SPLATFIX_ONE_IN", "1"))


@pytest.fixture
def survived(record_property: Callable[[str, object], None]) -> Survived:
    """Count hostile inputs that were survived: ``survived("kill -9 in install", 43)``; ``--record`` writes the sums."""

    def count(what: str, number: int) -> None:
        record_property("survived", [what, number])

    return count


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write counts of hostile inputs to tests/records/hostile.json"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print how many hostile inputs of each class were survived; ``--record`` lays that over what was written before."""
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in getattr(report, "user_properties", ()) if report.when == "call" else ():
            if name == "survived":
                counts[value[0]] += value[1]
    for what, number in sorted(counts.items()):
        terminalreporter.write_line(f"survived {number:>7,} {what}")
    if counts and config.getoption("--record"):
        record = ROOT / "tests" / "records" / "hostile.json"
        earlier = json.loads(record.read_text())["survived"] if record.exists() else {}
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        document = {
            "made_by": "make hostile",
            "date": today,
            "survived": dict(sorted({**earlier, **counts}.items())),
        }
        record.write_text(json.dumps(document, indent=2) + "\n")


@pytest.fixture
def empty_venv(tmp_path: Path) -> Path:
    """A venv without pip and without any package; its interpreter's path."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


@pytest.fixture
def site_packages(empty_venv: Path) -> Path:
    """The site-packages folder of ``empty_venv``."""
    return next((empty_venv.parent.parent / "lib").glob("python*")) / "site-packages"


@pytest.fixture
def splatfix(capfd: pytest.CaptureFixture[str]) -> Splatfix:
    """Run the command line as a person does, but in this process: ``splatfix("diagnose", "--json")``.

    ``columns`` is the width of the terminal; without it the output goes to a pipe. ``given`` is the standard input.
    """

    def run(
        *words: str | os.PathLike[str],
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        columns: int | None = None,
        given: bytes = b"",
    ) -> subprocess.CompletedProcess[str]:
        from splatfix.cli import main

        argv = ["splatfix", *map(os.fspath, words)]
        variables = {name: value for name, value in (env or os.environ).items() if name != "COLUMNS"}
        if columns is not None:
            variables["COLUMNS"] = str(columns)
        before = capfd.readouterr()
        with _process_state(), mock.patch.dict(os.environ, variables, clear=True):
            sys.argv, sys.stdin = argv, io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
            os.chdir(cwd or Path.cwd())
            try:
                main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
        said = capfd.readouterr()
        sys.stdout.write(before.out)
        sys.stderr.write(before.err)
        return subprocess.CompletedProcess(argv, code, said.out, said.err)

    return run


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is as wide as for a pipe, whatever COLUMNS the runner of the tests sets."""
    from splatfix.report import console

    monkeypatch.delenv("COLUMNS", raising=False)
    console.out.cache_clear()
    console.err.cache_clear()


@contextmanager
def _process_state() -> Iterator[None]:
    """Put back what a command changes of its process, which usually ends with it."""
    from splatfix.report import console

    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    argv, given, folder, hook = sys.argv, sys.stdin, Path.cwd(), threading.excepthook
    console.out.cache_clear()
    console.err.cache_clear()
    try:
        yield
    finally:
        gc.enable()
        os.chdir(folder)
        sys.argv, sys.stdin, threading.excepthook = argv, given, hook
        for number, handler in signals.items():
            signal.signal(number, handler)
        console.out.cache_clear()
        console.err.cache_clear()


@pytest.fixture
def script() -> Callable[[Path, str], Path]:
    """Write an executable script: ``script(path, text)``."""

    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(0o755)
        return path

    return write
