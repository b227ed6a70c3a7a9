"""Adds certificates of ``splatfix rehearse`` to the record of rehearsed stacks: ``python -m tools.rehearsals REPORT...``.

A row for each stack, commit and scene, with its options, seconds, losses, quality and verdict, as the certificate has them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parent.parent / "tests" / "records" / "rehearsals.json"


def row_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one certificate.json.

    Raises:
        ValueError: it is none of ``splatfix rehearse``.
    """
    stack, runs = document.get("stack"), document.get("scenes", ())
    if document.get("command") != "rehearse" or not isinstance(stack, Mapping) or len(runs) != 1:
        raise ValueError("no certificate of splatfix rehearse")
    run, result = runs[0], runs[0]["result"]
    extensions = {}
    for name, item in result.get("implementations", {}).items():
        if not name.startswith("optimizer "):
            extensions[name] = item["calls"]
    return {
        "stack": stack["name"],
        "commit": stack["commit"],
        "verdict": document["verdict"],
        "reasons": document["reasons"],
        "options": stack["command"]["argv"][2:],
        "scene": run["scene"],
        "seconds": run["seconds"],
        "iterations": result.get("iterations"),
        "iterations_per_second": result.get("iterations_per_second"),
        "resolution": result.get("resolution"),
        "loss": [(result.get("train_loss") or {}).get(name) for name in ("first", "last")],
        "gaussians": [(result.get("gaussians") or {}).get(name) for name in ("initial", "final")],
        "psnr": [(result.get(name) or {}).get("psnr") for name in ("initial_heldout", "heldout")],
        "criteria": {item["code"]: item["outcome"] for item in run["criteria"]},
        "drop_ins": stack["dropins"],
        "mends": [[item["code"], item["edited"]] for item in stack["mends"]],
        "weights": len(stack["weights"]),
        "threads": document["environment"].get("threads"),
        "extensions": extensions,
        "versions": {**result.get("versions", {}), "splatfix": document["splatfix_version"]},
        "issued": document["issued"],
    }


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["stack"], row["commit"], row["scene"]


def main(reports: list[str]) -> None:
    """Replace the rows of the stacks, commits and scenes that the reports are of."""
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() else []
    made = [row_of(json.loads((Path(name) / "certificate.json").read_text("utf-8"))) for name in reports]
    keys = set(map(_key, made))
    rows = [row for row in rows if _key(row) not in keys] + made
    about = "made by python -m tools.rehearsals from the certificates of splatfix rehearse, on unmodified public checkouts"
    document = {"about": about, "rows": sorted(rows, key=_key)}
    RECORD.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
