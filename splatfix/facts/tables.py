"""The names and marks that machines and environments are looked at for (``tables.toml``)."""

from typing import Any

from splatfix.core.toml import table_beside

TABLES: dict[str, Any] = table_beside(__file__)
