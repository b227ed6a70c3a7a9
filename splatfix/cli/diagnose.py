"""``splatfix diagnose``: what is wrong here, with evidence."""

from __future__ import annotations

import gc
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from splatfix.cli import interrupted, options
from splatfix.core.step import say

if TYPE_CHECKING:
    from splatfix.checks import Check
    from splatfix.facts import Facts


def diagnose(
    python: options.Python = None,
    target: options.Targets = None,
    repo: Annotated[
        Optional[Path],
        typer.Option("--repo", help="Also look at this checkout of a splatting stack.", metavar="DIR"),
    ] = None,
    facts_file: Annotated[
        Optional[Path],
        typer.Option(
            "--facts",
            help="Judge facts saved (or a machine recorded) elsewhere instead of this one.",
            metavar="FILE",
        ),
    ] = None,
    save: Annotated[
        Optional[Path],
        typer.Option(
            "--save",
            help="Also write the facts to FILE, for another machine.",
            metavar="FILE",
            callback=options.to_be_written,
        ),
    ] = None,
    record: Annotated[
        Optional[Path],
        typer.Option(
            "--record",
            help="Also write the raw answers of this machine into the new folder DIR, to be played back elsewhere.",
            metavar="DIR",
        ),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            " /--no-redact",
            help="Keep user and host names, home folders, GPU UUIDs and tokens in --record.",
            show_default=False,
        ),
    ] = True,
    imports: Annotated[
        bool,
        typer.Option(
            "--imports", help="Also import torch and every extension in a child process (takes seconds)."
        ),
    ] = False,
    only: Annotated[
        Optional[list[str]], typer.Option("--only", help="Only this check or family; repeatable.")
    ] = None,
    skip: Annotated[
        Optional[list[str]], typer.Option("--skip", help="Not this check or family; repeatable.")
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Say what is wrong with this machine and one Python environment, with evidence and the way out."""
    gc.disable()  # this process ends in a moment; looking for cycles among the imports costs it a tenth of its time
    from splatfix import facts
    from splatfix.checks import Goal, run_checks, select
    from splatfix.cli.ways import ways_after, why_command
    from splatfix.core.codec import to_json
    from splatfix.core.errors import usage_error
    from splatfix.core.files import dumps, write_json
    from splatfix.report import document

    goal = Goal(options.arch_names(target))
    # all checks are loaded while gathering waits for other processes; names that were typed are looked at before that
    later = None if only or skip or as_json else ThreadPoolExecutor(1).submit(_load_checks)
    checks = select(only or (), skip or ()) if later is None else ()
    if facts_file is not None:
        if python is not None or imports or record is not None or repo is not None:
            raise usage_error(
                "facts-and-python",
                "--facts judges saved facts; --python, --repo, --imports and --record look at this machine.",
            )
        known = facts.load(facts_file)
    else:
        if repo is not None and not repo.is_dir():
            raise usage_error(
                "not-a-folder", f"There is no folder {repo}.", say("Give the folder of the checkout.")
            )
        interpreter = facts.resolve_python(python)
        with interrupted.on_interrupt(lambda: _half_recorded(record)):
            known = facts.gather(interpreter, try_imports=imports, record=record, redact=redact, repo=repo)
    if save is not None:
        write_json(save, to_json(known))
    checks = later.result() if later else checks
    findings = run_checks(known, goal, checks)
    families = {item.code: item.family for item in checks}
    ways = ways_after(findings, families, goal.targets, known, repo)
    if as_json:
        typer.echo(dumps(document.diagnosis(known, goal, findings, ways)), nl=False)
    else:
        from splatfix.report import console, terminal

        terminal.diagnosis(console.out(), known, findings, families, verbose=verbose)
        if ways:
            from splatfix.report.ways import show_briefly

            show_briefly(console.out(), ways, why_command(goal.targets, repo, facts_file, python))
        elif facts_file is None and not (only or skip) and (step := _next_step(known, python)):
            console.out().print(step, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(int(document.verdict(findings)))


def _half_recorded(record: Path | None) -> str:
    """A recording that was stopped as it was written; "" where none has begun."""
    if record is None or not record.is_dir() or not any(record.iterdir()):
        return ""
    return f"Interrupted: there is no diagnosis, and the recording in {record} is not whole: remove it."


def _next_step(known: Facts, python: str | None) -> str:
    """Where nothing failed: the commands that show what facts cannot; "" where there is no torch to show it with."""
    from splatfix.checks._common import has_nvidia_gpu

    torch = known.environment.torch.value
    if torch is None:
        return ""
    on_gpu = torch.cuda and has_nvidia_gpu(known)
    there = {item.module for item in known.environment.packages.value or ()}
    named = f" --python {shlex.quote(python)}" if python else ""
    renderer = " --renderer inria" if on_gpu and "diff_gaussian_rasterization" in there else ""
    return (
        f"\nWhether it computes and trains, only running it shows: splatfix verify{named}; "
        f"splatfix certify{renderer}{named}"
    )


def _load_checks() -> tuple[Check, ...]:
    from splatfix.checks import select
    from splatfix.report import terminal  # noqa: F401 - needed in a moment, and slow to import

    return select()
