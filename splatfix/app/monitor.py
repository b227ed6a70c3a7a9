"""``splatfix monitor``: watch a trainer's memory from outside."""

import math
import os
from pathlib import Path

from rich.console import Console

from splatfix.app.result import Result
from splatfix.certify.monitor import Summary, watch
from splatfix.core.errors import SplatfixError
from splatfix.core.words import counted
from splatfix.report.console import err, escape, prose
from splatfix.report.forms import writes


def monitor(
    arguments: tuple[str, ...], out: Path, *, interval: float, phases: bool, as_json: bool
) -> Result[Summary]:
    """Watch a running process, or a command started here, until it ends.

    The summary goes to standard error: standard output belongs to the command.

    Args:
        phases: also have the command's Python tell the phases of its training apart.

    Raises:
        SplatfixError: a process or command that cannot be watched.
    """
    # the limits of the option let it through: NaN is neither below nor above any number
    if math.isnan(interval):
        raise SplatfixError.of("app.no-interval")
    if phases and arguments[0].isdigit():
        raise SplatfixError.of("app.phases-of-a-command")
    summary = watch(arguments, out, interval=interval, phases=phases, quiet=as_json)
    return Result("monitor", summary, summary.exit_code or 0)


@writes(Summary, command="monitor")
def show(_: Console, summary: Summary) -> None:
    """Print on standard error what was measured, and why the rest was not: standard output belongs to the command."""
    headline = f"{summary.target}: {summary.seconds:.1f} s, {counted(summary.samples, 'sample')}"
    if summary.exit_code is not None:
        headline += f", exit code {summary.exit_code}"
    share, costs = summary.share_above_97_percent, summary.phases
    measured: list[tuple[str, float | None, str]] = [
        ("VRAM peak", summary.vram_peak_gb, "{:.2f} GiB"),
        ("settled baseline", summary.vram_settled_gb, "{:.2f} GiB"),
        ("growth above it", summary.vram_creep_gb, "{:.2f} GiB"),
        ("above 97 %", share and 100 * share, "{:.1f} % of the samples"),
        ("GPU utilisation", summary.gpu_utilisation_mean, "{:.0f} % on average"),
        ("host memory peak", summary.rss_peak_gb, "{:.2f} GiB"),
        ("CPU", summary.cpu_percent_mean, "{:.0f} % on average (100 % is one core)"),
    ]
    if costs:
        measured += [(name, spent, "{:.1f} s") for name, spent in costs.seconds.items()]
        measured += [
            ("iterations", costs.iterations, "{:.0f}; " + costs.bound),
            ("training peak", costs.training_gb, "{:.2f} GiB"),
            ("evaluation peak", costs.evaluation_gb, "{:.2f} GiB"),
            ("growth", costs.growth_gb, "{:.3f} GiB in 1,000 iterations without new Gaussians"),
        ]
    for line in (
        headline,
        *(f"  {name:<16} {form.format(value)}" for name, value, form in measured if value is not None),
        *(f"  note: {note}" for note in summary.notes),
        f"  series: {os.path.join(summary.folder, 'metrics.jsonl')}",  # noqa: PTH118
    ):
        prose(err(), "", escape(line), hang=4)
