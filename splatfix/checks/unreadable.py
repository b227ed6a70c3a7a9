"""Checks of what is there and was not read: each such file is one finding, and the rest of the diagnosis goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from splatfix.checks.model import Evidence, Finding
from splatfix.checks.registry import Check, check
from splatfix.context import Context
from splatfix.core.reading import Unread
from splatfix.core.words import counted

_SHOWN = 20
"""Findings of one diagnosis; a folder full of damaged files is one trouble."""


@check("unreadable-file", family="environment", title="Files of the machine and the environment can be read")
def unreadable_file(context: Context, this: Check) -> Iterator[Finding]:
    """Only regular files are read, and only up to a limit: what is a pipe, a device, endless or for others' eyes stays
    unread, and what hangs on it unknown."""
    yield from _outcomes(this, context.facts.unreadable, "")


@check("unreadable-source", family="checkout", title="Files of the checkout can be read")
def unreadable_source(context: Context, this: Check) -> Iterator[Finding]:
    """A checkout is read within limits on the size of a file, its nesting and the number of files and folders; pipes, devices
    and Python that this version cannot read are left out too. What is left out may hold what another check looks for."""
    found = context.checkout
    if found is not None:
        yield from _outcomes(this, found.unreadable, f"{found.folder}/")


def _outcomes(this: Check, files: Iterable[Unread], folder: str) -> Iterator[Finding]:
    everything = tuple(files)
    for item in everything[:_SHOWN]:
        name = item.path.removeprefix(folder)
        yield this.warn(
            f"{name} was not read: {item.reason}.",
            subject=name,
            evidence=Evidence(name, item.reason, item.path),
            remedy="Put a proper file in its place or remove it, if it should be read; then diagnose again.",
        )
    if (more := len(everything) - _SHOWN) > 0:
        yield this.warn(f"{counted(more, 'more path')} could not be read.")
