"""Refusals of what splatfix finds in its own folder of an environment and has not written."""

from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.step import Step


def refuse_link(path: Path) -> None:
    """Raise ``journal-tampered`` for a link in the place of a folder or file of splatfix's own."""
    if path.is_symlink():
        raise tampered(path, "it is a link, and splatfix makes none there")


def tampered(path: Path, reason: str, *todo: Step) -> SplatfixError:
    """The refusal of something in the journal that splatfix did not write."""
    return SplatfixError.of("install.journal-tampered", path=path, reason=reason, todo=todo or None)
