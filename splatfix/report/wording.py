"""What a reader who never saw a certificate needs, from ``wording.toml``: what a verdict means, and a few words explained."""

from collections.abc import Mapping
from typing import Any

from splatfix.core.toml import table_beside

WORDS: Mapping[str, Any] = table_beside(__file__)
