"""Cases: logs whose cause is known, one JSON object a line, in ``cases/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file: ``id``, ``source``, ``accept`` (classes that count as right), ``log``."""
    return [json.loads(line) for line in (CASES / f"{name}.jsonl").read_text("utf-8").splitlines()]
