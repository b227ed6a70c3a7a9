"""By which names folders, files and headers of checkouts are known (``names.toml``)."""

import re
from typing import Any

from splatfix.core.toml import table_beside

NAMES: dict[str, Any] = table_beside(__file__)


def any_of(table: str, flags: int = 0) -> re.Pattern[str]:
    """Return the pattern of all names in a table."""
    return re.compile("|".join(NAMES[table]), flags)
