"""Progress of long work, on standard error: a live line on a terminal, a plain line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from rich import progress as moving
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column
from rich.text import Text

from splatfix.certify.progress import title, words
from splatfix.core.threads import start
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
def one_line(console: Console, title: str) -> Iterator[Callable[[str], None]]:
    """Yield a callback for work whose length nobody knows: what it is at, in one living line, or now and then a line of a log."""
    if _is_live(console):
        with console.status(title) as status:
            yield lambda text: status.update(f"{title}: {escape(text)}")
        return
    subject, printed_at = "", 0.0

    def show(text: str) -> None:
        nonlocal subject, printed_at
        now = time.monotonic()
        # what stands before the colon is the subject; behind it come counts that change with every call
        new_subject = text.partition(":")[0]
        if new_subject != subject or now - printed_at >= _EVERY:
            _say(console, f"{title}: {text}")
            subject, printed_at = new_subject, now

    yield show


@contextmanager
def training(console: Console) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """Yield a callback for the certification: what runs now, and how far it is, as :mod:`splatfix.certify.progress` words it.

    On a terminal a bar for each thing that ran, and below them what is known of the last.
    """
    if not _is_live(console):
        # a line when something begins, one a minute, and one for the last iteration
        printed_at: dict[str, float] = {}

        def log(where: str, state: Mapping[str, Any]) -> None:
            now, text = time.monotonic(), words(state)
            if where not in printed_at:
                _say(console, f"{title(where, state)} ...")
            elif text and (now - printed_at[where] >= _EVERY or state["iteration"] == state["iterations"]):
                _say(console, f"{title(where, state)}: {text}")
            else:
                return
            printed_at[where] = now

        yield log
        return
    bars = moving.Progress(
        moving.TextColumn("{task.description:<12}"),
        moving.BarColumn(),
        moving.TaskProgressColumn(),
        moving.TimeElapsedColumn(),
    )
    below, tasks = Text(overflow="fold"), dict[str, moving.TaskID]()

    def show(where: str, state: Mapping[str, Any]) -> None:
        text = words(state)
        if where not in tasks:
            # one thing runs after the other: what ran before is over
            for last in bars.tasks[-1:]:
                bars.stop_task(last.id)
                if last.total is None:  # a bar of unknown length would go on moving
                    bars.update(last.id, total=1, completed=1)
            tasks[where] = bars.add_task(escape(title(where, state)), total=None)
            below.plain = text
        if text:
            below.plain = text
            bars.update(tasks[where], total=state["iterations"], completed=state["iteration"])

    with Live(Group(bars, below), console=console, transient=True, refresh_per_second=10):
        yield show


# What takes no time that anybody waits for: the plan names it, and the outcome says what it showed.
_QUICK = {"make-drop-in", "verify-wheel", "edit-source", "install-wheel", "check-import"}


@contextmanager
def install_progress(
    console: Console, *, verbose: bool = False, every: float = _EVERY
) -> Iterator[InstallProgress]:
    """Yield the listener that suits the console (standard error).

    Args:
        verbose: every step when it begins and ends; in a log, every line about what a step is at.
        every: in a log, after so many seconds a step that is still under way says so.
    """
    if not _is_live(console):
        logged, over = _Log(console, verbose), threading.Event()
        reminder = threading.Thread(target=logged.remind, args=(over, every), daemon=True)
        start(reminder)
        try:
            yield logged
        finally:
            over.set()
            if reminder.is_alive():
                reminder.join()
        return
    doing = "{task.description}  [dim]{task.fields[doing]}[/]"
    with moving.Progress(
        moving.SpinnerColumn(),
        # the time comes first: a narrow terminal cuts off the end of a line
        moving.TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
        moving.TextColumn(doing, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        transient=True,
        expand=True,
    ) as rows:
        yield _Rows(console, verbose, rows)


class _Rows(InstallProgress):
    """A moving line for each step under way; builds of several packages run at the same time."""

    def __init__(self, console: Console, verbose: bool, rows: moving.Progress) -> None:
        self._console, self._verbose, self._rows = console, verbose, rows
        self._tasks: dict[tuple[str, str], moving.TaskID] = {}

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        label = escape(f"[{number}/{total}] {step.kind} {step.subject}")
        self._tasks[step.kind, step.subject] = self._rows.add_task(label, total=None, doing="")

    def doing(self, step: InstallStep, text: str) -> None:
        task = self._tasks.get((step.kind, step.subject))
        if task is not None:  # a last line of a build may come after its end
            self._rows.update(task, doing=escape(text), refresh=True)

    def end(self, step: InstallStep, result: str) -> None:
        task = self._tasks.pop((step.kind, step.subject), None)
        if task is not None:
            self._rows.remove_task(task)
        _show_end(self._console, step, result, verbose=self._verbose)


class _UnderWay(Struct):
    """When a step began, and what it is at."""

    began: float
    text: str = ""


class _Log(InstallProgress):
    """Lines of a log. A thread of its own says now and then that a step is still under way, for how long, and at what:
    CI systems end a job that prints nothing, and one file of CUDA may compile for twenty minutes."""

    def __init__(self, console: Console, verbose: bool) -> None:
        self._console, self._verbose = console, verbose
        self._under_way: dict[tuple[str, str], _UnderWay] = {}

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        self._under_way[step.kind, step.subject] = _UnderWay(time.monotonic())
        if self._verbose or step.kind not in _QUICK:
            _say(self._console, f"[{number}/{total}] {step.text}")
            if log:
                _say(self._console, f"      log: {log}")

    def doing(self, step: InstallStep, text: str) -> None:
        under_way = self._under_way.get((step.kind, step.subject))
        if under_way:
            under_way.text = text
        if self._verbose:
            _say(self._console, f"      {step.subject}: {text}")

    def end(self, step: InstallStep, result: str) -> None:
        self._under_way.pop((step.kind, step.subject), None)
        _show_end(self._console, step, result, verbose=self._verbose)

    def remind(self, over: threading.Event, every: float) -> None:
        """Say every so many seconds what is under way, until it is over."""
        while not over.wait(every):
            for (_, subject), step in list(self._under_way.items()):
                seconds = time.monotonic() - step.began
                if seconds >= every / 2:  # what has just begun has just said so
                    lasted = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
                    _say(self._console, f"      {subject}: {', '.join(filter(None, (lasted, step.text)))}")


def _show_end(console: Console, step: InstallStep, result: str, *, verbose: bool) -> None:
    if verbose or step.kind not in _QUICK:
        marked(console, Mark.GOOD, escape(f"{step.kind} {step.subject}: {result}"), indent=0)
