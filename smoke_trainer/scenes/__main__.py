"""`python -m smoke_trainer.scenes make|check|list [NAME ...] [--root DIR]`: the sample scenes on the command line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import List, Optional

from smoke_trainer.errors import EXIT_FAILURE, EXIT_OK, SmokeTrainerError
from smoke_trainer.scenes.make import check_scene, find_recipe, make_scene
from smoke_trainer.scenes.recipes import RECIPES

BUNDLED = Path(__file__).resolve().parent.parent / "samples"


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m smoke_trainer.scenes", description=__doc__)
    parser.add_argument("action", choices=("list", "make", "check"))
    parser.add_argument("names", nargs="*", help="sample scenes (default: all)")
    parser.add_argument("--root", type=Path, default=BUNDLED, help="folder that holds one folder per scene")
    options = parser.parse_args(arguments)
    try:
        return _run(options.action, options.names or list(RECIPES), options.root)
    except SmokeTrainerError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return error.exit_code


def _run(action: str, names: List[str], root: Path) -> int:
    code = EXIT_OK
    for name in names:
        recipe, started = find_recipe(name), time.perf_counter()
        if action == "list":
            sys.stdout.write(f"{name:10} {recipe.layout:14} {recipe.kind}\n")
        elif action == "make":
            folder = make_scene(name, root)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            sys.stdout.write(f"{name}: {size / 1e6:.2f} MB in {time.perf_counter() - started:.1f} s\n")
        else:
            problems = check_scene(name, root / name)
            code = EXIT_FAILURE if problems else code
            sys.stdout.write(f"{name}: {'; '.join(problems) or 'as its recipe makes it'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
