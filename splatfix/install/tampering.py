"""Refusals of what splatfix finds in its own folder of an environment and has not written.

What a journal says about a person's checkout is sealed: by a key of the user, which lies in no environment.
"""

import hmac
import secrets
from pathlib import Path

from splatfix.core.errors import SplatfixError
from splatfix.core.files import write_bytes
from splatfix.core.resources import user_state
from splatfix.core.step import Step
from splatfix.install.trust import private_cache, refuse_distrusted


def refuse_link(path: Path) -> None:
    """Raise ``journal-tampered`` for a link in the place of a folder or file of splatfix's own."""
    if path.is_symlink():
        raise tampered(path, "it is a link, and splatfix makes none there")


def tampered(path: Path, reason: str, *todo: Step) -> SplatfixError:
    """The refusal of something in the journal that splatfix did not write."""
    return SplatfixError.of("install.journal-tampered", path=path, reason=reason, todo=todo or None)


def seal(text: str) -> str:
    """Seal a text, so that :func:`is_sealed` knows it again; makes the user's key where there is none.

    Raises:
        SplatfixError: ``cache-not-private``, ``cannot-write``.
    """
    folder = private_cache("keys", user_state(), "XDG_STATE_HOME")
    # two that begin at once make two keys, and each of them is good
    if not list(folder.glob("*.key")):
        write_bytes(folder / f"{secrets.token_hex(4)}.key", secrets.token_bytes(32))
    return _seals(folder, text)[0]


def is_sealed(text: str, found: str) -> bool:
    """Tell whether this user's splatfix has made that seal for the text.

    Raises:
        SplatfixError: ``cache-not-private``, of the folder of the user's keys.
    """
    folder = user_state() / "keys"
    refuse_distrusted(folder)
    return found in _seals(folder, text)


def _seals(folder: Path, text: str) -> list[str]:
    """Make the seal by each key."""
    keys = [path.read_bytes() for path in sorted(folder.glob("*.key"))]
    return [hmac.new(key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest() for key in keys]
