"""`python -m tools.scenes [NAME ...]`: regenerate the sample scenes, or with `--check` compare them with their recipes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.scenes.make import SAMPLES, check_scene, make_scene, write_index
from tools.scenes.recipes import RECIPES


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 1 if a stored scene differs from its recipe."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="sample scenes (default: all)")
    parser.add_argument("--root", type=Path, default=SAMPLES, help="folder that holds one folder per scene")
    parser.add_argument(
        "--check", action="store_true", help="render a few views and compare them with the stored images"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(RECIPES):
        parser.error(f"unknown scene {', '.join(sorted(unknown))}; choose from {', '.join(RECIPES)}")
    problems: list[str] = []
    for name in options.names or RECIPES:
        if options.check:
            found = check_scene(RECIPES[name], options.root / name)
            problems += found
            sys.stdout.write(f"{name}: {'; '.join(found) or 'OK'}\n")
        else:
            sys.stdout.write(f"{make_scene(RECIPES[name], options.root)}\n")
            write_index(options.root)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
