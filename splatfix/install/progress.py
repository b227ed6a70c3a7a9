"""The seam through which an installation says what it is doing; the logic knows nothing of terminals."""

from __future__ import annotations

from typing import Protocol

from splatfix.plan.plan import Action


class Progress(Protocol):
    """What a listener hears."""

    def begin(self, action: Action, number: int, total: int, log: str = "") -> None:
        """An action starts, the ``number``-th of ``total``; ``log`` is the file that its output goes to."""
        ...

    def doing(self, action: Action, text: str) -> None:
        """Within the action: what is being worked on now, such as the file being compiled.

        Several actions may be under way at once; this one is called from threads.
        """
        ...

    def end(self, action: Action, result: str) -> None:
        """The action is done; ``result`` says in a few words what it showed."""
        ...


class Silent:
    """Says nothing."""

    def begin(self, action: Action, number: int, total: int, log: str = "") -> None:
        """See :class:`Progress`."""

    def doing(self, action: Action, text: str) -> None:
        """See :class:`Progress`."""

    def end(self, action: Action, result: str) -> None:
        """See :class:`Progress`."""
