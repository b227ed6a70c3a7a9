"""Commands run on hostile checkouts: those of ``checkouts``, damaged ones, and several evils in one."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from .bad_files import bad_files, replace
from .checkouts import FILES, bad_file_checkouts, content_checkouts, folder_checkouts, write_checkout
from .commands import command, enter
from .harness import Case, seeded
from .mutate import damaged_text

# What a stranger leaves where Python would look first; each says that it ran.
_SPRUNG = "import os\nopen(os.environ['HOSTILE_TRAP'], 'a').write(__file__)\n"
TRAPS = (
    *("json", "torch", "pip", "setuptools", "site", "sitecustomize", "usercustomize", "re", "typing"),
    *("numpy", "rich"),
)


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every hostile content and folder, a sample of bad files, and as many damaged checkouts again; ``count`` in all."""
    rng = random.Random(seed)
    # an environment without packages: what is looked at is the checkout
    environment = tempfile.TemporaryDirectory(prefix="hostile-venv-")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment.name], check=True)
    python = str(Path(environment.name) / "bin" / "python")
    bad = list(bad_file_checkouts())
    rng.shuffle(bad)
    named = [*content_checkouts(), *folder_checkouts(), *bad]
    for number, (name, write) in enumerate(islice(named, max(1, count * 3 // 4))):

        def run(folder: Path, write=write, number=number) -> None:  # type: ignore[no-untyped-def]
            (folder / "stack").mkdir()
            write(folder / "stack")
            look(folder, python, number)

        yield Case(name, run)

    def damaged(folder: Path, number: int) -> None:
        (folder / "stack").mkdir()
        spoil(folder / "stack", random.Random(number))
        look(folder, python, number)

    yield from seeded(damaged, count // 4, seed)


def spoil(stack: Path, rng: random.Random) -> None:
    """Two to six evils in a harmless checkout: damaged texts, bad files, traps."""
    write_checkout(stack)
    kinds = [put for _, put in bad_files()]
    for _ in range(rng.randint(2, 6)):
        name = rng.choice(sorted(FILES))
        path = stack / name
        if rng.random() < 0.7:
            replace(path, lambda path, name=name: path.write_bytes(damaged_text(rng, FILES[name].encode())))  # type: ignore[misc]
        elif path.is_file():
            replace(path, rng.choice(kinds))
    for name in rng.sample(TRAPS, 3):
        (stack / f"{name}.py").write_text(_SPRUNG)


def look(folder: Path, python: str, number: int) -> None:
    """One of the commands that read a checkout, run beside or inside of it."""
    enter(folder)
    inside = number % 2 == 1 and os.access(folder / "stack", os.X_OK)
    stack, up = (".", "../") if inside else ("stack", "")
    ways: tuple[tuple[str, ...], ...] = (
        ("diagnose", "--repo", stack, "--json"),
        ("diagnose", "--repo", stack, "-v", "--save", f"{up}facts.json"),
        ("install", stack, "--dry-run", "--json"),
        ("install", stack, "--dry-run", "--why"),
        ("install", stack, "--backend", "pure", "--dry-run", "--json"),
        ("diagnose", "--repo", stack, "--record", f"{up}recorded"),
    )
    if inside:
        os.chdir(folder / "stack")
    command(folder, *ways[number // 2 % len(ways)], "--python", python, writes=("facts.json", "recorded"))
