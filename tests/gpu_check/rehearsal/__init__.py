"""Stand-ins by which every step runs where no GPU is: a driver, nvidia-smi, torch on CUDA, sources with compiled extensions.

Only what a GPU would do is stood in for; splatfix, pip and the trainer are the real ones. Driver and extensions are those
of ``tests/driver`` and ``tests/standins``, real shared objects.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import driver
import standins

HERE = Path(__file__).parent
CARD = driver.Card("NVIDIA H200", "9.0", 143771, "0000:01:00.0", "2335", 0x200)
SCENARIO = driver.Scenario((CARD,), driver="580.159.03", cuda=13000)

# Folder of GPU_SOURCES -> the variant that stands in for it.
VARIANTS = {
    "inria-v1": "inria-v1",
    "inria-2024": "inria-2024-dr_aa",
    "mip-splatting": "mip",
    "taming-3dgs": "taming",
    "simple-knn": "simple-knn",
    "fused-ssim": "fused-ssim",
}

# The library is compiled already, once for all; what is left of a build is real.
_SETUP = """
import shutil
import sys
from pathlib import Path
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class Copy(build_ext):
    def build_extension(self, extension):
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2("stand_in.so", target)
        described = extension.name.rpartition(".")[2] + ".standin"
        shutil.copy2("stand_in.txt", target.with_name(described))


setup(name={module!r}, version="1.0", packages=[{module!r}], cmdclass={{"build_ext": Copy}},
      ext_modules=[Extension({library!r}, [])])
"""

_GSPLAT = '''
"""Stand-in for gsplat: the one function that our trainer calls, by splatfix's own rasterizer."""
import torch
from ._rasterizer import GaussianRasterizationSettings, rasterize

__version__ = "1.5.3"


def rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width, height, *, near_plane, eps2d,
                  sh_degree, packed, backgrounds, rasterize_mode):
    view, (fx, fy) = viewmats[0], (float(Ks[0, 0, 0]), float(Ks[0, 1, 1]))
    clip = torch.zeros(4, 4, dtype=view.dtype)
    clip[0, 0], clip[1, 1] = 2 * fx / width, 2 * fy / height
    clip[0, 2], clip[1, 2] = 2 * Ks[0, 0, 2] / width - 1, 2 * Ks[0, 1, 2] / height - 1
    clip[2, 2], clip[2, 3], clip[3, 2] = 1.0, -0.01, 1.0
    settings = GaussianRasterizationSettings(
        image_height=height, image_width=width, tanfovx=width / (2 * fx), tanfovy=height / (2 * fy),
        bg=backgrounds[0], scale_modifier=1.0, viewmatrix=view.T.contiguous(), projmatrix=(clip @ view).T.contiguous(),
        sh_degree=sh_degree, campos=-view[:3, :3].T @ view[:3, 3], prefiltered=False, debug=False,
        antialiasing=rasterize_mode == "antialiased")
    points = torch.zeros_like(means, requires_grad=means.requires_grad)
    drawn = rasterize(settings, means, points, opacities[:, None], shs=colors, scales=scales, rotations=quats)
    if points.requires_grad:  # gsplat's gradients are by pixels
        points.register_hook(lambda grad: grad * grad.new_tensor([2 / width, 2 / height, 1.0]))
    return drawn.color.permute(1, 2, 0)[None], None, {"means2d": points, "radii": drawn.radii[None]}
'''


def prepare(work: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Put stand-ins in place of driver, GPU and sources; what the record says of the machine, and the sources."""
    os.environ["OMP_NUM_THREADS"] = "1"  # the tensors are tiny, and builds share the cores
    install_driver(work / "driver")
    return {"gpu": f"a stand-in for {CARD.name}"}, write_sources(work / "sources")


def write_sources(folder: Path) -> dict[str, str]:
    """Stand-ins for every source, as ``GPU_SOURCES`` would hold them; folders by name."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, variant in VARIANTS.items():
        write_source(folder / name, variant)
    package = folder / "gsplat" / "gsplat"
    (package / "cuda").mkdir(parents=True)
    (package / "__init__.py").write_text(_GSPLAT, encoding="utf-8")
    (package / "cuda" / "__init__.py").touch()
    (package / "cuda" / "_backend.py").write_text("_C = object()\n", encoding="utf-8")
    for name in ("projection.py", "binning.py", "scene.py", "blending.py", "rasterizer.py"):
        text = (HERE.parents[2] / "splatfix" / "kernels" / name).read_text("utf-8")
        (package / f"_{name}").write_text(text.replace("from splatfix.kernels.", "from ._"), encoding="utf-8")
    setup = 'from setuptools import setup\nsetup(name="gsplat", version="1.5.3", packages=["gsplat", "gsplat.cuda"])\n'
    (folder / "gsplat" / "setup.py").write_text(setup, encoding="utf-8")
    return {name: str(folder / name) for name in (*VARIANTS, "gsplat")}


def write_source(folder: Path, variant: str, sabotage: str = "") -> Path:
    """A source whose build copies the compiled stand-in."""
    standins.put(folder, variant, sabotage)
    (library,) = folder.rglob("*.so")
    described = next(folder.rglob("*.standin"))
    name = ".".join([*library.relative_to(folder).parts[:-1], library.name.partition(".")[0]])
    library.rename(folder / "stand_in.so")
    described.rename(folder / "stand_in.txt")
    module = standins.module_of(variant)
    (folder / "setup.py").write_text(_SETUP.format(module=module, library=name), encoding="utf-8")
    return folder


def stand_in_for_cuda(site: Path) -> str:
    """Put the stand-in for torch's CUDA into an environment; the line of a ``.pth`` that loads it."""
    shutil.copy(HERE / "cuda_on_cpu.py", site)
    return "import cuda_on_cpu"


def install_driver(folder: Path) -> None:
    """The driver and nvidia-smi of the stand-in GPU, and the variables of this process with which they are found."""
    driver.build(folder)
    (folder / "scenario").write_text(SCENARIO.text(), encoding="utf-8")
    about = {"name": CARD.name, "cc": CARD.cc, "memory": CARD.mebibytes << 20, "uuid": CARD.uuid}
    smi = folder / "nvidia-smi"
    smi.write_text(_NVIDIA_SMI.format(card=CARD, driver=SCENARIO.driver), encoding="utf-8")
    smi.chmod(0o755)
    sanitizer = folder / "compute-sanitizer"
    sanitizer.write_text(_SANITIZER, encoding="utf-8")
    sanitizer.chmod(0o755)
    for name in ("PATH", "LD_LIBRARY_PATH"):
        os.environ[name] = os.pathsep.join(filter(None, [str(folder), os.environ.get(name, "")]))
    os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"  # ninja is there
    os.environ["SPLATFIX_STANDINS"] = str(
        standins.cache_folder()
    )  # the steps' temporary folders are their own
    os.environ["SIMULATED_DRIVER"] = str(folder / "scenario")
    os.environ["SPLATFIX_REHEARSAL_GPU"] = json.dumps(about)


_SANITIZER = """#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
echo "========= ERROR SUMMARY: 0 errors" > "$2"
shift 2
exec "$@"
"""
_NVIDIA_SMI = """#!/usr/bin/env python3
import sys
known = {{"driver_version": {driver!r}, "index": "0", "pci.bus_id": "0000{card.bus}", "name": {card.name!r}}}
known |= {{"uuid": {card.uuid!r}, "memory.total": "{card.mebibytes}", "compute_cap": {card.cc!r}}}
asked = next((word.partition("=")[2] for word in sys.argv if word.startswith("--query-gpu=")), "")
if asked:
    print(", ".join(known.get(name, "[N/A]") for name in asked.split(",")))
else:
    print("NVIDIA-SMI {driver}   Driver Version: {driver}   CUDA Version: 13.0")
"""
