"""Takes credentials out of texts: those in addresses, tokens of known shapes, what is assigned to a secret's name, and the
secrets of this process's own environment.

It is applied where text of others becomes splatfix's own: the output of child processes, facts, errors, recordings. Programs
that splatfix starts have the real values from their own environment and configuration.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from splatfix.core.toml import table_beside

T = TypeVar("T")

HIDDEN = "***"

_TABLE = table_beside(__file__)
_LOGIN = re.compile(_TABLE["login"])
_SCHEME = re.compile(r"(?:https?|ftps?)$", re.IGNORECASE)
_ADDRESS = [re.compile(pattern) for pattern in _TABLE["address"]]
_ASSIGNED = [re.compile(pattern.replace("NAME", _TABLE["name"])) for pattern in _TABLE["assigned"]]
_BEGINNINGS = [beginning for beginnings, _ in _TABLE["shapes"].values() for beginning in beginnings]
# before a token there may be an escaped newline
_SHAPES = re.compile(
    rf"(?:(?<![\w-])|(?<=\\[nrt]))(?:{'|'.join(shape for _, shape in _TABLE['shapes'].values())})"
)
# a private key whose end is not there yet: one of 16,384 bits has 13,000 signs
_OPEN_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,16384}\Z")
_SECRET_NAME, _SECRET_VALUE = re.compile(_TABLE["variable"]), re.compile(_TABLE["value"])


def without_credentials(text: str) -> str:
    """``text`` with ``***`` in place of every credential; hosts and paths of addresses stay, and user names with a password.

    A user name alone is none of a web address but a token; for ssh (``git@``) it is.
    """
    for secret in own_secrets():
        text = text.replace(secret, HIDDEN)
    if "://" in text or ":\\/" in text:
        if "@" in text:
            text = _LOGIN.sub(_without_login, text)
        for pattern in _ADDRESS:
            text = pattern.sub(rf"\1{HIDDEN}", text)
    if any(beginning in text for beginning in _BEGINNINGS):
        text = _SHAPES.sub(HIDDEN, text)
    lowered = text.lower()
    if any(word in lowered for word in _TABLE["words"]):
        for pattern in _ASSIGNED:
            text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def without_credentials_in(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of a text, each :func:`without_credentials`, those of a private key together."""
    held = ""
    for line in lines:
        held += line
        if not _OPEN_KEY.search(held):
            yield without_credentials(held)
            held = ""
    if held:
        yield without_credentials(held)


@cache
def own_secrets() -> tuple[str, ...]:
    """Values of this process's environment variables that have a secret's name, as far as they can be told from other text."""
    values = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    secrets = {value for value in values if len(value) >= 8 and _SECRET_VALUE.match(value)}
    return tuple(sorted(secrets, key=len, reverse=True))


def redacted(value: T) -> T:
    """Data (a struct, a mapping, a tuple or list, text) with every text in it :func:`without_credentials`.

    In a mapping what a secret's name stands for is hidden whole. The same object where nothing is to be hidden.
    """
    made: Any = value
    if isinstance(value, str):
        made = without_credentials(value)
    elif isinstance(value, Mapping):
        made = {name: redacted(item) for name, item in value.items()}
        for name, item in value.items():
            if isinstance(name, str) and isinstance(item, str) and item and _SECRET_NAME.search(name):
                made[name] = HIDDEN
    elif isinstance(value, (tuple, list)):
        made = type(value)(redacted(item) for item in value)
    elif isinstance(value, Struct):
        changed = {name: new for name, old in asdict(value).items() if (new := redacted(old)) is not old}
        made = replace(value, **changed)
    return value if made == value else cast(T, made)


def _without_login(match: re.Match[str]) -> str:
    user, colon, password = match["login"].partition(":")
    web = _SCHEME.search(match.string, max(match.start() - 5, 0), match.start())
    if colon and password not in ("", "x-oauth-basic") and len(user) < 20:
        user = f"{user}:{HIDDEN}"
    elif colon or (web and user != "git"):
        user = HIDDEN
    return f":{match['slashes']}{user}@"
