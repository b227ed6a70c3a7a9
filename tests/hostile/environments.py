"""Commands run on hostile environments: what lies in the site-packages of somebody else's, and what damages it."""

import random
import shutil
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.binaries.forge_elf import ElfForge
from tests.binaries.forge_fatbin import TYPICAL
from tests.files import put
from tests.tables import data

from .bad_files import bad_files, replace
from .checkouts import PYTHON, nest
from .commands import command, enter
from .harness import Case
from .mutate import damaged_text, mutants
from .spelled import spelled_table

Spoil = Callable[[Path], None]
"""Spoils a site-packages folder."""

_EXTENSION = ElfForge(
    needed=("libc10.so",), imports=("_ZN2at5emptyEv",), sections=((".nv_fatbin", TYPICAL),)
).build()
_LIBRARIES = {
    "torch/lib/libc10.so": ElfForge(soname="libc10.so", exports=("_ZN2at5emptyEv",)).build(),
    "torch/lib/libtorch_cuda.so": ElfForge(
        soname="libtorch_cuda.so", sections=((".nv_fatbin", TYPICAL),)
    ).build(),
    **dict.fromkeys(("diff_gaussian_rasterization/_C.so", "gsplat/csrc.so"), _EXTENSION),
}
_DATA = data(__file__)
FILES: dict[str, str | bytes] = {**_DATA["files"], **_LIBRARIES}
CONTENTS = {file: spelled_table(table) for file, table in _DATA["contents"].items()}
for _python in ("torch/version.py", "diff_gaussian_rasterization/__init__.py"):
    CONTENTS[_python] = {**PYTHON, **CONTENTS[_python]}


WAYS = (
    ("diagnose", "--json"),
    ("diagnose", "-v"),
    ("install", "fused_ssim", "--backend", "pure", "--dry-run", "--json"),
    ("revert", "--list", "--json"),
    ("certify", "--level", "2", "--json"),
)


def cases(count: int, seed: int) -> Iterator[Case]:
    """A sample of the hostile contents and folders, a third of all; then environments with one to four damaged files."""
    holder = tempfile.TemporaryDirectory(prefix="hostile-environment-")
    template = Path(holder.name) / "env"
    venv.create(template, symlinks=True, with_pip=False)
    (site,) = template.glob("lib/python*/site-packages")
    put(site, FILES)
    for name in FILES:
        (site / name).chmod(0o755)
    evils = [(f"folders-{name}", spoil) for name, spoil in FOLDER_EVILS.items()]
    for file, texts in CONTENTS.items():
        for kind, text in texts.items():
            evils.append((f"{file}-{kind}".replace("/", "_"), lambda site, f=file, t=text: put(site, {f: t})))  # type: ignore[misc]
    random.Random(seed).shuffle(evils)
    evils = evils[: max(1, count // 3)]
    for number in range(seed, seed + count - len(evils)):
        evils.append((f"seed-{number}", lambda site, number=number: _damage(site, random.Random(number))))  # type: ignore[misc]
    for number, (name, spoil) in enumerate(evils):

        def run(folder: Path, spoil: Spoil = spoil, number: int = number) -> None:
            shutil.copytree(template, folder / "env", symlinks=True)
            (folder / "stack").mkdir()
            spoil(folder / "env" / site.relative_to(template))
            enter(folder)
            python = str(folder / "env" / "bin" / "python")
            words = WAYS[number % len(WAYS)]
            command(folder, *words, "--python", python, writes=("splatfix-report",) * ("certify" in words))

        yield Case(name, run)
    holder.cleanup()


def _damage(site: Path, rng: random.Random) -> None:
    for name in rng.sample(sorted(FILES), rng.randint(1, 4)):
        path = site / name
        if rng.random() < 0.3:
            replace(path, rng.choice([bad for _, bad in bad_files()]))
        elif path.suffix == ".so":
            ((_, data),) = mutants({"": path.read_bytes()}, 1, rng.getrandbits(32))
            path.write_bytes(data)
        else:
            path.write_bytes(damaged_text(rng, path.read_bytes()))


def _loops(site: Path) -> None:
    put(site, {"simple_knn/_C.cpython-311-x86_64-linux-gnu.so": "\x7fELF"})
    for number in range(6):
        (site / f"simple_knn/l{number}").symlink_to(".")


def _crossing(site: Path) -> None:
    for one in range(6):
        put(site, {f"p{one}/m.so": "\x7fELF"})
        for other in range(6):
            (site / f"p{one}/q{other}").symlink_to(f"../p{other}")


def _many(site: Path) -> None:
    for number in range(20_000):
        (site / f"n{number}-1.0.dist-info").mkdir()


FOLDER_EVILS: dict[str, Spoil] = {
    "loops": _loops,
    "crossing": _crossing,
    "deep": lambda site: nest(site, "d", 1_500),
    "many": _many,
}
"""Folders that lead in circles, or down or sideways without end."""
