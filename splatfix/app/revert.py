"""``splatfix revert``: put an environment back to what it was before an installation."""

from splatfix.app.interrupts import environment_state, on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.core.step import Step, run
from splatfix.install import Journal, RevertOutcome, revert_all
from splatfix.install import revert as revert_one
from splatfix.install.environment import open_environment
from splatfix.report.console import err
from splatfix.report.installation import RevertDocument
from splatfix.report.progress import one_line


def show_journal(python: str | None) -> Result[RevertDocument]:
    """List what splatfix has changed in an environment."""
    interpreter = target_python(python)
    entries = tuple(Journal(open_environment(interpreter).state_folder).entries())
    steps: tuple[Step, ...] = ()
    if active := [entry for entry in entries if entry.active]:
        steps = (revert_step(active[-1].id, interpreter, "Undo the latest with"),)
    document = RevertDocument(environment=python or interpreter, journal=entries, next_steps=steps)
    return Result("revert", document)


def revert(
    python: str | None, entry: str | None, *, everything: bool = False, dry_run: bool = False
) -> Result[RevertDocument]:
    """Undo one installation, or all of them, newest first.

    Raises:
        SplatfixError: no such entry, or an environment that does not allow it; of several it says which were undone before.
    """
    interpreter = target_python(python)
    environment = open_environment(interpreter)
    # what an interrupt is told of is what differs from now
    with on_interrupt(environment_state(environment.prefix, interpreter)):
        outcomes: tuple[RevertOutcome, ...]
        if everything:
            title = "Would be undone" if dry_run else "Undone"
            # where one cannot be undone, those before it were told
            with one_line(err(), title) as tell:
                outcomes = revert_all(interpreter, dry_run=dry_run, each=lambda done: tell(done.entry))
        else:
            outcomes = (revert_one(interpreter, entry, dry_run=dry_run),)
    steps: tuple[Step, ...] = ()
    if dry_run and outcomes:
        which = "--all" if everything else outcomes[0].entry
        steps = (revert_step(which, interpreter, "Nothing was changed: this is a dry run. Revert with"),)
    document = RevertDocument(environment=python or interpreter, outcomes=outcomes, next_steps=steps)
    return Result("revert", document)


def revert_step(entry: str, python: str, text: str) -> Step:
    """Return the command that undoes a journal entry: its number is enough, the id's date and name are for people."""
    which = entry.partition("-")[0] or entry  # or --all
    return run("splatfix", "revert", which, "--python", python, text=text)
