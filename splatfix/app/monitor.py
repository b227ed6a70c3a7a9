"""``splatfix monitor``: watch a trainer's memory from outside."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatfix.app.result import Result
from splatfix.core.errors import usage_error

if TYPE_CHECKING:
    from rich.console import Console


def monitor(
    words: tuple[str, ...], out: Path, *, interval: float, tensorboard: bool, as_json: bool
) -> Result:
    """Watch a running process, or a command started here, until it ends.

    The summary goes to standard error: standard output belongs to the command.

    Raises:
        SplatfixError: a process or command that cannot be watched.
    """
    from splatfix.certify.monitor import lines, target_of, watch

    if math.isnan(interval):
        raise usage_error("no-interval", "--interval nan is not a number of seconds.")
    summary = watch(target_of(words, quiet=as_json), out, interval=interval, tensorboard=tensorboard)

    def data() -> dict[str, Any]:
        content = {name: value for name, value in asdict(summary).items() if name != "exit_code"}
        return {"command_exit_code": summary.exit_code, **content}

    def text(_: Console) -> None:
        from rich.markup import escape

        from splatfix.report.console import err, paragraph

        for line in lines(summary):
            paragraph(err(), escape(line), first=0, then=4)

    return Result("monitor", data, text, summary.exit_code or 0)
