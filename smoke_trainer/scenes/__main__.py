"""`python -m smoke_trainer.scenes list|make|check [NAME ...] [--root DIR] [--json]`: the sample scenes on the command line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from smoke_trainer.errors import (
    EXIT_FAILURE,
    EXIT_OK,
    EXIT_UNKNOWN,
    CannotWrite,
    PackageMissing,
    SceneError,
    SmokeTrainerError,
)
from smoke_trainer.needs import require
from smoke_trainer.pipes import unless_hung_up

BUNDLED = Path(__file__).resolve().parent.parent / "samples"
Row = Dict[str, Any]


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command and return its exit code.

    0 fine, 1 a stored scene is not its recipe's, 2 wrong usage, 3 could not be determined (no scene there, no numpy).
    """
    parser = argparse.ArgumentParser(prog="python -m smoke_trainer.scenes", description=__doc__)
    parser.add_argument("action", choices=("list", "make", "check"))
    parser.add_argument("names", nargs="*", help="sample scenes (default: all)")
    parser.add_argument("--root", type=Path, default=BUNDLED, help="folder that holds one folder per scene")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    options = parser.parse_args(arguments)
    rows: List[Row] = []
    act, words = {"list": (describe, _listed), "make": (make, _made), "check": (check, _checked)}[
        options.action
    ]
    try:
        _require_packages()
        from smoke_trainer.scenes.make import find_recipe
        from smoke_trainer.scenes.recipes import RECIPES

        for name in [find_recipe(name).name for name in options.names or RECIPES]:
            rows.append(act(name, options.root))
            if not options.json:
                sys.stdout.write(words(rows[-1]) + "\n")
                sys.stdout.flush()
    except SmokeTrainerError as error:
        return _refused(error, options.json)
    except KeyboardInterrupt:
        sys.stderr.write(_stopped(options.action, rows))
        return EXIT_UNKNOWN
    code = EXIT_FAILURE if any(row.get("problems") for row in rows) else EXIT_OK
    if options.json:
        sys.stdout.write(
            json.dumps({"exit_code": code, "root": str(options.root), "scenes": rows}, indent=1) + "\n"
        )
    return code


def _require_packages() -> None:
    """What the scenes stand on; torch is not among it."""
    try:
        require(("numpy", "PIL"))
    except PackageMissing as error:
        raise PackageMissing(
            error.happened,
            "nothing was looked at or made: the sample scenes need numpy and Pillow",
            error.remedy,
        ) from None


def describe(name: str, root: Path) -> Row:
    """What a sample is: kind, layout, number and size of its views, number of points asked for, whether it is stored."""
    from smoke_trainer.scenes.make import find_recipe

    recipe = find_recipe(name)
    camera = recipe.image_camera
    return {
        "name": name,
        "kind": recipe.kind,
        "layout": recipe.layout,
        "views": len(recipe.poses()),
        "size": [camera.width, camera.height],
        "points": recipe.points,
        "stored": (root / name).is_dir(),
    }


def make(name: str, root: Path) -> Row:
    """Render and write one sample below `root`."""
    from smoke_trainer.scenes.make import make_scene

    started = time.perf_counter()
    try:
        folder = make_scene(name, root)
    except OSError as error:
        raise CannotWrite(
            f"cannot write {root / name}: {error.strerror or error}",
            "the scene was not made, or only a part of it",
            "choose a folder you may write to with --root, or make room on that disk",
        ) from None
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "name": name,
        "folder": str(folder),
        "bytes": size,
        "seconds": round(time.perf_counter() - started, 1),
    }


def check(name: str, root: Path) -> Row:
    """Compare one stored sample with what its recipe renders."""
    if not (root / name).is_dir():
        raise SceneError(
            f"there is no scene {root / name}",
            "nothing was compared",
            f"make it: python -m smoke_trainer.scenes make {name} --root {root}",
        )
    from smoke_trainer.scenes.make import check_scene

    return {"name": name, "problems": check_scene(name, root / name)}


def _listed(row: Row) -> str:
    width, height = row["size"]
    return f"{row['name']:10} {row['layout']:14} {row['views']:3d} views {width}x{height}  {row['kind']}"


def _made(row: Row) -> str:
    return f"{row['name']}: {row['bytes'] / 1e6:.2f} MB in {row['seconds']:.1f} s"


def _checked(row: Row) -> str:
    return f"{row['name']}: {'; '.join(row['problems']) or 'as its recipe makes it'}"


def _stopped(action: str, rows: List[Row]) -> str:
    """What a person who pressed Ctrl-C is left with."""
    done = ", ".join(row["name"] for row in rows) or "no scene"
    rest = "; the scene that was being written may be there in part" if action == "make" else ""
    return f"interrupted: {done} was done{rest}\n"


def _refused(error: SmokeTrainerError, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(
            json.dumps({"exit_code": error.exit_code, "error": error.as_json()}, indent=1) + "\n"
        )
    else:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(unless_hung_up(main))
