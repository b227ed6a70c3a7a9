"""The command: what can run here, pytest with the chosen steps, the table."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splatfix.core.files import write_text
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


class UsageError(Exception):
    """What is wrong with the command line."""


class NothingRun(Exception):
    """Why nothing can be run here."""


def main(argv: Sequence[str] | None = None) -> int:
    """Check, run the steps, print the table; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except UsageError as error:
        return _say(f"error: {error}", USAGE)
    except NothingRun as reason:
        return _say(f"Nothing was run: {reason}", UNDETERMINED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python tests/gpu_check",
        description="Shows on an NVIDIA GPU what only a GPU can show.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("gpu-check"), help="folder for record, table and arrays")
    add(
        "--sources",
        type=Path,
        default=os.environ.get("GPU_SOURCES") or None,
        help="folder with sources and wheels",
    )
    add("--work", type=Path, help="folder for environments and logs (default: a temporary one)")
    add("--only", metavar="NAMES", help="these steps and what they need, separated by commas")
    add(
        "--rehearse",
        action="store_true",
        help="run every step on the CPU with stand-ins; shows nothing of a GPU",
    )
    add("--budget", type=float, help="seconds for the whole (default: 480); a rehearsal has no limit")
    add("--list", action="store_true", help="show the steps and end")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.budget is not None and not options.budget > 0:
        raise UsageError(f"--budget: {options.budget:g} is no number of seconds above 0")
    sources = Path(options.sources).absolute() if options.sources else None
    if sources and not sources.is_dir():
        raise UsageError(f"GPU_SOURCES: {sources} is no folder")
    with temporary_folder() as temporary:
        work = _writable(options.work or temporary)
        try:
            needs.unpack_wheels(sources, work / "site")
        except needs.Damaged as error:
            raise UsageError(f"the wheels in {sources}: {error}") from None
        # programs such as ninja lie beside the interpreter, also where its folder is not in PATH
        os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
        _require(())
        # from here on pytest is there
        from . import session

        steps = session.collect()
        if options.list:
            for step in steps:
                print(f"{step.number:2} {step.name:<22} {step.limit:4.0f} s  {step.title}")
            return PASSED
        try:
            names = session.chosen(steps, options.only.split(",") if options.only is not None else None)
        except KeyError as error:
            unknown = ", ".join(map(repr, error.args))
            raise UsageError(f"no step is called {unknown}; --list names them") from None
        result, others = needs.sources_in(sources)
        if sources and not options.rehearse and not result and not list(sources.glob("*.whl")):
            raise UsageError(f"{sources} holds none of: {', '.join(SOURCES)}")
        wants = {want for step in steps if step.name in names for want in step.wants}
        if options.rehearse:
            wants.discard(needs.NVCC)  # what stands in for the sources is C++
        else:
            wants |= {want for name in result for want in needs.IMPORTED.get(name, ())}
        _require(wants)
        if options.rehearse:
            machine, result = _stand_in(work)
        else:
            machine, obstacle = needs.machine()
            if obstacle:
                raise NothingRun(obstacle)
        until = math.inf
        if not options.rehearse:
            until = time.monotonic() + (options.budget or session.BUDGET)
        visit = session.Visit(
            session.Context(str(work), str(_writable(options.out)), result, options.rehearse),
            machine,
            tuple(f"{name} in GPU_SOURCES is no name of a source and was not tried" for name in others),
            until,
        )
        session.run(visit, names)
        return _finish(visit)


def _require(wants: Any) -> None:
    obstacle = needs.lacking(wants)
    if obstacle:
        raise NothingRun(obstacle)


def _writable(path: Path) -> Path:
    """The absolute path of a folder that files can be written to; made where it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path.absolute()
    except OSError as error:
        raise UsageError(f"nothing can be written to {path}: {error.strerror or error}") from None


def _stand_in(work: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Put the stand-ins in place of driver, GPU and sources; what the record says of the machine, and the sources."""
    from . import rehearsal

    os.environ["OMP_NUM_THREADS"] = "1"  # the tensors are tiny, and builds share the cores
    rehearsal.install_driver(work / "driver")
    about = {"gpu": f"a stand-in for {rehearsal.CARD.name}"}
    return about, rehearsal.write_sources(work / "sources")


def _finish(visit: Any) -> int:
    """Write and print the table, and say how it ended."""
    from .record import table

    record = visit.record()
    out = Path(visit.context.out)
    text = table(record)
    write_text(out / "table.md", text)
    print(text)
    meaning, advice = MEANING[record.exit_code], "; tests/records takes it as gpu_check_<GPU>.json"
    if record.rehearsal:
        meaning, advice = meaning.replace("passed", "was rehearsed"), ""
    _say(f"Record: {out / 'record.json'}{advice}")
    return _say(f"Exit code {record.exit_code}: {meaning}", record.exit_code)


def _say(text: str, code: int = PASSED) -> int:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return code
