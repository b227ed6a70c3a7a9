"""Adds certificates of ``splatfix rehearse`` to the record of rehearsed stacks: ``python -m tools.rehearsals REPORT...``.

A row for each stack, commit and scene, with its options, seconds, losses, quality and verdict, as the certificate has them.
``python -m tools.rehearsals --forks FOLDER`` adds rows of public forks by the documents of ``splatfix rehearse --dry-run
--json`` in a folder, in place of those of the same scripts at the same commits. Each is called ``OWNER+NAME@COMMIT.json``, or
``OWNER+NAME@COMMIT~SCRIPT.json``.
"""

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


OUTCOMES = {0: "served", 1: "refused", 2: "not-tried", 3: "undetermined"}


def fork_of(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one dry run.

    Args:
        name: of its file, without the ending.
    """
    repository, _, commit = name.partition("@")
    refused = [f"{item['module']}: {item['reason']}" for item in document.get("refused", ())]
    if document["error"]:
        refused = [
            f"{document['error']['code']}: {document['error']['what']}".replace(
                _folder_in(document), repository
            )
        ]
    return {
        "repository": repository.replace("+", "/"),
        "commit": commit.partition("~")[0],
        "script": document.get("script", ""),
        "outcome": OUTCOMES[document["exit_code"]],
        "drop_ins": [item["dropin"] for item in document.get("dropins", ())],
        "refused": refused,
    }


def _folder_in(document: Mapping[str, Any]) -> str:
    """The folder that an error speaks of: a path of the machine that it was met on."""
    parts = str(document["error"]["what"]).split()
    return next((word for word in parts if word.startswith("/")), "\0")


def write_forks(folder: Path) -> None:
    """Add rows of forks, or replace them."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = list(record["forks"])
    rows += [
        fork_of(file.stem, json.loads(file.read_text("utf-8"))) for file in sorted(folder.glob("*.json"))
    ]
    latest = {(row["repository"], row["commit"], row["script"]): row for row in rows}
    record["forks"] = [latest[key] for key in sorted(latest)]
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["stack"], row["commit"], row["scene"]


def main(reports: list[str]) -> None:
    """Replace the rows of the stacks, commits and scenes that the reports are of."""
    if reports[:1] == ["--forks"]:
        write_forks(Path(reports[1]))
        return
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    rows = record.get("rows", [])
    made = [row_of(json.loads((Path(name) / "certificate.json").read_text("utf-8"))) for name in reports]
    keys = set(map(_key, made))
    rows = [row for row in rows if _key(row) not in keys] + made
    about = "made by python -m tools.rehearsals from the certificates (rows) and dry runs (forks) of splatfix rehearse"
    document = {**record, "about": about, "rows": sorted(rows, key=_key)}
    RECORD.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
