"""List the scenes in a data folder, and the public ones that are missing: python -m smoke_trainer.data ROOT"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import List, Optional

from smoke_trainer.data.find import survey
from smoke_trainer.errors import EXIT_OK, SmokeTrainerError
from smoke_trainer.process import end_with_the_pipe


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code: 0 scenes found, 2 no such folder, 3 no scene in it."""
    parser = argparse.ArgumentParser(
        prog="python -m smoke_trainer.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("root", type=Path, help="folder of a scene, or of scenes")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(arguments)
    try:
        scenes, skipped = survey(options.root)
    except SmokeTrainerError as error:
        if options.json:
            sys.stdout.write(json.dumps({"exit_code": error.exit_code, "error": error.as_json()}) + "\n")
        else:
            sys.stderr.write(f"{error}\n")
        return error.exit_code
    rows = []
    for scene in scenes:
        row = {"name": scene.name, "folder": str(scene.folder), "layout": scene.layout}
        row.update(dataset=None, divisor=None, budget=None)  # of public scenes
        if scene.public is not None:
            row.update(asdict(scene.public))
        rows.append(row)
    others = [{"name": name, "reason": reason} for name, reason in skipped]
    if options.json:
        sys.stdout.write(json.dumps({"exit_code": EXIT_OK, "scenes": rows, "skipped": others}) + "\n")
        return EXIT_OK
    for row in rows:
        sys.stdout.write(f"{row['name']:12} {row['layout']:10} {row['dataset'] or '-':22} {row['folder']}\n")
    for name, reason in skipped:
        sys.stdout.write(f"{name:12} {reason}\n")
    return EXIT_OK


if __name__ == "__main__":
    end_with_the_pipe()
    sys.exit(main())
