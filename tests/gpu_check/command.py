"""The command: what can run here, pytest with the chosen steps, the table."""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from splatfix.core.scratch import temporary_folder

from . import needs
from .needs import SOURCES

PASSED, FAILED, USAGE, UNDETERMINED = 0, 1, 2, 3
MEANING = {
    PASSED: "every step passed",
    FAILED: "a step failed",
    UNDETERMINED: "nothing failed, and something was skipped",
}
EPILOG = f"""\
sources that are tried where GPU_SOURCES (or --sources) has a folder of the name: {", ".join(SOURCES)};
wheels that lie there are installed for this run alone.
exit codes: 0 every step passed, 1 one failed, 2 wrong usage, 3 no usable GPU, or nothing failed and something was skipped
"""
# No plugins, options or output of the machine's pytest, and nothing of the other tests: they may want other packages.
_INI = "[pytest]\nmarkers =\n    gpu: needs an NVIDIA GPU\n"
_OPTIONS = "-rfs --no-header --tb=short --disable-warnings -p no:cacheprovider -p no:xdist"


class NothingRun(Exception):
    """Why nothing is run, and the exit code."""

    def __init__(self, reason: str, code: int = UNDETERMINED) -> None:
        prefix = "error" if code == USAGE else "Nothing was run"
        super().__init__(f"{prefix}: {reason}")
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Check, run the steps, print the table; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        with temporary_folder() as temporary:
            return _run(options, temporary)
    except NothingRun as reason:
        return _say(str(reason), reason.code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tests/gpu_check",
        description="Shows on an NVIDIA GPU what only a GPU can show.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    sources = os.environ.get("GPU_SOURCES") or None
    add("--out", type=Path, default=Path("gpu-check"), help="folder for record, table and arrays")
    add("--sources", type=Path, default=sources, help="folder with sources and wheels")
    add("--work", type=Path, help="folder for environments and logs (default: a temporary one)")
    add("--only", metavar="NAMES", help="these steps and what they need, separated by commas")
    add(
        "--rehearse",
        action="store_true",
        help="run every step on the CPU with stand-ins; shows nothing of a GPU",
    )
    add("--budget", type=float, help="seconds for the whole (default: 540); a rehearsal has no limit")
    add("--list", action="store_true", help="show the steps and end")
    return parser


def _run(options: argparse.Namespace, temporary: Path) -> int:
    if options.budget is not None and not options.budget > 0:
        raise NothingRun(f"--budget: {options.budget:g} is no number of seconds above 0", USAGE)
    sources = Path(options.sources).absolute() if options.sources else None
    if sources and not sources.is_dir():
        raise NothingRun(f"GPU_SOURCES: {sources} is no folder", USAGE)
    work = _writable(options.work or temporary)
    try:
        needs.unpack_wheels(sources, work / "site")
    except needs.Damaged as error:
        raise NothingRun(f"the wheels in {sources}: {error}", USAGE) from None
    # programs such as ninja lie beside the interpreter, also where its folder is not in PATH
    os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
    obstacle = needs.lacking(())
    if obstacle:
        raise NothingRun(obstacle)
    # from here on pytest is there
    from . import plan
    from .visit import BUDGET, Context, Visit

    if options.list:
        for step in plan.PLAN:
            print(f"{step.number:2} {step.name:<22} {step.limit:4.0f} s  {step.title}")
        return PASSED
    try:
        steps = plan.chosen(options.only.split(",") if options.only is not None else None)
    except KeyError as error:
        unknown = ", ".join(map(repr, error.args))
        raise NothingRun(f"no step is called {unknown}; --list names them", USAGE) from None
    folders, others = needs.sources_in(sources)
    if sources and not options.rehearse and not folders and not list(sources.glob("*.whl")):
        raise NothingRun(f"{sources} holds none of: {', '.join(SOURCES)}", USAGE)
    until = math.inf
    if options.rehearse:
        from . import rehearsal

        machine, folders = rehearsal.prepare(work)
    else:
        machine, obstacle = needs.machine()
        if obstacle:
            raise NothingRun(obstacle)
        until = time.monotonic() + (options.budget or BUDGET)
    stood_in = set(needs.STOOD_IN) if options.rehearse else set()
    lacking = {step.name: needs.lacking_for(tuple(sorted({*step.wants} - stood_in))) for step in steps}
    remarks = tuple(f"{name} in GPU_SOURCES is no name of a source and was not tried" for name in others)
    context = Context(str(work), str(_writable(options.out)), folders, options.rehearse)
    visit = Visit(context, machine, remarks, until, lacking)
    run_steps(visit, [step.name for step in steps])
    return _finish(visit)


def _writable(path: Path) -> Path:
    """The absolute path of a folder that files can be written to; made where it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path.absolute()
    except OSError as error:
        raise NothingRun(f"nothing can be written to {path}: {error.strerror or error}", USAGE) from None


def run_steps(visit: Any, names: Iterable[str]) -> None:
    """The tests of these steps, by pytest; the results are in the visit."""
    import pytest

    from .conftest import VISIT

    class Given:
        def pytest_configure(self, config: pytest.Config) -> None:
            config.stash[VISIT] = visit

    tests = Path(__file__).with_name("test_visit.py")
    ini = Path(visit.context.work) / "pytest.ini"
    ini.write_text(_INI, encoding="utf-8")
    argv = [*_OPTIONS.split(), "-v", "-c", str(ini), "--rootdir", str(tests.parents[2])]
    argv += ["--confcutdir", str(tests.parent), *(f"{tests}::test_step[{name}]" for name in names)]
    code = pytest.main(argv, plugins=[Given()])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}")


def _finish(visit: Any) -> int:
    """Write and print the table, and say how it ended."""
    from .record import table

    record = visit.record()
    out = Path(visit.context.out)
    print(table(record))
    meaning, advice = MEANING[record.exit_code], "; tests/records takes it as gpu_check_<GPU>.json"
    if record.rehearsal:
        meaning, advice = meaning.replace("passed", "was rehearsed"), ""
    _say(f"Record: {out / 'record.json'}{advice}")
    return _say(f"Exit code {record.exit_code}: {meaning}", record.exit_code)


def _say(text: str, code: int = PASSED) -> int:
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return code
