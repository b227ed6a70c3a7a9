"""The names and marks that machines and environments are looked at for (``tables.toml``)."""

from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml

TABLES: dict[str, Any] = parse_toml(Path(__file__).with_name("tables.toml").read_text(encoding="utf-8"))
