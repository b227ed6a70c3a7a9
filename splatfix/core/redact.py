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

T = TypeVar("T")

HIDDEN = "***"

# All bounds keep the time linear in the text's length, whatever is in it. No match takes a quote or half an escape, so that
# JSON stays JSON.
# ://user:password@ ; a password may hold a slash, but digits and a slash behind the colon are a port and a path
_LOGIN = re.compile(
    r":(?P<slashes>(?:\\?/){2})"
    r"(?P<login>[^/\s\"<>]{0,400}|[^/\s\"<>:@\[]{1,200}:(?!\d{0,5}(?:/|$))[^\s\"<>]{0,400})@"
)
_SCHEME = re.compile(r"(?:https?|ftps?)$", re.IGNORECASE)
# ?sig=..., &X-Amz-Signature=...
_PARAMETER = re.compile(
    r"((?:[?&;]|\\u0026)(?:[\w.-]{0,60}(?:signature|credential)|sig|key|auth)=)[^&\s\"'<>#;)\\]+",
    re.IGNORECASE,
)
# conda's address of a private channel; in that of a forum it is a topic
_CHANNEL = re.compile(r"(://(?!discuss|forum)[^\s\"'<>]{1,200}?/t/)[^/\s\"'<>]{1,200}(?=/)")

_TELLING_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key)s?"
)
# NAME_TOKEN="value", "api_key": "value"; a quote that ends a text of JSON is followed by one of its own signs
_QUOTED = re.compile(
    rf"({_TELLING_NAME}\\?[\"']?\s?[:=]\s?(\\?[\"']))(?![,:}}\]\s]|\2)(?:\\.|[^\n\"\\]){{1,1000}}?(?=\2)",
    re.IGNORECASE,
)
# NAME_TOKEN=value, password: value, --password value; not a comparison, a reference to a variable or a small number
_PLAIN = re.compile(
    rf"((?:{_TELLING_NAME}=|passw(?:or)?d:\s?|(?<!\S)--?[\w-]{{0,30}}{_TELLING_NAME}\s))(?![=\"'\\$%({{<-]|\d{{1,6}}\b)[^\s\"'&\\]+",
    re.IGNORECASE,
)
# what is assigned to any other KEY is a secret only when it is long and mixed
_KEY = re.compile(r"(key=)(?=[a-z+/_-]{0,200}\d)(?=[\d+/_-]{0,200}[a-z])[\w+/-]{20,}=*", re.IGNORECASE)
_HEADER = re.compile(
    r"((?:bearer|authorization\\?[\"']?\s?[:=]\s?\\?[\"']?\w{1,20})\s+)[\w.~+/-]{8,}=*", re.IGNORECASE
)
_PRIVATE = re.compile(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)(?:\\[nr]|[\w+/=\s:,.-]))+")
_OPEN_KEY = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----")
_LONGEST, _LONGEST_KEY = 1 << 12, 1 << 14
"""Signs that a credential may have, and a private key: one of 16,384 bits has 13,000."""
_WORDS = ("token", "secret", "passw", "passphrase", "credential", "key", "bearer", "authorization")

# Tokens known by their shape: Hugging Face, GitHub, GitLab, OpenAI and others' sk-, Stripe, PyPI, Slack, NVIDIA, npm, Docker,
# Google, AWS, JSON Web Tokens, Telegram; addresses of Slack and Discord that are secrets. Before one there may be an escaped
# newline.
_SHAPES = re.compile(
    r"(?:(?<![\w-])|(?<=\\[nrt]))(?:"
    r"hf_[A-Za-z0-9]{20,}|gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|gl[a-z]{1,5}-[\w-]{20,}"
    r"|(?:sk|pypi|nvapi)-(?=[\w-]{0,40}[A-Za-z0-9]{16}|[a-z\d_-]{0,40}[A-Z])(?=[A-Za-z_-]{0,200}\d)[\w-]{20,}|[sr]k_(?:live|test)_\w{16,}"
    r"|(?:xox[a-z][.-]){1,2}[A-Za-z0-9-]{10,}|xapp-[\w-]{10,}|(?:bot)?\d{5,16}:A[\w-]{34}(?![\w-])|npm_[A-Za-z0-9]{30,}|dckr_pat_[\w-]{20,}|AIza[\w-]{35}"
    r"|A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])|eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"
    r"|(?<=hooks\.slack\.com/)\w{1,20}/[\w/-]{16,}|(?<=/api/webhooks/)\d{5,25}/[\w-]{16,}"
    r")"
)
_BEGINNINGS = (
    *("hf_", "gh", "github_pat_", "gl", "sk", "pypi-", "nvapi-", "rk_", "xox", "xapp-", ":A", "hooks.slack"),
    *("/webhooks/", "npm_", "dckr_", "AIza", "AKIA", "ASIA", "eyJ"),
)
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASS(WORD|WD|PHRASE)?$|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_KEY$|AUTH(?!OR)",
    re.IGNORECASE,
)
# no path, no number, no plain word
_SECRET_VALUE = re.compile(r"(?=[^/\\]*[A-Za-z])(?:.{16}|.*\d|.*[a-z].*[A-Z]|.*[A-Z].*[a-z])")


def without_credentials(text: str) -> str:
    """``text`` with ``***`` in place of every credential; hosts and paths of addresses stay, and user names with a password.

    A user name alone is none of a web address but a token; for ssh (``git@``) it is.
    """
    for secret in own_secrets():
        text = text.replace(secret, HIDDEN)
    if "://" in text or ":\\/" in text:
        if "@" in text:
            text = _LOGIN.sub(_without_login, text)
        text = _CHANNEL.sub(rf"\1{HIDDEN}", text)
        text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    if any(beginning in text for beginning in _BEGINNINGS):
        text = _SHAPES.sub(HIDDEN, text)
    lowered = text.lower()
    if any(word in lowered for word in _WORDS):
        for pattern in (_QUOTED, _PLAIN, _KEY, _HEADER, _PRIVATE):
            text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def without_credentials_in(pieces: Iterable[str]) -> Iterator[str]:
    """Return the pieces of a text, lines or parts of overlong ones, each :func:`without_credentials`, also of what begins in one
    piece and ends in another."""
    held = ""
    for piece in pieces:
        held += piece
        cut, key = len(held), held.rfind("-----BEGIN ")
        is_open = key >= 0 and _OPEN_KEY.match(held, key) and "-----END" not in held[key:]
        if is_open and cut - key < _LONGEST_KEY:
            cut = key
        elif not held.endswith("\n"):
            cut = safe_cut(held)
        if cut:
            yield without_credentials(held[:cut])
            held = held[cut:]
    if held:
        yield without_credentials(held)


def safe_cut(text: str) -> int:
    """Return where to cut a text that goes on: before its last signs, which may begin a credential, and not within one."""
    whole, cut = without_credentials(text), max(0, len(text) - _LONGEST)
    for _ in range(16):
        if cut <= 0 or without_credentials(text[:cut]) + without_credentials(text[cut:]) == whole:
            break
        cut -= 333
    return max(0, cut)


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
    return cast(T, _redacted(value))


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, Mapping):
        made = {}
        for name, item in value.items():
            made[name] = _redacted(item)
            if isinstance(name, str) and isinstance(item, str) and item and _SECRET_NAME.search(name):
                made[name] = HIDDEN
        if all(made[name] is item for name, item in value.items()):
            return value
        return made
    if isinstance(value, (tuple, list)):
        items = [_redacted(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(items)
    if isinstance(value, Struct):
        changed = {name: new for name, old in asdict(value).items() if (new := _redacted(old)) is not old}
        return replace(value, **changed) if changed else value
    return value


def _without_login(match: re.Match[str]) -> str:
    user, colon, password = match["login"].partition(":")
    web = _SCHEME.search(match.string, max(match.start() - 5, 0), match.start())
    if colon and password not in ("", "x-oauth-basic") and len(user) < 20:
        user = f"{user}:{HIDDEN}"
    elif colon or (web and user != "git"):
        user = HIDDEN
    return f":{match['slashes']}{user}@"
