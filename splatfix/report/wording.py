"""What a reader who never saw a certificate needs, from ``wording.toml``: what a verdict means, and a few words explained."""

from collections.abc import Mapping
from typing import Any

from splatfix.certify.model import Criterion
from splatfix.core.toml import table_beside

WORDS: Mapping[str, Any] = table_beside(__file__)


def title_of(criterion: Criterion) -> str:
    """Return a criterion's statement; of a check what it asks for, because the codes of checks name problems."""
    return criterion.title or criterion.required
