"""The JSON documents splatfix prints and stores: one envelope, and the same content as what people read."""

from collections.abc import Mapping
from typing import Any

from splatfix import __version__
from splatfix.core.errors import SplatfixError

SCHEMA_VERSION = 2
ENVELOPE = ("schema_version", "command", "splatfix_version", "exit_code", "error")
"""What every document begins with."""


def envelope(
    command: str, exit_code: int, content: Mapping[str, Any], error: SplatfixError | None = None
) -> dict[str, Any]:
    """A whole document: what every one starts with, then the command's own content."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "splatfix_version": __version__,
        "exit_code": int(exit_code),
        "error": error.to_json() if error else None,
        **content,
    }
