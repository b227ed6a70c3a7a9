"""Cases: logs whose cause is known, one JSON object a line, in ``cases/``."""

import json
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml

CASES = Path(__file__).parent / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file: ``id``, ``source``, ``accept`` (classes that count as right), ``log``; ``sure``: whether it must
    be, ``not``: a class that must not even be guessed.

    The files stay as they were labelled, when classes were spelled with underscores; ``also.toml`` has what came later.
    """
    rows = [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]
    also = parse_toml((CASES / "also.toml").read_text("utf-8")).get(name, {})
    for row in rows:
        row["accept"] = [
            label.replace("_", "-") for label in (*row["accept"], *filter(None, [also.get(row["id"])]))
        ]
    return rows
