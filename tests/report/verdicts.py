"""Verdicts of a cluster, as splatfix gate writes them."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from splatfix.core.toml import parse_toml

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)
_ROWS = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FINE, TOO_OLD, FULL, UNKNOWN, ALIKE = _ROWS.values()


def verdict(
    node: str, *checks: dict[str, Any], age: timedelta = timedelta(), **changes: Any
) -> dict[str, Any]:
    """A node's verdict, its state as of its checks.

    Args:
        changes: of what a verdict holds; those of ``alike`` by their own names.
    """
    alike = {**ALIKE, **{name: changes.pop(name) for name in ALIKE if name in changes}}
    state = "ok"
    for name, matches in (
        ("unknown", [check["state"] == "unknown" for check in checks]),
        ("warn", [check["action"] == "warn" for check in checks]),
        ("fail", [check["action"] == "drain" for check in checks]),
    ):
        if any(matches):
            state = name
    return {
        "schema_version": 1,
        "kind": "verdict",
        "node": node,
        "machine": f"{abs(hash(node)) % 10**12:012}",
        "started": (NOW - age).isoformat(),
        "finished": (NOW - age).isoformat(),
        "splatfix": "0.1.0",
        "policy": {"name": "default", "digest": "0123456789ab"},
        "state": state,
        "drain": state == "fail",
        "reason": "",
        "checks": [{"evidence": "", "remedy": "", **check} for check in (FINE, *checks)],
        "alike": alike,
        "previous": None,
        "redacted": True,
        **changes,
    }


def write(folder: Path, *documents: dict[str, Any]) -> Path:
    """A file for each in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for document in documents:
        (folder / f"{document['node']}.json").write_text(json.dumps(document), encoding="utf-8")
    return folder
