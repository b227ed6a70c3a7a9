"""Commands run on environments whose installed files are damaged: metadata, RECORDs, path files, torch, extensions."""

from __future__ import annotations

import random
import shutil
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tests.binaries.forge_elf import ElfForge
from tests.binaries.forge_fatbin import TYPICAL

from .bad_files import bad_files, replace
from .commands import command, enter
from .harness import Case
from .mutate import damaged_text, mutants

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
WAYS = (
    ("diagnose", "--json"),
    ("diagnose", "-v"),
    ("install", "fused_ssim", "--backend", "pure", "--dry-run", "--json"),
    ("revert", "--list", "--json"),
    ("verify", "--json"),
)


def cases(count: int, seed: int) -> Iterator[Case]:
    """Environments, one to four of whose files are damaged."""
    holder = tempfile.TemporaryDirectory(prefix="hostile-environment-")
    template = Path(holder.name) / "env"
    venv.create(template, symlinks=True, with_pip=False)
    (site,) = template.glob("lib/python*/site-packages")
    for name, content in FILES.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(0o755)
    for number in range(seed, seed + count):

        def run(folder: Path, number: int = number) -> None:
            rng = random.Random(number)
            shutil.copytree(template, folder / "env", symlinks=True)
            (folder / "stack").mkdir()
            for name in rng.sample(sorted(FILES), rng.randint(1, 4)):
                _damage(folder / "env" / site.relative_to(template) / name, rng)
            enter(folder)
            command(folder, *WAYS[number % len(WAYS)], "--python", str(folder / "env" / "bin" / "python"))

        yield Case(f"seed-{number}", run)
    holder.cleanup()


def _damage(path: Path, rng: random.Random) -> None:
    whole = path.read_bytes()
    if rng.random() < 0.3:
        replace(path, rng.choice([put for _, put in bad_files()]))
    elif path.suffix == ".so":
        ((_, data),) = mutants({"": whole}, 1, rng.getrandbits(32))
        path.write_bytes(data)
    else:
        path.write_bytes(damaged_text(rng, whole))
