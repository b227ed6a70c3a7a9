"""By which names folders, files and headers of checkouts are known (``names.toml``)."""

import re
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml

NAMES: dict[str, Any] = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def any_of(table: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of all names in a table."""
    return re.compile("|".join(NAMES[table]), flags)
