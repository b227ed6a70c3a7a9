"""Progress of long work, on standard error: a living text on a terminal, a plain line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from msgspec import Struct
from rich.console import Console
from rich.live import Live
from rich.text import Text

from smoke_trainer.progress import words
from splatfix.core.threads import start
from splatfix.core.visible import visible
from splatfix.install.outcome import InstallProgress
from splatfix.model.steps import InstallStep
from splatfix.report.console import escape, marked
from splatfix.report.marks import Mark

_EVERY = 60.0
"""Seconds between two lines about the same where there is no terminal: a log stays short, and is seen to go on."""


def _is_live(console: Console) -> bool:
    """Lines on it can be written over; TERM=dumb, as in Emacs' shell, shows the control codes instead."""
    if not console.is_terminal or console.is_dumb_terminal:
        return False
    return start(threading.Thread(target=lambda: None))  # rich moves them from a thread of its own


def _say(console: Console, text: str) -> None:
    console.print(escape(text), soft_wrap=True)


@contextmanager
def _telling(console: Console) -> Iterator[Callable[[str, str, bool], None]]:
    """Yield a callback for what is under way, a line about it, and whether that is its last: one living line, or in a log a line
    for each thing that begins, one a minute, and the last."""
    if _is_live(console):
        with console.status("") as status:
            yield lambda subject, line, is_last: status.update(escape(line))
        return
    printed_at: dict[str, float] = {}

    def log(subject: str, line: str, is_last: bool) -> None:
        now = time.monotonic()
        if is_last or now - printed_at.get(subject, now - _EVERY) >= _EVERY:
            _say(console, line)
            printed_at[subject] = now

    yield log


@contextmanager
def one_line(console: Console, about: str) -> Iterator[Callable[[str], None]]:
    """Yield a callback for work whose length nobody knows. What stands before a colon is the subject; behind it come counts that
    change with every call."""
    with _telling(console) as tell:
        yield lambda text: tell(text.partition(":")[0], f"{about}: {text}", False)


@contextmanager
def training(console: Console) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Yield a callback for the certification: what runs now, and how far it is, as :mod:`smoke_trainer.progress` words it."""
    with _telling(console) as tell:

        def show(where: str, state: Mapping[str, Any]) -> None:
            text = words(state)
            line = f"{where}: {text}" if text else f"{where} ..."
            tell(where, line, bool(text) and state["iteration"] == state["iterations"])

        yield show


# What takes no time that anybody waits for: the plan names it, and the outcome says what it showed.
_QUICK = {"make-drop-in", "verify-wheel", "edit-source", "install-wheel", "check-import"}


@contextmanager
def install_progress(
    console: Console, *, verbose: bool = False, every: float = _EVERY
) -> Iterator[InstallProgress]:
    """Yield the listener that suits the console (standard error): a moving line for each step under way, or lines of a log, where
    a thread says now and then what is still under way: CI systems end a job that prints nothing, and one file of CUDA may compile
    for twenty minutes.

    Args:
        verbose: every step when it begins and ends; in a log, every line about what a step is at.
        every: in a log, after so many seconds a step that is still under way says so.
    """
    progress = _Steps(console, verbose=verbose)
    if _is_live(console):
        with Live(progress, console=console, transient=True) as progress.live:
            yield progress
        return
    over = threading.Event()

    def remind() -> None:
        while not over.wait(every):
            for line in progress.lines(every / 2):  # what has just begun has just said so
                _say(console, f"      {line}")

    reminder = threading.Thread(target=remind, daemon=True)
    start(reminder)
    try:
        yield progress
    finally:
        over.set()
        if reminder.is_alive():
            reminder.join()


class _UnderWay(Struct):
    """A step, when it began, and what it is at."""

    label: str
    began: float
    text: str = ""


class _Steps(InstallProgress):
    """The steps under way; builds of several packages run at the same time."""

    live: Live | None = None

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self._console, self._verbose = console, verbose
        self._under_way: dict[tuple[str, str], _UnderWay] = {}

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        label = f"[{number}/{total}] {step.kind} {step.subject}"
        self._under_way[step.kind, step.subject] = _UnderWay(label, time.monotonic())
        if self.live is None and (self._verbose or step.kind not in _QUICK):
            _say(self._console, f"[{number}/{total}] {step.text}")
            if log:
                _say(self._console, f"      log: {log}")

    def doing(self, step: InstallStep, text: str) -> None:
        under_way = self._under_way.get((step.kind, step.subject))
        if under_way:  # a last line of a build may come after its end
            under_way.text = text
        if self.live:
            self.live.refresh()
        elif self._verbose:
            _say(self._console, f"      {step.subject}: {text}")

    def end(self, step: InstallStep, result: str) -> None:
        self._under_way.pop((step.kind, step.subject), None)
        if self._verbose or step.kind not in _QUICK:
            marked(self._console, Mark.GOOD, escape(f"{step.kind} {step.subject}: {result}"), indent=0)

    def lines(self, least: float = 0.0) -> list[str]:
        """Return a line for each step that is under way for so many seconds, with how long it lasts."""
        lines = []
        for step in list(self._under_way.values()):
            seconds = time.monotonic() - step.began
            if seconds >= least:
                lines.append(visible(f"{step.label} ({timedelta(seconds=int(seconds))}) {step.text}"))
        return lines

    def __rich__(self) -> Text:
        return Text("\n".join(self.lines()))
