"""Commands run on hostile environments: what lies in the site-packages of somebody else's, and what damages it."""

import json
import random
import shutil
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.binaries.forge_elf import ElfForge
from tests.binaries.forge_fatbin import TYPICAL
from tests.files import put

from .bad_files import bad_files, replace
from .checkouts import PYTHON, nest
from .commands import command, enter
from .harness import Case
from .mutate import damaged_text, mutants

Spoil = Callable[[Path], None]
"""Spoils a site-packages folder."""

_EXTENSION = ElfForge(
    needed=("libc10.so",), imports=("_ZN2at5emptyEv",), sections=((".nv_fatbin", TYPICAL),)
).build()
_INFO = "Metadata-Version: 2.1\nName: {}\nVersion: {}\nRequires-Dist: torch>=2\n"
_DIFF = "diff_gaussian_rasterization-0.0.0.dist-info"
_RASTERIZER = """\
from typing import NamedTuple
from . import _C
class GaussianRasterizationSettings(NamedTuple):
    image_height: int
class GaussianRasterizer:
    def forward(self, means3D, means2D, opacities): return _C.rasterize_gaussians(means3D)
"""
FILES: dict[str, str | bytes] = {
    "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\ngit_version = 'x'\nhip = None\n",
    "torch/__init__.py": "from .version import __version__\n",
    "torch/lib/libc10.so": ElfForge(soname="libc10.so", exports=("_ZN2at5emptyEv",)).build(),
    "torch/lib/libtorch_cuda.so": ElfForge(
        soname="libtorch_cuda.so", sections=((".nv_fatbin", TYPICAL),)
    ).build(),
    "torch/utils/cpp_extension.py": "supported_arches = ['8.0', '9.0']\nimport setuptools\n",
    "torch-2.11.0.dist-info/METADATA": _INFO.format("torch", "2.11.0"),
    "torch-2.11.0.dist-info/RECORD": "torch/version.py,sha256=x,9\ntorch/__init__.py,,\n",
    "diff_gaussian_rasterization/__init__.py": _RASTERIZER,
    "diff_gaussian_rasterization/_C.so": _EXTENSION,
    f"{_DIFF}/METADATA": _INFO.format("diff_gaussian_rasterization", "0.0.0"),
    f"{_DIFF}/RECORD": "diff_gaussian_rasterization/__init__.py,,\n",
    f"{_DIFF}/direct_url.json": '{"url": "https://example.org/x.git"}',
    f"{_DIFF}/splatfix.json": '{"kind": "built", "targets": []}',
    "gsplat/__init__.py": "from . import csrc\n",
    "gsplat/csrc.so": _EXTENSION,
    "gsplat-1.5.3.dist-info/METADATA": _INFO.format("gsplat", "1.5.3"),
    "gsplat-1.5.3.dist-info/RECORD": "gsplat/__init__.py,,\n",
    "simple-knn.egg-link": "../../../../stack\n.",
    "easy-install.pth": "../../../../stack\n",
    "__editable__.fused_ssim-1.0.pth": "import os\n../../../../stack\n",
    "fused_ssim.egg-info/PKG-INFO": _INFO.format("fused-ssim", "1.0"),
    "nvidia/cu13/bin/nvcc": "#!/bin/sh\necho release 13.0, V13.0.88\n",
    "nvidia/cu13/include/cuda.h": "#define CUDA_VERSION 13000\n",
    "numpy/__init__.py": "__version__ = '2.0'\n",
    "numpy-2.0.dist-info/METADATA": "Name: numpy\nVersion: 2.0\n",
}
CONTENTS = {
    f"{_DIFF}/direct_url.json": {
        "deep": "[" * 100_000,
        "list": "[]",
        "odd-address": '{"url": "https://[x/"}',
        "odd-types": '{"url": 3, "dir_info": 3}',
        "long-int": '{"url": ' + "9" * 100_000 + "}",
        "nul": json.dumps({"url": "file:///a\0b", "dir_info": {"editable": True}}),
        "device": json.dumps({"url": "file:///dev", "dir_info": {"editable": True}}),
        "everything": json.dumps({"url": "file:///", "dir_info": {"editable": True}}),
    },
    f"{_DIFF}/splatfix.json": {
        "deep": "[" * 100_000,
        "types": '{"kind": 3, "targets": 3, "edits": {}, "built_with": []}',
        "text": '{"targets": "abc"}',
        "nan": '{"targets": [NaN]}',
    },
    "simple-knn.egg-link": {"nul": "a\0b", "device": "/dev\n", "long": "/" + "a" * 100_000, "everything": "/\n", "address": "https://[x/"},
    "torch/version.py": {
        **PYTHON,
        "numbers": "__version__ = 3\ncuda = 4\n",
        "one-number": "__version__ = '2'\ncuda = '12'\n",
        "superscript": "__version__ = '\u00b2'\n",
        "long": f"__version__ = '{'9' * 5000}'\n",
        "bytes": "__version__ = b'2.4.0'\n",
    },
    "torch/utils/cpp_extension.py": {
        "brackets": "supported_arches = [" * 40_000,
        "blank": "\n" * 900_000,
        "odd": "supported_arches = ['1.2.3', '...', '99.9', '\u00b2.0']",
        "spaces": "from" + " " * 900_000,
    },
    "diff_gaussian_rasterization/__init__.py": {**PYTHON, "blank": "\n" * 900_000, "dots": "from " + "." * 900_000},
    "torch-2.11.0.dist-info/METADATA": {
        "blank": "Requires-Dist:" + "\n" * 900_000,
        "many": "Requires-Dist: torch==1\n" * 40_000,
    },
    f"{_DIFF}/RECORD": {
        "quotes": '"' * 900_000,
        "many": "".join(f"m{n}/a.so,,\n" for n in range(60_000)),
        "commas": "," * 900_000,
        "long": "a" * 900_000 + ".so,,",
    },
}  # fmt: skip


def folder_evils() -> dict[str, Spoil]:
    """Folders that lead in circles, or down or sideways without end."""
    return {
        "loops": _loops,
        "crossing": _crossing,
        "deep": lambda site: nest(site, "d", 1_500),
        "many": _many,
    }


WAYS = (
    ("diagnose", "--json"),
    ("diagnose", "-v"),
    ("install", "fused_ssim", "--backend", "pure", "--dry-run", "--json"),
    ("revert", "--list", "--json"),
    ("verify", "--json"),
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
    evils = [(f"folders-{name}", spoil) for name, spoil in folder_evils().items()]
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
            command(folder, *WAYS[number % len(WAYS)], "--python", str(folder / "env" / "bin" / "python"))

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
