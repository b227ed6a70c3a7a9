"""Progress of long work, on standard error: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from splatfix.certify.progress import title, words
from splatfix.plan.steps import InstallStep
from splatfix.report.console import escape, prose

_EVERY = 60.0
"""Seconds between two lines about the same where there is no terminal: a log stays short, and is seen to go on."""


@contextmanager
def one_line(console: Console, title: str) -> Iterator[Callable[[str], None]]:
    """A callback for work whose length nobody knows: what it is at, in one living line, or now and then a line of a log."""
    if console.is_terminal and not console.is_dumb_terminal:
        with console.status(title) as status:
            yield lambda text: status.update(f"{title}: {escape(text)}")
        return
    said, last = "", 0.0

    def show(text: str) -> None:
        nonlocal said, last
        what, now = text.partition(":")[0], time.monotonic()
        if what != said or now - last >= _EVERY:
            console.print(escape(f"{title}: {text}"), soft_wrap=True)
            said, last = what, now

    yield show


@contextmanager
def lanes(console: Console, names: Sequence[str]) -> Iterator[Callable[[str, str], None]]:
    """A callback for what a lane says: its last line beside its name on a terminal with several lanes, else every line."""
    if len(names) > 1 and console.is_terminal and not console.is_dumb_terminal:
        columns = (TextColumn("{task.description}"), TimeElapsedColumn(), TextColumn("{task.fields[said]}"))
        with Progress(*columns, console=console) as rows:
            tasks = {name: rows.add_task(escape(name), total=None, said="") for name in names}
            yield lambda name, line: rows.update(tasks[name], said=escape(line.strip()[:120]))
        return

    def show(name: str, line: str) -> None:
        before = f"{name}: " if len(names) > 1 else ""
        console.print(f"{before}{line}", style="dim", markup=False, soft_wrap=True)

    yield show


@contextmanager
def training(console: Console) -> Iterator[Callable[[str, Mapping[str, Any]], None]]:
    """A callback for the certification: what runs now, and how far it is, as :mod:`splatfix.certify.progress` words it."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _plain(console)
        return
    with _Bars(console=console, transient=True) as bars:
        yield bars.show


class _Bars(Progress):
    """A bar for each thing that ran, and below them what is known of the last: that line may be long, and wraps."""

    def __init__(self, **options: Any) -> None:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        self._under_way: dict[str, TaskID] = {}
        self._words = ""
        super().__init__(*columns, **options)  # draws already

    def show(self, where: str, state: Mapping[str, Any]) -> None:
        """See :func:`training`."""
        if where not in self._under_way:
            for task in self.tasks[-1:]:
                self.stop_task(task.id)
                if task.total is None:  # it is over, and its bar shall not go on moving
                    self.update(task.id, total=1, completed=1)
            self._words = ""
            self._under_way[where] = self.add_task(escape(title(where, state)), total=None)
        if said := words(state):
            self._words = said
            self.update(self._under_way[where], total=state["iterations"], completed=state["iteration"])

    def get_renderables(self) -> Iterable[RenderableType]:
        """See :class:`rich.progress.Progress`."""
        yield self.make_tasks_table(self.tasks)
        if self._words:
            yield Text(self._words, overflow="fold")


def _plain(console: Console) -> Callable[[str, Mapping[str, Any]], None]:
    """A line when something begins, one a minute, and one for the last iteration."""
    last: dict[str, float] = {}

    def show(where: str, state: Mapping[str, Any]) -> None:
        now, said = time.monotonic(), words(state)
        if where not in last:
            console.print(escape(f"{title(where, state)} ..."), soft_wrap=True)
            last[where] = now
        elif said and (now - last[where] >= _EVERY or state["iteration"] == state["iterations"]):
            console.print(escape(f"{title(where, state)}: {said}"), soft_wrap=True)
            last[where] = now

    return show


_Key = tuple[str, str]


class InstallProgress:
    """A listener for :func:`splatfix.install.execute` that writes to ``console`` (standard error)."""

    def __init__(self, console: Console, *, verbose: bool = False, every: float = _EVERY) -> None:
        """``every`` so many seconds an action that is still under way says so, where no line of the terminal can live."""
        self._console = console
        self._verbose = verbose
        self._living: Progress | None = None
        self._tasks: dict[_Key, TaskID] = {}
        self._news: _News | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            # the time comes first: a narrow terminal cuts off the end of a line
            whole = Column(no_wrap=True, min_width=len("0:00:00"))
            text = _DoingColumn(table_column=Column(no_wrap=True, ratio=1))
            columns = (SpinnerColumn(), TimeElapsedColumn(table_column=whole), text)
            self._living = Progress(*columns, console=console, transient=True, expand=True)
        else:
            self._news = _News(console, every)

    def __enter__(self) -> InstallProgress:
        if self._living:
            self._living.start()
        if self._news:
            self._news.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._living:
            self._living.stop()
        if self._news:
            self._news.stop()

    def begin(self, action: InstallStep, number: int, total: int, log: str = "") -> None:
        """An action starts."""
        if self._living:
            head = escape(f"[{number}/{total}] {action.kind} {action.subject}")
            self._tasks[_key(action)] = self._living.add_task(head, total=None, doing=Doing())
            return
        assert self._news is not None
        self._news.begin(action)
        self._console.print(escape(f"[{number}/{total}] {action.text}"), soft_wrap=True)
        if log:
            self._console.print(f"      log: {escape(log)}", soft_wrap=True)

    def doing(self, action: InstallStep, text: str, left: float | None = None) -> None:
        """What is being worked on within the action, and for how many seconds still; called from several threads."""
        doing = Doing(text, left)
        if self._living:
            if (task := self._tasks.get(_key(action))) is not None:
                self._living.update(task, doing=doing, refresh=True)
            return
        assert self._news is not None
        self._news.doing(action, doing)
        if self._verbose:
            self._console.print(f"      {escape(action.subject)}: {escape(text)}", soft_wrap=True)

    def end(self, action: InstallStep, result: str) -> None:
        """The action is done."""
        if self._living and (task := self._tasks.pop(_key(action), None)) is not None:
            self._living.remove_task(task)
        if self._news:
            self._news.end(action)
        said = f"{escape(action.kind)} {escape(action.subject)}: {escape(result)}"
        prose(self._console, "[green]✓[/] ", said)


@dataclass(frozen=True)
class Doing:
    """What an action is at, since when, and for how many seconds still, as it seemed then."""

    text: str = ""
    left: float | None = None
    since: float = field(default_factory=time.monotonic)

    def words(self, now: float | None = None) -> str:
        """The same as of now: what is left grows less, and after that it says for how long nothing came."""
        passed = (time.monotonic() if now is None else now) - self.since
        if self.left is None:
            return self.text
        if passed < self.left:
            return f"{self.text}, {_about(self.left - passed)} more"
        return f"{self.text}, the next takes longer: {_minutes(passed)} so far"


class _DoingColumn(ProgressColumn):
    """What an action is, and what it is at."""

    def render(self, task: Task) -> Text:
        return Text.from_markup(f"{task.description}  [dim]{escape(task.fields['doing'].words())}[/]")


class _News:
    """Says now and then, from a thread of its own, that an action is still under way, how long, and at what."""

    def __init__(self, console: Console, every: float) -> None:
        self._console, self._every = console, every
        self._lock = threading.Lock()
        self._under_way: dict[_Key, tuple[float, Doing]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="install-progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def begin(self, action: InstallStep) -> None:
        with self._lock:
            self._under_way[_key(action)] = (time.monotonic(), Doing())

    def doing(self, action: InstallStep, doing: Doing) -> None:
        with self._lock:
            if known := self._under_way.get(_key(action)):
                self._under_way[_key(action)] = (known[0], doing)

    def end(self, action: InstallStep) -> None:
        with self._lock:
            self._under_way.pop(_key(action), None)

    def _tell(self) -> None:
        while not self._over.wait(self._every):
            now = time.monotonic()
            with self._lock:
                lines = [
                    f"      {subject}: {', '.join(filter(None, (_minutes(now - began), doing.words())))}"
                    for (_, subject), (began, doing) in self._under_way.items()
                    if now - began >= self._every / 2  # what has just begun has just said so
                ]
            for line in lines:
                self._console.print(escape(line), soft_wrap=True)


def _about(seconds: float) -> str:
    return f"about {max(5, round(seconds / 5) * 5)} s" if seconds < 90 else f"about {seconds / 60:.0f} min"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _key(action: InstallStep) -> _Key:
    return action.kind, action.subject
