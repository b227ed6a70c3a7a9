"""Reads TOML on every Python that splatfix supports, and asks what somebody else wrote by the types it should have."""

from pathlib import Path
from typing import Any

# The code of the standard library's tomllib, compiled, for every Python; its wheels read three times as fast.
import tomli


def parse_toml(text: str) -> dict[str, Any]:
    """Return the document as plain types; a ``ValueError`` with line and column for what is no TOML, or nested too deeply."""
    try:
        return tomli.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def table_beside(file: str, name: str = "") -> dict[str, Any]:
    """Return the table that lies beside a module of splatfix: under the module's name, or under another."""
    path = Path(file).with_suffix(".toml")
    return parse_toml(path.with_name(name or path.name).read_text("utf-8"))
