"""Long tables and file contents lie in a TOML file beside their test: ``test_archs.toml`` beside ``test_archs.py``."""

from functools import cache
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml


def data(test_file: str) -> dict[str, Any]:
    """What lies beside a test file, or another one of that folder: arrays are tuples, and ``"<none>"`` is None."""
    found: dict[str, Any] = _read(Path(test_file).with_suffix(".toml"))
    return found


@cache
def _read(file: Path) -> Any:
    return _frozen(parse_toml(file.read_text(encoding="utf-8")))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return None if value == "<none>" else value
