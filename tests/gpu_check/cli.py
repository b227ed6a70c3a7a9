"""The command: what can run here, the steps in order, the table and the record."""

from __future__ import annotations

import argparse
import datetime
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import splatfix
from splatfix.core.codec import to_json
from splatfix.core.files import write_json, write_text
from splatfix.core.runner import ProcessRunner
from splatfix.core.scratch import temporary_folder

from . import needs
from .context import ROOT, SOURCES, Context
from .plan import Step, StepResult, answer_of, attempt_in_child, run_plan
from .record import SCHEMA_VERSION, Outcome, Record, exit_code_of, table
from .steps import STEPS

BUDGET = 480.0
"""Seconds for the whole."""
PASSED, FAILED, USAGE, UNDETERMINED = 0, 1, 2, 3
MEANING = {
    PASSED: "every step passed",
    FAILED: "a step failed",
    UNDETERMINED: "nothing failed, and something was skipped",
}
MARKS = {
    Outcome.PASSED: "ok",
    Outcome.REHEARSED: "rehearsed",
    Outcome.FAILED: "FAILED",
    Outcome.SKIPPED: "skipped",
}

EPILOG = f"""\
sources that are tried where GPU_SOURCES (or --sources) has a folder of the name: {", ".join(SOURCES)};
wheels that lie there are installed for this run alone.
exit codes: 0 every step passed, 1 one failed, 2 wrong usage, 3 no usable GPU, or nothing failed and something was skipped
"""


def main(argv: Sequence[str] | None = None, steps: tuple[Step, ...] = STEPS) -> int:
    """Run the plan; ``steps`` are other ones in tests."""
    options = _parser().parse_args(argv)
    try:
        return _child(options) if options.step else _whole(options, steps)
    except _Usage as error:
        return _say(f"error: {error}", USAGE)


class _Usage(Exception):
    """Wrong usage, in words."""


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
    add("--budget", type=float, help=f"seconds for the whole (default: {BUDGET:g}); a rehearsal has no limit")
    add("--list", action="store_true", help="show the steps and end")
    add("--step", help=argparse.SUPPRESS)
    add("--context", type=Path, help=argparse.SUPPRESS)
    add("--answer", type=Path, help=argparse.SUPPRESS)
    return parser


def _child(options: argparse.Namespace) -> int:
    """One step, in a process of its own."""
    (step,) = [step for step in STEPS if step.name == options.step]
    write_json(options.answer, answer_of(step.run, Context.load(options.context)))
    return PASSED


def _whole(options: argparse.Namespace, steps: tuple[Step, ...]) -> int:
    chosen = _chosen(steps, options.only)
    if options.budget is not None and not options.budget > 0:
        raise _Usage(f"--budget: {options.budget:g} is no number of seconds above 0")
    if options.list:
        rows = [
            f"{number:2} {step.name:<22} {step.limit:4.0f} s  {step.title}"
            for number, step in enumerate(steps, 1)
        ]
        print("\n".join(rows))
        return PASSED
    sources = Path(options.sources).absolute() if options.sources else None
    if sources and not sources.is_dir():
        raise _Usage(f"GPU_SOURCES: {sources} is no folder")
    found, others = needs.sources_in(sources)
    if sources and not options.rehearse and not found and not list(sources.glob("*.whl")):
        raise _Usage(f"{sources} holds none of: {', '.join(SOURCES)}")
    notes = [f"{name} in GPU_SOURCES is no name of a source and was not tried" for name in others]
    wants = {want for step in steps if step.name in chosen for want in step.wants}
    if options.rehearse:
        wants -= {needs.NVCC}  # what stands in for the sources is C++
    else:
        wants |= {want for name in found for want in needs.IMPORTED.get(name, ())}
    with temporary_folder() as temporary:
        work = _folder(options.work or temporary)
        try:
            needs.unpack_wheels(sources, work / "site")
        except needs.Damaged as error:
            raise _Usage(f"the wheels in {sources}: {error}") from None
        # programs such as ninja lie beside the interpreter, also where its folder is not in PATH
        os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
        if lost := needs.lacking(wants):
            return _say(f"Nothing was run: {lost}", UNDETERMINED)
        if options.rehearse:
            about, found = _stand_in(work)
        else:
            about, why = needs.machine()
            if why:
                return _say(f"Nothing was run: {why}", UNDETERMINED)
        _folder(options.out)
        context = Context(str(work), str(options.out.absolute()), found, options.rehearse)
        return _run(options, steps, chosen, context, about, tuple(notes))


def _folder(path: Path) -> Path:
    """The absolute path of a folder that files can be written to; made where it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path.absolute()
    except OSError as error:
        raise _Usage(f"nothing can be written to {path}: {error.strerror or error}") from None


def _chosen(steps: tuple[Step, ...], only: str | None) -> set[str]:
    """The names of the steps to run: all, or the named ones and what they need."""
    known = {step.name: step for step in steps}
    pending = list(known) if only is None else only.split(",")
    if unknown := [name for name in pending if name not in known]:
        raise _Usage(f"no step is called {', '.join(map(repr, unknown))}; --list names them")
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in chosen:
            chosen.add(name)
            pending += known[name].needs
    return chosen


def _stand_in(work: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Put the stand-ins in place of driver, GPU and sources; what the record says of the machine, and the sources."""
    from . import rehearsal

    os.environ["OMP_NUM_THREADS"] = "1"  # the tensors are tiny, and steps share the cores
    rehearsal.install_driver(work / "driver")
    about = {"gpu": f"a stand-in for {rehearsal.CARD.name}"}
    return about, rehearsal.write_sources(work / "sources")


def _run(
    options: argparse.Namespace,
    steps: tuple[Step, ...],
    chosen: set[str],
    context: Context,
    about: dict[str, str],
    notes: tuple[str, ...],
) -> int:
    began = time.monotonic()
    folder = Path(context.work)
    numbers = {step.name: number for number, step in enumerate(steps, 1)}
    plan = tuple(
        replace(step, after=tuple(name for name in step.after if name in chosen))
        for step in steps
        if step.name in chosen
    )
    file = options.out.absolute() / "record.json"
    context.save(folder / "context.json")
    results: dict[str, StepResult] = {}
    commit = (
        ProcessRunner()
        .run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], timeout=10)
        .stdout.strip()
    )
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

    def record() -> Record:
        done = tuple(sorted(results.values(), key=lambda result: result.number))
        return Record(
            SCHEMA_VERSION,
            "gpu-check",
            context.rehearsal,
            date,
            splatfix.__version__,
            commit,
            about,
            round(time.monotonic() - began, 1),
            exit_code_of(done),
            done,
            notes,
        )

    def ended(result: StepResult) -> None:
        results[result.name] = replace(result, number=numbers[result.name])
        write_json(file, to_json(record()))
        why = f": {'; '.join(result.problems)}" if result.problems else ""
        _say(
            f"{numbers[result.name]:2} {MARKS[result.outcome]:<9} {result.title}, {result.seconds:.0f} s{why[:400]}"
        )

    def attempt(step: Step, limit: float) -> StepResult:
        answer = folder / f"{numbers[step.name]:02}-{step.name}.json"
        argv: list[Any] = [sys.executable, Path(__file__).parent, "--step", step.name]
        argv += ["--context", folder / "context.json", "--answer", answer]
        return attempt_in_child(step, numbers[step.name], argv, answer, limit, rehearsal=context.rehearsal)

    until = began + (math.inf if context.rehearsal else BUDGET if options.budget is None else options.budget)
    if context.rehearsal:  # nothing is timed, so cores are the only limit
        plan = tuple(replace(step, beside=True, limit=step.limit * context.patience) for step in plan)
        run_plan(plan, attempt, until, ended, os.cpu_count() or 1)
    else:
        run_plan(plan, attempt, until, ended)
    final = record()
    write_json(file, to_json(final))
    text = table(final)
    write_text(options.out.absolute() / "table.md", text)
    print(text)
    _say(
        f"Record: {file}" + ("" if context.rehearsal else "; tests/records takes it as gpu_check_<GPU>.json")
    )
    meaning = MEANING[final.exit_code]
    if context.rehearsal:
        meaning = meaning.replace("passed", "was rehearsed")
    return _say(f"Exit code {final.exit_code}: {meaning}", final.exit_code)


def _say(text: str, code: int = PASSED) -> int:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    return code
