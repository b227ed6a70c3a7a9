"""Shows an installation as it goes: on a terminal a living line for each action under way, else plain lines."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from splatfix.report.layout import prose
from splatfix.resolve.plan import Action


class InstallProgress:
    """A listener for :func:`splatfix.install.carry_out` that writes to ``console`` (standard error)."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._living: Progress | None = None
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._heads: dict[tuple[str, str], str] = {}
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._living = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> InstallProgress:
        if self._living:
            self._living.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._living:
            self._living.stop()

    def begin(self, action: Action, number: int, total: int) -> None:
        """An action starts."""
        text = f"[{number}/{total}] {action.describe()}"
        if self._living:
            self._heads[_key(action)] = escape(text)
            self._tasks[_key(action)] = self._living.add_task(escape(text), total=None)
        else:
            self._console.print(escape(text), soft_wrap=True)

    def doing(self, action: Action, text: str) -> None:
        """What is being worked on within the action; called from several threads."""
        if self._living:
            if (task := self._tasks.get(_key(action))) is not None:
                head = self._heads[_key(action)]
                self._living.update(task, description=f"{head}  [dim]{escape(text)}[/]", refresh=True)
        elif self._verbose:
            self._console.print(f"      {escape(action.subject)}: {escape(text)}", soft_wrap=True)

    def end(self, action: Action, result: str) -> None:
        """The action is done."""
        if self._living and (task := self._tasks.pop(_key(action), None)) is not None:
            self._living.remove_task(task)
        said = f"{escape(action.kind)} {escape(action.subject)}: {escape(result)}"
        prose(self._console, "[green]✓[/] ", said)


def _key(action: Action) -> tuple[str, str]:
    return action.kind, action.subject
