"""``splatfix monitor``: watch any trainer's memory from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splatfix.cli import options


def monitor(
    words: Annotated[
        list[str],
        typer.Argument(
            help="The number of a running process, or a command to start.", metavar="PID|COMMAND..."
        ),
    ],
    out_folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder for the series and the summary.",
            metavar="DIR",
            callback=options.to_be_filled,
        ),
    ] = Path("splatfix-monitor"),
    interval: Annotated[
        float, typer.Option("--interval", help="Seconds between two samples.", min=0.05, max=86400.0)
    ] = 1.0,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Watch a trainer's VRAM (through NVML), memory and load; write metrics.jsonl; end with the command's own exit code.

    Options of splatfix come before the command: splatfix monitor --interval 0.5 python train.py -s scene
    """
    import math
    from dataclasses import asdict

    from rich.markup import escape

    from splatfix.certify.monitor import lines, watch
    from splatfix.certify.watched import target_of
    from splatfix.core.errors import Exit, usage_error
    from splatfix.core.files import dumps
    from splatfix.report import console
    from splatfix.report.document import envelope
    from splatfix.report.layout import paragraph

    if math.isnan(interval):
        raise usage_error("no-interval", "--interval nan is no number of seconds.")
    target = target_of(tuple(words), quiet=as_json)
    summary = watch(target, out_folder, interval=interval, tensorboard=tensorboard)
    if as_json:
        content = {name: value for name, value in asdict(summary).items() if name != "exit_code"}
        document = envelope("monitor", Exit.OK, command_exit_code=summary.exit_code, **content)
        typer.echo(dumps({**document, "exit_code": summary.exit_code or 0}), nl=False)
    else:
        for line in lines(summary):
            paragraph(console.err(), escape(line), first=0, then=4)
    raise typer.Exit(summary.exit_code or 0)
