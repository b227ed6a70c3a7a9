"""`python -m smoke_trainer.data ROOT [--json]`: which scenes a data folder holds, and which public ones are missing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from smoke_trainer.data.find import Found, survey
from smoke_trainer.errors import EXIT_OK, SmokeTrainerError
from smoke_trainer.pipes import unless_hung_up


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code: 0 found some, 2 no such folder, 3 no scene there."""
    parser = argparse.ArgumentParser(prog="python -m smoke_trainer.data", description=__doc__)
    parser.add_argument(
        "root", type=Path, help="a scene's folder, or the folder that holds the scenes' folders"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    options = parser.parse_args(arguments)
    try:
        found = survey(options.root)
    except SmokeTrainerError as error:
        if options.json:
            sys.stdout.write(json.dumps({"exit_code": error.exit_code, "error": error.as_json()}) + "\n")
        else:
            sys.stderr.write(f"error[{error.code}]: {error}\n")
        return error.exit_code
    skipped = [{"name": name, "reason": reason} for name, reason in found.skipped]
    rows = [describe(scene) for scene in found.scenes]
    if options.json:
        sys.stdout.write(json.dumps({"exit_code": EXIT_OK, "scenes": rows, "skipped": skipped}) + "\n")
        return EXIT_OK
    for row in rows:
        sys.stdout.write(f"{row['name']:12} {row['layout']:10} {row['dataset'] or '-':22} {row['folder']}\n")
    for row in skipped:
        sys.stdout.write(f"{row['name']:12} {row['reason']}\n")
    return EXIT_OK


def describe(scene: Found) -> Dict[str, Any]:
    """One scene for JSON; what is known of public scenes only is None for others."""
    public = scene.public
    return {
        "name": scene.name,
        "folder": str(scene.folder),
        "layout": scene.layout,
        "dataset": public.dataset if public else None,
        "divisor": public.divisor if public else None,
        "budget": public.multiplier if public else None,
        "count_without_limit": public.final_count if public else None,
    }


if __name__ == "__main__":
    sys.exit(unless_hung_up(main))
