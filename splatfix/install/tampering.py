"""Refusals of what splatfix finds in its own folder of an environment and has not written."""

from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, run, say


def refuse_link(path: Path) -> None:
    """Raise ``journal-tampered`` for a link in the place of a folder or file of splatfix's own."""
    if path.is_symlink():
        raise tampered(path, "it is a link, and splatfix makes none there")


def tampered(path: Path, reason: str, *todo: Step) -> SplatfixError:
    """The refusal of something in the journal that splatfix did not write."""
    return SplatfixError(
        "journal-tampered",
        f"{path} is not as splatfix wrote it: {reason}.",
        meaning="Following it could change files that are not splatfix's to touch; nothing was changed.",
        todo=todo or (say("Find out who changed it, then move it away."),),
    )


def other_environment(backup: Path, reason: str, todo: Step) -> SplatfixError:
    """The refusal of an old journal that came here with a copied or moved environment."""
    return SplatfixError(
        "journal-of-another-environment",
        f"{backup} names files of another environment: {reason}.",
        meaning="An older splatfix wrote it, before this environment was copied or moved; nothing was changed.",
        todo=(todo, run("splatfix", "install", "SOURCE", "--reinstall", text="Then install again")),
    )
