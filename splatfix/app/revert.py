"""``splatfix revert``: put an environment back to what it was before an installation."""

from rich.console import Console

from splatfix.app.interrupts import environment_state, on_interrupt
from splatfix.app.result import Result, target_python
from splatfix.core.step import run
from splatfix.install import Journal, RevertOutcome, WheelCache, revert_all
from splatfix.install import revert as revert_one
from splatfix.install.environment import open_environment
from splatfix.report import console as consoles
from splatfix.report import installation
from splatfix.report.console import show_step


def show_journal(python: str | None) -> Result:
    """What splatfix has changed in an environment."""
    interpreter = target_python(python)
    entries = Journal(open_environment(interpreter).state_folder).entries()
    return Result(
        "revert",
        lambda: installation.revert_document((), entries),
        lambda console: installation.show_journal(console, entries, python or interpreter, interpreter),
    )


def revert(
    python: str | None,
    entry: str | None,
    *,
    everything: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
) -> Result:
    """Undo one installation, or all of them, newest first; each is shown as soon as it is undone.

    Raises:
        SplatfixError: no such entry, or an environment that does not allow it.
    """

    def show(outcome: RevertOutcome) -> None:
        if not as_json and not dry_run:
            installation.show_revert(consoles.out(), outcome)

    def text(console: Console) -> None:
        if not outcomes:
            installation.show_nothing_to_revert(console, python or interpreter)
        elif dry_run:
            which = "--all" if everything else outcomes[0].entry.partition("-")[0]
            argv = ("splatfix", "revert", which, "--python", interpreter)
            show_step(
                console, run(*argv, text="Nothing was changed: this is a dry run. Revert with"), indent=0
            )
            for outcome in outcomes:
                installation.show_revert(console, outcome)
        elif not any(one.active for one in Journal(environment.state_folder).entries()):
            cache = WheelCache()
            installation.show_left(console, cache.folder, cache.entries())

    interpreter = target_python(python)
    environment = open_environment(interpreter)
    # what an interrupt is told of is what differs from now
    with on_interrupt(environment_state(environment.prefix, interpreter)):
        if everything:
            outcomes = tuple(revert_all(interpreter, dry_run=dry_run, each=show))
        else:
            outcomes = (revert_one(interpreter, entry, dry_run=dry_run),)
            show(outcomes[0])
    return Result("revert", lambda: installation.revert_document(outcomes), text)
