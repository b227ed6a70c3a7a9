"""``splatfix revert``: takes one installation back, so that the environment is what it was before it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.install.backup import read_backup
from splatfix.install.distributions import find_installed
from splatfix.install.edit import digest_of
from splatfix.install.journal import Entry, Journal, Status, Step
from splatfix.install.lock import environment_lock
from splatfix.install.outcome import RevertOutcome
from splatfix.install.target import Target, open_target
from splatfix.install.undo import recover, undo_changes


def revert(python: str, identity: str | None = None, *, runner: Runner | None = None) -> RevertOutcome:
    """Take back the entry of that id, or the last one that stands.

    Raises:
        SplatfixError: ``nothing-to-revert`` or ``unknown-entry`` (exit 2), ``later-change`` when a newer entry touched the
            same distribution, ``changed-since`` when somebody else did, ``backup-damaged``, ``environment-busy``.
    """
    target = open_target(python, runner or ProcessRunner())
    journal = Journal(target.own_folder)
    if not journal.folder.is_dir():
        raise _nothing(target)
    target.require_writable()
    with environment_lock(target.own_folder):
        for item in recover(target, journal):
            # a dead run is taken back in any case; asked for nothing else, that was it
            if item.items and (identity is None or item.entry.id.startswith(identity)):
                return RevertOutcome(item.entry.id, str(target.prefix), item.items)
        entries = journal.entries()
        entry = journal.find(identity) if identity else next((e for e in reversed(entries) if e.stands), None)
        if entry is None or not entry.stands:
            raise _nothing(target, entry)
        _refuse_out_of_order(entry, entries)
        for step in entry.changes:
            _refuse_if_edited_since(step, journal.folder_of(entry))
            _refuse_if_changed(target, step)
        entry = journal.save(replace(entry, status=Status.REVERTING))
        restored = undo_changes(target, journal, entry)
        journal.end(entry, Status.REVERTED)
    return RevertOutcome(entry.id, str(target.prefix), restored)


def read_journal(python: str, *, runner: Runner | None = None) -> tuple[Entry, ...]:
    """Every entry of the environment's journal, oldest first."""
    return Journal(open_target(python, runner or ProcessRunner()).own_folder).entries()


def _nothing(target: Target, entry: Entry | None = None) -> SplatfixError:
    if entry is not None:
        what = f"Entry {entry.id} changes nothing any more: it is {entry.status.value}."
    else:
        what = f"splatfix has changed nothing in {target.prefix} that still stands."
    return usage_error("nothing-to-revert", what, "Name another environment with --python, or another entry.")


def _refuse_out_of_order(entry: Entry, entries: tuple[Entry, ...]) -> None:
    mine = {_distribution_of(step) for step in entry.changes}
    newer = entries[[e.id for e in entries].index(entry.id) + 1 :]
    for other in reversed(newer):
        shared = mine & {_distribution_of(step) for step in other.changes}
        if other.stands and shared:
            raise SplatfixError(
                "later-change",
                f"{', '.join(sorted(shared))} was installed again by the later entry {other.id}.",
                meaning="Taking back the earlier one first would leave a mixture of both; nothing was changed.",
                todo=(f"First: splatfix revert {other.id}",),
            )


def _distribution_of(step: Step) -> str:
    """What was installed, which may be called otherwise than the source was; entries of older versions do not say it."""
    return canonicalize_name(step.details.get("distribution", step.subject))


def _refuse_if_edited_since(step: Step, folder: Path) -> None:
    """A person's work in a file that ``--in-place`` edited is not splatfix's to throw away."""
    if step.kind != "edit-source" or not step.done:
        return
    files = [Path(item.path) for item in read_backup(folder / step.details["backup"]).saved]
    if digest_of(files) != step.details.get("record"):
        raise SplatfixError(
            "changed-since",
            f"Files in {step.details['source']} were changed since splatfix edited them.",
            meaning="Putting them back would throw that work away; nothing was changed.",
            todo=(
                f"The files as they were before lie in {folder / step.details['backup']}; see its backup.json.",
                f"With git: git -C {shlex.quote(step.details['source'])} diff",
            ),
        )


def _refuse_if_changed(target: Target, step: Step) -> None:
    """A finished installation must still be the one we made; a half-finished one is put back whatever it looks like."""
    record = step.details.get("record")
    if not step.done or not record or step.kind != "install-wheel":
        return
    name = _distribution_of(step)
    found = find_installed(target, name)
    if not found or (len(found) == 1 and found[0].digest == record):
        return  # removed by somebody in the meantime: what was there before can come back all the same
    now = f"version {found[0].version} is there now"
    raise SplatfixError(
        "changed-since",
        f"{name} was changed since splatfix installed it: {now}.",
        meaning="Somebody else installed it, and that is not splatfix's to undo; nothing was changed.",
        todo=(f"Remove it with pip if you do not want it: pip uninstall {name}",),
    )
