"""Refusals of what splatfix finds in its own folder of an environment and has not written."""

from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step, run


def refuse_link(path: Path) -> None:
    """Raise ``journal-tampered`` for a link in the place of a folder or file of splatfix's own."""
    if path.is_symlink():
        raise tampered(path, "it is a link, and splatfix makes none there")


def tampered(path: Path, reason: str, *todo: Step) -> SplatfixError:
    """The refusal of something in the journal that splatfix did not write."""
    return SplatfixError.of("install.journal-tampered", path=path, reason=reason, todo=todo or None)


def other_environment(backup: Path, reason: str, todo: Step) -> SplatfixError:
    """The refusal of an old journal that came here with a copied or moved environment."""
    again = run("splatfix", "install", "SOURCE", "--reinstall", text="Then install again")
    return SplatfixError.of(
        "install.journal-of-another-environment", backup=backup, reason=reason, todo=(todo, again)
    )
