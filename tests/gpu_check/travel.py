"""The way to a GPU machine and back. It builds nothing: sources and wheels are folders that somebody filled.

    python -m tests.gpu_check.travel pack [--sources DIR] [--wheels DIR]   # fills gpu-check/travel, and says what to run there
    python -m tests.gpu_check.travel back FOLDER                           # what came back becomes a record of tests/records

docs/gpu-check.md says what the folders hold.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from .needs import PEERS, VARIANTS
from .record import KIND
from .visit import ROOT

MOST = 64 << 20
"""Bytes of what travels, the tree included."""
CARRIED = "python3 -m pip install -q --no-index --no-deps --target /tmp/site gpu-check/travel/needs/*.whl && "
CARRIED += "export PYTHONPATH=/tmp/site; "
VISIT = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 python3 -m pytest -c tests/gpu_check/pytest.ini tests/gpu_check "
VISIT += '--sources gpu-check/travel --out "${OUT:?}"'


def pack(sources: Path | None, wheels: Path | None, trained: Path, commit: str) -> str:
    """Fill the folder that travels; returns the command for the machine.

    Raises:
        ValueError: all of it is too large; the largest parts are named.
    """
    for given in filter(None, (sources, wheels)):
        if not given.is_dir():
            raise ValueError(f"{given} is no folder")
    travel = ROOT / "gpu-check" / "travel"
    shutil.rmtree(travel, ignore_errors=True)
    (travel / "needs").mkdir(parents=True)
    for name in (*PEERS, *VARIANTS):
        if sources and (sources / name).is_dir():
            shutil.copytree(sources / name, travel / name, ignore=left_out)
    for wheel in sorted(wheels.glob("*.whl")) if wheels else ():
        shutil.copy(wheel, travel if wheel.name.split("-")[0] in PEERS.values() else travel / "needs")
    for name, package in PEERS.items():
        found = [path.name for path in (*travel.glob(f"{package}-*.whl"), travel / name) if path.exists()]
        print(f"{name}: {', '.join(found) or 'MISSING'}", file=sys.stderr)
    (travel / "commit").write_text(commit, encoding="utf-8")
    shutil.copy(next(trained.rglob("*.ply")), travel / "courtyard.ply")
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")[:-1]
    paths = [*map(ROOT.joinpath, listed), *travel.rglob("*")]
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in paths if path.is_file()}
    total = sum(sizes.values())
    print(f"{total / 2**20:.1f} MiB travel", file=sys.stderr)
    if total > MOST:
        largest = sorted(sizes, key=sizes.__getitem__)[:-6:-1]
        raise ValueError(f"more than {MOST >> 20} MiB would travel; the largest: {', '.join(largest)}")
    return CARRIED * any((travel / "needs").iterdir()) + VISIT


def git(*words: str) -> str:
    """Return what git says of this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def left_out(folder: str, names: list[str]) -> list[str]:
    """Name what of a source does not travel: its history, and of GLM all but the headers."""
    if Path(folder, "glm", "glm.hpp").is_file():
        return [name for name in names if name != "glm"]
    return [name for name in names if name in (".git", "build", "__pycache__")]


def back(folder: Path, records: Path = ROOT / "tests" / "records") -> Path:
    """Put a visit's record, and the golden arrays where there are any, among the records; returns the record's path.

    Raises:
        ValueError: it is a rehearsal's, or of another kind.
    """
    record = json.loads((folder / "record.json").read_text("utf-8"))
    if record["rehearsal"] or record["kind"] != KIND:
        raise ValueError(f"{folder} has a rehearsal's record" if record["rehearsal"] else f"no {KIND}")
    card = re.sub(r"[^a-z0-9]+", "_", record["machine"]["gpu"].lower().removeprefix("nvidia ")).strip("_")
    path = records / f"gpu_check_{card}_{re.sub(r'[^0-9]', '', record['date'])[:12]}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if (folder / "arrays.npz").is_file():
        with np.load(folder / "arrays.npz") as arrays:
            golden = {name.removeprefix("golden/"): arrays[name] for name in arrays}
        np.savez_compressed(records / "rasterizer_cuda.npz", **golden)
    return path


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.gpu_check.travel")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("back").add_argument("folder", type=Path)
    packing = commands.add_parser("pack")
    packing.add_argument("--sources", type=Path, help="folders by the names of docs/gpu-check.md")
    packing.add_argument("--wheels", type=Path, help="the peers' wheels, and of what that Python lacks")
    options = parser.parse_args()
    try:
        if options.command == "back":
            print(back(options.folder))
            return
        trained, commit = ROOT / "build" / "courtyard", git("describe", "--always", "--dirty")
        if not list(trained.rglob("*.ply")):
            argv = f"-m smoke_trainer courtyard --iterations 1200 --out {trained}".split()
            subprocess.run([sys.executable, *argv], cwd=ROOT, check=True)
        command = pack(options.sources, options.wheels, trained, commit)
        print(f"carry gpu-check/travel, and run:\n{command}")
    except (ValueError, OSError, KeyError, subprocess.SubprocessError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
