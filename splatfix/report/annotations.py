"""GitHub's annotations: what was found, at the file and line that it is about.

Source: GitHub's documentation of workflow commands (``::error file=,line=,title=::message``).
"""

import re
from collections.abc import Iterable

from splatfix.report.console import shorten_home

_PLACE = re.compile(r"(?<![\w./-])([\w.-]+(?:/[\w.-]+)*\.\w+)(?::| line )(\d+)")
_IN_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = _IN_MESSAGE | str.maketrans({":": "%3A", ",": "%2C"})


def annotation(level: str, title: str, message: str, texts: Iterable[str]) -> str:
    """Return one line of annotation; it is shown at the first place (``train.py:12``) that one of the texts names.

    Args:
        level: ``error``, ``warning`` or ``notice``.
    """
    location = next(filter(None, map(_PLACE.search, texts)), None)
    properties = {"title": title}
    if location:
        properties = {"file": location[1], "line": location[2], **properties}
    named = ",".join(f"{name}={value.translate(_IN_PROPERTY)}" for name, value in properties.items())
    return f"::{level} {named}::{shorten_home(message).translate(_IN_MESSAGE)}\n"
