"""``splatfix install --resume``: what the last installation that did not get through was asked to do."""

from __future__ import annotations

from splatfix.core.codec import CodecError, from_json
from splatfix.core.errors import SplatfixError, usage_error
from splatfix.core.files import read_json
from splatfix.core.runner import ProcessRunner, Runner
from splatfix.core.step import run
from splatfix.install.journal import Entry, Journal, Status
from splatfix.install.target import open_target
from splatfix.plan.plan import Request

_NOT_THROUGH = (Status.RUNNING, Status.FAILED, Status.ROLLED_BACK)


def request_to_resume(python: str, *, runner: Runner | None = None) -> tuple[Entry, Request]:
    """The last entry of the environment's journal, if it did not get through, and what it was asked.

    The plan is made anew from that, because machine and sources may have changed; what was built already is found in the
    wheel cache, and left-overs in the environment are put back before anything is done.

    Raises:
        SplatfixError: ``nothing-to-resume`` (exit 2), ``journal-damaged``.
    """
    journal = Journal(open_target(python, runner or ProcessRunner()).own_folder)
    last = next((entry for entry in reversed(journal.entries()) if entry.status is not Status.REVERTED), None)
    if last is None or last.status not in _NOT_THROUGH:
        what = f"the last one, {last.id}, is {last.status.value}" if last else "there was none"
        raise usage_error(
            "nothing-to-resume",
            f"No installation in this environment waits to be resumed: {what}.",
            run("splatfix", "revert", "--list", text="See the journal"),
        )
    path = journal.folder_of(last) / "plan.json"
    document = read_json(path, "a plan of splatfix")
    try:
        return last, from_json(Request, document["request"])
    except (CodecError, KeyError, TypeError) as error:
        raise SplatfixError(
            "journal-damaged",
            f"{path} does not say what was asked ({error}).",
            meaning="That installation cannot be resumed; nothing was changed.",
            todo=(run("splatfix", "install", "SOURCE", "--target", "ARCH", text="Give the sources again"),),
        ) from error
