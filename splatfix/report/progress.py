"""Progress of long work, on standard error: a live line on a terminal, a plain line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich import progress as moving
from rich.console import Console, RenderableType
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


@contextmanager
def one_line(console: Console, title: str) -> Iterator[Callable[[str], None]]:
    """A callback for work whose length nobody knows: what it is at, in one living line, or now and then a line of a log."""
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
            console.print(escape(f"{title}: {text}"), soft_wrap=True)
            subject, printed_at = new_subject, now

    yield show


def lanes(console: Console, names: Sequence[str]) -> Callable[[str, str], None]:
    """Make the callback for what a lane says: every line, of several with its name."""

    def show(name: str, line: str) -> None:
        # the output of a container build: its own colours and brackets are no markup of ours
        label = f"{name}: " if len(names) > 1 else ""
        console.print(f"{label}{line}", style="dim", markup=False, soft_wrap=True)

    return show


@contextmanager
def training(console: Console) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """A callback for the certification: what runs now, and how far it is, as :mod:`splatfix.certify.progress` words it."""
    if _is_live(console):
        with _Bars(console=console, transient=True) as bars:
            yield bars.show
        return
    # a line when something begins, one a minute, and one for the last iteration
    printed_at: dict[str, float] = {}

    def show(where: str, state: Mapping[str, Any]) -> None:
        now, text = time.monotonic(), words(state)
        if where not in printed_at:
            console.print(escape(f"{title(where, state)} ..."), soft_wrap=True)
            printed_at[where] = now
        elif text and (now - printed_at[where] >= _EVERY or state["iteration"] == state["iterations"]):
            console.print(escape(f"{title(where, state)}: {text}"), soft_wrap=True)
            printed_at[where] = now

    yield show


class _Bars(moving.Progress):
    """A bar for each thing that ran, and below them what is known of the last: that line may be long, and wraps."""

    def __init__(self, **options: Any) -> None:
        # set before rich's own __init__, which draws already
        self._tasks_by_name: dict[str, moving.TaskID] = {}
        self._state = ""
        super().__init__(
            moving.TextColumn("{task.description:<12}"),
            moving.BarColumn(),
            moving.TaskProgressColumn(),
            moving.TimeElapsedColumn(),
            **options,
        )

    def show(self, where: str, state: Mapping[str, Any]) -> None:
        if where not in self._tasks_by_name:
            # one thing runs after the other: what ran before is over
            self._state = ""
            for last in self.tasks[-1:]:
                self.stop_task(last.id)
                if last.total is None:  # a bar of unknown length would go on moving
                    self.update(last.id, total=1, completed=1)
            self._tasks_by_name[where] = self.add_task(escape(title(where, state)), total=None)
        text = words(state)
        if text:
            self._state = text
            task = self._tasks_by_name[where]
            self.update(task, total=state["iterations"], completed=state["iteration"])

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self._state:
            yield Text(self._state, overflow="fold")


# What takes no time that anybody waits for: the plan names it, and the outcome says what it showed.
_QUICK = {"make-drop-in", "verify-wheel", "edit-source", "install-wheel", "check-import"}


@contextmanager
def install_progress(
    console: Console, *, verbose: bool = False, every: float = _EVERY
) -> Iterator[InstallProgress]:
    """The listener that suits the console (standard error).

    Args:
        verbose: every step when it begins and ends; in a log, every line about what a step is at.
        every: in a log, after so many seconds a step that is still under way says so.
    """
    if not _is_live(console):
        logged, over = _LoggedProgress(console, verbose), threading.Event()
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
        yield _LiveProgress(console, verbose, rows)


class _ConsoleProgress(InstallProgress):
    def __init__(self, console: Console, verbose: bool) -> None:
        self._console, self._verbose = console, verbose

    def _is_told(self, step: InstallStep) -> bool:
        return self._verbose or step.kind not in _QUICK

    def _key(self, step: InstallStep) -> tuple[str, str]:
        # builds of several packages run at the same time
        return step.kind, step.subject

    def end(self, step: InstallStep, result: str) -> None:
        if self._is_told(step):
            text = f"{escape(step.kind)} {escape(step.subject)}: {escape(result)}"
            marked(self._console, Mark.GOOD, text, indent=0)


class _LiveProgress(_ConsoleProgress):
    """A moving line for each step under way."""

    def __init__(self, console: Console, verbose: bool, rows: moving.Progress) -> None:
        super().__init__(console, verbose)
        self._rows = rows
        self._tasks: dict[tuple[str, str], moving.TaskID] = {}

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        label = escape(f"[{number}/{total}] {step.kind} {step.subject}")
        self._tasks[self._key(step)] = self._rows.add_task(label, total=None, doing="")

    def doing(self, step: InstallStep, text: str) -> None:
        task = self._tasks.get(self._key(step))
        if task is not None:  # a last line of a build may come after its end
            self._rows.update(task, doing=escape(text), refresh=True)

    def end(self, step: InstallStep, result: str) -> None:
        task = self._tasks.pop(self._key(step), None)
        if task is not None:
            self._rows.remove_task(task)
        super().end(step, result)


class _LoggedProgress(_ConsoleProgress):
    """Lines of a log. A thread of its own says now and then that a step is still under way, for how long, and at what:
    CI systems end a job that prints nothing, and one file of CUDA may compile for twenty minutes."""

    def __init__(self, console: Console, verbose: bool) -> None:
        super().__init__(console, verbose)
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, str], tuple[float, str]] = {}

    def begin(self, step: InstallStep, number: int, total: int, log: str = "") -> None:
        with self._lock:
            self._under_way[self._key(step)] = (time.monotonic(), "")
        if not self._is_told(step):
            return
        self._console.print(escape(f"[{number}/{total}] {step.text}"), soft_wrap=True)
        if log:
            self._console.print(f"      log: {escape(log)}", soft_wrap=True)

    def doing(self, step: InstallStep, text: str) -> None:
        with self._lock:
            if self._key(step) in self._under_way:
                began, _ = self._under_way[self._key(step)]
                self._under_way[self._key(step)] = (began, text)
        if self._verbose:
            self._console.print(f"      {escape(step.subject)}: {escape(text)}", soft_wrap=True)

    def end(self, step: InstallStep, result: str) -> None:
        with self._lock:
            self._under_way.pop(self._key(step), None)
        super().end(step, result)

    def remind(self, over: threading.Event, every: float) -> None:
        """Say every so many seconds what is under way, until it is over."""
        while not over.wait(every):
            now = time.monotonic()
            with self._lock:
                under_way = list(self._under_way.items())
            for (_, subject), (began, text) in under_way:
                seconds = now - began
                if seconds < every / 2:  # what has just begun has just said so
                    continue
                lasted = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
                state = ", ".join(filter(None, (lasted, text)))
                self._console.print(escape(f"      {subject}: {state}"), soft_wrap=True)
