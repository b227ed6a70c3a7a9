"""Cases that are nothing but data lie in a TOML file beside their test: ``test_archs.toml`` beside ``test_archs.py``."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from splatfix.core.toml import parse_toml


def data(test_file: str) -> dict[str, Any]:
    """What lies beside a test file, or another one of that folder: arrays are tuples, and ``"<none>"`` is None."""
    found: dict[str, Any] = _read(Path(test_file).with_suffix(".toml"))
    return found


def tabled(test: Callable[..., None]) -> Callable[..., None]:
    """Parametrize a test by the table of its name: its ``arguments``, the ``rows`` of their values, and their ``ids``."""
    table = data(test.__code__.co_filename)[test.__name__]
    return pytest.mark.parametrize(table["arguments"], table["rows"], ids=table.get("ids"))(test)


@cache
def _read(file: Path) -> Any:
    return _frozen(parse_toml(file.read_text(encoding="utf-8")))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return None if value == "<none>" else value
